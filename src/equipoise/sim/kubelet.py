"""Lives of pods on nodes: start, readiness, crashes, the end, and nodes that die."""

from collections.abc import Callable

from equipoise.sim.faults import FaultKind
from equipoise.sim.state import NodeState, PodState, State
from equipoise.sim.usage import CpuCounter


def _nothing() -> None:
    return None


class Kubelet:
    """Runs the pods of all nodes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.freed: Callable[[], object] = _nothing
        """Told when room came free."""

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
        self._later(pod, pod.template.start_up.draw(pod.workload.chance), self._become_ready)

    def _later(self, pod: PodState, seconds: float, turn: Callable[[PodState], None]) -> None:
        """Plan a turn of a pod's life, unless its life takes another turn before."""
        lives = pod.lives

        def happen() -> None:
            if pod.lives == lives and pod.uid in pod.workload.pods:
                turn(pod)

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
            self._later(pod, pod.template.crash_after.draw(pod.workload.chance), self.crash)

    def crash(self, pod: PodState) -> None:
        """End a pod's containers and start them again, later each time."""
        if pod.phase != "Running" or pod.deletion_at is not None or pod.counter is None:
            return
        settings = self._state.settings
        wait_seconds = min(
            settings.crash_delay_seconds * 2 ** min(pod.restarts, 10), settings.crash_delay_max_seconds
        )
        pod.restarts += 1
        self._state.log("Crashed", pod.ref, f"restarts={pod.restarts}")
        self._set_ready(pod, is_ready=False)
        self._later(pod, wait_seconds, self._restart)

    def _restart(self, pod: PodState) -> None:
        assert pod.counter is not None, "only running pods restart"
        pod.restarted_at = self._state.now
        pod.quotas.clear()  # new containers, new cgroups
        pod.counter.reset(self._state.now)
        self._state.pod_changed(pod)
        self._later(pod, pod.template.start_up.draw(pod.workload.chance), self._become_ready)

    def end(self, pod: PodState, *, grace_seconds: int | None = None, why: str = "Deleted") -> None:
        """Ask a pod to end: it is unready at once, and gone when it has stopped or the grace is over."""
        if pod.deletion_at is not None:
            return
        grace = pod.template.grace_seconds if grace_seconds is None else grace_seconds
        pod.deletion_at = self._state.now + grace
        self._state.log(why, pod.ref, f"grace={grace}")
        self._set_ready(pod, is_ready=False)
        if pod.node is None:
            self._vanish(pod)
        else:
            stop_seconds = min(pod.template.stop.draw(pod.workload.chance), grace)
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
        died_at = node.died_at
        grace = self._state.settings.node_grace_seconds
        self._state.timeline.after(grace, lambda: self._lose(node, died_at))
        wait = grace + self._state.settings.node_eviction_seconds
        self._state.timeline.after(wait, lambda: self._empty(node, died_at))

    def _lose(self, node: NodeState, died_at: float) -> None:
        if node.is_alive or node.died_at != died_at:
            return
        node.is_ready = False
        self._node_changed(node, "NodeNotReady")
        for pod in list(node.pods.values()):
            self._set_ready(pod, is_ready=False)

    def _empty(self, node: NodeState, died_at: float) -> None:
        """Delete what was on a dead node, without waiting for a kubelet that cannot confirm it."""
        if node.is_alive or node.died_at != died_at:
            return
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
                self._later(pod, pod.template.stop.draw(pod.workload.chance), self._stop)
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
