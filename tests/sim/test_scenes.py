"""The production code runs in the simulator, unmodified."""

import time

import pytest

from equipoise.core.decision import Action, Decision
from equipoise.core.reason import Code
from equipoise.ports import EvictionResult
from equipoise.rotation.policy import RotationPolicy
from equipoise.sim import FaultKind
from tests.support.rotation.tenants import plan_alone
from tests.support.sim.scenes import many_workloads, six_pods


def _whole(decision: Decision) -> list[Action]:
    """The whole plan: the first wave, and those that wait for it."""
    return [*decision.actions, *(held.action for held in decision.held)]


@pytest.mark.parametrize("seed", range(5))
def test_the_seeds_six_pods_give_the_seeds_decision(seed: int) -> None:
    """A, B, F, E for 34.8 %, from pods that a controller made and counters that were scraped."""
    six = six_pods(seed)
    (decision,) = plan_alone(RotationPolicy(), six.world.cluster, six.world.metrics, six.world.now, "shop")
    assert decision.reason.code is Code.ROTATE
    assert "".join(six.letters[action.pod] for action in decision.actions) == "A"
    whole = _whole(decision)
    assert "".join(six.letters[action.pod] for action in whole) == "ABFE"
    assert decision.reason.numbers["improvement_percent"] == pytest.approx(34.78, abs=0.01)
    uids = {pod.name: pod.uid for pod in six.workload.pods.values()}
    assert [action.uid for action in whole] == [uids[action.pod] for action in whole]


def test_the_budget_lets_the_plan_go_one_by_one() -> None:
    """Four evictions at once: the first passes, the others wait; and the load follows its partition."""
    six = six_pods(1)
    world = six.world
    (decision,) = plan_alone(RotationPolicy(), world.cluster, world.metrics, world.now, "shop")
    refs = [world.state.pods["shop", action.pod].ref for action in _whole(decision)]
    results = [world.actuator.evict(ref).result for ref in refs]
    assert results == [EvictionResult.ACCEPTED, *[EvictionResult.BLOCKED] * 3]
    world.advance(60)
    assert sorted(pod.work_cores for pod in six.workload.pods.values()) == pytest.approx(
        [0.3, 0.4, 0.6, 0.8, 1.1, 1.2]
    )


def test_young_pods_and_lost_metrics_hold_the_plan_back() -> None:
    """The loop meets the simulator's faults as it would meet the world's."""
    young = six_pods(1, age_seconds=400)
    (decision,) = plan_alone(
        RotationPolicy(), young.world.cluster, young.world.metrics, young.world.now, "shop"
    )
    assert decision.reason.code is Code.NO_HOT_PODS
    six = six_pods(1)
    six.world.faults.add(FaultKind.METRICS_GAP, seconds=600, target="shop/web")
    six.world.advance(150)
    (decision,) = plan_alone(RotationPolicy(), six.world.cluster, six.world.metrics, six.world.now, "shop")
    assert decision.reason.code is Code.METRICS_INCOMPLETE


def test_a_thousand_workloads_are_planned_at_once() -> None:
    """Six thousand pods, twelve minutes, one plan: in seconds."""
    started = time.process_time()
    world = many_workloads(1, 1000, is_checked=False)
    world.advance(720)
    decisions = plan_alone(RotationPolicy(), world.cluster, world.metrics, world.now, None)
    assert len(decisions) == 1000
    assert len(world.cluster.pods()) >= 5500
    assert {decision.reason.code for decision in decisions} >= {Code.ROTATE, Code.NO_HOT_PODS}
    assert time.process_time() - started < 240


def test_hours_pass_in_seconds() -> None:
    """Fifty workloads of six pods for two hours; a day takes twelve times as long."""
    started = time.process_time()
    world = many_workloads(7, 50, is_checked=False)
    world.advance(2 * 3600)
    assert time.process_time() - started < 60
    assert any(entry.kind == "Scaled" for entry in world.state.history)
