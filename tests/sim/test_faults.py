"""Neighbours that fail: the API server, its watch, the store."""

import pytest

from equipoise.core.cluster import ObjectRef, WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.ports import EvictionResult, StoreConflict
from equipoise.sim import FaultKind, World
from equipoise.sim.load import Constant
from equipoise.sim.state import WorkloadState
from tests.support.sim.scenes import Spike

KEY = WorkloadRef("apps/v1", "Deployment", "shop", "web")
ABOUT = ObjectRef("apps/v1", "Deployment", "shop", "web")


def running() -> tuple[World, WorkloadState]:
    world = World(4)
    world.add_node("node")
    workload = world.add_workload("shop", "web", replicas=3, shape=Constant(1.0))
    world.advance(120)
    return world, workload


def test_an_unavailable_api_server_answers_nothing() -> None:
    """Reads, evictions, events and memory fail alike, and work again afterwards."""
    world, workload = running()
    pod = next(iter(workload.pods.values()))
    world.faults.add(FaultKind.API_UNAVAILABLE, seconds=30)
    for call in (
        world.cluster.pods,
        world.cluster.nodes,
        world.cluster.workloads,
        world.cluster.hpas,
        world.cluster.pdbs,
        lambda: world.cluster.workload(workload.ref),
        lambda: world.actuator.evict(pod.ref),
        lambda: world.actuator.record_event(ABOUT, "Rotate", "It was hot."),
        lambda: world.store.read(KEY),
        lambda: world.store.write(KEY, {}, ""),
    ):
        with pytest.raises(WorldFailed):
            call()
    world.advance(30)
    assert world.cluster.pods()
    world.actuator.record_event(ABOUT, "Rotate", "It was hot.", is_warning=True)
    (event,) = world.actuator.events
    assert (event.reason, event.is_warning, event.at) == ("Rotate", True, world.now)


def test_an_eviction_whose_answer_is_lost_was_done_all_the_same() -> None:
    """Silence is no answer: the pod is on its way out, and asking again finds it so."""
    world, workload = running()
    pod = next(iter(workload.pods.values()))
    world.faults.add(FaultKind.EVICTION_ANSWER_LOST, seconds=1)
    with pytest.raises(WorldFailed, match="lost"):
        world.actuator.evict(pod.ref)
    world.advance(2)
    assert pod.deletion_at is not None
    world.advance(60)
    assert world.actuator.evict(pod.ref).result is EvictionResult.GONE


def test_a_slow_watch_shows_the_past() -> None:
    """Twenty seconds old while it lasts, never older than its beginning, and the present afterwards."""
    world, workload = running()
    before = world.cluster.pods()
    world.faults.add(FaultKind.WATCH_LAG, seconds=100, value=20)
    world.actuator.evict(world.state.pods["shop", before[0].name].ref)
    world.advance(15)
    assert world.cluster.pods() == before
    assert world.cluster.workload(workload.ref) is not None
    world.advance(6)
    assert world.cluster.pods() != before
    world.advance(60)
    assert {pod.name for pod in world.cluster.pods()} == {pod.name for pod in workload.pods.values()}
    world.scale(workload, 5)
    world.advance(5)
    assert len(world.cluster.pods()) == 3
    world.advance(20)
    assert len(world.cluster.pods()) == 5


def test_a_watch_that_will_be_slow_later_starts_from_then() -> None:
    """The fault may be planned ahead."""
    world, workload = running()
    world.faults.add(FaultKind.WATCH_LAG, seconds=100, value=50, starts_at=world.now + 60)
    world.scale(workload, 4)
    world.advance(50)
    assert len(world.cluster.pods()) == 4
    world.advance(20)
    world.scale(workload, 2)
    world.advance(30)
    assert len(world.cluster.pods()) == 4


def test_the_store_compares_and_swaps() -> None:
    """An absent entry has no version; who is late reads again."""
    world, _ = running()
    absent = world.store.read(KEY)
    assert (absent.data, absent.version) == ({}, "")
    first = world.store.write(KEY, {"n": [1]}, absent.version)
    with pytest.raises(StoreConflict):
        world.store.write(KEY, {"n": [2]}, absent.version)
    second = world.store.write(KEY, {"n": [2]}, first.version)
    assert world.store.read(KEY) == second


def test_what_is_stored_is_a_copy() -> None:
    """Changing it afterwards changes nothing."""
    world, _ = running()
    data = {"n": [1]}
    world.store.write(KEY, data, "")
    data["n"].append(2)
    assert world.store.read(KEY).data["n"] == [1]


def test_the_store_is_bounded() -> None:
    """What would not fit an object in the API server is refused, and nothing is written."""
    world, _ = running()
    with pytest.raises(WorldFailed, match="too many"):
        world.store.write(KEY, {"text": "x" * 300_000}, "")
    assert world.store.read(KEY).version == ""


def test_the_store_fails_in_three_ways() -> None:
    """Unavailable; somebody else was faster; written, but the answer was lost."""
    world, _ = running()
    world.faults.add(FaultKind.STORE_UNAVAILABLE, seconds=1)
    with pytest.raises(WorldFailed):
        world.store.read(KEY)
    world.advance(1)
    world.faults.add(FaultKind.STORE_CONFLICT, seconds=1)
    with pytest.raises(StoreConflict):
        world.store.write(KEY, {"n": 1}, "")
    world.advance(1)
    assert world.store.read(KEY).version == ""
    world.faults.add(FaultKind.STORE_ANSWER_LOST, seconds=1)
    with pytest.raises(WorldFailed):
        world.store.write(KEY, {"n": 1}, "")
    world.advance(1)
    assert world.store.read(KEY).data["n"] == 1


def test_an_hpa_without_metrics_does_nothing() -> None:
    """And scales when they are back."""
    world = World(4)
    world.add_node("node", cpu_cores=64)
    shape = Spike(2.1, 6.0, world.now + 600, 1200)
    workload = world.add_workload("shop", "web", replicas=3, shape=shape)
    world.add_hpa(workload, replicas_min=3, replicas_max=10)
    world.advance(590)
    assert workload.replicas == 3
    world.faults.add(FaultKind.RESOURCE_METRICS_OUTAGE, seconds=300)
    world.advance(300)
    assert workload.replicas == 3
    world.advance(120)
    assert workload.replicas == 9
    (hpa,) = world.cluster.hpas("shop")
    assert (hpa.replicas_current, hpa.replicas_desired) == (9, 9)
    assert hpa.scaled_at is not None
    world.advance(1200)
    assert workload.replicas == 3
