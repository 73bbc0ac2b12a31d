"""The controllers that move pods: replication, scheduler, kubelet.

Replication keeps as many pods as a workload wants, and rolls out revisions within surge and unavailability.
The scheduler finds the node where a pod fits, spread by workload, then the emptiest. The kubelet starts,
readies, crashes and ends pods, and stops with its node.
"""

from collections import Counter
from collections.abc import Callable

from equipoise.engine.isolation import ignore
from equipoise.sim import template
from equipoise.sim.faults import FaultKind
from equipoise.sim.load import CpuCounter
from equipoise.sim.state import STATEFUL_SET, NodeState, PodState, SimState, WorkloadState


class Kubelet:
    """Runs the pods of all nodes."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        self.freed: Callable[[], object] = ignore
        """Called when a pod has freed resources."""

    def start(self, pod: PodState, node: NodeState) -> None:
        """Take up a pod that was placed on a node."""
        now = self._state.now
        node.pods[pod.uid] = pod
        node.crowd[pod.workload.ref] += 1
        node.cpu_taken_cores += pod.template.cpu_request_cores
        node.memory_taken_bytes += pod.template.memory_request_bytes
        pod.node, pod.phase, pod.started_at, pod.ready_changed_at = node, "Running", now, now
        pod.counter = CpuCounter(now)
        self._state.log("Started", pod.ref, f"{pod.uid} {node.name}")
        self._state.pod_changed(pod)
        self._later(pod, pod.template.start_up.draw(pod.workload.rng), self._become_ready)

    def _later(self, pod: PodState, seconds: float, action: Callable[[PodState], None]) -> None:
        """Schedule a step of a pod's life, unless another step happens before."""
        lives = pod.lives

        def happen() -> None:
            if pod.lives == lives and pod.uid in pod.workload.pods:
                action(pod)

        self._state.timeline.after(seconds, happen)

    def _set_ready(self, pod: PodState, *, is_ready: bool) -> None:
        if pod.is_ready != is_ready:
            pod.is_ready, pod.ready_changed_at = is_ready, self._state.now
        pod.lives += 1
        self._state.pod_changed(pod)

    def _become_ready(self, pod: PodState) -> None:
        if pod.node is None or not pod.node.is_alive:
            return
        self._state.log("Ready", pod.ref)
        self._set_ready(pod, is_ready=True)
        if pod.template.crash_after is not None:
            self._later(pod, pod.template.crash_after.draw(pod.workload.rng), self.crash)

    def crash(self, pod: PodState) -> None:
        """End a pod's containers and start them again, later each time."""
        if pod.phase != "Running" or pod.deletion_at is not None or pod.counter is None:
            return
        settings = self._state.settings
        wait_seconds = settings.crash_delay_seconds * 2 ** min(pod.restarts, 10)
        pod.restarts += 1
        self._state.log("Crashed", pod.ref, f"restarts={pod.restarts}")
        self._set_ready(pod, is_ready=False)
        self._later(pod, min(wait_seconds, settings.crash_delay_max_seconds), self._restart)

    def _restart(self, pod: PodState) -> None:
        assert pod.counter is not None, "only running pods restart"
        pod.restarted_at = self._state.now
        pod.quotas.clear()  # new containers, new cgroups
        pod.counter.reset(self._state.now)
        self._state.pod_changed(pod)
        self._later(pod, pod.template.start_up.draw(pod.workload.rng), self._become_ready)

    def end(self, pod: PodState, *, grace_seconds: int | None = None, why: str = "Deleted") -> None:
        """Terminate a pod: it is unready at once, and removed once stopped or after the grace period."""
        if pod.deletion_at is not None:
            return
        grace = pod.template.grace_seconds if grace_seconds is None else grace_seconds
        pod.deletion_at = self._state.now + grace
        self._state.log(why, pod.ref, f"grace={grace}")
        self._set_ready(pod, is_ready=False)
        if pod.node is None:
            self._vanish(pod)
        else:
            stop_seconds = min(pod.template.stop.draw(pod.workload.rng), grace)
            self._later(pod, stop_seconds, self._stop)

    def _stop(self, pod: PodState) -> None:
        """Confirm a pod's end; a dead node confirms nothing."""
        if pod.node is not None and pod.node.is_alive:
            self._vanish(pod)

    def _vanish(self, pod: PodState) -> None:
        node, now = pod.node, self._state.now
        if node is not None:
            del node.pods[pod.uid]
            node.crowd[pod.workload.ref] -= 1
            node.cpu_taken_cores -= pod.template.cpu_request_cores
            node.memory_taken_bytes -= pod.template.memory_request_bytes
        key = (pod.workload.ref.namespace, pod.name)
        del pod.workload.pods[pod.uid], self._state.pods[key]
        pod.lives += 1
        if pod.counter is not None:
            pod.counter.set_rate(now, 0.0)
            pod.counter.stopped_at = now
            self._state.gone[key] = pod
            self._state.timeline.after(
                self._state.settings.retention_seconds, lambda: self._state.gone.pop(key, None)
            )
        self._state.log("Gone", pod.ref)
        self._state.pod_changed(pod)
        self.freed()

    def kill_node(self, node: NodeState) -> None:
        """Cut a node off: its pods serve nothing from now on; the cluster notices later."""
        if not node.is_alive:
            return
        node.is_alive, node.died_at = False, self._state.now
        self._state.log("NodeDied", node.name)
        for pod in list(node.pods.values()):
            if pod.counter is not None:
                pod.counter.stopped_at = self._state.now
            self._state.pod_changed(pod)
        grace_seconds = self._state.settings.node_grace_seconds
        self._while_dead(node, grace_seconds, self._lose)
        self._while_dead(node, grace_seconds + self._state.settings.node_eviction_seconds, self._empty)

    def _while_dead(self, node: NodeState, seconds: float, then: Callable[[NodeState], None]) -> None:
        """Call something after so many seconds, unless the node is back by then."""
        died_at = node.died_at

        def happen() -> None:
            if not node.is_alive and node.died_at == died_at:
                then(node)

        self._state.timeline.after(seconds, happen)

    def _lose(self, node: NodeState) -> None:
        node.is_ready = False
        self._node_changed(node, "NodeNotReady")
        for pod in list(node.pods.values()):
            self._set_ready(pod, is_ready=False)

    def _empty(self, node: NodeState) -> None:
        """Delete what was on a dead node, without waiting for a kubelet that cannot confirm it."""
        for pod in list(node.pods.values()):
            self.end(pod, grace_seconds=0, why="DeletedWithNode")
            self._vanish(pod)

    def revive_node(self, node: NodeState) -> None:
        """Bring a node back; the pods that are still there become ready again."""
        if node.is_alive:
            return
        node.is_alive = node.is_ready = True
        self._node_changed(node, "NodeReady")
        for pod in list(node.pods.values()):
            if pod.counter is not None:
                pod.counter.stopped_at = None
                self._state.faults.add(
                    FaultKind.METRICS_GAP,
                    seconds=self._state.now - node.died_at,
                    starts_at=node.died_at,
                    target=str(pod.ref),
                )
            if pod.deletion_at is not None:
                self._later(pod, pod.template.stop.draw(pod.workload.rng), self._stop)
            elif pod.is_ready:
                self._state.pod_changed(pod)
            else:
                self._later(pod, 1.0, self._become_ready)
        self.freed()

    def _node_changed(self, node: NodeState, kind: str) -> None:
        node.version, node.view = self._state.next_version(), None
        self._state.log(kind, node.name)

    def cordon(self, node: NodeState, *, is_cordoned: bool) -> None:
        """Close a node for new pods, or open it."""
        node.is_cordoned = is_cordoned
        self._node_changed(node, "Cordoned" if is_cordoned else "Uncordoned")
        self.freed()


_SLACK = 1e-9


class Scheduler:
    """Places pods; those that fit nowhere wait until something frees room."""

    def __init__(self, state: SimState, kubelet: Kubelet) -> None:
        self._state = state
        self._kubelet = kubelet
        self._waiting: dict[str, PodState] = {}
        self._is_look_due = False
        kubelet.freed = self.retry_soon

    def take(self, pod: PodState) -> None:
        self._waiting[pod.uid] = pod
        self.retry_soon()

    def retry_soon(self) -> None:
        if self._waiting and not self._is_look_due:
            self._is_look_due = True
            self._state.timeline.after(self._state.settings.scheduler_delay_seconds, self._place_all)

    def _place_all(self) -> None:
        self._is_look_due = False
        for pod in list(self._waiting.values()):
            if pod.deletion_at is not None or pod.uid not in pod.workload.pods:
                del self._waiting[pod.uid]
            elif (node := self._choose(pod)) is not None:
                del self._waiting[pod.uid]
                self._kubelet.start(pod, node)

    def _choose(self, pod: PodState) -> NodeState | None:
        ref = pod.workload.ref
        fitting = [node for node in self._state.nodes.values() if _fits(node, pod.template)]
        return min(
            fitting,
            key=lambda node: (node.crowd[ref], node.cpu_taken_cores / node.cpu_cores, node.name),
            default=None,
        )


def _fits(node: NodeState, pod: template.Template) -> bool:
    return (
        node.is_ready
        and not node.is_cordoned
        and not node.is_closed
        and len(node.pods) < node.pods_max
        and node.cpu_taken_cores + (pod.cpu_request_cores - _SLACK) <= node.cpu_cores
        and node.memory_taken_bytes + (pod.memory_request_bytes - _SLACK) <= node.memory_bytes
        and (not pod.node_labels or set(pod.node_labels).issubset(node.labels))
    )


class Replication:
    """The Deployment and ReplicaSet controllers in one."""

    def __init__(self, state: SimState, kubelet: Kubelet, scheduler: Scheduler) -> None:
        self._state = state
        self._kubelet = kubelet
        self._scheduler = scheduler
        state.listeners.append(self.notice)

    def notice(self, workload: WorkloadState) -> None:
        if not workload.is_reconcile_due:
            workload.is_reconcile_due = True
            delay_seconds = self._state.settings.controller_delay_seconds
            self._state.timeline.after(delay_seconds, lambda: self._reconcile(workload))

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
            uid=template.uid(workload.rng),
            workload=workload,
            template=workload.template,
            revision=workload.revision,
            created_at=self._state.now,
            ready_changed_at=self._state.now,
            limit_cores=workload.template.cpu_limit_cores,
            scrape_phase=workload.rng.random(),
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
            name = f"{workload.ref.name}-{workload.revision}-{template.suffix(workload.rng)}"
            if (namespace, name) not in taken:
                return name


def room_for(workload: WorkloadState) -> int:
    """Return how many pods a workload may have: its replicas, and a surge while old pods are replaced."""
    is_rolling = any(pod.revision != workload.revision for pod in workload.active())
    return workload.replicas + (surge(workload) if is_rolling else 0)


def surge(workload: WorkloadState) -> int:
    """Return by how many pods a rollout may exceed the replicas."""
    return template.of(workload.max_surge, workload.replicas, is_rounded_up=True)


def unavailable_max(workload: WorkloadState) -> int:
    """Return how many replicas a rollout may leave unready; at least one if there is no surge."""
    count = template.of(workload.max_unavailable, workload.replicas, is_rounded_up=False)
    return max(count, 1) if surge(workload) == 0 else count


def _replaceable(workload: WorkloadState, new: list[PodState], old: list[PodState]) -> list[PodState]:
    """Return the old pods that may end now: the unready ones first, then as many as stay available."""
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
        ready_at = pod.ready_changed_at if pod.is_ready else 0.0
        is_placed = pod.node is not None
        return is_placed, pod.is_ready, -crowd, -ready_at, -pod.restarts, -pod.created_at, pod.uid

    return sorted(pods, key=rank)


class Serving:
    """Splits the demand of each workload over its pods, at each step and whenever its pods change."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        state.listeners.append(self.notice)

    def notice(self, workload: WorkloadState) -> None:
        """Move the work when the servers changed; else only see to those who started or stopped."""
        serving = tuple(pod.uid for pod in workload.serving_pods())
        if serving != workload.serving:
            workload.serving = serving
            workload.sharing.settle(serving, workload.replicas)
        self._spread(workload)

    def step(self) -> None:
        seconds = self._state.settings.load_step_seconds
        for workload in self._state.workloads.values():
            has_drifted = workload.sharing.drift(seconds)
            if has_drifted or workload.shape.cores(self._state.now) != workload.demand_cores:
                self._spread(workload)
                self._state.reloaded.add(workload.ref)

    def _spread(self, workload: WorkloadState) -> None:
        now = workload.spread_at = self._state.now
        demand = workload.demand_cores = workload.shape.cores(now)
        shares = workload.sharing.shares() if workload.serving else {}
        workload.unserved_cores = 0.0 if shares else demand
        for pod in workload.pods.values():
            pod.work_cores = demand * shares.get(pod.uid, 0.0)
            if pod.counter is not None:
                pod.counter.set_rate(now, pod.usage_cores)
