"""HPAs word for word: what advice copies into the HPA that it proposes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.kinds import HPAS
from equipoise.adapters.kubernetes.lists import list_items
from equipoise.adapters.kubernetes.outline import Outline
from equipoise.adapters.kubernetes.structs import Meta
from equipoise.model.cluster import HpaSpec
from equipoise.model.references import API_VERSIONS, WorkloadRef


class _Target(msgspec.Struct, gc=False):
    kind: str
    name: str
    apiVersion: str = ""


class _Spec(msgspec.Struct):
    scaleTargetRef: _Target
    metrics: list[dict[str, Any]] | None = None
    behavior: dict[str, Any] | None = None
    minReplicas: int | None = None
    maxReplicas: int = 1


class _Hpa(msgspec.Struct):
    metadata: Meta
    spec: _Spec


class HpaSpecs:
    """Asks the server anew for every call."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        """List what every HorizontalPodAutoscaler asks for; of one that cannot be read, only that."""
        unreadable: list[Outline] = []
        found = list_items(self._client, HPAS.path(namespace), _Hpa, unreadable.append)
        return [*map(_turned, found), *map(_unread, unreadable)]


def _unread(outline: Outline) -> HpaSpec:
    meta = outline.meta
    return HpaSpec(meta.name, WorkloadRef("", "", meta.namespace, ""), unreadable=outline.why)


def _turned(hpa: _Hpa) -> HpaSpec:
    target, meta = hpa.spec.scaleTargetRef, hpa.metadata
    api_version = target.apiVersion or API_VERSIONS.get(target.kind, "")
    labels: Mapping[str, str] = meta.labels or {}
    return HpaSpec(
        name=meta.name,
        target=WorkloadRef(api_version, target.kind, meta.namespace, target.name).canonical,
        metrics=tuple(hpa.spec.metrics or ()),
        behavior=hpa.spec.behavior,
        labels=tuple(sorted(labels.items())),
        replicas_min=1 if hpa.spec.minReplicas is None else hpa.spec.minReplicas,
        replicas_max=hpa.spec.maxReplicas,
    )
