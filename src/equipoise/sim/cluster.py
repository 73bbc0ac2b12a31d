"""The simulated API server's reads."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from equipoise.model.cluster import Hpa, Node, Pdb, Pod, Workload
from equipoise.model.errors import WorldFailed
from equipoise.model.references import WorkloadRef
from equipoise.sim.faults import FaultKind
from equipoise.sim.state import State
from equipoise.sim.views import ClusterView, LiveView, cluster_view, pod_view, workload_view


class _Named(Protocol):
    @property
    def namespace(self) -> str: ...


_Object = TypeVar("_Object", bound=_Named)


class SimCluster:
    """Reads, which a slow watch makes old."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._live = LiveView(state)
        self._past: deque[ClusterView] = deque()
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
            self._past.append(cluster_view(self._state))
            while len(self._past) > 1 and self._past[1].at <= self._state.now - fault.value:
                self._past.popleft()

    def _seen(self) -> ClusterView | LiveView:
        if self._state.faults.now(FaultKind.API_UNAVAILABLE):
            raise WorldFailed("the API server does not answer (simulated)")
        fault = self._state.faults.now(FaultKind.WATCH_LAG)
        if fault is None or not self._past:
            return self._live
        while len(self._past) > 1 and self._past[1].at <= self._state.now - fault.value:
            self._past.popleft()
        return self._past[0]

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        """List the pods."""
        return _of(self._seen().pods, namespace)

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        """Give the pods of one workload as they are, whatever the watch lags behind."""
        if self._state.faults.now(FaultKind.API_UNAVAILABLE):
            raise WorldFailed("the API server does not answer (simulated)")
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
        """List the nodes."""
        return self._seen().nodes

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        """List the workloads."""
        found = self._seen().workloads
        return found if namespace is None else [each for each in found if each.ref.namespace == namespace]

    def workload(self, ref: WorkloadRef) -> Workload | None:
        """Read one workload; this one is never old."""
        if self._state.faults.now(FaultKind.API_UNAVAILABLE):
            raise WorldFailed("the API server does not answer (simulated)")
        found = self._state.workloads.get(ref)
        return None if found is None else workload_view(found)

    def hpas(self, namespace: str | None = None) -> Sequence[Hpa]:
        """List the HPAs."""
        return _of(self._seen().hpas, namespace)

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]:
        """List the budgets."""
        return _of(self._seen().pdbs, namespace)

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        """Tell whose autoscaling somebody has paused, and by what."""
        found = self._seen().pauses
        return {ref: why for ref, why in found.items() if namespace in {None, ref.namespace}}


def _of(objects: Iterable[_Object], namespace: str | None) -> list[_Object]:
    if namespace is None:
        return list(objects)
    return [each for each in objects if each.namespace == namespace]
