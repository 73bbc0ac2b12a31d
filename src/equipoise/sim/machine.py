"""A simulated node as read by its agent: counters, cgroups, and its objects in the API server."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from equipoise.core.cluster import Container
from equipoise.core.errors import WorldFailed
from equipoise.ports.node import ContainerRef, Counters, NodeContainer, NodeCounters, NodePod
from equipoise.qos.execute import PodOwner
from equipoise.qos.observation import UNLIMITED, quota_of
from equipoise.qos.policy import QosPolicy
from equipoise.qos.state import AgentState
from equipoise.sim.cluster import pod_view, workload_view
from equipoise.sim.controllers import Kubelet
from equipoise.sim.state import PERIOD_US, NodeState, PodState, SimState

NANO = 10**9


@lru_cache(maxsize=4096)
def container_id(pod_uid: str, container: str, restarts: int) -> str:
    """Name one incarnation of a container, as a runtime does."""
    return hashlib.sha256(f"{pod_uid}/{container}/{restarts}".encode()).hexdigest()


class SimMachine:
    """The port `Node`: a quota that is written slows its pod from that moment on.

    A pod uses the memory that it requests; nothing of it can be reclaimed.
    """

    def __init__(self, state: SimState, node: NodeState) -> None:
        self._state = state
        self._node = node
        self._known: dict[str, PodState] = {}
        self._past_nanos = 0
        """The usage of ended pods, which is part of the machine's counter."""

    def boot_id(self) -> str:
        return f"boot-{self._node.uid}"

    def read_node(self) -> NodeCounters:
        self._check_alive()
        here = self._node.pods
        for uid in [uid for uid in self._known if uid not in here]:
            self._past_nanos += _nanos(self._known.pop(uid), self._state.now)
        self._known |= here
        return NodeCounters(
            cpu_nanos=self._past_nanos + sum(_nanos(pod, self._state.now) for pod in here.values()),
            read_at=self._monotonic,
            cpus=round(self._node.cpu_cores),
            memory_total_bytes=round(self._node.memory_bytes),
            memory_used_bytes=round(sum(pod.template.memory_request_bytes for pod in here.values())),
            gauges={},
        )

    def read(self, containers: Sequence[ContainerRef], *, is_deep: bool) -> Mapping[str, Counters]:
        self._check_alive()
        here = self._containers()
        return {
            ref.id: self._counters(*here[ref.id], is_deep=is_deep) for ref in containers if ref.id in here
        }

    def set_quota(self, container: ContainerRef, quota_us: int) -> bool:
        """Write a quota; the pod is slower, or faster, from now on."""
        self._check_alive()
        found = self._containers().get(container.id)
        if found is None:
            return False
        pod, name = found
        pod.quotas[name] = quota_us
        self._state.log("QuotaWritten", pod.ref, f"{name} {quota_us}")
        if pod.counter is not None:
            pod.counter.set_rate(self._state.now, pod.usage_cores)
            pod.workload.spread_at = self._state.now
        return True

    def reclaim(self, container: ContainerRef, amount_bytes: int) -> int | None:
        """Reclaim nothing: the simulation has no memory to reclaim."""
        del amount_bytes
        self._check_alive()
        return 0 if container.id in self._containers() else None

    def quota_of(self, pod: PodState, container: str) -> int:
        """Return the quota in a container's cgroup: the one written, or that of its limit."""
        return pod.quotas.get(container, _limit_us(pod.template.container(container)))

    @property
    def _monotonic(self) -> float:
        return self._state.now - self._state.timeline.started_at

    def _containers(self) -> dict[str, tuple[PodState, str]]:
        return {
            container_id(pod.uid, each.name, pod.restarts): (pod, each.name)
            for pod in self._node.pods.values()
            if pod.counter is not None
            for each in pod.template.containers
        }

    def _counters(self, pod: PodState, name: str, *, is_deep: bool) -> Counters:
        # Of one that restarted it goes on from where the one before ended: only the growth is looked at.
        nanos = round(_nanos(pod, self._state.now) * pod.template.part(name))
        if not is_deep:
            return Counters(nanos, self._monotonic)
        memory = round(pod.template.container(name).memory_request_bytes or 0.0)
        return Counters(nanos, self._monotonic, memory, 0, self.quota_of(pod, name), PERIOD_US)

    def _check_alive(self) -> None:
        if not self._node.is_alive:
            raise WorldFailed(f"node {self._node.name} is dead (simulated)")


def _nanos(pod: PodState, at: float) -> int:
    return 0 if pod.counter is None else round(pod.counter.total(at) * NANO)


class SimNodeContext:
    """The API server's objects about one node, and the policies for it."""

    def __init__(
        self, state: SimState, node: NodeState, kubelet: Kubelet, policy: Callable[[], QosPolicy]
    ) -> None:
        self._state = state
        self._node = node
        self._kubelet = kubelet
        self._policy = policy

    def pods(self) -> Sequence[NodePod]:
        return [_node_pod(pod) for pod in self._node.pods.values()]

    def policy(self) -> QosPolicy:
        return self._policy()

    def whose(self, pod: NodePod) -> PodOwner | None:
        found = self._node.pods.get(pod.uid)
        if found is None:
            return None
        view = workload_view(found.workload)
        return PodOwner(view.ref, is_whole=view.replicas_ready >= view.replicas_wanted)

    def labels(self) -> Mapping[str, str]:
        return dict(self._node.labels)

    def is_scheduling_disabled(self) -> bool:
        return self._node.is_closed

    def set_scheduling(self, *, is_disabled: bool, sentence: str) -> None:
        self._node.is_closed = is_disabled
        self._state.log("Tainted" if is_disabled else "Untainted", self._node.name, sentence)
        self._kubelet.freed()


def _node_pod(pod: PodState) -> NodePod:
    view = pod_view(pod)
    return NodePod(
        namespace=view.namespace,
        name=view.name,
        uid=view.uid,
        resource_version=view.resource_version,
        phase=view.phase,
        qos_class=view.qos_class,
        priority=view.priority,
        priority_class=view.priority_class,
        started_at=pod.started_at,
        deletion_at=view.deletion_at,
        owner=view.owner.kind if view.owner is not None else "",
        labels=view.labels,
        controller=view.owner,
        containers=tuple(
            NodeContainer(
                each.name,
                container_id(pod.uid, each.name, pod.restarts),
                round((each.cpu_request_cores or 0.0) * NANO),
                round((each.cpu_limit_cores or 0.0) * NANO),
            )
            for each in pod.template.containers
        ),
    )


@dataclass
class SimDisk:
    """A file of the host that outlives the agent."""

    content: AgentState = field(default_factory=AgentState)

    def load(self) -> AgentState:
        return self.content

    def save(self, state: AgentState) -> None:
        self.content = state


def _limit_us(container: Container) -> int:
    return quota_of(round((container.cpu_limit_cores or 0.0) * NANO), PERIOD_US)


def is_free(machine: SimMachine, pod: PodState) -> bool:
    """Return whether every container of a pod may use what its limit says."""
    return all(
        machine.quota_of(pod, each.name) in {_limit_us(each), UNLIMITED} for each in pod.template.containers
    )
