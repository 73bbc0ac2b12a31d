"""What holds for every world, not only for those somebody thought of."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.cluster import HpaMetric
from equipoise.core.reason import Code
from equipoise.rotation.decide import COVERAGE_MIN, decide
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import Observation, PodLoad
from tests.support.rotation.worlds import UTILIZATION_70, world

_CORES = st.floats(0, 64, allow_nan=False).map(lambda cores: round(cores, 3))
_PODS = st.lists(
    st.builds(
        PodLoad,
        name=st.integers(0, 999).map(lambda number: f"web-{number}"),
        cpu_cores=st.none() | _CORES,
        request_cores=st.sampled_from([0.25, 0.5, 1.0, 1.3]),
        is_ready=st.booleans() | st.just(True),
        age_seconds=st.none() | st.floats(0, 5000),
        has_restarted=st.sampled_from([False, False, False, True]),
    ),
    max_size=14,
    unique_by=lambda pod: pod.name,
)
_POLICIES = st.builds(
    RotationPolicy,
    top_k=st.integers(1, 5),
    tolerance_multiplier=st.sampled_from([1.0, 1.2, 1.5]),
    improvement_percent_min=st.sampled_from([0, 10, 30]),
    replicas_min=st.integers(1, 4),
)
_METRICS = st.sampled_from([UTILIZATION_70, HpaMetric("Resource", "cpu", "AverageValue", 0.7)])
_WORLDS = st.builds(lambda pods, metric: world(*pods, metric=metric), _PODS, _METRICS)


@given(_POLICIES, _WORLDS, st.randoms())
def test_the_order_of_pods_does_not_matter(
    policy: RotationPolicy, seen: Observation, chance: random.Random
) -> None:
    """A list from the API server has no promised order."""
    pods = list(seen.pods)
    chance.shuffle(pods)
    assert decide(policy, msgspec.structs.replace(seen, pods=tuple(pods))) == decide(policy, seen)


@given(_POLICIES, _PODS, st.integers(-20, 20))
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
    plain, large = decide(policy, world(*pods)), decide(policy, world(*scaled))
    assert plain.actions == large.actions
    assert plain.reason.code is large.reason.code


@given(_POLICIES, _WORLDS)
def test_hot_and_cold_are_disjoint_and_at_most_k_each(policy: RotationPolicy, seen: Observation) -> None:
    """No pod is named twice."""
    numbers = decide(policy, seen).reason.numbers
    hot, cold = numbers.get("hot", []), numbers.get("cold", [])
    assert len(set(hot) | set(cold)) == len(hot) + len(cold)
    assert max(len(hot), len(cold)) <= policy.top_k


@given(_POLICIES, _WORLDS)
def test_only_a_pod_that_was_measured_and_ready_is_ever_evicted(
    policy: RotationPolicy, seen: Observation
) -> None:
    """Missing metrics never evict."""
    pods = {pod.name: pod for pod in seen.pods}
    ready = [pod for pod in seen.pods if pod.is_ready]
    decision = decide(policy, seen)
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


@given(_POLICIES, _WORLDS)
def test_there_are_actions_exactly_when_the_reason_says_rotate(
    policy: RotationPolicy, seen: Observation
) -> None:
    """The reason and the deed agree, and the improvement is above the minimum."""
    decision = decide(policy, seen)
    assert bool(decision.actions) is (decision.reason.code is Code.ROTATE)
    if decision.actions:
        assert decision.reason.numbers["improvement_percent"] > policy.improvement_percent_min


@given(_POLICIES, _WORLDS)
def test_losing_every_sample_never_evicts(policy: RotationPolicy, seen: Observation) -> None:
    """The metrics are gone: whatever was planned is not."""
    pods = tuple(msgspec.structs.replace(pod, cpu_cores=None) for pod in seen.pods)
    assert decide(policy, msgspec.structs.replace(seen, pods=pods)).actions == ()
