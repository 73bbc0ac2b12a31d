"""Weeks of usage in the simulator, as the recommendation reads them."""

import numpy as np
import pytest

from equipoise.core.cluster import Container
from equipoise.core.errors import WorldFailed
from equipoise.ports.cluster import CPU, MEMORY
from equipoise.recommendation.usage import HistoryReader, PodOwnership
from equipoise.sim import Delay, FaultKind, Template, World
from equipoise.sim.hpa import Behavior
from equipoise.sim.load import Constant, Diurnal
from equipoise.sim.metrics import STEP_SECONDS, SimHistory

DAY = 86400.0


def _world() -> tuple[World, SimHistory]:
    world = World(4, started_at=1_800_000_000.0)
    world.add_node("n1", cpu_cores=64)
    template = Template(
        containers=(Container("app", 1.0, 1000.0), Container("side", 0.1, 10.0)),
        split=(0.9, 0.1),
        start_up=Delay(5.0),
    )
    shop = world.add_workload("shop", "web", replicas=4, template=template, shape=Constant(4.0))
    world.add_workload("yard", "job", replicas=1, shape=Constant(1.0))
    history = SimHistory(world.state)
    history.remember(shop, Diurnal(4.0, 2.0), seconds=DAY, replicas=2)
    return world, history


def test_the_past_and_what_was_scraped_since_are_one_history_of_the_workload() -> None:
    """Pods that are gone count, and the minute in which everybody started is unknown, not zero."""
    world, history = _world()
    world.advance(3600)
    end = world.now
    (lot,) = history.read((CPU,), end - DAY + 60, end, 60.0, namespaces=["shop"])
    assert set(lot.namespaces) == {"shop"}
    assert len(set(lot.pods)) == 6
    assert lot.timestamps[-1] == end
    ref = next(one.ref for one in world.cluster.workloads("shop"))
    belonging = PodOwnership(world.cluster.workloads(), world.cluster.pods())
    cores = HistoryReader(lot, belonging, [ref]).usage([ref]).cores[0]
    assert cores[-50:] == pytest.approx(np.full(50, 4.0))
    known = cores[:-70]
    assert not np.isnan(known).any()
    assert (known.min(), known.max()) == (pytest.approx(2.0, abs=0.05), pytest.approx(6.0, abs=0.05))
    assert np.nanmin(cores) > 1.9


def test_memory_is_its_peak_and_what_can_not_be_answered_raises() -> None:
    """Both measures in the order asked for; another step, or an outage, is a failure of the world."""
    world, history = _world()
    world.advance(600)
    first, second = history.read((MEMORY, CPU), world.now - 540, world.now, STEP_SECONDS)
    assert (first.measure, second.measure, first.scope) == ("memory", "cpu", None)
    peaks = dict(zip(zip(first.namespaces, first.containers, strict=True), first.values[:, -1], strict=True))
    assert peaks["shop", "app"] == 1000.0
    with pytest.raises(WorldFailed, match="60 s"):
        next(history.read((CPU,), 0.0, 60.0, 30.0))
    world.faults.add(FaultKind.METRICS_OUTAGE, seconds=60, starts_at=world.now)
    world.advance(1)
    with pytest.raises(WorldFailed, match="do not answer"):
        next(history.read((CPU,), 0.0, 60.0, 60.0))


def test_what_is_older_than_a_week_and_a_day_is_forgotten() -> None:
    """Memory is bounded, however long it runs."""
    world = World(4, started_at=1_800_000_000.0)
    world.add_node("n1")
    shop = world.add_workload("shop", "web", replicas=1)
    history = SimHistory(world.state)
    history.remember(shop, Constant(1.0), seconds=8 * DAY, replicas=1)
    world.advance(120)
    (lot,) = history.read((CPU,), world.now - 60, world.now, 60.0)
    assert len(lot.pods) == 2
    history._forget(round(world.now / 60) + 1)
    (lot,) = history.read((CPU,), world.now - 60, world.now, 60.0)
    assert len(lot.pods) == 0


def test_hpas_are_told_word_for_word() -> None:
    """As the API server has them, with and without a behavior."""
    world, _ = _world()
    shop = next(iter(world.state.workloads.values()))
    world.add_hpa(shop, replicas_min=2, replicas_max=5, behavior=Behavior())
    (spec,) = world.applier.specs("shop")
    target = {"type": "Utilization", "averageUtilization": 70}
    assert spec.metrics == ({"type": "Resource", "resource": {"name": "cpu", "target": target}},)
    assert spec.behavior is not None
    assert spec.behavior["scaleUp"]["policies"][0] == {"type": "Pods", "value": 4, "periodSeconds": 15}
    assert (spec.name, spec.replicas_min, spec.replicas_max) == ("web", 2, 5)
    assert world.applier.specs("yard") == []
