"""Pods, nodes and workloads live as in a real cluster, seen through the ports."""

import re
from collections import Counter
from itertools import pairwise

import pytest

from equipoise.core.cluster import Container
from equipoise.ports import Actuator, Clock, Cluster, Metrics, Store
from equipoise.sim import Delay, Template, World
from equipoise.sim.load import Constant
from equipoise.sim.state import WorkloadState
from equipoise.sim.template import ALPHABET

QUICK = Template(start_up=Delay(5), stop=Delay(2))


def world_with(
    replicas: int = 4, *, nodes: int = 2, template: Template = QUICK, cores: float = 0.0, seed: int = 1
) -> tuple[World, WorkloadState]:
    world = World(seed)
    for number in range(nodes):
        world.add_node(f"node-{number}", cpu_cores=4)
    workload = world.add_workload("shop", "web", replicas=replicas, template=template, shape=Constant(cores))
    return world, workload


def test_the_world_offers_the_ports() -> None:
    """The production loops ask for nothing else; mypy proves the types."""
    world = World(1)
    cluster: Cluster = world.cluster
    metrics: Metrics = world.metrics
    actuator: Actuator = world.actuator
    store: Store = world.store
    clock: Clock = world.clock
    assert all((cluster, metrics, actuator, store))
    world.advance(7)
    assert clock.now() == world.now


def test_pods_look_as_a_deployment_makes_them() -> None:
    """Names, owners, labels, identities, spread over the nodes, and ready after their start-up."""
    world, workload = world_with()
    world.advance(3)
    assert [pod.is_ready for pod in world.cluster.pods()] == [False] * 4
    world.advance(3)
    pods = world.cluster.pods("shop")
    for pod in pods:
        assert re.fullmatch(rf"web-[{ALPHABET}]{{10}}-[{ALPHABET}]{{5}}", pod.name)
        assert pod.owner is not None
        assert (pod.owner.kind, pod.owner.name) == ("ReplicaSet", pod.name.rpartition("-")[0])
        assert workload.selector.matches(dict(pod.labels))
        assert (pod.phase, pod.is_ready, pod.qos_class) == ("Running", True, "Burstable")
        assert pod.ready_since == pytest.approx(world.now - 1, abs=0.5)
    assert len({pod.uid for pod in pods}) == 4
    assert sorted(pod.node for pod in pods) == ["node-0", "node-0", "node-1", "node-1"]
    (seen,) = world.cluster.workloads("shop")
    assert (seen.replicas_wanted, seen.replicas_seen, seen.replicas_ready, seen.replicas_updated) == (
        4,
        4,
        4,
        4,
    )
    assert seen == world.cluster.workload(workload.ref)
    assert world.cluster.pods("elsewhere") == []


def test_a_pod_that_fits_nowhere_waits_for_room() -> None:
    """Two nodes of 4 cores hold 8 pods of 1 core; the ninth waits until a node comes, or uncordons."""
    world, workload = world_with(9)
    world.advance(30)
    assert [pod.phase for pod in workload.pods.values()].count("Pending") == 1
    extra = world.add_node("extra")
    world.kubelet.cordon(extra, is_cordoned=True)
    world.advance(30)
    assert [pod.phase for pod in workload.pods.values()].count("Pending") == 1
    assert {node.name for node in world.cluster.nodes() if node.is_cordoned} == {"extra"}
    world.kubelet.cordon(extra, is_cordoned=False)
    world.advance(30)
    assert all(pod.is_ready for pod in workload.pods.values())


def test_scaling_down_ends_pending_and_unready_pods_first() -> None:
    """Then those on the most crowded node; crowds are counted once, so what is left may share a node."""
    world, workload = world_with(10)
    world.advance(30)
    sick = next(pod for pod in workload.pods.values() if pod.is_ready)
    world.kubelet.crash(sick)
    world.scale(workload, 7)
    world.advance(20)
    assert sick.uid not in workload.pods
    assert [pod.phase for pod in workload.pods.values()] == ["Running"] * 7
    running = list(workload.pods.values())
    world.scale(workload, 2)
    world.advance(20)
    crowds = Counter(pod.node.name for pod in running if pod.node)
    assert [pod.node.name for pod in workload.pods.values() if pod.node] == [
        min(crowds, key=crowds.__getitem__)
    ] * 2


def test_a_crash_loop_waits_longer_each_time() -> None:
    """10 s, 20 s, 40 s and so on, at most 300 s; each restart counts and is dated."""
    template = Template(start_up=Delay(1), crash_after=Delay(5))
    world, workload = world_with(1, template=template)
    world.advance(3600)
    (pod,) = workload.pods.values()
    times = [entry.at for entry in world.state.history if entry.kind == "Crashed"]
    gaps = [round(later - earlier) for earlier, later in pairwise(times)]
    assert gaps[:7] == [16, 26, 46, 86, 166, 306, 306]
    (seen,) = world.cluster.pods()
    assert seen.restarts == len(times)
    assert pod.restarted_at is not None
    assert pod.restarted_at > world.now - 320


@pytest.mark.parametrize(("surge", "unavailable"), [("25%", "25%"), (1, 0), (0, 1), (0, 0), ("100%", "0%")])
def test_a_rollout_keeps_within_surge_and_unavailable(surge: int | str, unavailable: int | str) -> None:
    """Never more pods than surge allows, never fewer ready ones than unavailable allows; then all are new."""
    world = World(5)
    world.add_node("node", cpu_cores=64)
    workload = world.add_workload(
        "shop", "web", replicas=6, template=QUICK, max_surge=surge, max_unavailable=unavailable
    )
    world.advance(60)
    world.roll_out(workload, Template(start_up=Delay(9), containers=(Container("app", 0.5),)))
    seen = world.cluster.workloads()[0]
    assert seen.generation == seen.generation_observed + 1
    most, least = 0, 6
    for _ in range(400):
        world.advance(0.5)
        active = workload.active()
        most = max(most, len(active))
        least = min(least, sum(pod.is_ready for pod in active))
    allowed = (
        {"25%": 2, "100%": 6}.get(str(surge), surge),
        {"25%": 1, "0%": 0}.get(str(unavailable), unavailable),
    )
    assert most <= 6 + int(allowed[0])
    assert least >= 6 - max(int(allowed[1]), int(allowed[0] == 0))
    seen = world.cluster.workloads()[0]
    assert (seen.replicas_updated, seen.replicas_ready, seen.replicas_seen) == (6, 6, 6)
    assert seen.generation == seen.generation_observed
    assert {pod.cpu_request_cores for pod in world.cluster.pods()} == {0.5}


def test_a_dead_node_is_noticed_late_and_its_pods_are_replaced_later() -> None:
    """40 s until anybody sees it, 5 min until the pods are deleted; the work moves at once."""
    world, workload = world_with(4, cores=2.0)
    world.advance(30)
    node = world.state.nodes["node-0"]
    world.kubelet.kill_node(node)
    assert [pod.is_ready for pod in world.cluster.pods()] == [True] * 4
    assert sorted(pod.work_cores for pod in workload.pods.values()) == [0, 0, 1, 1]
    world.advance(41)
    assert [pod.is_ready for pod in world.cluster.pods()].count(True) == 2
    assert [each.is_ready for each in world.cluster.nodes()] == [False, True]
    world.advance(300)
    assert {pod.node.name for pod in workload.pods.values() if pod.node} == {"node-1"}
    world.advance(60)
    assert [pod.work_cores for pod in workload.pods.values()] == [0.5] * 4
    world.kubelet.revive_node(node)
    assert [each.is_ready for each in world.cluster.nodes()] == [True, True]


def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    """Nothing was replaced."""
    world, workload = world_with(4)
    world.advance(30)
    before = set(workload.pods)
    world.kubelet.kill_node(world.state.nodes["node-0"])
    world.advance(100)
    world.kubelet.revive_node(world.state.nodes["node-0"])
    world.advance(400)
    assert set(workload.pods) == before
    assert all(pod.is_ready for pod in workload.pods.values())


def test_a_pod_that_was_ending_on_a_dead_node_ends_with_it() -> None:
    """A dead node confirms nothing: it stays terminating until the node's pods are deleted."""
    world, workload = world_with(4)
    world.advance(30)
    node = world.state.nodes["node-0"]
    pod = next(iter(node.pods.values()))
    world.actuator.evict(pod.ref)
    world.kubelet.kill_node(node)
    world.advance(330)
    assert pod.uid in workload.pods
    world.advance(20)
    assert pod.uid not in workload.pods
    assert len(workload.active()) == 4


def test_every_change_has_a_new_version() -> None:
    """An unchanged pod is the very same object; a changed one has another version."""
    world, _ = world_with(2)
    world.advance(30)
    first = world.cluster.pods()
    world.advance(30)
    second = world.cluster.pods()
    assert all(before is after for before, after in zip(first, second, strict=True))
    world.actuator.evict(world.state.pods["shop", first[0].name].ref)
    assert world.cluster.pods()[0].resource_version != first[0].resource_version


def test_usage_stops_at_the_limit() -> None:
    """Three cores of demand on a pod that may use two."""
    world, workload = world_with(1, template=Template((Container("app", 1, None, 2),)), cores=3.0)
    world.advance(60)
    (pod,) = workload.pods.values()
    assert pod.counter is not None
    assert (pod.work_cores, pod.counter.rate_cores) == (3.0, 2.0)
    assert pod.template.qos_class == "Burstable"


def test_the_quality_classes_are_kubernetes_own() -> None:
    """Guaranteed needs every limit, BestEffort has nothing."""
    assert Template((Container("a"),)).qos_class == "BestEffort"
    assert Template((Container("a", 1, 5, 1, 5),)).qos_class == "Guaranteed"
    assert Template((Container("a", None, None, 1, 5),)).qos_class == "Guaranteed"
    assert Template((Container("a", 1, 5, 1, 5), Container("b"))).qos_class == "Burstable"


def test_a_period_must_end() -> None:
    """Zero seconds would never let time pass."""
    with pytest.raises(ValueError, match="never ends"):
        World(1).every(0, print)
