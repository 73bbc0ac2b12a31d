"""A proportional decision as a record, and from a record the decision anew."""

from collections.abc import Mapping
from typing import Any

import msgspec

from equipoise import __version__
from equipoise.core.decision import Decision, Outcome, Record, hash_inputs
from equipoise.core.reason import Reason
from equipoise.proportional.decide import Observation, decide
from equipoise.proportional.policy import ScalingPolicySpec

BALANCER = "proportional"


def as_asked(policy: ScalingPolicySpec) -> dict[str, Any]:
    """Return a policy as its records have it."""
    return _as_json(policy.model_dump(mode="json", by_alias=True))


def record(
    asked: dict[str, Any],
    observation: Observation,
    memory: Mapping[str, Any],
    decision: Decision,
    record_id: str,
    outcomes: tuple[Outcome, ...] = (),
) -> Record:
    """Write down everything that went into a decision, and what came of it; `asked` is `as_asked`'s."""
    seen, known = _as_json(observation), _as_json(memory)
    return Record(
        id=record_id,
        balancer=BALANCER,
        at=observation.at,
        policy=asked,
        observation=seen,
        memory=known,
        decision=decision,
        outcomes=outcomes,
        inputs_hash=hash_inputs(asked, seen, known),
        version=__version__,
    )


def _as_json(value: object) -> dict[str, Any]:
    """Give it as it comes back from JSON, so that a record equals its copy."""
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])


def redecide(recorded: Record) -> Decision:
    """Decide again from what is recorded; what the guards said is taken from the record."""
    policy = ScalingPolicySpec.model_validate(recorded.policy)
    seen = msgspec.convert(recorded.observation, Observation)
    decision = decide(policy, seen, recorded.memory)
    held = recorded.decision.held
    if not held or not decision.actions:
        return decision
    final = recorded.decision.reason
    own = {name: part for name, part in final.numbers.items() if name not in decision.reason.numbers}
    return decision.hold(Reason(held[0].reason, held[0].sentence, own))
