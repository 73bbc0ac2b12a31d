"""What holds for every world, not only for those somebody thought of."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.reason import Code
from equipoise.rotation.decide import COVERAGE_MIN
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import Observation, PodLoad
from tests.support.rotation.strategies import PODS, POLICIES, WORLDS
from tests.support.rotation.worlds import decision_of, world


@given(POLICIES, WORLDS, st.randoms())
def test_the_order_of_pods_does_not_matter(
    policy: RotationPolicy, seen: Observation, chance: random.Random
) -> None:
    """A list from the API server has no promised order."""
    pods = list(seen.pods)
    chance.shuffle(pods)
    assert decision_of(policy, msgspec.structs.replace(seen, pods=tuple(pods))) == decision_of(policy, seen)


@given(POLICIES, PODS, st.integers(-20, 20))
def test_scaling_by_a_power_of_two_changes_only_the_numbers(
    policy: RotationPolicy, pods: list[PodLoad], power: int
) -> None:
    """Utilisation has no unit: bigger pods under bigger load are the same case."""
    factor = 2.0**power
    scaled = [
        msgspec.structs.replace(
            pod,
            cpu_cores=None if pod.cpu_cores is None else pod.cpu_cores * factor,
            request_cores=(pod.request_cores or 0.0) * factor,
        )
        for pod in pods
    ]
    plain, large = decision_of(policy, world(*pods)), decision_of(policy, world(*scaled))
    assert plain.actions == large.actions
    assert plain.reason.code is large.reason.code


@given(POLICIES, WORLDS)
def test_hot_and_cold_are_disjoint_and_at_most_k_each(policy: RotationPolicy, seen: Observation) -> None:
    """No pod is named twice."""
    numbers = decision_of(policy, seen).reason.numbers
    hot, cold = numbers.get("hot", []), numbers.get("cold", [])
    assert len(set(hot) | set(cold)) == len(hot) + len(cold)
    assert max(len(hot), len(cold)) <= policy.top_k


@given(POLICIES, WORLDS)
def test_only_a_pod_that_was_measured_and_ready_is_ever_evicted(
    policy: RotationPolicy, seen: Observation
) -> None:
    """Missing metrics never evict."""
    pods = {pod.name: pod for pod in seen.pods}
    ready = [pod for pod in seen.pods if pod.is_ready]
    decision = decision_of(policy, seen)
    for action in decision.actions:
        pod = pods[action.pod]
        assert pod.cpu_cores is not None
        assert pod.is_ready
        assert not pod.has_restarted
        assert pod.age_seconds is None or pod.age_seconds >= 600
    if decision.actions:
        known = sum(pod.cpu_cores is not None for pod in ready)
        assert known / len(ready) >= COVERAGE_MIN
        assert len(ready) >= policy.replicas_min


@given(POLICIES, WORLDS)
def test_there_are_actions_exactly_when_the_reason_says_rotate(
    policy: RotationPolicy, seen: Observation
) -> None:
    """The reason and the deed agree, and the improvement is above the minimum."""
    decision = decision_of(policy, seen)
    assert bool(decision.actions) is (decision.reason.code is Code.ROTATE)
    if decision.actions:
        assert decision.reason.numbers["improvement_percent"] > policy.improvement_percent_min


@given(POLICIES, WORLDS)
def test_losing_every_sample_never_evicts(policy: RotationPolicy, seen: Observation) -> None:
    """The metrics are gone: whatever was planned is not."""
    pods = tuple(msgspec.structs.replace(pod, cpu_cores=None) for pod in seen.pods)
    assert decision_of(policy, msgspec.structs.replace(seen, pods=pods)).actions == ()
