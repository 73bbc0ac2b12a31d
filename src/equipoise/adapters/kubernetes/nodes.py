"""Marks on nodes: taints and conditions, without treading on what others wrote there.

The end of a DaemonSet: it is removed, and its pods are looked for until they are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.discovery import path_of
from equipoise.adapters.kubernetes.errors import ApiError, bad_answer
from equipoise.adapters.kubernetes.kinds import list_items
from equipoise.adapters.kubernetes.objects import Document, PatchType
from equipoise.adapters.kubernetes.reflector import Marked
from equipoise.adapters.kubernetes.structs import RawPod
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import parse_moment

_ATTEMPTS_MAX = 8
HEARTBEAT_SECONDS = 300.0
"""How often a condition that stays the same is written again, as the kubelet does."""


class Taint(NamedTuple):
    """What keeps pods away. Key and effect name it; the value is told along."""

    key: str
    effect: str = "NoSchedule"
    value: str = ""


class _Spec(msgspec.Struct):
    taints: list[Document] | None = None


class _Status(msgspec.Struct):
    conditions: list[Document] | None = None


class _Node(Marked):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class NodeMarks:
    """Adds and removes our marks. Each method tells whether it changed anything."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def add_taint(self, node: str, taint: Taint) -> bool:
        """Put a taint on a node, or change the value of the one with its key and effect."""

        def change(taints: list[Document]) -> list[Document]:
            mine = {name: value for name, value in taint._asdict().items() if value}
            there = next((t for t in taints if _is(t, taint.key, taint.effect)), None)
            if there is not None and there.get("value", "") == taint.value:
                return taints
            return [*(t for t in taints if not _is(t, taint.key, taint.effect)), mine]

        return self._change_taints(node, change)

    def remove_taint(self, node: str, key: str, effect: str = "NoSchedule") -> bool:
        """Take a taint off a node."""
        return self._change_taints(node, lambda taints: [t for t in taints if not _is(t, key, effect)])

    def set_condition(self, node: str, kind: str, status: str, reason: str, message: str) -> bool:
        """Return how a node fares in one respect; nothing is written while nothing is new."""
        path = path_of("", "v1", "nodes", None, node)
        now = self._client.world.clock()
        conditions = self._client.get_as(_Node, path).status.conditions or []
        before = next((c for c in conditions if c.get("type") == kind), {})
        said = {"type": kind, "status": status, "reason": reason, "message": message}
        is_same = all(before.get(name, "") == value for name, value in said.items())
        if is_same and now - _seconds(before.get("lastHeartbeatTime")) < HEARTBEAT_SECONDS:
            return False
        changed_at = before.get("lastTransitionTime") if before.get("status") == status else None
        times = {"lastHeartbeatTime": _text(now), "lastTransitionTime": changed_at or _text(now)}
        # A strategic merge goes by type, so that the kubelet's conditions stay as they are.
        self._client.request(
            "PATCH",
            f"{path}/status",
            body={"status": {"conditions": [said | times]}},
            content_type=PatchType.STRATEGIC.value,
            is_idempotent=True,
        )
        return True

    def _change_taints(self, node: str, change: Callable[[list[Document]], list[Document]]) -> bool:
        """Replace the list against the version it was read at; a strategic merge would go by key alone."""
        path = path_of("", "v1", "nodes", None, node)
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            seen = self._client.get_as(_Node, path)
            taints = seen.spec.taints or []
            wanted = change(taints)
            if wanted == taints:
                return False
            body: dict[str, Any] = {
                "metadata": {"resourceVersion": seen.metadata.resourceVersion},
                "spec": {"taints": wanted or None},
            }
            try:
                self._client.request("PATCH", path, body=body, content_type=PatchType.MERGE.value)
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT or attempt == _ATTEMPTS_MAX:
                    raise
            else:
                return True
        return False


def _is(taint: Document, key: str, effect: str) -> bool:
    return taint.get("key") == key and taint.get("effect") == effect


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(text: object) -> float:
    try:
        return parse_moment(text)
    except DECODE_ERRORS:
        return float("-inf")


class DaemonPod(NamedTuple):
    """One pod of a DaemonSet, and where it is."""

    name: str
    node: str


class Removed(msgspec.Struct):
    """What the server says of a removal: how it went, or what goes."""

    kind: str
    status: object = None


def remove_daemon_set(client: Client, namespace: str, name: str) -> bool:
    """Remove a DaemonSet; Kubernetes ends its pods. False where there is none."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    path = path_of("apps", "v1", "daemonsets", namespace, name)
    try:
        body = client.delete(path, options)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return False
    said = client.decode(Removed, body, f"DELETE {path}")
    if said.kind != "DaemonSet" and (said.kind, said.status) != ("Status", "Success"):
        raise bad_answer(client.address, f"DELETE {path}", body, "a Status of success was expected")
    return True


def pods_of_daemon_set(client: Client, namespace: str, name: str) -> list[DaemonPod]:
    """Return the pods that a DaemonSet of this name has, or had: they outlive it for a while."""
    pods = list_items(client, path_of("", "v1", "pods", namespace), RawPod, lambda _: None)
    return sorted(
        DaemonPod(pod.metadata.name, pod.spec.nodeName)
        for pod in pods
        if any(
            (owner.kind, owner.name) == ("DaemonSet", name) for owner in pod.metadata.ownerReferences or ()
        )
    )
