"""Reads of the simulated cluster through the port `Cluster`.

The loops list pods many times between two changes, so the returned records are made again only when an object
has changed. Faults determine the age of the view that a caller gets.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from equipoise.core.cluster import TOLERANCE, Hpa, Node, Owner, Pdb, Pod, Workload, WorkloadRef
from equipoise.sim.faults import FaultKind
from equipoise.sim.hpa import HpaScalingRules
from equipoise.sim.state import STATEFUL_SET, HpaState, NodeState, PdbState, PodState, SimState, WorkloadState


def pod_view(pod: PodState) -> Pod:
    if pod.view is None:
        workload, template = pod.workload, pod.template
        is_stateful = workload.ref.kind == STATEFUL_SET
        revision_label = "controller-revision-hash" if is_stateful else "pod-template-hash"
        pod.view = Pod(
            namespace=workload.ref.namespace,
            name=pod.name,
            uid=pod.uid,
            resource_version=str(pod.version),
            node=pod.node.name if pod.node else "",
            phase=pod.phase,
            is_ready=pod.is_ready,
            ready_since=pod.ready_changed_at if pod.is_ready else None,
            created_at=pod.created_at,
            deletion_at=pod.deletion_at,
            owner=_owner(pod),
            labels=tuple(sorted((*workload.labels, (revision_label, pod.revision)))),
            annotations=template.annotations,
            containers=pod.containers,
            restarts=pod.restarts,
            restarted_at=pod.restarted_at,
            priority=template.priority,
            priority_class=template.priority_class,
            qos_class=template.qos_class,
            has_local_storage=template.has_local_storage,
            is_mirror=False,
            is_disruption_target=pod.is_disruption_target,
            resize=pod.resize,
        )
    return pod.view


def _owner(pod: PodState) -> Owner:
    ref = pod.workload.ref
    if ref.kind == STATEFUL_SET:
        return Owner("apps/v1", STATEFUL_SET, ref.name, pod.workload.uid)
    return Owner("apps/v1", "ReplicaSet", f"{ref.name}-{pod.revision}", pod.workload.owner_uids[pod.revision])


def node_view(node: NodeState) -> Node:
    if node.view is None:
        node.view = Node(
            name=node.name,
            uid=node.uid,
            resource_version=str(node.version),
            is_ready=node.is_ready,
            is_cordoned=node.is_cordoned,
            cpu_cores=node.cpu_cores,
            memory_bytes=node.memory_bytes,
            pods_max=node.pods_max,
            labels=node.labels,
        )
    return node.view


def workload_view(workload: WorkloadState) -> Workload:
    if workload.view is None:
        active = workload.active()
        workload.view = Workload(
            ref=workload.ref,
            uid=workload.uid,
            resource_version=str(workload.version),
            replicas_wanted=workload.replicas,
            replicas_seen=len(active),
            replicas_ready=sum(pod.is_ready for pod in active),
            replicas_updated=sum(pod.revision == workload.revision for pod in active),
            generation=workload.generation,
            generation_observed=workload.generation_observed,
            selector=workload.selector,
            annotations=workload.annotations,
            labels=workload.labels,
            containers=workload.template.containers,
        )
    return workload.view


def hpa_view(hpa: HpaState) -> Hpa:
    """Return an HPA. How many replicas there are changes without it, so that is looked up each time."""
    current, behavior = hpa.workload.replicas, hpa.spec.behavior
    if hpa.view is None or hpa.view.replicas_current != current:
        hpa.view = Hpa(
            namespace=hpa.workload.ref.namespace,
            name=hpa.name,
            uid=hpa.uid,
            resource_version=str(hpa.version),
            target=hpa.workload.ref,
            replicas_min=hpa.spec.replicas_min,
            replicas_max=hpa.spec.replicas_max,
            replicas_current=current,
            replicas_desired=hpa.desired,
            scaled_at=hpa.scaled_at,
            metrics=hpa.spec.metrics,
            annotations=(),
            tolerance_up=_tolerance(behavior.up if behavior else None),
            tolerance_down=_tolerance(behavior.down if behavior else None),
        )
    return hpa.view


def _tolerance(rules: HpaScalingRules | None) -> float:
    """Return the HPA's own tolerance; the controller's is in no API."""
    return TOLERANCE if rules is None or rules.tolerance is None else rules.tolerance


def pdb_view(pdb: PdbState) -> Pdb:
    if pdb.view is None:
        pdb.view = Pdb(
            namespace=pdb.namespace,
            name=pdb.name,
            uid=pdb.uid,
            resource_version=str(pdb.version),
            selector=pdb.selector,
            disruptions_allowed=pdb.status.allowed,
            pods_healthy=pdb.status.healthy,
            pods_desired=pdb.status.desired,
            pods_expected=pdb.status.expected,
            is_current=pdb.is_current,
        )
    return pdb.view


def _pods(state: SimState) -> list[Pod]:
    return [pod.view or pod_view(pod) for pod in state.pods.values()]


def _nodes(state: SimState) -> list[Node]:
    return [node_view(node) for node in state.nodes.values()]


def _workloads(state: SimState) -> list[Workload]:
    return [workload.view or workload_view(workload) for workload in state.workloads.values()]


def _hpas(state: SimState) -> list[Hpa]:
    return [hpa_view(hpa) for hpa in state.hpas]


def _pdbs(state: SimState) -> list[Pdb]:
    return [pdb_view(pdb) for pdb in state.pdbs]


def _pauses(state: SimState) -> list[tuple[WorkloadRef, str]]:
    return list(state.autoscaler_pauses.items())


LISTS: tuple[Callable[[SimState], list[Any]], ...] = (_pods, _nodes, _workloads, _hpas, _pdbs, _pauses)
"""What is kept of a moment while the watch is slow."""
_Listed = TypeVar("_Listed")
_Object = TypeVar("_Object", Pod, Hpa, Pdb)


class SimCluster:
    """Reads, which a slow watch makes old."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        self._past: deque[tuple[float, dict[Callable[[SimState], list[Any]], list[Any]]]] = deque()
        self._version = -1
        state.faults.begun[FaultKind.WATCH_LAG] = self.remember

    def remember(self) -> None:
        """Keep how things are, for a watch that is slow; called after every instant."""
        fault = self._state.faults.now(FaultKind.WATCH_LAG)
        if fault is None:
            self._past.clear()
            self._version = -1
        elif self._version != self._state.version:
            self._version = self._state.version
            self._past.append((self._state.now, {listed: listed(self._state) for listed in LISTS}))
            self._forget(fault.value)

    def _seen(self, listed: Callable[[SimState], list[_Listed]]) -> list[_Listed]:
        self._state.check_api()
        fault = self._state.faults.now(FaultKind.WATCH_LAG)
        if fault is None or not self._past:
            return listed(self._state)
        self._forget(fault.value)
        return self._past[0][1][listed]

    def _forget(self, lag_seconds: float) -> None:
        """Keep the newest moment that is as old as the watch lags, and those after it."""
        while len(self._past) > 1 and self._past[1][0] <= self._state.now - lag_seconds:
            self._past.popleft()

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        return _of(self._seen(_pods), namespace)

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        """Return the pods of one workload as they are, whatever the watch lags behind."""
        self._state.check_api()
        selected: dict[tuple[tuple[str, str], ...], bool] = {}
        found = []
        for each in self._state.namespaces.get(workload.ref.namespace, ()):
            for pod in map(pod_view, each.pods.values()):
                if pod.labels not in selected:
                    selected[pod.labels] = workload.selector.matches(dict(pod.labels))
                if selected[pod.labels]:
                    found.append(pod)
        return found

    def nodes(self) -> Sequence[Node]:
        return self._seen(_nodes)

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        found = self._seen(_workloads)
        return found if namespace is None else [each for each in found if each.ref.namespace == namespace]

    def workload(self, ref: WorkloadRef) -> Workload | None:
        """Read one workload; this one is never old."""
        self._state.check_api()
        found = self._state.workloads.get(ref)
        return None if found is None else workload_view(found)

    def hpas(self, namespace: str | None = None) -> Sequence[Hpa]:
        return _of(self._seen(_hpas), namespace)

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]:
        return _of(self._seen(_pdbs), namespace)

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        return {ref: why for ref, why in self._seen(_pauses) if namespace in {None, ref.namespace}}


def _of(objects: list[_Object], namespace: str | None) -> list[_Object]:
    return objects if namespace is None else [each for each in objects if each.namespace == namespace]
