"""Whose requests a VerticalPodAutoscaler sets: two who set the same numbers would fight.

One whose `updateMode` is `Off` only advises, and is in nobody's way. Absent, the mode is VPA's own default.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

import msgspec

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.discovery import Discovery
from equipoise.adapters.kubernetes.errors import ApiError, RightMissing
from equipoise.adapters.kubernetes.lists import list_items
from equipoise.adapters.kubernetes.outline import Outline
from equipoise.adapters.kubernetes.paths import path_of
from equipoise.adapters.kubernetes.structs import Meta, ScaleTargetRef
from equipoise.model.references import API_VERSIONS, WorkloadRef
from equipoise.proportional.sizes import every_workload

GROUP, VERSION, KIND, PLURAL = "autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers"
MODE_DEFAULT = "Auto"
ONLY_ADVISES = "Off"
FRESH_SECONDS = 15.0
"""How long an answer is believed before the server is asked again."""
ABSENT_SECONDS = 300.0
"""The same where there is no VPA: it is seldom installed."""
UNKNOWN = "whether a VerticalPodAutoscaler sets a workload's requests is not known"


class UpdatePolicy(msgspec.Struct, gc=False):
    """Whether it acts."""

    updateMode: str | None = None


class VpaSpec(msgspec.Struct, gc=False):
    """A VerticalPodAutoscaler's spec."""

    targetRef: ScaleTargetRef | None = None
    updatePolicy: UpdatePolicy | None = None


class RawVpa(msgspec.Struct, gc=False):
    """A VerticalPodAutoscaler, of which only its target and its mode matter."""

    metadata: Meta
    spec: VpaSpec


class RecentVpas:
    """Asks for a few seconds' truth, and seldom where there is no VPA. Threads may share it."""

    def __init__(self, client: Client, namespaces: Sequence[str] = ()) -> None:
        self._client = client
        self._discovery = Discovery(client)
        self._places: Sequence[str | None] = list(namespaces) or [None]
        self._lock = threading.Lock()
        self._known: Mapping[WorkloadRef, str] = {}
        self._believed_until = float("-inf")

    def targets(self) -> Mapping[WorkloadRef, str]:
        """Tell whose requests are set by which."""
        with self._lock:
            now = self._client.world.monotonic()
            if now >= self._believed_until:
                lists = [self._listed(place) for place in self._places]
                self._known = {ref: which for found in lists for ref, which in (found or {}).items()}
                is_absent = all(found is None for found in lists)
                self._believed_until = now + (ABSENT_SECONDS if is_absent else FRESH_SECONDS)
            return self._known

    def _listed(self, namespace: str | None) -> dict[WorkloadRef, str] | None:
        """Return whose requests they set, or None where there is no such kind.

        One that cannot be read may set the requests of any workload in its namespace.
        """
        unreadable: list[Outline] = []
        try:
            found = list_items(
                self._client, path_of(GROUP, VERSION, PLURAL, namespace), RawVpa, unreadable.append
            )
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            # Rights are asked before kinds: who has none is refused also where there is nothing to see.
            if error.status == HTTPStatus.FORBIDDEN and not self._is_served():
                return None
            if error.status == HTTPStatus.FORBIDDEN:
                raise RightMissing("list", f"{PLURAL}.{GROUP}", namespace, UNKNOWN, error) from error
            raise
        unknown = {
            every_workload(each.meta.namespace): f"{KIND} {each.place}, which cannot be read ({each.why})"
            for each in unreadable
        }
        return unknown | dict(_targets(found))

    def _is_served(self) -> bool:
        try:
            return self._discovery.find(f"{GROUP}/{VERSION}", KIND) is not None
        except ApiError:
            return True  # to be safe: it may be there


def _targets(found: Sequence[RawVpa]) -> Iterator[tuple[WorkloadRef, str]]:
    for vpa in found:
        target, policy = vpa.spec.targetRef, vpa.spec.updatePolicy
        mode = (policy.updateMode if policy else None) or MODE_DEFAULT
        if target is None or mode == ONLY_ADVISES:
            continue
        meta = vpa.metadata
        api_version = target.apiVersion or API_VERSIONS.get(target.kind, "")
        ref = WorkloadRef(api_version, target.kind, meta.namespace, target.name).canonical
        yield ref, f"{KIND} {meta.namespace}/{meta.name} ({mode})"
