"""An agent's decision as a record, and from a record the decision anew."""

from collections.abc import Mapping
from typing import Any

import msgspec

from equipoise import __version__
from equipoise.core.decision import Decision, Outcome, Record, hash_inputs
from equipoise.core.reason import Code, Reason
from equipoise.qos.decide import decide
from equipoise.qos.execute import PREVIEW, guarded, namespace_of, previewed
from equipoise.qos.observation import Observation
from equipoise.qos.policy import QosPolicy

BALANCER = "qos"


def as_asked(policy: QosPolicy) -> dict[str, Any]:
    """Return a policy as its records have it."""
    return _as_json(policy.model_dump(mode="json", by_alias=True))


def record(
    asked: dict[str, Any],
    seen: Observation,
    memory: Mapping[str, Any],
    decision: Decision,
    record_id: str,
    outcomes: tuple[Outcome, ...] = (),
) -> Record:
    """Write down everything that went into a decision, and what came of it; `asked` is `as_asked`'s."""
    observed, known = _as_json(seen), _as_json(memory)
    return Record(
        id=record_id,
        balancer=BALANCER,
        at=seen.at,
        policy=asked,
        observation=observed,
        memory=known,
        decision=decision,
        outcomes=outcomes,
        inputs_hash=hash_inputs(asked, observed, known),
        version=__version__,
    )


def _as_json(value: object) -> dict[str, Any]:
    """Give it as it comes back from JSON, so that a record equals its copy."""
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])


def redecide(recorded: Record) -> Decision:
    """Decide again from what is recorded; who had paused what is taken from the record."""
    policy = QosPolicy.model_validate(recorded.policy)
    seen = msgspec.convert(recorded.observation, Observation)
    decision = decide(policy, seen, recorded.memory)
    said = recorded.decision
    pauses = {
        namespace_of(one.action): Reason(one.reason, one.sentence)
        for one in said.held
        if one.reason is Code.HELD_BY_PAUSE
    }
    decision = guarded(decision, pauses.get)
    return previewed(decision) if said.reason.sentence.startswith(PREVIEW) else decision
