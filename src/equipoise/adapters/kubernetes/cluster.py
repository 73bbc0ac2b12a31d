"""The `Cluster` port over an API server: by direct lists for a command, from caches for the operator.

`HpaSpecs` lists the whole specs of HPAs, which recommendations copy. `KubernetesSelectedPods` watches the
pods of one namespace that match a selector.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from equipoise.adapters.kubernetes.cache import ChangeType
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.errors import ApiError, BadAnswer, Outline
from equipoise.adapters.kubernetes.keda_vpa import RecentPauses, ScaledObjects
from equipoise.adapters.kubernetes.kinds import (
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    HPAS,
    NODES,
    PDBS,
    PODS,
    REPLICASETS,
    ROLLOUTS,
    STATEFULSETS,
    WORKLOADS,
    list_items,
    list_kind,
)
from equipoise.adapters.kubernetes.objects import Discovery, path_of
from equipoise.adapters.kubernetes.reflector import Reflector, Timings
from equipoise.adapters.kubernetes.selectors import format_selector
from equipoise.adapters.kubernetes.structs import ObjectMeta, RawObject, RawScale, RawScaleTargetRef
from equipoise.core.cluster import Hpa, HpaSpec, Node, Pdb, Pod, Workload, WorkloadRef

LISTED_WORKLOADS = (DEPLOYMENTS, STATEFULSETS, REPLICASETS)
UNSCALED_WORKLOADS = (DAEMONSETS, CRONJOBS, ROLLOUTS)
"""Kinds that get advice about their requests only."""


class KubernetesCluster:
    """Asks the server anew for every call."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.discovery = Discovery(client)
        self.decoder = Decoder()
        self._scaled_objects = ScaledObjects(client, self.discovery)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what could not be read so far."""
        return self.decoder.warnings.sentences()

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        return list_kind(self.client, PODS, namespace, decoder=self.decoder).records

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        params = {"labelSelector": format_selector(workload.selector)}
        found = list_kind(self.client, PODS, workload.ref.namespace, decoder=self.decoder, params=params)
        return found.records

    def nodes(self) -> Sequence[Node]:
        listing = list_kind(self.client, NODES, decoder=self.decoder)
        return _require_all(listing.records, listing.unreadable)

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        lists = (list_kind(self.client, kind, namespace, decoder=self.decoder) for kind in LISTED_WORKLOADS)
        return [workload for listing in lists for workload in listing.records]

    def unscaled_workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        """List the DaemonSets, CronJobs and Argo Rollouts; a kind that cannot be listed has none."""
        found: list[Workload] = []
        for kind in UNSCALED_WORKLOADS:
            try:
                found += list_kind(self.client, kind, namespace, decoder=self.decoder).records
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    self.decoder.warnings.add(f"{kind.plural} that cannot be listed", str(error))
        return found

    def workload(self, ref: WorkloadRef) -> Workload | None:
        """Read one workload: its object where we know the kind, else its `scale`; None without either."""
        group, _, version = ref.api_version.rpartition("/")
        kind = WORKLOADS.get(ref.kind) if group == "apps" else None
        try:
            if kind is not None:
                raw = self.client.get_as(kind.raw, kind.path(ref.namespace, ref.name))
                return self.decoder.workload(raw, ref.kind)
            resource = self.discovery.find(ref.api_version, ref.kind)
            if resource is None or not resource.has_scale or not resource.is_namespaced:
                return None
            path = path_of(group, version, resource.plural, ref.namespace, ref.name)
            # The object's annotations count too: they may opt the workload out.
            whole = self.client.get_as(RawObject, path)
            return self.decoder.scale(self.client.get_as(RawScale, f"{path}/scale"), ref, whole.metadata)
        except ApiError as error:
            # A 404 without a Status comes from a proxy, unless the kind was removed too.
            if error.is_not_found or (kind is None and error.status == HTTPStatus.NOT_FOUND):
                return None
            raise

    def hpas(self, namespace: str | None = None) -> Sequence[Hpa]:
        return list_kind(self.client, HPAS, namespace, decoder=self.decoder).records

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]:
        return list_kind(self.client, PDBS, namespace, decoder=self.decoder).records

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        return self._scaled_objects.pauses(namespace, self.decoder.warnings) or {}


class CachedCluster:
    """Answers from reflectors; raises Unreachable before they have synced and when a cache is stale."""

    def __init__(
        self, client: Client, *, namespace: str | None = None, timings: Timings | None = None
    ) -> None:
        self._direct = KubernetesCluster(client)
        self._pauses = RecentPauses(client, namespace)
        self._pods = Reflector(client, PODS, namespace=namespace, timings=timings)
        self._nodes = Reflector(client, NODES, timings=timings)
        self._hpas = Reflector(client, HPAS, namespace=namespace, timings=timings)
        self._pdbs = Reflector(client, PDBS, namespace=namespace, timings=timings)
        self._workloads = {
            kind.name: Reflector(client, kind, namespace=namespace, timings=timings)
            for kind in LISTED_WORKLOADS
        }
        others = (self._pods, self._nodes, self._hpas, self._pdbs)
        self.reflectors: tuple[Reflector[Any], ...] = (*others, *self._workloads.values())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what could not be read of the present objects."""
        of_reflectors = (w for reflector in self.reflectors for w in reflector.decoder.warnings.sentences())
        return (*of_reflectors, *self._pauses.warnings.sentences())

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        return self._pods.require_fresh().records(namespace)

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        return self._direct.pods_now(workload)

    def nodes(self) -> Sequence[Node]:
        return _require_all(self._nodes.require_fresh().records(), self._nodes.unreadable.values())

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        caches = [reflector.require_fresh() for reflector in self._workloads.values()]
        return [workload for cache in caches for workload in cache.records(namespace)]

    def workload(self, ref: WorkloadRef) -> Workload | None:
        """Return a workload; kinds without a cache are read from the server."""
        reflector = self._workloads.get(ref.kind) if ref.group == "apps" else None
        if reflector is None:
            return self._direct.workload(ref)
        return reflector.require_fresh().get(ref.namespace, ref.name)

    def hpas(self, namespace: str | None = None) -> Sequence[Hpa]:
        return self._hpas.require_fresh().records(namespace)

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]:
        return self._pdbs.require_fresh().records(namespace)

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        return self._pauses.pauses(namespace)


def _require_all(nodes: Sequence[Node], unreadable: Iterable[Outline]) -> Sequence[Node]:
    """Return the nodes; raise where one could not be read, since the cluster would look too small."""
    for outline in unreadable:
        raise BadAnswer(
            f"node {outline.place} cannot be read, so the cluster's size is unknown: {outline.why}"
        )
    return nodes


class _VerbatimHpaSpec(msgspec.Struct):
    scaleTargetRef: RawScaleTargetRef
    metrics: list[dict[str, Any]] | None = None
    behavior: dict[str, Any] | None = None
    minReplicas: int | None = None
    maxReplicas: int = 1


class _VerbatimHpa(msgspec.Struct):
    metadata: ObjectMeta
    spec: _VerbatimHpaSpec


class HpaSpecs:
    """Asks the server anew for every call."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        """List the specs of all HorizontalPodAutoscalers; one that cannot be read has no values."""
        unreadable: list[Outline] = []
        found = list_items(self._client, HPAS.path(namespace), _VerbatimHpa, unreadable.append)
        undecoded = [
            HpaSpec(one.meta.name, WorkloadRef("", "", one.meta.namespace, ""), unreadable=one.why)
            for one in unreadable
        ]
        return [*map(_hpa_spec, found), *undecoded]


def _hpa_spec(hpa: _VerbatimHpa) -> HpaSpec:
    meta = hpa.metadata
    return HpaSpec(
        name=meta.name,
        target=hpa.spec.scaleTargetRef.workload(meta.namespace).canonical,
        metrics=tuple(hpa.spec.metrics or ()),
        behavior=hpa.spec.behavior,
        labels=tuple(sorted((meta.labels or {}).items())),
        replicas_min=1 if hpa.spec.minReplicas is None else hpa.spec.minReplicas,
        replicas_max=hpa.spec.maxReplicas,
    )


class KubernetesSelectedPods:
    """Answers from a reflector, which the owner of this object starts and stops."""

    def __init__(self, client: Client, namespace: str, selector: str, timings: Timings | None = None) -> None:
        self._client = client
        self._namespace = namespace
        self._changed = threading.Event()
        params, on_change = {"labelSelector": selector}, self._on_change
        self.reflector = Reflector(
            client, PODS, namespace=namespace, params=params, on_change=on_change, timings=timings
        )

    def pods(self) -> Sequence[Pod]:
        return self.reflector.require_fresh("the pods of the pools").records()

    def is_gone(self, name: str, uid: str) -> bool:
        """Read a pod and return whether the one with this UID no longer exists; without a UID, any."""
        try:
            found = self._client.get_as(RawObject, PODS.path(self._namespace, name))
        except ApiError as error:
            if error.is_not_found:
                return True
            raise
        return uid not in {"", found.metadata.uid}

    def has_changed(self) -> bool:
        """Return whether a pod was added or deleted or its readiness changed since the last call."""
        is_set = self._changed.is_set()
        if is_set:  # otherwise a change between check and clear would be lost
            self._changed.clear()
        return is_set

    def _on_change(self, change: ChangeType, old: Pod | None, new: Pod | None) -> None:
        if change is not ChangeType.MODIFIED or _readiness(old) != _readiness(new):
            self._changed.set()


def _readiness(pod: Pod | None) -> tuple[object, ...]:
    """Return the fields that decide whether a pod can take calls."""
    return () if pod is None else (pod.uid, pod.phase, pod.is_ready, pod.deletion_at is None)
