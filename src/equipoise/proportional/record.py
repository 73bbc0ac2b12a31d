"""A policy of proportional scaling as its records have it, and from a record the decision anew."""

from typing import Any

import msgspec

from equipoise.core.decision import Decision, Record
from equipoise.engine.recording import as_json, replay_holds
from equipoise.proportional.decide import Observation, decide
from equipoise.proportional.policy import ScalingPolicySpec

BALANCER = "proportional"


def policy_json(policy: ScalingPolicySpec) -> dict[str, Any]:
    """Return a policy as its records have it."""
    return as_json(policy.model_dump(mode="json", by_alias=True))


def redecide(recorded: Record) -> Decision:
    """Decide again from what is recorded; what the guards held is taken from the record."""
    policy = ScalingPolicySpec.model_validate(recorded.policy)
    observation = msgspec.convert(recorded.observation, Observation)
    return replay_holds(recorded, decide(policy, observation, recorded.memory).decision)
