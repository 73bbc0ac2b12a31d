"""Keeps as many pods as a workload wants, and brings new revisions in steps."""

from collections import Counter

from equipoise.sim import names, portion
from equipoise.sim.kubelet import Kubelet
from equipoise.sim.scheduler import Scheduler
from equipoise.sim.state import STATEFUL_SET, PodState, State, WorkloadState


class Replication:
    """The Deployment and ReplicaSet controllers in one."""

    def __init__(self, state: State, kubelet: Kubelet, scheduler: Scheduler) -> None:
        self._state = state
        self._kubelet = kubelet
        self._scheduler = scheduler
        state.listeners.append(self.notice)

    def notice(self, workload: WorkloadState) -> None:
        """Look at a workload soon."""
        if not workload.is_reconcile_due:
            workload.is_reconcile_due = True
            delay = self._state.settings.controller_delay_seconds
            self._state.timeline.after(delay, lambda: self._reconcile(workload))

    def _reconcile(self, workload: WorkloadState) -> None:
        workload.is_reconcile_due = False
        if workload.generation_observed != workload.generation:
            workload.generation_observed = workload.generation
            workload.version, workload.view = self._state.next_version(), None
        room = room_for(workload)
        for pod in _ranked(workload.active())[: max(len(workload.active()) - room, 0)]:
            self._kubelet.end(pod, why="ScaledDown")
        active = workload.active()
        new = [pod for pod in active if pod.revision == workload.revision]
        old = [pod for pod in active if pod.revision != workload.revision]
        for _ in range(min(workload.replicas - len(new), room - len(active))):
            self._create(workload)
        for pod in _replaceable(workload, new, old):
            self._kubelet.end(pod, why="Replaced")

    def _create(self, workload: WorkloadState) -> None:
        name = self._new_name(workload)
        if name is None:
            return
        pod = PodState(
            name=name,
            uid=names.uid(workload.chance),
            workload=workload,
            template=workload.template,
            revision=workload.revision,
            created_at=self._state.now,
            ready_changed_at=self._state.now,
            limit_cores=workload.template.cpu_limit_cores,
            scrape_phase=workload.chance.random(),
        )
        workload.pods[pod.uid] = pod
        self._state.pods[workload.ref.namespace, name] = pod
        self._state.log("Created", pod.ref, pod.uid)
        self._state.pod_changed(pod)
        self._scheduler.take(pod)

    def _new_name(self, workload: WorkloadState) -> str | None:
        """Name a pod; the next of a StatefulSet waits until the one of its ordinal is gone."""
        taken, namespace = self._state.pods, workload.ref.namespace
        if workload.ref.kind == STATEFUL_SET:
            counted = (f"{workload.ref.name}-{ordinal}" for ordinal in range(workload.replicas))
            return next((name for name in counted if (namespace, name) not in taken), None)
        while True:
            name = f"{workload.ref.name}-{workload.revision}-{names.suffix(workload.chance)}"
            if (namespace, name) not in taken:
                return name


def room_for(workload: WorkloadState) -> int:
    """How many pods may be there: as many as wanted, and more only while old ones are replaced."""
    is_rolling = any(pod.revision != workload.revision for pod in workload.active())
    return workload.replicas + (surge(workload) if is_rolling else 0)


def surge(workload: WorkloadState) -> int:
    """How many pods more than wanted a rollout may have."""
    return portion.of(workload.max_surge, workload.replicas, is_rounded_up=True)


def unavailable_max(workload: WorkloadState) -> int:
    """How many pods fewer than wanted a rollout may leave ready; never stuck at 0 and 0."""
    count = portion.of(workload.max_unavailable, workload.replicas, is_rounded_up=False)
    return max(count, 1) if surge(workload) == 0 else count


def _replaceable(workload: WorkloadState, new: list[PodState], old: list[PodState]) -> list[PodState]:
    """Give the old pods that may end now: the unready ones first, then as many as stay available."""
    if not old:
        return []
    available_min = workload.replicas - unavailable_max(workload)
    new_unready = sum(not pod.is_ready for pod in new)
    spare = max(len(new) + len(old) - available_min - new_unready, 0)
    unready = [pod for pod in old if not pod.is_ready][:spare]
    ready = _ranked([pod for pod in old if pod.is_ready])
    spare_ready = len(ready) + len(new) - new_unready - available_min
    return unready + ready[: max(min(spare_ready, spare - len(unready)), 0)]


def _ranked(pods: list[PodState]) -> list[PodState]:
    """Order pods as a ReplicaSet ends them: unplaced, unready, crowded on a node, youngest, restarted.

    Of a StatefulSet the last goes first.
    """
    if pods and pods[0].workload.ref.kind == STATEFUL_SET:
        return sorted(pods, key=lambda pod: -int(pod.name.rpartition("-")[2]))
    crowds = Counter(pod.node.name for pod in pods if pod.node is not None and pod.is_ready)

    def rank(pod: PodState) -> tuple[bool, bool, int, float, int, float, str]:
        crowd = crowds[pod.node.name] if pod.node is not None else 0
        ready_since = pod.ready_changed_at if pod.is_ready else 0.0
        return (
            pod.node is not None,
            pod.is_ready,
            -crowd,
            -ready_since,
            -pod.restarts,
            -pod.created_at,
            pod.uid,
        )

    return sorted(pods, key=rank)
