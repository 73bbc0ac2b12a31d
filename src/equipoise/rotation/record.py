"""A rotation's decision as a record, and from a record the decision anew."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from equipoise import __version__
from equipoise.core.decision import Decision, Outcome, Record, hash_inputs
from equipoise.core.reason import Code, Reason
from equipoise.engine.guards import held_by_lag
from equipoise.rotation.decide import decide
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import Observation
from equipoise.rotation.progress import BALANCER

__all__ = ["BALANCER", "inputs", "record", "redecide"]

Ask = Callable[[RotationPolicy, Mapping[str, Any]], Reason | None]

GUARDS: dict[Code, Ask] = {
    Code.HELD_BY_LAG: lambda policy, numbers: held_by_lag(
        numbers.get("kafka_lag"), policy.kafka_lag.threshold, policy.kafka_lag.query
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
    asked, seen, known = _asked(policy), _as_json(observation), _as_json(memory)
    return Record(
        id=record_id,
        balancer=BALANCER,
        at=at,
        policy=asked,
        observation=seen,
        memory=known,
        decision=decision,
        outcomes=outcomes,
        inputs_hash=hash_inputs(asked, observation, known),
        version=__version__,
    )


@lru_cache(maxsize=256)
def _asked(policy: RotationPolicy) -> dict[str, Any]:
    """Return a policy as JSON; one policy decides for many workloads, again and again."""
    # Not pydantic's own JSON: it would print spans of time as text, to the millisecond.
    return _as_json(policy.model_dump(by_alias=True))


def _as_json(value: object) -> dict[str, Any]:
    """Give it as it comes back from JSON, lists for tuples, so that a record equals its copy."""
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])


def inputs(recorded: Record) -> tuple[RotationPolicy, Observation]:
    """Read back what was asked and what was seen; a ValueError says what does not fit."""
    policy = RotationPolicy.model_validate(recorded.policy)
    return policy, msgspec.convert(recorded.observation, Observation)


def redecide(recorded: Record) -> Decision:
    """Decide again from what is recorded; what the guards were told is in the record too."""
    policy, seen = inputs(recorded)
    decision = decide(policy, seen, recorded.memory)
    # The last of what is held was held first: each guard leaves the actions at the front. What deciding
    # itself holds comes before all guards.
    told = recorded.decision.held
    held = reversed(told[: max(0, len(told) - len(decision.held))])
    for (code, sentence), parts in groupby(held, key=attrgetter("reason", "sentence")):
        reason = _reason(policy, decision, recorded.decision.reason, Reason(code, sentence))
        if reason is not None:
            decision = decision.hold(reason, max(0, len(decision.actions) - len(list(parts))))
    return decision


def _reason(policy: RotationPolicy, decision: Decision, final: Reason, said: Reason) -> Reason | None:
    """Ask a guard again where we can; take any other's word, with its numbers, from the record."""
    if said.code in GUARDS:
        return GUARDS[said.code](policy, final.numbers)
    if said.code is not final.code:
        return said
    own = {name: value for name, value in final.numbers.items() if name not in decision.reason.numbers}
    return Reason(said.code, said.sentence, own)
