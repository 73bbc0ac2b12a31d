"""What was asked about pools as its records have it, and from a record the decision anew."""

from typing import Any

import msgspec

from equipoise.core.decision import Decision, Record
from equipoise.engine.recording import as_json, replay_holds
from equipoise.pools.decide import decide
from equipoise.pools.observe import Observation
from equipoise.pools.policy import TierPolicy
from equipoise.pools.registration import PodLists, RegistrationRule, reconcile

BALANCER = "pools"


def policy_json(policy: TierPolicy | RegistrationRule) -> dict[str, Any]:
    """Return a policy, or the rule for which pods a tier has, as its records have it."""
    return as_json(policy.model_dump(by_alias=True) if isinstance(policy, TierPolicy) else policy)


def redecide(recorded: Record) -> Decision:
    """Decide again from what is recorded; what the guards held is taken from the record."""
    if "tiers" in recorded.policy:
        policy = TierPolicy.model_validate(recorded.policy)
        decision, _ = decide(policy, msgspec.convert(recorded.observation, Observation))
    else:
        rule = msgspec.convert(recorded.policy, RegistrationRule)
        lists = msgspec.convert(recorded.observation, PodLists)
        decision, _ = reconcile(rule, lists, recorded.memory, recorded.at)
    return replay_holds(recorded, decision)
