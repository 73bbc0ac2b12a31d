"""The decisions on pools as records, and from a record the decision anew."""

from collections.abc import Mapping
from typing import Any

import msgspec

from equipoise import __version__
from equipoise.core.decision import Decision, Held, Outcome, Record, hash_inputs
from equipoise.core.reason import Reason
from equipoise.pools.decide import decide
from equipoise.pools.observation import Observation
from equipoise.pools.policy import TierPolicy
from equipoise.pools.registration import Roster, RosterRule, attend

BALANCER = "pools"


def record(
    policy: TierPolicy | RosterRule,
    seen: Observation | Roster,
    memory: Mapping[str, Any],
    decision: Decision,
    at: float,
    record_id: str,
    outcomes: tuple[Outcome, ...] = (),
) -> Record:
    """Write down everything that went into a decision, and what came of it."""
    asked: object = policy.model_dump(by_alias=True) if isinstance(policy, TierPolicy) else policy
    rule, observed, known = (_as_json(part) for part in (asked, seen, memory))
    return Record(
        id=record_id,
        balancer=BALANCER,
        at=at,
        policy=rule,
        observation=observed,
        memory=known,
        decision=decision,
        outcomes=outcomes,
        inputs_hash=hash_inputs(rule, observed, known),
        version=__version__,
    )


def redecide(recorded: Record) -> Decision:
    """Decide again from what is recorded; what the guards said is taken from the record."""
    if "tiers" in recorded.policy:
        policy = TierPolicy.model_validate(recorded.policy)
        decision = decide(policy, msgspec.convert(recorded.observation, Observation))
    else:
        rule = msgspec.convert(recorded.policy, RosterRule)
        roster = msgspec.convert(recorded.observation, Roster)
        decision = attend(rule, roster, recorded.memory, recorded.at)
    said = recorded.decision
    guard: Held | None = said.held[0] if len(said.held) > len(decision.held) else None
    if guard is None:
        return decision
    own = {name: each for name, each in said.reason.numbers.items() if name not in decision.reason.numbers}
    return decision.hold(Reason(guard.reason, guard.sentence, own))


def _as_json(value: object) -> dict[str, Any]:
    """Give it as it comes back from JSON, so that a record equals its copy."""
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])
