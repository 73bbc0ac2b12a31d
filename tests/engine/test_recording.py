"""Records are equal to their copies, and what guards held is held again by a replay."""

from collections.abc import Mapping
from typing import Any

import msgspec

from equipoise.core.decision import Decision, EvictPod, Outcome, Record
from equipoise.core.reason import Code, Reason
from equipoise.engine.recording import as_json, record, replay_holds

PODS = (EvictPod("a"), EvictPod("b"), EvictPod("c"))
PAUSED = Reason(Code.HELD_BY_PAUSE, "Paused.", {"by": "ops"})
LAGGING = Reason(Code.HELD_BY_LAG, "It lags.", {"kafka_lag": 7.0})


class _Observation(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    cores: float | None = None


def _proposed() -> Decision:
    return Decision("shop/web", Reason(Code.ROTATE, "Three are hot.", {"hot": 3}), PODS)


def _record(decision: Decision, observation: object = _Observation(("a",))) -> Record:
    return record("rotation", {"cooldown": 300}, observation, {"cycle": 3}, decision, 60.0, "1")


def test_a_record_equals_its_copy_from_the_journal() -> None:
    """Tuples are lists there already, and its hash is the one of what was observed."""
    made = _record(_proposed())
    assert Record.from_json(made.to_json()) == made
    assert made.observation == {"names": ["a"], "cores": None}
    assert made.inputs_hash == _record(_proposed(), as_json(_Observation(("a",)))).inputs_hash
    assert made.inputs_hash != _record(_proposed(), _Observation(("b",))).inputs_hash


def test_outcomes_are_kept_in_order() -> None:
    """Any sequence of them."""
    outcomes = [Outcome(action, "Accepted") for action in PODS]
    made = record("rotation", {}, {}, {}, _proposed(), 60.0, "1", outcomes)
    assert made.outcomes == tuple(outcomes)


def test_what_one_guard_held_is_held_again_with_its_numbers() -> None:
    """Its reason becomes the decision's."""
    held = _proposed().hold(PAUSED)
    assert replay_holds(_record(held), _proposed()) == held
    assert held.reason.numbers == {"hot": 3, "by": "ops"}


def test_guards_one_after_the_other_leave_the_same_actions() -> None:
    """The first keeps back the last pod, the next one more."""
    room = Reason(Code.HELD_BY_BUDGET, "No more than two.")
    held = _proposed().hold(room, 2).hold(LAGGING, 1)
    assert [each.sentence for each in held.held] == ["It lags.", "No more than two."]
    again = replay_holds(_record(held), _proposed())
    assert again == held
    assert again.actions == PODS[:1]


def test_what_deciding_holds_by_itself_is_not_held_twice() -> None:
    """A replay decides it anew."""
    room = Reason(Code.HELD_BY_BUDGET, "No more than one.")
    decided = _proposed().hold(room, 1)
    assert replay_holds(_record(decided), decided) == decided
    assert replay_holds(_record(decided.hold(PAUSED)), decided) == decided.hold(PAUSED)


def test_a_guard_that_can_be_asked_again_answers_from_the_numbers() -> None:
    """What it says now counts, also where it holds nothing any more."""

    def lag(numbers: Mapping[str, Any]) -> Reason | None:
        return LAGGING if numbers["kafka_lag"] > threshold else None

    recorded = _record(_proposed().hold(LAGGING))
    threshold = 5.0
    assert replay_holds(recorded, _proposed(), {Code.HELD_BY_LAG: lag}) == recorded.decision
    threshold = 9.0
    assert replay_holds(recorded, _proposed(), {Code.HELD_BY_LAG: lag}) == _proposed()


def test_a_decision_without_actions_stays_as_it_is() -> None:
    """There is nothing to hold."""
    calm = Decision("shop/web", Reason(Code.NO_HOT_PODS, "None is hot."))
    assert replay_holds(_record(_proposed().hold(PAUSED)), calm) == calm
