"""Reasons of decisions: a code of a closed list, numbers, and one sentence."""

import math
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec


class Code(StrEnum):
    """Every reason there is. The same word stands in logs, events, metrics, status and documents."""

    ROTATE = "Rotate"
    NO_HOT_PODS = "NoHotPods"
    INSUFFICIENT_IMPROVEMENT = "InsufficientImprovement"
    TOO_FEW_REPLICAS = "TooFewReplicas"
    METRICS_INCOMPLETE = "MetricsIncomplete"
    NO_HPA = "NoHpa"
    AMBIGUOUS_HPA = "AmbiguousHpa"
    UNSUPPORTED_TARGET = "UnsupportedTarget"
    RECOMMEND = "Recommend"
    NO_PODS = "NoPods"
    TOO_FEW_AVAILABLE_PODS = "TooFewAvailablePods"
    NO_SAMPLES = "NoSamples"
    LOW_USAGE = "LowUsage"
    LOW_FLUCTUATION = "LowFluctuation"
    NO_REQUEST = "NoRequest"
    REBALANCE = "Rebalance"
    BALANCED = "Balanced"
    NOWHERE_TO_MOVE = "NowhereToMove"
    NOTHING_TO_TAKE = "NothingToTake"
    ALL_BUSY = "AllBusy"
    RECONCILE = "Reconcile"
    IN_STEP = "InStep"
    SET = "Set"
    UNCHANGED = "Unchanged"
    HELD_BY_HYSTERESIS = "HeldByHysteresis"
    HELD_BY_PERCENTILE = "HeldByPercentile"
    WARMING_UP = "WarmingUp"
    FOUGHT_BY = "FoughtBy"
    REFUSED = "Refused"
    INFEASIBLE = "Infeasible"
    DEFERRED = "Deferred"
    THROTTLE = "Throttle"
    EVICT = "Evict"
    THROTTLE_AND_EVICT = "ThrottleAndEvict"
    RESTORE = "Restore"
    DISABLE_SCHEDULING = "DisableScheduling"
    BELOW_WATERLINES = "BelowWaterlines"
    NO_ELIGIBLE_PODS = "NoEligiblePods"
    HELD_BY_PAUSE = "HeldByPause"
    HELD_BY_LEADER = "HeldByLeader"
    HELD_BY_WINDOW = "HeldByWindow"
    HELD_BY_COOLDOWN = "HeldByCooldown"
    HELD_BY_BUDGET = "HeldByBudget"
    HELD_BY_LAG = "HeldByLag"
    HELD_BY_ROLLOUT = "HeldByRollout"
    HELD_BY_SCALING = "HeldByScaling"
    HELD_BY_HEALTH = "HeldByHealth"
    HELD_BY_THRESHOLD = "HeldByThreshold"
    FUTILE = "Futile"
    PDB_BLOCKED = "PdbBlocked"
    OPTED_OUT = "OptedOut"
    NOT_OURS = "NotOurs"
    NOT_APPLIED = "NotApplied"
    INTERNAL_ERROR = "InternalError"


class Reason(msgspec.Struct, frozen=True):
    """Why a decision is what it is, "nothing to do" included."""

    code: Code
    sentence: str
    numbers: dict[str, Any] = {}

    @classmethod
    def of(cls, code: Code, sentence: str, *details: msgspec.Struct) -> "Reason":
        """Return a reason whose numbers are the fields of these details, in order.

        A field that is UNSET has no number. Code that needs a value reads the details, never the numbers.
        """
        numbers: dict[str, Any] = {}
        for each in details:
            numbers |= msgspec.to_builtins(each)
        return cls(code, sentence, numbers)

    def __post_init__(self) -> None:
        """Raise where a round trip through JSON would change the numbers."""
        for name, value in self.numbers.items():
            if not _survives_json(value):
                raise ValueError(f"numbers.{name}: {value!r} does not survive JSON")


class Explanation(msgspec.Struct, frozen=True):
    """What a reason means in one part of Equipoise, what to do, and a sentence as it is printed."""

    code: Code
    group: str
    """The heading under which it is listed, such as "Rotation" or "Guards"."""
    meaning: str
    remedy: str
    example: str


@cache
def explanations() -> tuple[Explanation, ...]:
    """Return what every reason means, in the order of groups; a reason that two groups use has two entries.

    The texts are in `reasons.toml`, since they are for readers only and no decision needs them.
    """
    import tomllib  # noqa: PLC0415 - most processes never read them
    from importlib.resources import files  # noqa: PLC0415

    read = tomllib.loads((files("equipoise.core") / "reasons.toml").read_text(encoding="utf-8"))
    return msgspec.convert(read["reasons"], tuple[Explanation, ...])


def _survives_json(value: object) -> bool:
    match value:
        case None | bool() | str():
            return True
        case int():
            return -(2**63) <= value < 2**64
        case float():
            return math.isfinite(value)
        case list():
            return all(map(_survives_json, value))
        case dict():
            return all(isinstance(key, str) and _survives_json(item) for key, item in value.items())
    return False
