"""An autoscaler that somebody stopped, and what HPAs say of themselves."""

from equipoise.core.cluster import HpaMetric
from equipoise.sim import FaultKind, World
from equipoise.sim.hpa import Behavior, HpaScalingRules, ScalingPolicy
from equipoise.sim.load import Constant
from tests.support.sim.autoscalers import pause_autoscaler, resume_autoscaler

RULES = (ScalingPolicy("Pods", 4, 15),)


def test_a_paused_autoscaler_scales_nothing_until_it_goes_on() -> None:
    """The replicas stay, whatever the load."""
    world = World(7)
    world.add_node("node")
    workload = world.add_workload("shop", "web", replicas=2, shape=Constant(4.0))
    world.add_hpa(workload, replicas_min=1, replicas_max=6)
    pause_autoscaler(world, workload, "ScaledObject shop/web is paused by autoscaling.keda.sh/paused")
    world.advance(900)
    assert workload.replicas == 2
    resume_autoscaler(world, workload)
    world.advance(900)
    assert workload.replicas == 6


def test_a_slow_watch_shows_a_pause_late() -> None:
    """As it shows everything else."""
    world = World(7)
    workload = world.add_workload("shop", "web", replicas=0)
    world.faults.add(FaultKind.WATCH_LAG, seconds=600, value=60)
    world.advance(60)
    pause_autoscaler(world, workload, "paused")
    world.advance(59)
    assert world.cluster.autoscaler_pauses() == {}
    world.advance(60)
    assert world.cluster.autoscaler_pauses() == {workload.ref: "paused"}


def test_an_hpa_shows_the_tolerances_that_it_has() -> None:
    """One for each way, and the usual tenth where it says nothing."""
    world = World(7)
    workload = world.add_workload("shop", "web", replicas=1)
    metric = HpaMetric("Resource", "cpu", "Utilization", 70)
    behavior = Behavior(up=HpaScalingRules(RULES, tolerance=0.02))
    world.add_hpa(workload, replicas_min=1, replicas_max=2, metrics=(metric,), behavior=behavior)
    world.add_hpa(workload, replicas_min=1, replicas_max=2, name="plain")
    found = {hpa.name: (hpa.tolerance_up, hpa.tolerance_down) for hpa in world.cluster.hpas()}
    assert found == {"web": (0.02, 0.1), "plain": (0.1, 0.1)}
