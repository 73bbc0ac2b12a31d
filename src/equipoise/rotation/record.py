"""A rotation's policy as its records have it, and from a record the decision anew."""

from functools import lru_cache
from typing import Any

import msgspec

from equipoise.core.decision import Decision, Record
from equipoise.core.reason import Code
from equipoise.engine.guards import held_by_lag
from equipoise.engine.recording import as_json, replay_holds
from equipoise.rotation.decide import decide
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import Observation


@lru_cache(maxsize=256)
def policy_json(policy: RotationPolicy) -> dict[str, Any]:
    """Return a policy as its records have it; one policy decides for many workloads, again and again."""
    # Not pydantic's own JSON: it would print spans of time as text, to the millisecond.
    return as_json(policy.model_dump(by_alias=True))


def inputs(recorded: Record) -> tuple[RotationPolicy, Observation]:
    """Read back what was asked and what was seen; a ValueError says what does not fit."""
    policy = RotationPolicy.model_validate(recorded.policy)
    return policy, msgspec.convert(recorded.observation, Observation)


def redecide(recorded: Record) -> Decision:
    """Decide again from what is recorded; the guard that asked about the lag is asked again too."""
    policy, seen = inputs(recorded)
    lag = policy.kafka_lag
    guards = {
        Code.HELD_BY_LAG: lambda numbers: held_by_lag(numbers.get("kafka_lag"), lag.threshold, lag.query)
    }
    return replay_holds(recorded, decide(policy, seen, recorded.memory).decision, guards)
