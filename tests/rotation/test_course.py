"""A rotation from its first wave to its verdict: every ending, what it waits for, and what is remembered."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import EntryState, Ledger
from equipoise.core.reason import Code
from equipoise.rotation.decide import decide
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import PodLoad
from equipoise.rotation.progress import (
    Ending,
    RotationMemory,
    RotationResult,
    RotationRun,
    State,
    begin_wave,
    describe,
    load_memory,
)
from tests.support.rotation.runs import BEGAN, COURSE
from tests.support.rotation.worlds import NOW, decision_of, ledger_entry, live, pod, seed_pods

POLICY = RotationPolicy()


def _memory(failures: int = 0, futile_until: float | None = None, **changes: Any) -> dict[str, Any]:
    course = msgspec.structs.replace(COURSE, **changes)
    return RotationMemory(course, None, failures, futile_until).to_data()


def _calm(cpu: float = 0.7) -> list[PodLoad]:
    return [pod(name, cpu) for name in "abcdef"]


def _hot(cores: float) -> list[PodLoad]:
    """The seed's pods, the hottest with so many cores, the others so that the mean stays near the target."""
    rest = (4.4 - cores) / 5
    return [pod("a", cores), *(pod(name, rest) for name in "bcdef")]


ENDINGS: dict[str, tuple[Ending, Any, dict[str, Any], Any]] = {
    "nobody is hot": (Ending.NOTHING_LEFT, live(*_calm(0.72)), {}, 40.0),
    "one is hot, and not worth it": (
        Ending.NOTHING_LEFT,
        live(*[pod(name, 1.06) for name in "ab"], *[pod(name, 0.9) for name in "cdef"]),
        {},
        pytest.approx(11.667, abs=1e-3),
    ),
    "all have gone": (Ending.USED_UP, live(*seed_pods()), {"evicted": 4}, 0.0),
    "more have gone than were planned": (Ending.USED_UP, live(*seed_pods()), {"evicted": 5}, 0.0),
    "hotter, and all have gone": (
        Ending.USED_UP,
        live(*_hot(1.27)),
        {"evicted": 4},
        pytest.approx(-5.8333, abs=1e-3),
    ),
    "a rollout": (Ending.INTERRUPTED, live(*seed_pods(), workload={"replicas_updated": 3}), {}, None),
    "the autoscaler scales": (Ending.INTERRUPTED, live(*seed_pods(), hpa={"replicas_desired": 7}), {}, None),
    "the autoscaler scaled since": (
        Ending.INTERRUPTED,
        live(*seed_pods(), hpa={"scaled_seconds": 999.0}),
        {},
        None,
    ),
    "no wave for an hour": (Ending.LEFT_OPEN, live(*seed_pods()), {"wave_at": NOW - 3601}, None),
    "not whole for half an hour": (
        Ending.TIMED_OUT,
        live(*seed_pods(), workload={"replicas_wanted": 7}),
        {"wave_at": NOW - 1801},
        None,
    ),
    "not measured for half an hour": (
        Ending.TIMED_OUT,
        live(*(pod(name, None) for name in "abcdef")),
        {"wave_at": NOW - 1801},
        None,
    ),
    "a pod that never stays ready for a window": (
        Ending.TIMED_OUT,
        live(*seed_pods()[:5], pod("f", 0.3, ready_seconds=100.0)),
        {"wave_at": NOW - 1801},
        None,
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_rotation_ends_as_what_is_seen_says(name: str) -> None:
    """The verdict has its ending, when, how much, and predicted and realised side by side."""
    ending, seen, changes, realised = ENDINGS[name]
    before = _memory(**changes)
    course = RotationMemory.from_data(before).run
    assert course is not None
    decision = decision_of(POLICY, seen, before)
    after = RotationMemory.from_data(decision.memory)
    assert after.run is None
    assert after.last == RotationResult(
        ending, NOW, course.wave_at, 2, course.evicted, COURSE.predicted_percent, realised
    )
    assert decision.reason.sentence.startswith(describe(after.last))
    numbers = decision.reason.numbers
    if realised is None:
        assert "realised_improvement_percent" not in numbers
    else:
        assert numbers["realised_improvement_percent"] == realised
        assert numbers["predicted_improvement_percent"] == COURSE.predicted_percent
    assert {ENDINGS[each][0] for each in ENDINGS} == set(Ending)


GOES_ON: dict[str, tuple[Any, dict[str, Any]]] = {
    "still hot": (live(*seed_pods()), {}),
    "hotter than before": (live(*_hot(1.27)), {}),
    "the autoscaler scaled before it began": (live(*seed_pods(), hpa={"scaled_seconds": 1000.0}), {}),
    "an hour since the last wave": (live(*seed_pods()), {"wave_at": NOW - 3600}),
    "a window since the last wave": (live(*seed_pods()), {"wave_at": NOW - 300}),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_a_rotation_goes_on_while_somebody_is_hot(name: str) -> None:
    """The next wave is a new decision, with as many pods as the plan has left."""
    seen, changes = GOES_ON[name]
    before = _memory(**changes)
    decision = decision_of(POLICY, seen, before)
    assert decision.memory == before
    assert decision.reason.code is Code.ROTATE
    assert len(decision.actions) == 2
    assert {held.reason for held in decision.held} <= {Code.HELD_BY_BUDGET}
    assert decision.reason.numbers["wave"] == 2
    assert decision.reason.numbers["evicted"] == 2
    assert decision.reason.numbers["planned"] == 4


WAITS: dict[str, tuple[Any, dict[str, Any], Code]] = {
    "one is missing": (live(*seed_pods(), workload={"replicas_wanted": 7}), {}, Code.HELD_BY_HEALTH),
    "one is unready": (live(*seed_pods(), pod("g", None, is_ready=False)), {}, Code.HELD_BY_HEALTH),
    "one is on its way": (
        live(
            *seed_pods(),
            pod("g", None, is_ready=False, is_leaving=True),
            workload={"replicas_wanted": 6},
        ),
        {},
        Code.HELD_BY_HEALTH,
    ),
    "a window has not passed since the wave": (
        live(*seed_pods()),
        {"wave_at": NOW - 299},
        Code.HELD_BY_COOLDOWN,
    ),
    "a window has not passed since the last became ready": (
        live(*seed_pods()[:5], pod("f", 0.3, ready_seconds=299.0)),
        {},
        Code.HELD_BY_COOLDOWN,
    ),
}


@pytest.mark.parametrize("name", WAITS)
def test_the_next_wave_waits_until_the_last_is_whole_and_measured(name: str) -> None:
    """Nothing goes, nothing is forgotten, and the reason says what is waited for."""
    seen, changes, code = WAITS[name]
    before = _memory(**changes)
    decision = decision_of(POLICY, seen, before)
    assert decision.memory == before
    assert (decision.reason.code, decision.actions) == (code, ())
    if code is Code.HELD_BY_COOLDOWN:
        assert decision.reason.numbers["seconds_left"] == 1
        assert decision.reason.sentence == (
            "All pods are ready after wave 2. Their usage is measured for another 1s before the next wave."
        )


@pytest.mark.parametrize("window", [1800.0, 3600.0, 7200.0])
def test_a_long_metrics_window_still_measures_its_waves(window: float) -> None:
    """Half an hour is for becoming whole; a window that is longer gets its time, and the next wave too."""
    policy = RotationPolicy(metrics_window_seconds=window)
    ready = [msgspec.structs.replace(each, ready_seconds=window - 20) for each in seed_pods()]
    waiting = decision_of(policy, live(*ready), _memory(wave_at=NOW - window - 60))
    assert waiting.reason.code is Code.HELD_BY_COOLDOWN
    assert "course" in waiting.memory
    measured = decision_of(policy, live(*seed_pods()), _memory(wave_at=NOW - window - 60))
    assert measured.reason.code is Code.ROTATE
    assert "course" in measured.memory


def _verdict(realised: float | None, failures: int) -> RotationMemory:
    """Let a rotation end with so much improvement, after so many failures."""
    if realised is None:
        seen = live(*seed_pods(), workload={"replicas_updated": 3})
    else:
        seen = live(*_hot(1.2 * (1 - realised / 100)))
    changes: dict[str, Any] = {"evicted": 4}
    return RotationMemory.from_data(decision_of(POLICY, seen, _memory(failures, **changes)).memory)


@pytest.mark.parametrize(
    ("failures", "hours"), [(0, None), (1, None), (2, 1), (3, 2), (4, 4), (5, 8), (6, 16), (7, 24), (20, 24)]
)
def test_from_the_third_failure_in_a_row_on_the_rest_doubles_up_to_a_day(
    failures: int, hours: float | None
) -> None:
    """1, 2, 4, 8, 16 and then 24 hours."""
    after = _verdict(5.0, failures)
    assert after.failures == failures + 1
    assert after.futile_until == (None if hours is None else NOW + hours * 3600)


def test_many_failures_do_not_overflow() -> None:
    """After years of trying it is still a day."""
    after = _verdict(5.0, 5000)
    assert after.futile_until == NOW + 86_400


@pytest.mark.parametrize("failures", [0, 1, 2, 3, 9])
def test_a_success_begins_the_count_anew(failures: int) -> None:
    """Exactly the minimum improvement is one."""
    after = _verdict(12.0, failures)
    assert (after.failures, after.futile_until) == (0, None)


@pytest.mark.parametrize("failures", [0, 2, 3])
def test_what_cannot_be_measured_neither_helps_nor_fails(failures: int) -> None:
    """A rollout came between: the count stays."""
    after = _verdict(None, failures)
    assert after.failures == failures
    assert after.futile_until is None
    assert after.last is not None
    assert after.last.realised_percent is None


def test_the_third_failure_holds_at_once() -> None:
    """The decision that ends it says the verdict, and that it is futile."""
    decision = decision_of(POLICY, live(*seed_pods()), _memory(2, evicted=4))
    assert decision.reason.code is Code.FUTILE
    assert decision.actions == ()
    assert decision.reason.sentence.startswith(
        "The rotation of 4 pods in 2 waves ended because all planned pods were evicted. The usage of the "
        "hottest pod decreased by 0.0%; a decrease by 34.8% was predicted. 3 rotations in a row did not "
        "lower the usage of the hottest pod by 10%."
    )


@pytest.mark.parametrize("planned", range(1, 6))
def test_a_rotation_never_takes_more_than_it_planned(planned: int) -> None:
    """However many are hot now: the rest stay, and say so."""
    decision = decision_of(POLICY, live(*seed_pods()), _memory(planned=planned, evicted=planned - 1, waves=1))
    assert len(decision.actions) == 1
    assert len(decision.held) == 3
    assert decision.held[0].sentence == (
        "The rotation in progress may evict 1 more of its planned pods; the others stay."
    )


def test_the_first_wave_remembers_the_plan_and_the_next_only_counts() -> None:
    """What was promised and how hot it was is kept from the beginning."""
    decision, details = decide(POLICY, live(*seed_pods()), RotationMemory(failures=2).to_data())
    first = begin_wave(decision, details, live(*seed_pods()), "r9")
    assert first.failures == 2
    assert first.run == RotationRun("r9", NOW, NOW, 1, 4, decision.reason.numbers["improvement_percent"], 1.2)
    due = msgspec.structs.replace(details, state=State.DUE, memory=first)
    later = begin_wave(decision, due, live(*_hot(1.1), at=NOW + 700), "other")
    assert later.run == msgspec.structs.replace(first.run, waves=2, wave_at=NOW + 700)


def test_a_plan_counts_what_guards_held_back_of_it() -> None:
    """The first wave is one of four: three more may follow."""
    decision, details = decide(POLICY, live(*seed_pods()))
    held = decision.hold(decision.reason, 1)
    course = begin_wave(held, details, live(*seed_pods()), "r").run
    assert course is not None
    assert course.planned == 4


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (
            RotationResult(Ending.NOTHING_LEFT, 0, 0, 1, 1, 34.78, 31.0),
            (
                "The rotation of 1 pod in 1 wave ended because no pod needs to be rotated any more. The "
                "usage of the hottest pod decreased by 31.0%; a decrease by 34.8% was predicted."
            ),
        ),
        (
            RotationResult(Ending.USED_UP, 0, 0, 2, 3, 20.0, -7.25),
            (
                "The rotation of 3 pods in 2 waves ended because all planned pods were evicted. The usage of "
                "the hottest pod increased by 7.2%; a decrease by 20.0% was predicted."
            ),
        ),
        (
            RotationResult(Ending.INTERRUPTED, 0, 0, 1, 2, 20.0),
            (
                "The rotation of 2 pods in 1 wave ended because a rollout or the autoscaler changed the "
                "workload. Its effect is unknown; a decrease by 20.0% was predicted."
            ),
        ),
    ],
    ids=lambda value: value.ending.value if isinstance(value, RotationResult) else "",
)
def test_a_verdict_is_one_sentence(verdict: RotationResult, sentence: str) -> None:
    """For people, with both numbers where both are known."""
    assert describe(verdict) == sentence


@pytest.mark.parametrize("realised", [0.0, -0.0, -0.04, 0.04])
def test_a_pod_that_stayed_as_hot_as_it_was_did_not_rise(realised: float) -> None:
    """The sign of a zero comes from far behind the point."""
    result = RotationResult(Ending.USED_UP, 0, 0, 1, 1, 20.0, realised)
    assert "the hottest pod decreased by 0.0%" in describe(result)


def _remembering(*entries: Any) -> Ledger:
    return Ledger(1, entries, len(entries), {"rotation": _memory(waves=9, evicted=0, wave_at=BEGAN)})


def test_how_far_a_rotation_has_come_is_counted_from_the_ledger() -> None:
    """Done and maybe done count, failed and others' do not; waves are the moments at which pods went."""
    ledger = _remembering(
        ledger_entry(0, BEGAN),
        ledger_entry(1, BEGAN),
        ledger_entry(2, BEGAN + 500, state=EntryState.INTENT),
        ledger_entry(3, BEGAN + 600, state=EntryState.FAILED),
        ledger_entry(4, BEGAN + 700, round="r-other"),
    )
    course = RotationMemory.from_data(load_memory(ledger)).run
    assert course is not None
    assert (course.evicted, course.wave_at, course.waves) == (3, BEGAN + 500, 2)


def test_a_rotation_of_which_nothing_went_is_none() -> None:
    """Its only pod was refused: the next try is a new one."""
    ledger = _remembering(ledger_entry(0, BEGAN, state=EntryState.FAILED))
    assert load_memory(ledger) == {}
    assert load_memory(Ledger()) == {}


@pytest.mark.parametrize(
    "data",
    [
        {"course": {"round": 3}},
        {"failures": "many"},
        {"last": []},
        _memory(hottest_cores=0.0),
        _memory(hottest_cores=5e-324),
        _memory(wave_at=1e300),
        {"failures": 3, "futileUntil": 1e12},
        {"failures": 2**63},
        {"failures": -1},
    ],
    ids=["course", "failures", "last", "hottest", "hardly", "wave", "futile", "many", "fewer"],
)
def test_a_memory_that_makes_no_sense_is_unknown(data: dict[str, Any]) -> None:
    """Nobody acts on half a memory."""
    with pytest.raises(WorldFailed, match="the state of the rotation is invalid"):
        load_memory(Ledger(memory={"rotation": data}))


@given(
    st.integers(0, 9),
    st.none() | st.floats(0, 2e9),
    st.none()
    | st.builds(
        RotationRun,
        st.text(max_size=5),
        st.floats(0, 2e9),
        st.floats(0, 2e9),
        st.integers(0, 9),
        st.integers(1, 9),
        st.floats(0, 100),
        st.floats(0.001, 64),
        st.integers(0, 9),
    ),
    st.none()
    | st.builds(
        RotationResult,
        st.sampled_from(Ending),
        st.floats(0, 2e9),
        st.floats(0, 2e9),
        st.integers(1, 9),
        st.integers(1, 9),
        st.floats(0, 100),
        st.none() | st.floats(-1e6, 100),
    ),
)
def test_a_memory_survives_json(
    failures: int, until: float | None, course: RotationRun | None, last: RotationResult | None
) -> None:
    """As the API server keeps it."""
    memory = RotationMemory(course, last, failures, until)
    data = msgspec.json.decode(msgspec.json.encode(memory.to_data()))
    assert RotationMemory.from_data(data) == memory
    assert data == memory.to_data()
