"""A rotation's decision as a record, and from a record the decision anew."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from equipoise import __version__
from equipoise.guard.lag import held_by_lag
from equipoise.model.decision import Decision, Outcome, Record, hash_inputs
from equipoise.model.reason import Code, Reason
from equipoise.rotation.decide import decide
from equipoise.rotation.observation import Observation
from equipoise.rotation.policy import RotationPolicy

BALANCER = "rotation"

Ask = Callable[[RotationPolicy, Mapping[str, Any]], Reason | None]

GUARDS: dict[Code, Ask] = {
    Code.HELD_BY_LAG: lambda policy, numbers: held_by_lag(
        numbers.get("kafka_lag"), policy.kafka_lag.threshold
    ),
}
"""Guards that can be asked again, from the numbers that they left in the record."""


def record(
    policy: RotationPolicy,
    observation: Observation,
    memory: Mapping[str, Any],
    decision: Decision,
    at: float,
    record_id: str,
    outcomes: tuple[Outcome, ...] = (),
) -> Record:
    """Write down everything that went into a decision, and what came of it."""
    # Not pydantic's own JSON: it would print spans of time as text, to the millisecond.
    asked = msgspec.to_builtins(policy.model_dump(by_alias=True))
    seen = msgspec.to_builtins(observation)
    known = dict(memory)
    return Record(
        id=record_id,
        balancer=BALANCER,
        at=at,
        policy=asked,
        observation=seen,
        memory=known,
        decision=decision,
        outcomes=outcomes,
        inputs_hash=hash_inputs(asked, seen, known),
        version=__version__,
    )


def inputs(recorded: Record) -> tuple[RotationPolicy, Observation]:
    """Read back what was asked and what was seen; a ValueError says what does not fit."""
    policy = RotationPolicy.model_validate(recorded.policy)
    return policy, msgspec.convert(recorded.observation, Observation)


def redecide(recorded: Record) -> Decision:
    """Decide again from what is recorded; what the guards were told is in the record too."""
    policy, seen = inputs(recorded)
    return _guarded(policy, decide(policy, seen), recorded.decision)


def _guarded(policy: RotationPolicy, decided: Decision, before: Decision) -> Decision:
    if not before.held:
        return decided
    if before.actions:
        return _partly_held(decided, before)
    ask = GUARDS.get(before.reason.code)
    reason = ask(policy, before.reason.numbers) if ask else _as_said(decided, before.reason)
    return decided if reason is None else decided.hold(reason)


def _as_said(decided: Decision, said: Reason) -> Reason:
    """Take a guard's word from the record, without the numbers that were decided before it was asked."""
    own = {name: value for name, value in said.numbers.items() if name not in decided.reason.numbers}
    return Reason(said.code, said.sentence, own)


def _partly_held(decided: Decision, before: Decision) -> Decision:
    """Hold again what a budget held of the plan, and let the rest go as it did."""
    parts = {msgspec.json.encode(part.action): part for part in before.held}
    keyed = [(action, parts.get(msgspec.json.encode(action))) for action in decided.actions]
    return msgspec.structs.replace(
        decided,
        actions=tuple(action for action, part in keyed if part is None),
        held=tuple(part for _, part in keyed if part is not None),
    )
