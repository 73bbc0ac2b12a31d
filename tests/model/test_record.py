"""Records keep everything."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.decision import Decision, EvictPod, Held, Outcome, Record, plan_document
from equipoise.core.reason import Code, Reason

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text(max_size=8), _JSON, max_size=4)
_ACTIONS = st.builds(EvictPod, st.text(min_size=1, max_size=9), st.text(max_size=9), st.text(max_size=9))
_CODES = st.sampled_from(Code)
_DECISIONS = st.builds(
    Decision,
    st.text(max_size=9),
    st.builds(Reason, _CODES, st.text(max_size=20), _OBJECTS),
    st.lists(_ACTIONS, max_size=3).map(tuple),
    st.lists(st.builds(Held, _ACTIONS, _CODES), max_size=3).map(tuple),
    _OBJECTS,
)
_RECORDS = st.builds(
    Record,
    st.text(max_size=9),
    st.just("rotation"),
    st.floats(0, 1e12),
    _OBJECTS,
    _OBJECTS,
    _OBJECTS,
    _DECISIONS,
    st.lists(st.builds(Outcome, _ACTIONS, st.text(max_size=9), st.text(max_size=9)), max_size=2).map(tuple),
)


@given(_RECORDS)
def test_a_record_survives_json_without_loss(record: Record) -> None:
    """Out and back gives the same record, and the same bytes."""
    line = record.to_json()
    again = Record.from_json(line)
    assert again == record
    assert again.to_json() == line
    assert b"\n" not in line


@pytest.mark.parametrize("value", [math.nan, math.inf, (1, 2), {1: 2}, object(), 2**70])
def test_a_number_that_json_would_change_is_refused(value: object) -> None:
    """A reason carries only what comes back the same."""
    with pytest.raises(ValueError, match=r"numbers\.x"):
        Reason(Code.ROTATE, "", {"x": value})


@given(_DECISIONS, _CODES)
def test_a_hold_moves_every_action_and_takes_the_reason(decision: Decision, code: Code) -> None:
    """Guards only reduce: nothing new is done, nothing is lost."""
    held = decision.hold(Reason(code, "Wait.", {"until": 3}))
    if not decision.actions:
        assert held == decision
        return
    assert held.actions == ()
    assert [part.action for part in held.held] == [
        *decision.actions,
        *(part.action for part in decision.held),
    ]
    assert held.held[0].reason is held.reason.code
    assert held.reason.code is code
    assert held.reason.numbers == decision.reason.numbers | {"until": 3}


def test_a_plan_has_the_shape_that_scripts_rely_on() -> None:
    """Subject, reason, sentence, actions, held, numbers."""
    decision = Decision("shop/web", Reason(Code.ROTATE, "Because.", {"n": 1}), (EvictPod("a"),))
    held = decision.hold(Reason(Code.HELD_BY_LAG, "Wait."))
    assert plan_document("rotation", [decision, held]) == {
        "balancer": "rotation",
        "decisions": [
            {
                "subject": "shop/web",
                "reason": "Rotate",
                "sentence": "Because.",
                "actions": [{"kind": "EvictPod", "pod": "a"}],
                "held": [],
                "numbers": {"n": 1},
            },
            {
                "subject": "shop/web",
                "reason": "HeldByLag",
                "sentence": "Wait.",
                "actions": [],
                "held": [{"kind": "EvictPod", "pod": "a", "reason": "HeldByLag", "sentence": "Wait."}],
                "numbers": {"n": 1},
            },
        ],
    }
