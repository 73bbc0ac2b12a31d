"""What holds for every live workload: with any memory, any state of its controller, any protection."""

import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.core.reason import Code
from equipoise.engine.disruption import held_by_kind
from equipoise.engine.recording import record
from equipoise.rotation.balancer import redecide
from equipoise.rotation.policy import RotationPolicy, policy_json
from equipoise.rotation.preconditions import (
    Observation,
    ObservedHpa,
    ObservedWorkload,
    PodLoad,
    held_by_health,
    held_by_rollout,
)
from equipoise.rotation.progress import BALANCER, Ending, RotationMemory, RotationResult, RotationRun
from tests.support.rotation.worlds import NOW, UTILIZATION_70, decision_of

_SECONDS = st.sampled_from([0.0, 10.0, 299.0, 300.0, 301.0, 900.0, 1900.0, 3700.0])
_RARELY = st.sampled_from([False] * 7 + [True])


@st.composite
def _pods(draw: Any) -> tuple[PodLoad, ...]:
    count = draw(st.integers(3, 9))
    is_odd = draw(st.booleans())
    pods = []
    for number in range(count):
        cores = draw(st.sampled_from([0.1, 0.3, 0.6, 0.7, 0.7, 0.8, 1.2, 1.6, 2.4]))
        odd = is_odd and draw(_RARELY)
        pods.append(
            PodLoad(
                name=f"web-{number}",
                cpu_cores=None if odd and draw(st.booleans()) else cores,
                request_cores=1.0,
                is_ready=not (odd and draw(st.booleans())),
                age_seconds=draw(st.sampled_from([None, 30.0, 4000.0, 4000.0])) if odd else 4000.0,
                has_restarted=odd and draw(st.booleans()),
                uid=f"u-{number}",
                ready_seconds=draw(_SECONDS) if odd else 4000.0,
                protection=draw(st.sampled_from(["", "it uses local storage"])) if odd else "",
                is_leaving=False,
                revision=draw(st.sampled_from(["rs-1", "rs-2"])) if odd else "rs-1",
            )
        )
    return tuple(pods)


@st.composite
def _worlds(draw: Any) -> Observation:
    pods = draw(_pods())
    count = len(pods)
    is_still = draw(st.booleans())
    near = st.just(count) if is_still else st.integers(count - 1, count + 1)
    hpa = ObservedHpa(
        "hpa",
        (UTILIZATION_70,),
        replicas_min=draw(st.integers(1, count)),
        replicas_max=draw(st.integers(count, count + 5)),
        replicas_current=count,
        replicas_desired=draw(near),
        scaled_seconds=draw(st.sampled_from([None, 4000.0]) if is_still else _SECONDS),
        tolerance_up=draw(st.sampled_from([0.1, 0.5])),
        tolerance_down=draw(st.sampled_from([0.1, 0.5])),
    )
    workload = ObservedWorkload(
        kind=draw(st.sampled_from(["Deployment", "Deployment", "StatefulSet"])),
        replicas_wanted=draw(near),
        replicas_seen=count,
        replicas_updated=draw(near),
        is_observed=is_still or draw(st.booleans()),
        opt_out="" if is_still else draw(st.sampled_from(["", "equipoise.dev/rotate=false"])),
        autoscaler_pause="" if is_still else draw(st.sampled_from(["", "paused"])),
        is_protected=not is_still and draw(_RARELY),
    )
    return Observation("shop/web", NOW, (hpa,), pods, "shop", workload)


_COURSES = st.builds(
    RotationRun,
    st.just("r0"),
    began_at=st.just(NOW - 3900),
    wave_at=_SECONDS.map(lambda age: NOW - age),
    waves=st.integers(1, 4),
    planned=st.integers(1, 4),
    predicted_percent=st.floats(10, 90),
    hottest_cores=st.sampled_from([0.5, 1.2, 2.4, 9.0]),
    evicted=st.integers(1, 4),
)
_VERDICTS = st.builds(
    RotationResult,
    st.sampled_from(Ending),
    ended_at=st.just(NOW - 2000),
    rotated_at=st.just(NOW - 3000),
    waves=st.integers(1, 4),
    evicted=st.integers(1, 4),
    predicted_percent=st.floats(10, 90),
    realised_percent=st.none() | st.floats(-50, 90),
)
_MEMORIES: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.builds(
    lambda course, last, failures, until: RotationMemory(
        course, last, failures, until if failures >= 3 else None
    ).to_data(),
    st.none() | _COURSES,
    st.none() | _VERDICTS,
    st.integers(0, 5),
    st.none() | st.sampled_from([NOW - 60, NOW + 60]),
)
_POLICIES = st.builds(
    RotationPolicy,
    top_k=st.integers(1, 3),
    tolerance_multiplier=st.sampled_from([1.2, 1.5]),
    improvement_percent_min=st.sampled_from([0, 10, 30]),
    includes_stateful_sets=st.booleans(),
)
_SOME = settings(max_examples=70)
_CASES = (_POLICIES, _worlds(), _MEMORIES)


@_SOME
@given(*_CASES, st.randoms())
def test_the_order_of_pods_matters_to_nothing_that_is_remembered(
    policy: RotationPolicy, seen: Observation, memory: dict[str, Any], chance: random.Random
) -> None:
    """Neither to the decision, nor to what is held, nor to the memory."""
    pods = list(seen.pods)
    chance.shuffle(pods)
    shuffled = msgspec.structs.replace(seen, pods=tuple(pods))
    assert decision_of(policy, shuffled, memory) == decision_of(policy, seen, memory)


@_SOME
@given(*_CASES, st.integers(-8, 8))
def test_scaling_by_a_power_of_two_changes_only_the_numbers(
    policy: RotationPolicy, seen: Observation, memory: dict[str, Any], power: int
) -> None:
    """Utilisation has no unit, and neither has a verdict."""
    factor = 2.0**power

    def scaled(pod: PodLoad) -> PodLoad:
        cores = None if pod.cpu_cores is None else pod.cpu_cores * factor
        return msgspec.structs.replace(pod, cpu_cores=cores, request_cores=factor)

    known = RotationMemory.from_data(memory)
    if known.run is not None:
        course = msgspec.structs.replace(known.run, hottest_cores=known.run.hottest_cores * factor)
        known = msgspec.structs.replace(known, run=course)
    large = msgspec.structs.replace(seen, pods=tuple(map(scaled, seen.pods)))
    one, two = decision_of(policy, seen, memory), decision_of(policy, large, known.to_data())
    assert (one.actions, one.held, one.reason.code) == (two.actions, two.held, two.reason.code)
    first, second = RotationMemory.from_data(one.memory), RotationMemory.from_data(two.memory)
    assert (first.last, first.failures, first.futile_until) == (
        second.last,
        second.failures,
        second.futile_until,
    )
    assert (first.run is None) is (second.run is None)


@_SOME
@given(*_CASES)
def test_nobody_goes_who_must_stay(policy: RotationPolicy, seen: Observation, memory: dict[str, Any]) -> None:
    """Unmeasured, unready, young, restarted or protected; nor is anybody named twice."""
    decision = decision_of(policy, seen, memory)
    wanted = [*decision.actions, *(held.action for held in decision.held)]
    assert len({action.uid for action in wanted}) == len(wanted) <= 2 * policy.top_k
    numbers = decision.reason.numbers
    assert not set(numbers.get("hot", ())) & set(numbers.get("cold", ()))
    pods = {pod.uid: pod for pod in seen.pods}
    for action in wanted:
        pod = pods[action.uid]
        assert pod.cpu_cores is not None
        assert pod.is_ready
        assert pod.age_seconds is None or pod.age_seconds >= policy.candidate_age_min_seconds
        assert not pod.has_restarted
        assert not pod.protection


@_SOME
@given(*_CASES)
def test_with_any_hold_nobody_goes(policy: RotationPolicy, seen: Observation, memory: dict[str, Any]) -> None:
    """Each state asked by itself: where one of them holds, there is no action."""
    decision = decision_of(policy, seen, memory)
    if not decision.actions:
        return
    workload, (hpa,) = seen.workload, seen.hpas
    assert workload is not None
    assert (workload.opt_out, workload.autoscaler_pause, workload.is_protected) == ("", "", False)
    assert held_by_kind(workload.kind, includes_stateful_sets=policy.includes_stateful_sets) is None
    assert held_by_rollout(seen) is None
    assert held_by_health(seen) is None
    assert hpa.replicas_current == hpa.replicas_desired
    assert hpa.replicas_max is None or workload.replicas_wanted < hpa.replicas_max
    assert hpa.scaled_seconds is None or hpa.scaled_seconds >= policy.metrics_window_seconds
    after = RotationMemory.from_data(decision.memory)
    assert after.futile_until is None or after.futile_until <= NOW
    if after.run is not None:
        assert len(decision.actions) <= after.run.planned - after.run.evicted
        assert after.run.wave_at <= NOW - policy.metrics_window_seconds


@_SOME
@given(*_CASES)
def test_losing_every_sample_never_evicts_and_never_judges(
    policy: RotationPolicy, seen: Observation, memory: dict[str, Any]
) -> None:
    """Missing metrics are no action, no success and no failure."""
    pods = tuple(msgspec.structs.replace(pod, cpu_cores=None) for pod in seen.pods)
    decision = decision_of(policy, msgspec.structs.replace(seen, pods=pods), memory)
    before, after = RotationMemory.from_data(memory), RotationMemory.from_data(decision.memory)
    assert (decision.actions, decision.held) == ((), ())
    assert after.failures == before.failures
    assert after.last == before.last or (after.last is not None and after.last.realised_percent is None)


@_SOME
@given(*_CASES)
def test_when_nothing_changes_nothing_is_written(
    policy: RotationPolicy, seen: Observation, memory: dict[str, Any]
) -> None:
    """What one cycle remembers, the next leaves as it is: a fixed point; and a calm one is silent at once."""
    once = decision_of(policy, seen, memory)
    again = decision_of(policy, seen, once.memory)
    assert again.memory == once.memory
    if "course" not in memory:
        assert once.memory == memory


@_SOME
@given(*_CASES)
def test_what_is_remembered_survives_json_and_replays(
    policy: RotationPolicy, seen: Observation, memory: dict[str, Any]
) -> None:
    """Through the journal and back, the same decision to the last bit."""
    decision = decision_of(policy, seen, memory)
    through = msgspec.json.decode(msgspec.json.encode(decision.memory))
    assert RotationMemory.from_data(through).to_data() == decision.memory
    kept = record(BALANCER, policy_json(policy), seen, memory, decision, NOW, "1")
    assert redecide(type(kept).from_json(kept.to_json())) == decision


@_SOME
@given(*_CASES)
def test_a_rotation_ends_once_and_counts_once(
    policy: RotationPolicy, seen: Observation, memory: dict[str, Any]
) -> None:
    """Failures grow by at most one, only when a rotation was measured and did not help enough."""
    before = RotationMemory.from_data(memory)
    decision = decision_of(policy, seen, memory)
    after = RotationMemory.from_data(decision.memory)
    if after.run is not None:
        assert after == before
        return
    if before.run is None:
        assert after == before
        return
    assert after.last is not None
    realised = after.last.realised_percent
    if realised is None:
        assert (after.failures, after.futile_until) == (before.failures, before.futile_until)
    elif realised >= policy.improvement_percent_min:
        assert (after.failures, after.futile_until) == (0, None)
    else:
        assert after.failures == before.failures + 1
        assert (after.futile_until is not None) is (after.failures >= 3)
        if after.futile_until is not None:
            assert 3600 <= after.futile_until - NOW <= 86_400
            assert decision.actions == ()
    if decision.reason.code is Code.FUTILE:
        assert after.failures >= 3
