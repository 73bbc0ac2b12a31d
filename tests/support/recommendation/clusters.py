"""A small cluster and its history behind the ports, made by hand."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from equipoise.core.cluster import (
    API_VERSIONS,
    Container,
    Hpa,
    HpaSpec,
    Node,
    Owner,
    Pdb,
    Pod,
    Requirement,
    Selector,
    Workload,
    WorkloadRef,
)
from equipoise.core.errors import WorldFailed
from equipoise.ports.cluster import Grouping, Measure, UsageHistory

AT = 1_789_603_230.0
END = 1_789_603_200.0
WEEK = 10_080
TIMES = END - 60.0 * np.arange(WEEK, dtype=np.float64)[::-1]
DAY = 1.0 + 0.6 * np.sin(2 * np.pi * TIMES / 86400)


def ref(name: str, kind: str = "Deployment", namespace: str = "shop") -> WorkloadRef:
    return WorkloadRef(API_VERSIONS[kind], kind, namespace, name)


def workload(name: str, kind: str = "Deployment", namespace: str = "shop", replicas: int = 2) -> Workload:
    """Describe a workload that selects by its name."""
    selector = Selector((Requirement("app", "In", (name,)),))
    what = ref(name, kind, namespace)
    return Workload(what, f"uid of {what}", "1", replicas, replicas, replicas, replicas, 1, 1, selector, ())


def pod(of: Workload, name: str, **fields: Any) -> Pod:
    """Describe a pod that runs since long ago; a Deployment's is owned by the ReplicaSet in its name."""
    owner = Owner("apps/v1", of.ref.kind, of.ref.name, of.uid)
    if of.ref.kind == "Deployment":
        made_by = name.rpartition("-")[0]
        owner = Owner("apps/v1", "ReplicaSet", made_by, f"uid of {of.ref.namespace}/{made_by}")
    usual: dict[str, Any] = {
        "namespace": of.ref.namespace,
        "name": name,
        "uid": name,
        "resource_version": "1",
        "node": "n1",
        "phase": "Running",
        "is_ready": True,
        "ready_since": END - 86400.0,
        "created_at": END - 30 * 86400.0,
        "deletion_at": None,
        "owner": owner,
        "labels": (("app", of.ref.name),),
        "annotations": (),
        "containers": (Container("app", 2.0),),
        "restarts": 0,
        "restarted_at": None,
        "priority": 0,
        "priority_class": "",
        "qos_class": "Burstable",
        "has_local_storage": False,
        "is_mirror": False,
        "is_disruption_target": False,
    }
    return Pod(**(usual | fields))


WorkloadSeries = Mapping[tuple[str, str, str], Any]
"""Values by namespace, pod and container."""


@dataclass
class Histories:
    """Gives what it was told in lots of namespaces, and remembers what it was asked."""

    cpu: WorkloadSeries
    memory: WorkloadSeries = field(default_factory=dict)
    lots: Sequence[tuple[str, ...] | None] = (None,)
    warnings: tuple[str, ...] = ()
    partial: Mapping[str, str] = field(default_factory=dict)
    """By measure, why the source says that its answers are not whole."""
    asked: list[Any] = field(default_factory=list)
    given: Callable[[UsageHistory], object] = id
    large: Sequence[str] = ()
    """Namespaces that are cut into groups."""
    groups: dict[object, list[str]] = field(default_factory=dict)

    def read(
        self,
        measures: Sequence[Measure],
        start: float,
        end: float,
        step_seconds: float,
        *,
        namespaces: Sequence[str] | None = None,
        grouping: Grouping | None = None,
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[UsageHistory]:
        names = "+".join(measure.name for measure in measures)
        self.asked.append((names, start, end, step_seconds, namespaces))
        for scope in self.lots:
            for measure in measures:
                for part in self._parts(measure.name, scope, grouping):
                    if on_bytes is not None:
                        on_bytes(1000)
                    lot = self._part(measure.name, scope, part)
                    self.given(lot)
                    yield lot
                    del lot

    def _parts(self, measure: str, scope: Any, grouping: Grouping | None) -> Iterator[frozenset[str] | None]:
        """Give the pods of each part: all at once, or one group of a large namespace at a time."""
        if scope is None or scope[0] not in self.large or grouping is None or measure != "cpu":
            yield None
            return
        self.groups = {}
        pods = sorted({pod for namespace, pod, _ in self.cpu if namespace == scope[0]})
        for pod, group in zip(pods, grouping(scope[0], pods), strict=True):
            if group is not None:
                self.groups.setdefault(group, []).append(pod)
        yield from map(frozenset, self.groups.values())

    def _part(self, measure: str, scope: tuple[str, ...] | None, part: frozenset[str] | None) -> UsageHistory:
        series = {"cpu": self.cpu, "memory": self.memory}[measure]
        keys = [key for key in series if scope is None or key[0] in scope]
        if part is not None:
            keys = [key for key in keys if key[1] in part]
        values = np.array([np.broadcast_to(series[key], WEEK) for key in keys], float).reshape(-1, WEEK)
        groups = [group for group, pods in self.groups.items() if part is not None and part >= {*pods}]
        return UsageHistory(
            measure=measure,
            scope=scope,
            namespaces=[key[0] for key in keys],
            pods=[key[1] for key in keys],
            containers=[key[2] for key in keys],
            timestamps=TIMES,
            values=values,
            window_seconds=150.0,
            source="made up",
            warnings=self.warnings,
            groups=None if part is None else frozenset(groups),
            **({"partial": (self.partial[measure],)} if measure in self.partial else {}),
        )


@dataclass
class FixedOwners:
    """Returns fixed owners, or fails."""

    known: Mapping[tuple[str, str], tuple[str, str]] | None = None
    asked: list[Sequence[str]] = field(default_factory=list)
    killed: Collection[tuple[str, str, str]] = ()

    def replica_sets(self, namespaces: Sequence[str], at: float) -> Mapping[tuple[str, str], tuple[str, str]]:
        assert at == END
        self.asked.append(namespaces)
        if self.known is None:
            raise WorldFailed("nobody answers")
        return self.known

    def oom_killed(self, at: float, span_seconds: float) -> Collection[tuple[str, str, str]]:
        assert (at, span_seconds) == (END, 7 * 86400)
        if self.known is None:
            raise WorldFailed("nobody answers")
        return self.killed


@dataclass(frozen=True)
class FixedCluster:
    """Lists fixed workloads, pods and HPAs."""

    listed: Sequence[Workload]
    running: Sequence[Pod] = ()
    scalers: Sequence[HpaSpec] = ()

    def _within(self, items: Sequence[Any], namespace: str | None) -> list[Any]:
        return [item for item in items if namespace in {None, getattr(item, "ref", item).namespace}]

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        return self._within(self.listed, namespace)

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        return self._within(self.running, namespace)

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        return [spec for spec in self.scalers if namespace in {None, spec.target.namespace}]

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        raise AssertionError(workload)

    def nodes(self) -> Sequence[Node]:
        raise AssertionError

    def workload(self, ref: WorkloadRef) -> Workload | None:
        raise AssertionError(ref)

    def hpas(self, namespace: str | None = None) -> Sequence[Hpa]:
        raise AssertionError(namespace)

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]:
        raise AssertionError(namespace)

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        raise AssertionError(namespace)
