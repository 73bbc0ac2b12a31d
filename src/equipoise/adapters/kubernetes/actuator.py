"""The `Actuator` port over an API server: evictions that are asked for once, and events.

An eviction is never sent twice by itself. What the server said is judged here; where it said nothing, or
nothing that settles the matter, `WorldFailed` is raised and the outcome is unknown: a later look at the pod
tells.

Kubernetes events: one sentence about an object, and a count where the same is said again.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.discovery import path_of
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.nodes import NodeMarks
from equipoise.adapters.kubernetes.objects import Objects
from equipoise.core.cluster import ObjectRef, PodRef
from equipoise.ports import EvictionAnswer, EvictionResult

SENTENCE_BYTES_MAX = 1024
REASON_LENGTH_MAX = 128
REPEAT_SECONDS = 600.0
"""How long the same reason about the same object counts up instead of filling the list."""
REMEMBERED_MAX = 4096
_NAME_LENGTH_MAX = 253
_NO_NAMESPACE = "default"
"""Where the API wants events about objects that have no namespace."""


@dataclass(frozen=True, slots=True)
class _Written:
    """An event that can still be counted up."""

    path: str
    count: int
    at_monotonic: float


class Events:
    """Writes events. It never raises: what an event tells is also in the log, the metrics and the status."""

    def __init__(
        self,
        client: Client,
        *,
        component: str = "equipoise",
        instance: str = "",
        token: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self.failures = 0
        """How many could not be written."""
        self.last_error: Exception | None = None
        self._client = client
        self._component = component
        self._instance = instance or component
        self._token = token
        self._lock = threading.Lock()
        self._written: OrderedDict[tuple[ObjectRef, str, bool], _Written] = OrderedDict()

    def record(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        """Say something about an object, or count it up when it was said within ten minutes."""
        try:
            self._record(about, reason[:REASON_LENGTH_MAX], bounded(sentence), is_warning)
        except Exception as error:  # noqa: BLE001 - an event is no reason to end a cycle
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
            written = self._count_up(before, sentence, now)
        written = written or self._create(about, reason, sentence, now, is_warning=is_warning)
        with self._lock:
            self._written[key] = written
            self._written.move_to_end(key)
            while len(self._written) > REMEMBERED_MAX:
                self._written.popitem(last=False)

    def _count_up(self, before: _Written, sentence: str, now: float) -> _Written | None:
        """Tell of one more; None when the server has forgotten the first."""
        count = before.count + 1
        change = {"count": count, "lastTimestamp": self._time(), "message": sentence}
        try:
            self._client.patch(before.path, change, retry=False)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return _Written(before.path, count, now)

    def _create(
        self, about: ObjectRef, reason: str, sentence: str, now: float, *, is_warning: bool
    ) -> _Written:
        namespace = about.namespace or _NO_NAMESPACE
        token = self._token()
        name = f"{about.name[: _NAME_LENGTH_MAX - len(token) - 1].rstrip('.-')}.{token}"
        at = self._time()
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
        return _Written(path_of("", "v1", "events", namespace, name), 1, now)

    def _time(self) -> str:
        return datetime.fromtimestamp(self._client.world.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def bounded(sentence: str, bytes_max: int = SENTENCE_BYTES_MAX) -> str:
    """Cut a sentence to what an event may hold, visibly and never within a character."""
    encoded = sentence.encode(errors="replace")
    if len(encoded) <= bytes_max:
        return encoded.decode()
    mark = "…"
    return encoded[: bytes_max - len(mark.encode())].decode(errors="ignore") + mark


_OTHER_UID = re.compile(r"\bUID in (the )?precondition\b", re.IGNORECASE)
"""How the server says that the name belongs to another incarnation by now."""
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
_REFUSALS = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)


class KubernetesActuator:
    """Changes a cluster, one thing at a time. Threads may share it."""

    def __init__(self, client: Client, *, component: str = "equipoise", instance: str = "") -> None:
        self._client = client
        self.events = Events(client, component=component, instance=instance)
        self.objects = Objects(client)
        self.nodes = NodeMarks(client)

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        """Evict exactly this incarnation of a pod; without a grace period, its own."""
        if not pod.uid:
            return EvictionAnswer(
                EvictionResult.REFUSED, f"{pod}: an eviction must name the UID, and none is known"
            )
        path = path_of("", "v1", "pods", pod.namespace, pod.name, "eviction")
        params = {"dryRun": "All"} if is_dry_run else None
        try:
            # Once: a budget's 429 means wait, and after a lost answer nobody knows.
            self._client.post(path, _eviction(pod, grace_seconds, is_dry_run=is_dry_run), params, retry=False)
        except ApiError as error:
            answer = judge_eviction(error)
            if answer is None:
                raise
            return answer
        return EvictionAnswer(EvictionResult.ACCEPTED)

    def record_event(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        """Attach one sentence to an object; a failure is counted in `events`, and never raised."""
        self.events.record(about, reason, sentence, is_warning=is_warning)


def _eviction(pod: PodRef, grace_seconds: int | None, *, is_dry_run: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if is_dry_run:
        options["dryRun"] = ["All"]
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }


def judge_eviction(error: ApiError) -> EvictionAnswer | None:
    """Turn the server's refusal into an answer; None when it does not tell whether the pod was evicted."""
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return EvictionAnswer(EvictionResult.BLOCKED, _why_blocked(error), error.retry_after_seconds)
    # A 404 without the API's own reason comes from something that stands before the server.
    is_gone = error.status == HTTPStatus.NOT_FOUND and error.reason == "NotFound"
    is_other = error.status == HTTPStatus.CONFLICT and _OTHER_UID.search(error.message) is not None
    if is_gone or is_other:
        return EvictionAnswer(EvictionResult.GONE, error.message)
    if error.status == HTTPStatus.FORBIDDEN:
        return EvictionAnswer(EvictionResult.FORBIDDEN, error.message)
    is_ambiguous = error.status == HTTPStatus.INTERNAL_SERVER_ERROR and _SEVERAL_BUDGETS in error.message
    if is_ambiguous or error.status in _REFUSALS:
        return EvictionAnswer(EvictionResult.REFUSED, error.message)
    return None


def _why_blocked(error: ApiError) -> str:
    """Return the budget's own words, which have its name and its numbers, before the general ones."""
    causes = [cause.message for cause in error.causes if cause.reason == "DisruptionBudget" and cause.message]
    return "; ".join(causes) or error.message or "the API server asks to wait"
