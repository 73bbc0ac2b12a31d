"""The `Actuator` port over an API server: evictions, events, taints and conditions of nodes.

An eviction is sent once. Where the server's answer does not show whether the pod was evicted, or there is
none, `WorldFailed` is raised and the outcome is unknown until the pod is read again.

A sentence about an object becomes one Kubernetes event, whose count increases while the sentence repeats.
Taints are replaced at the resource version that was read, conditions are merged by type: those of other
managers stay.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from equipoise.adapters.kubernetes.client import STRATEGIC_PATCH, Client
from equipoise.adapters.kubernetes.decode import time_or_none
from equipoise.adapters.kubernetes.errors import REFUSALS, ApiError, bad_answer
from equipoise.adapters.kubernetes.kinds import DAEMONSETS, NODES, PODS, list_items
from equipoise.adapters.kubernetes.objects import Document, path_of, time_text
from equipoise.adapters.kubernetes.reflector import Marked
from equipoise.adapters.kubernetes.structs import RawPod
from equipoise.core.cluster import ObjectRef, PodRef
from equipoise.ports import EvictionAnswer, EvictionResult

SENTENCE_BYTES_MAX = 1024
REASON_LENGTH_MAX = 128
REPEAT_SECONDS = 600.0
"""For so long a repeated event about an object increases a count instead of creating another event."""
REMEMBERED_MAX = 4096
_NAME_LENGTH_MAX = 253
_NO_NAMESPACE = "default"
"""The namespace of events about cluster-scoped objects."""


@dataclass(frozen=True, slots=True)
class _WrittenEvent:
    """An event whose count can still be increased."""

    path: str
    count: int
    at_monotonic: float


class Events:
    """Writes events. It never raises: the log, the metrics and the status have the same content."""

    def __init__(
        self,
        client: Client,
        *,
        component: str = "equipoise",
        instance: str = "",
        token: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self.failures = 0
        """Events that could not be written."""
        self.last_error: Exception | None = None
        self._client = client
        self._component = component
        self._instance = instance or component
        self._token = token
        self._lock = threading.Lock()
        self._written: OrderedDict[tuple[ObjectRef, str, bool], _WrittenEvent] = OrderedDict()

    def record(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        """Create an event about an object, or increase the count of an equal one of the last ten minutes."""
        try:
            self._record(about, reason[:REASON_LENGTH_MAX], bounded(sentence), is_warning)
        except Exception as error:  # noqa: BLE001 - an event must not end a cycle
            with self._lock:
                self.failures += 1
                self.last_error = error

    def _record(self, about: ObjectRef, reason: str, sentence: str, is_warning: bool) -> None:  # noqa: FBT001
        key = (about, reason, is_warning)
        now = self._client.world.monotonic()
        with self._lock:
            before = self._written.get(key)
        written = None
        if before is not None and now - before.at_monotonic < REPEAT_SECONDS:
            written = self._increase_count(before, sentence, now)
        written = written or self._create(about, reason, sentence, now, is_warning=is_warning)
        with self._lock:
            self._written[key] = written
            self._written.move_to_end(key)
            while len(self._written) > REMEMBERED_MAX:
                self._written.popitem(last=False)

    def _increase_count(self, before: _WrittenEvent, sentence: str, now: float) -> _WrittenEvent | None:
        """Increase the count of an event; return None when the server has deleted it."""
        count = before.count + 1
        change = {"count": count, "lastTimestamp": time_text(self._client.world.clock()), "message": sentence}
        try:
            self._client.patch(before.path, change, retry=False)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return _WrittenEvent(before.path, count, now)

    def _create(
        self, about: ObjectRef, reason: str, sentence: str, now: float, *, is_warning: bool
    ) -> _WrittenEvent:
        namespace = about.namespace or _NO_NAMESPACE
        token = self._token()
        name = f"{about.name[: _NAME_LENGTH_MAX - len(token) - 1].rstrip('.-')}.{token}"
        at = time_text(self._client.world.clock())
        event: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": "Warning" if is_warning else "Normal",
            "reason": reason,
            "message": sentence,
            "count": 1,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
        self._client.post(path_of("", "v1", "events", namespace), event, retry=False)
        return _WrittenEvent(path_of("", "v1", "events", namespace, name), 1, now)


def bounded(sentence: str, bytes_max: int = SENTENCE_BYTES_MAX) -> str:
    """Return a sentence cut to the size limit of an event, with an ellipsis and between characters."""
    encoded = sentence.encode(errors="replace")
    if len(encoded) <= bytes_max:
        return encoded.decode()
    mark = "…"
    return encoded[: bytes_max - len(mark.encode())].decode(errors="ignore") + mark


_OTHER_UID = re.compile(r"\bUID in (the )?precondition\b", re.IGNORECASE)
"""The server's message when another pod has the name by now."""
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"


class KubernetesActuator:
    """Evicts pods and records events. Threads may share it."""

    def __init__(self, client: Client, *, component: str = "equipoise", instance: str = "") -> None:
        self._client = client
        self.events = Events(client, component=component, instance=instance)
        self.nodes = NodeMarks(client)

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        if not pod.uid:
            return EvictionAnswer(EvictionResult.REFUSED, f"{pod}: expected a UID for the eviction, got none")
        path = PODS.path(pod.namespace, pod.name, "eviction")
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if is_dry_run:
            options["dryRun"] = ["All"]
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        try:
            # Sent once: a budget's 429 means wait, and after a lost answer the outcome is unknown.
            self._client.post(path, eviction, {"dryRun": "All"} if is_dry_run else None, retry=False)
        except ApiError as error:
            answer = judge_eviction(error)
            if answer is None:
                raise
            return answer
        return EvictionAnswer(EvictionResult.ACCEPTED)

    def record_event(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        self.events.record(about, reason, sentence, is_warning=is_warning)


def judge_eviction(error: ApiError) -> EvictionAnswer | None:
    """Return the answer for an error; None when it does not show whether the pod was evicted."""
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        # The causes name the budget and its numbers.
        causes = [cause.message for cause in error.causes if cause.reason == "DisruptionBudget"]
        why = "; ".join(filter(None, causes)) or error.message or "the API server asks to try again later"
        return EvictionAnswer(EvictionResult.BLOCKED, why, error.retry_after_seconds)
    is_other = error.status == HTTPStatus.CONFLICT and _OTHER_UID.search(error.message) is not None
    if error.is_not_found or is_other:
        return EvictionAnswer(EvictionResult.GONE, error.message)
    if error.status == HTTPStatus.FORBIDDEN:
        return EvictionAnswer(EvictionResult.FORBIDDEN, error.message)
    is_ambiguous = error.status == HTTPStatus.INTERNAL_SERVER_ERROR and _SEVERAL_BUDGETS in error.message
    if is_ambiguous or error.status in REFUSALS:
        return EvictionAnswer(EvictionResult.REFUSED, error.message)
    return None


_ATTEMPTS_MAX = 8
HEARTBEAT_SECONDS = 300.0
"""How often an unchanged condition is written again, as the kubelet does."""


class Taint(NamedTuple):
    """A taint. Key and effect identify it."""

    key: str
    effect: str = "NoSchedule"
    value: str = ""


class _NodeSpec(msgspec.Struct):
    taints: list[Document] | None = None


class _NodeStatus(msgspec.Struct):
    conditions: list[Document] | None = None


class _Node(Marked):
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class NodeMarks:
    """Adds and removes a node's taints and conditions. Each method returns whether it changed anything."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def add_taint(self, node: str, taint: Taint) -> bool:
        """Add a taint to a node, or change the value of the one with its key and effect."""

        def change(taints: list[Document]) -> list[Document]:
            mine = {name: value for name, value in taint._asdict().items() if value}
            existing = next((t for t in taints if _is(t, taint.key, taint.effect)), None)
            if existing is not None and existing.get("value", "") == taint.value:
                return taints
            return [*(t for t in taints if not _is(t, taint.key, taint.effect)), mine]

        return self._change_taints(node, change)

    def remove_taint(self, node: str, key: str, effect: str = "NoSchedule") -> bool:
        return self._change_taints(node, lambda taints: [t for t in taints if not _is(t, key, effect)])

    def set_condition(self, node: str, kind: str, status: str, reason: str, message: str) -> bool:
        """Set a node's condition; an unchanged one is only written every `HEARTBEAT_SECONDS`."""
        path = NODES.path(None, node)
        now = self._client.world.clock()
        conditions = self._client.get_as(_Node, path).status.conditions or []
        before = next((c for c in conditions if c.get("type") == kind), {})
        condition = {"type": kind, "status": status, "reason": reason, "message": message}
        is_same = all(before.get(name, "") == value for name, value in condition.items())
        written_at = time_or_none(before.get("lastHeartbeatTime"))
        if is_same and written_at is not None and now - written_at < HEARTBEAT_SECONDS:
            return False
        changed_at = before.get("lastTransitionTime") if before.get("status") == status else None
        times = {"lastHeartbeatTime": time_text(now), "lastTransitionTime": changed_at or time_text(now)}
        # A strategic merge patch merges conditions by type, so that the kubelet's stay as they are.
        body = {"status": {"conditions": [condition | times]}}
        self._client.patch(f"{path}/status", body, content_type=STRATEGIC_PATCH)
        return True

    def _change_taints(self, node: str, change: Callable[[list[Document]], list[Document]]) -> bool:
        """Replace the list at the version that was read; a strategic merge would match by key alone."""
        path = NODES.path(None, node)
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            found = self._client.get_as(_Node, path)
            taints = found.spec.taints or []
            desired = change(taints)
            if desired == taints:
                return False
            body: dict[str, Any] = {
                "metadata": {"resourceVersion": found.metadata.resourceVersion},
                "spec": {"taints": desired or None},
            }
            try:
                self._client.patch(path, body, is_idempotent=False)
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT or attempt == _ATTEMPTS_MAX:
                    raise
            else:
                return True
        return False


def _is(taint: Document, key: str, effect: str) -> bool:
    return taint.get("key") == key and taint.get("effect") == effect


class DaemonPod(NamedTuple):
    """A pod of a DaemonSet, and its node."""

    name: str
    node: str


class _DeleteAnswer(msgspec.Struct):
    """The server's answer to a delete: a Status, or the object that is being deleted."""

    kind: str
    status: object = None


def remove_daemon_set(client: Client, namespace: str, name: str) -> bool:
    """Delete a DaemonSet and its pods; return False where it does not exist."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    path = DAEMONSETS.path(namespace, name)
    try:
        body = client.delete(path, options)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return False
    answer = client.decode(_DeleteAnswer, body, f"DELETE {path}")
    if answer.kind != "DaemonSet" and (answer.kind, answer.status) != ("Status", "Success"):
        raise bad_answer(client.address, f"DELETE {path}", body, "expected a Status of success")
    return True


def pods_of_daemon_set(client: Client, namespace: str, name: str) -> list[DaemonPod]:
    """Return the pods of a DaemonSet of this name, also for a while after its deletion."""
    return sorted(
        DaemonPod(pod.metadata.name, pod.spec.nodeName)
        for pod in list_items(client, PODS.path(namespace), RawPod, lambda _: None)
        for owner in pod.metadata.ownerReferences or ()
        if (owner.kind, owner.name) == ("DaemonSet", name)
    )
