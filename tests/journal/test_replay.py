"""Any record decides to the same decision again; and one that does not is caught."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import __version__
from equipoise.cli.replay import compare, otherwise, replay
from equipoise.core.cluster import HpaMetric
from equipoise.core.decision import Decided, Decision, Record
from equipoise.core.reason import Code, Reason
from equipoise.engine.guards import held_by_lag
from equipoise.engine.recording import record
from equipoise.rotation import balancer as rotation
from equipoise.rotation.decide import decide
from equipoise.rotation.policy import KafkaLag, RotationPolicy, policy_json
from equipoise.rotation.preconditions import Observation
from equipoise.rotation.progress import BALANCER, RotationDetails
from tests.support.journal.worlds import NOON, calm, decided, hot
from tests.support.rotation.strategies import POLICIES, WORLDS
from tests.support.rotation.worlds import decision_of, pod, seed_pods, world


def _again(made: Record) -> Record:
    return Record.from_json(made.to_json())


def _bits(decision: Decision) -> bytes:
    return msgspec.json.encode(decision, order="sorted")


@settings(max_examples=60)
@given(POLICIES, WORLDS)
def test_every_world_decides_again_to_the_same_bit(policy: RotationPolicy, seen: Observation) -> None:
    """Through JSON and back."""
    decision = decision_of(policy, seen)
    made = record(BALANCER, policy_json(policy), seen, {"cycle": 3}, decision, NOON, "1")
    assert _bits(rotation.redecide(_again(made))) == _bits(decision)
    assert rotation.inputs(_again(made))[0] == policy
    assert compare(_again(made)) is None


@settings(max_examples=40)
@given(POLICIES, WORLDS, st.none() | st.floats(0, 1e6), st.floats(0, 1e5))
def test_a_hold_for_lag_is_asked_again(
    policy: RotationPolicy, seen: Observation, lag: float | None, threshold: float
) -> None:
    """From the lag that the guard left in the numbers."""
    gated = policy.model_copy(
        update={"kafka_lag": KafkaLag(is_enabled=True, threshold=threshold, query="lag")}
    )
    reason = held_by_lag(lag, threshold)
    plain = decision_of(gated, seen)
    decision = plain if reason is None else plain.hold(reason)
    made = record(BALANCER, policy_json(gated), seen, {}, decision, NOON, "1")
    assert _bits(rotation.redecide(_again(made))) == _bits(decision)


def test_what_any_other_guard_said_is_taken_from_the_record() -> None:
    """Its world is gone; what was decided before it was asked is decided again."""
    made = hot()
    for code in (Code.HELD_BY_PAUSE, Code.HELD_BY_WINDOW, Code.PDB_BLOCKED):
        held = made.decision.hold(Reason(code, "Wait.", {"until": 3}))
        assert compare(_again(msgspec.structs.replace(made, decision=held))) is None
        other = msgspec.structs.replace(held, held=held.held[1:])
        assert compare(_again(msgspec.structs.replace(made, decision=other))) is not None


def test_what_was_held_in_part_is_held_in_part_again() -> None:
    """By one guard after another, as the cycle asks them."""
    made = hot()
    blocked = Reason(Code.PDB_BLOCKED, "The budget web allows 3.", {"allowed": 3})
    full = Reason(Code.HELD_BY_BUDGET, "One of one pods is away.", {"away": 1})
    for left in (0, 1, 2):
        held = made.decision.hold(blocked, 3).hold(full, left)
        assert len(held.actions) == left
        assert compare(_again(msgspec.structs.replace(made, decision=held))) is None
        other = msgspec.structs.replace(held, held=held.held[::-1])
        assert compare(_again(msgspec.structs.replace(made, decision=other))) is not None


def test_spans_of_any_length_survive() -> None:
    """A policy is recorded as it was, not as it is printed."""
    policy = RotationPolicy.model_validate({"minPodAge": 0.0004567, "metricsWindow": 301.00012345})
    made = decided(policy, world(*seed_pods()))
    assert rotation.inputs(_again(made))[0] == policy


KINDS = {
    "Rotate": hot(),
    "NoHotPods": calm(),
    "InsufficientImprovement": decided(
        RotationPolicy.model_validate({"minimumImprovementPercent": 40}), world(*seed_pods())
    ),
    "TooFewReplicas": decided(RotationPolicy(), world(*seed_pods()[:2])),
    "MetricsIncomplete": decided(RotationPolicy(), world(*seed_pods(), pod("g", None))),
    "NoHpa": decided(RotationPolicy.model_validate({"hpaPrefix": "x"}), world(*seed_pods())),
    "UnsupportedTarget": decided(
        RotationPolicy(), world(*seed_pods(), metric=HpaMetric("Pods", "rps", "AverageValue", 5))
    ),
}


@pytest.mark.parametrize("code", KINDS)
def test_every_kind_of_record_replays(code: str) -> None:
    """Each reason of the algorithm."""
    assert KINDS[code].decision.reason.code.value == code
    answer = replay([_again(KINDS[code])])
    assert (answer.replayed, answer.same, answer.without_inputs) == (1, 1, 0)


Mutant = Callable[[Decision], Decision]


@pytest.mark.parametrize(
    ("part", "mutant"),
    [
        ("actions", lambda made: msgspec.structs.replace(made, actions=made.actions[1:])),
        ("actions", lambda made: msgspec.structs.replace(made, actions=made.actions[::-1])),
        ("memory", lambda made: msgspec.structs.replace(made, memory={"seen": 1})),
        ("subject", lambda made: msgspec.structs.replace(made, subject="other")),
        (
            "numbers",
            lambda made: msgspec.structs.replace(
                made,
                reason=Reason(
                    made.reason.code,
                    made.reason.sentence,
                    made.reason.numbers | {"target_cores": made.reason.numbers["target_cores"] + 2**-52},
                ),
            ),
        ),
    ],
    ids=["fewer", "other order", "memory", "subject", "one bit"],
)
def test_a_decision_that_comes_out_differently_is_caught(
    monkeypatch: pytest.MonkeyPatch, part: str, mutant: Mutant
) -> None:
    """Down to the last bit of a number."""

    def decide_otherwise(*asked: Any) -> Decided[RotationDetails]:
        decision, details = decide(*asked)
        return Decided(mutant(decision), details)

    monkeypatch.setattr(rotation, "decide", decide_otherwise)
    answer = replay([hot(1), calm(2)])
    found = [name for difference in answer.different for name, _, _ in difference.changes]
    assert part in found
    assert answer.different[0].record == hot(1)
    assert f"{part} would be different" in answer.different[0].sentence


def test_a_changed_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new version with a strict comparison made lax, say."""
    monkeypatch.setattr("equipoise.rotation.decide._is_above", lambda value, limit: value >= limit)
    at_the_line = decided(RotationPolicy(), world(*(pod(name, 1.05) for name in "abcd")))
    assert replay([at_the_line]).same == 1  # decided under the changed rule as well
    monkeypatch.undo()
    answer = replay([at_the_line, hot()])
    assert (answer.replayed, answer.same) == (2, 1)
    assert "was decided by 1.2.3, and this is" in answer.different[0].sentence


@pytest.mark.parametrize(("version", "is_same"), [("1.2.3", True), (__version__, False), ("", False)])
def test_other_words_differ_within_one_version_only(version: str, is_same: bool) -> None:
    """A release may word a sentence better; that its numbers differ is caught all the same."""
    made = msgspec.structs.replace(hot(), version=version)
    reason = Reason(made.decision.reason.code, "In other words.", made.decision.reason.numbers)
    reworded = msgspec.structs.replace(made, decision=msgspec.structs.replace(made.decision, reason=reason))
    assert (compare(reworded) is None) == is_same
    odd = msgspec.structs.replace(reason, numbers=reason.numbers | {"candidates": 7})
    assert compare(msgspec.structs.replace(made, decision=msgspec.structs.replace(made.decision, reason=odd)))


@pytest.mark.parametrize(
    ("made", "trouble"),
    [
        (msgspec.structs.replace(hot(), balancer="tides"), "this version has no balancer 'tides'"),
        (msgspec.structs.replace(hot(), policy=hot().policy | {"topK": 3}), "the hash differs"),
        (
            msgspec.structs.replace(hot(), policy={"topk": 3}, inputs_hash=""),
            "this version cannot read its inputs",
        ),
        (
            msgspec.structs.replace(hot(), observation={"pods": 3}, inputs_hash=""),
            "this version cannot read its inputs",
        ),
    ],
)
def test_a_record_that_cannot_be_decided_is_not_the_same(made: Record, trouble: str) -> None:
    """It says why."""
    difference = compare(made)
    assert difference is not None
    assert trouble in difference.sentence


def test_records_without_inputs_are_counted_as_such() -> None:
    """Neither the same nor different."""
    answer = replay([hot(), hot().without_inputs(), calm()])
    assert answer.sentence == "2 replayed, 2 the same, 1 without inputs."


@given(POLICIES, WORLDS)
def test_what_is_said_to_change_a_decision_changes_it(policy: RotationPolicy, seen: Observation) -> None:
    """Each setting that an explanation names, at the value that it names."""
    made = record(BALANCER, policy_json(policy), seen, {}, decision_of(policy, seen), NOON, "1")
    code = made.decision.reason.code
    for line in otherwise(made):
        for key in ("minimumImprovementPercent", "toleranceMultiplier", "minReplicas"):
            _, found, rest = line.partition(f"{key} ")
            if not found:
                continue
            below, value = rest.startswith("below "), rest.removeprefix("below ").split()[0]
            number = float(value) * (0.999 if below else 1)
            if number <= 0 or (key == "minimumImprovementPercent" and number > 100):
                continue
            changed = RotationPolicy.model_validate(
                policy.model_dump(by_alias=True) | {key: int(number) if key == "minReplicas" else number}
            )
            assert decision_of(changed, seen).reason.code is not code, line
