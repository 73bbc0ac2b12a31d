"""Finds a node for each pod: one where it fits, spread by workload, then the emptiest."""

from equipoise.sim.kubelet import Kubelet
from equipoise.sim.state import NodeState, PodState, State

_SLACK = 1e-9


class Scheduler:
    """Places pods; those that fit nowhere wait until something frees room."""

    def __init__(self, state: State, kubelet: Kubelet) -> None:
        self._state = state
        self._kubelet = kubelet
        self._waiting: dict[str, PodState] = {}
        self._is_look_due = False
        kubelet.freed = self.look_again

    def take(self, pod: PodState) -> None:
        """Accept a new pod."""
        self._waiting[pod.uid] = pod
        self.look_again()

    def look_again(self) -> None:
        """Try the waiting pods once more, soon."""
        if self._waiting and not self._is_look_due:
            self._is_look_due = True
            self._state.timeline.after(self._state.settings.scheduler_delay_seconds, self._place_all)

    def _place_all(self) -> None:
        self._is_look_due = False
        for pod in list(self._waiting.values()):
            if pod.deletion_at is not None or pod.uid not in pod.workload.pods:
                del self._waiting[pod.uid]
                continue
            node = self._choose(pod)
            if node is not None:
                del self._waiting[pod.uid]
                self._kubelet.start(pod, node)

    def _choose(self, pod: PodState) -> NodeState | None:
        cpu_cores, memory_bytes = pod.template.cpu_request_cores, pod.template.memory_request_bytes
        wanted = frozenset(pod.template.node_labels)
        fitting = [
            node
            for node in self._state.nodes.values()
            if _fits(node, cpu_cores - _SLACK, memory_bytes - _SLACK)
            and (not wanted or wanted.issubset(node.labels))
        ]
        ref = pod.workload.ref
        return min(
            fitting,
            key=lambda node: (node.crowd[ref], node.cpu_taken_cores / node.cpu_cores, node.name),
            default=None,
        )


def _fits(node: NodeState, cpu_cores: float, memory_bytes: float) -> bool:
    return (
        node.is_ready
        and not node.is_cordoned
        and not node.is_closed
        and len(node.pods) < node.pods_max
        and node.cpu_taken_cores + cpu_cores <= node.cpu_cores
        and node.memory_taken_bytes + memory_bytes <= node.memory_bytes
    )
