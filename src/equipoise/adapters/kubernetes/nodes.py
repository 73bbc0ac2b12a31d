"""Marks on nodes: taints and conditions, without treading on what others wrote there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.objects import Document, PatchType
from equipoise.adapters.kubernetes.paths import path_of
from equipoise.adapters.kubernetes.reflector import Marked
from equipoise.model.duration import parse_moment
from equipoise.model.errors import DECODE_ERRORS

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
        """Say how a node fares in one respect; nothing is written while nothing is new."""
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
