"""How the world or the policy would have to differ for another decision, where that is easy to say."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from equipoise.model.decision import Record
from equipoise.model.reason import Code
from equipoise.rotation.decide import COVERAGE_MIN
from equipoise.rotation.observation import Observation
from equipoise.rotation.policy import RotationPolicy

Say = Callable[[RotationPolicy, Observation, Mapping[str, Any]], list[str]]


def otherwise(record: Record) -> list[str]:
    """Say what would have led to another decision; nothing when the record cannot tell."""
    from equipoise.rotation.record import BALANCER, inputs

    if record.balancer != BALANCER or not record.has_inputs:
        return []
    try:
        policy, seen = inputs(record)
    except ValueError:
        return []
    say = ROTATION.get(record.decision.reason.code)
    return say(policy, seen, record.decision.reason.numbers) if say else []


def _rotate(policy: RotationPolicy, seen: Observation, numbers: Mapping[str, Any]) -> list[str]:
    hottest = max(pod.cpu_cores or 0.0 for pod in seen.pods if pod.name in numbers["hot"])
    improvement, tolerance = _up(numbers["improvement_percent"]), _up(hottest / numbers["target_cores"])
    lines = [f"minimumImprovementPercent {improvement} or more (it is {policy.improvement_percent_min:g})"]
    lines.append(f"toleranceMultiplier {tolerance} or more (it is {policy.tolerance_multiplier:g})")
    return [f"Nothing would be rotated with {' or with '.join(lines)}."]


def _no_hot_pods(policy: RotationPolicy, seen: Observation, numbers: Mapping[str, Any]) -> list[str]:
    threshold = numbers["threshold_cores"]
    lines = [f"A pod would have to use more than {threshold:.3g} cores."]
    known = [pod for pod in seen.pods if pod.is_ready and pod.cpu_cores is not None]
    young = [
        pod.name
        for pod in known
        if (pod.age_seconds is not None and pod.age_seconds < policy.candidate_age_min_seconds)
        or pod.has_restarted
    ]
    busiest = max((pod.cpu_cores or 0.0 for pod in known if pod.name not in young), default=0.0)
    if busiest > 0:
        tolerance = _down(busiest / numbers["target_cores"])
        now = f"(it is {policy.tolerance_multiplier:g})"
        lines.append(f"The busiest would be hot with toleranceMultiplier below {tolerance} {now}.")
    if young:
        lines.append(f"Not judged, being too young or just restarted: {len(young)}.")
    return lines


def _insufficient(policy: RotationPolicy, _: Observation, numbers: Mapping[str, Any]) -> list[str]:
    improvement = numbers["improvement_percent"]
    if improvement <= 0:
        return ["There would have to be colder pods to rotate with."]
    now = f"(it is {policy.improvement_percent_min:g})"
    return [f"It would rotate with minimumImprovementPercent below {_down(improvement)} {now}."]


def _too_few_replicas(policy: RotationPolicy, _: Observation, numbers: Mapping[str, Any]) -> list[str]:
    ready = numbers["pods_ready"]
    lines = [f"{policy.replicas_min - ready} more pods would have to be ready."]
    if ready:
        lines.append(f"It would look further with minReplicas {ready} or less.")
    return lines


def _metrics_incomplete(_: RotationPolicy, __: Observation, numbers: Mapping[str, Any]) -> list[str]:
    ready, unknown = numbers["pods_ready"], numbers["pods_unknown"]
    # In whole percents, as it is decided: 0.9 x 10 in floats is a hair above 9.
    wanted = math.ceil(ready * round(COVERAGE_MIN * 100) / 100 - 1e-9)
    return [f"{wanted - (ready - unknown)} more pods would have to have fresh samples over the window."]


def _held_by_lag(policy: RotationPolicy, _: Observation, __: Mapping[str, Any]) -> list[str]:
    return [f"The lag would have to be known and below {policy.kafka_lag.threshold:g}."]


ROTATION: dict[Code, Say] = {
    Code.ROTATE: _rotate,
    Code.NO_HOT_PODS: _no_hot_pods,
    Code.INSUFFICIENT_IMPROVEMENT: _insufficient,
    Code.TOO_FEW_REPLICAS: _too_few_replicas,
    Code.METRICS_INCOMPLETE: _metrics_incomplete,
    Code.HELD_BY_LAG: _held_by_lag,
}


def _up(value: float) -> str:
    """Round up to four digits, so that what is said is enough."""
    return _rounded(value, math.ceil)


def _down(value: float) -> str:
    """Round down to four digits, so that what is said is enough."""
    return _rounded(value, math.floor)


def _rounded(value: float, towards: Callable[[float], int]) -> str:
    scale = 10.0 ** (3 - math.floor(math.log10(value))) if value > 0 else 1.0
    return f"{towards(round(value * scale, 6)) / scale:.4g}"
