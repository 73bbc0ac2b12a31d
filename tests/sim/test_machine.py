"""A simulated node as its agent sees it: quotas slow pods, counters never fall, and what is gone is gone."""

import pytest

from equipoise.core.cluster import Container
from equipoise.core.errors import WorldFailed
from equipoise.ports.node import ContainerRef
from equipoise.qos.policy import QosPolicy
from equipoise.sim import Delay, Template, World
from equipoise.sim.load import Constant
from equipoise.sim.machine import SimMachine, SimNodeContext, container_id, is_free
from equipoise.sim.state import NodeState, PodState

TWO = Template(
    containers=(Container("a", 0.1, 2.0**20, 2.0), Container("b", 0.1, 2.0**20)),
    split=(0.75, 0.25),
    start_up=Delay(2.0),
)


def _world(template: Template = TWO, cores: float = 1.0) -> tuple[World, NodeState, PodState, SimMachine]:
    world = World(3)
    node = world.add_node("n1", cpu_cores=8)
    workload = world.add_workload("d", "app", replicas=1, template=template, shape=Constant(cores))
    world.advance(60)
    (pod,) = workload.pods.values()
    return world, node, pod, SimMachine(world.state, node)


def _ref(pod: PodState, name: str) -> ContainerRef:
    return ContainerRef(pod.uid, container_id(pod.uid, name, pod.restarts))


def test_a_quota_slows_the_pod_from_then_on_and_its_end_frees_it() -> None:
    """By the container that is at its quota; the counters of the machine and of its containers agree."""
    world, _, pod, machine = _world()
    refs = [_ref(pod, "a"), _ref(pod, "b")]
    before, all_before = machine.read(refs, is_deep=True), machine.read_node()
    assert [before[ref.id].quota_us for ref in refs] == [200_000, -1]
    world.advance(10)
    after, all_after = machine.read(refs, is_deep=False), machine.read_node()
    grown = [(after[ref.id].cpu_nanos or 0) - (before[ref.id].cpu_nanos or 0) for ref in refs]
    assert grown == pytest.approx([7.5e9, 2.5e9], abs=10)
    assert (all_after.cpu_nanos or 0) - (all_before.cpu_nanos or 0) == pytest.approx(10e9, abs=10)
    assert machine.set_quota(refs[0], 30_000)  # 0.3 cores for what uses three quarters of the pod
    assert pod.counter is not None
    assert pod.counter.rate_cores == pytest.approx(0.4)
    assert not is_free(machine, pod)
    assert machine.set_quota(refs[0], 200_000)
    assert pod.counter.rate_cores == pytest.approx(1.0)
    assert is_free(machine, pod)


def test_the_machine_remembers_what_pods_used_that_have_gone() -> None:
    """A counter that fell would read as no usage at all."""
    world, _, pod, machine = _world()
    before = machine.read_node()
    world.actuator.evict(pod.ref)
    world.advance(30)
    after = machine.read_node()
    assert (after.cpu_nanos or 0) >= (before.cpu_nanos or 0)
    assert machine.read([_ref(pod, "a")], is_deep=True) == {}
    assert not machine.set_quota(_ref(pod, "a"), 1000)
    assert machine.reclaim(_ref(pod, "a"), 1) is None


def test_a_container_that_restarts_has_a_new_cgroup() -> None:
    """Another id, and no quota of the old one."""
    world, _, pod, machine = _world()
    old = _ref(pod, "a")
    machine.set_quota(old, 10_000)
    world.kubelet.crash(pod)
    world.advance(60)
    assert machine.read([old], is_deep=True) == {}
    assert machine.read([_ref(pod, "a")], is_deep=True)[_ref(pod, "a").id].quota_us == 200_000
    assert is_free(machine, pod)


def test_a_dead_node_answers_nothing_and_a_closed_one_takes_no_pod() -> None:
    """What the API server tells is what the pod asks for; our taint keeps new pods away until it is gone."""
    world, node, pod, machine = _world()
    around = SimNodeContext(world.state, node, world.kubelet, QosPolicy)
    (told,) = around.pods()
    assert (told.key, told.qos_class, told.owner) == (f"d/{pod.name}", "Burstable", "ReplicaSet")
    assert [part.cpu_limit_nanos for part in told.containers] == [2 * 10**9, 0]
    around.set_scheduling(is_disabled=True, sentence="Too much.")
    world.scale(pod.workload, 2)
    world.advance(30)
    assert around.is_scheduling_disabled()
    assert len(node.pods) == 1
    around.set_scheduling(is_disabled=False, sentence="Fine.")
    world.advance(30)
    assert len(node.pods) == 2
    world.kubelet.kill_node(node)
    with pytest.raises(WorldFailed, match="n1"):
        machine.read_node()


def test_a_pod_that_wants_a_label_waits_for_a_node_that_has_it() -> None:
    """And a node can be taken out of the cluster once it is empty."""
    world = World(3)
    plain = world.add_node("plain")
    template = Template(node_labels=(("pool", "gpu"),))
    workload = world.add_workload("d", "app", replicas=1, template=template)
    world.advance(30)
    assert [pod.node for pod in workload.pods.values()] == [None]
    node = world.add_node("right", labels=(("pool", "gpu"),))
    world.advance(30)
    assert [pod.node for pod in workload.pods.values()] == [node]
    with pytest.raises(ValueError, match="1 pods"):
        world.remove_node(node)
    world.remove_node(plain)
    assert [each.name for each in world.cluster.nodes()] == ["right"]
