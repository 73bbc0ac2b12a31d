"""The sentence of each decision; a refusal has both numbers, what was seen and what was asked for."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from equipoise.core.reason import Code
from equipoise.recommendation.policy import PREFIX, RecommendationPolicy


class Row(NamedTuple):
    """Everything about one workload, in plain numbers; NaN where something is unknown."""

    subject: str
    kind: str
    code: Code
    replicas: int
    pods: int
    available: int
    request_cores: float
    pod_p99_cores: float
    lowest_median_cores: float
    highest_median_cores: float
    p95_cores: float
    p95_past_cores: float
    peak_cores: float
    fluctuation: float
    coverage: float
    known_samples: int
    expected_samples: int
    target_percent: int
    replicas_min: int
    replicas_max: int
    prediction: Mapping[str, Any]
    measurable: int
    unmeasured: int
    partial: str


def sentence(policy: RecommendationPolicy, row: Row, recommended: Mapping[str, Any] | None) -> str:
    """Say it in one sentence."""
    match row.code:
        case Code.TOO_FEW_REPLICAS:
            needed, key = policy.replicas_needed(row.kind)
            said = f"{_count(row.replicas, 'replica')}, and {PREFIX}{key} asks for at least {needed}."
            return f"The {row.kind} has {said}"
        case Code.NO_PODS:
            return "The workload has 0 pods, and advice needs at least 1."
        case Code.TOO_FEW_AVAILABLE_PODS:
            asked = policy.pod_available_share_min
            share, be = _below(row.available / row.pods, asked, 3), "is" if row.pods == 1 else "are"
            return (
                f"{row.available} of {_count(row.pods, 'pod')} {be} available, a share of {share}, and "
                f"{PREFIX}pod-available-ratio asks for at least {asked:.12g}."
            )
        case Code.METRICS_INCOMPLETE | Code.NO_SAMPLES:
            return _unknown(row)
        case Code.LOW_USAGE:
            peak = _below(row.peak_cores, policy.peak_cores_min)
            return (
                f"The highest CPU usage of the past seven days is {peak} cores, below "
                f"{PREFIX}min-cpu-usage-threshold, which is {policy.peak_cores_min:.12g}."
            )
        case Code.LOW_FLUCTUATION:
            times = _below(row.fluctuation, policy.fluctuation_min)
            return (
                f"The busiest hour of the day uses {times} times what the idlest uses "
                f"({row.highest_median_cores:.3g} and {row.lowest_median_cores:.3g} cores), below "
                f"{PREFIX}fluctuation-threshold, which is {policy.fluctuation_min:.12g}."
            )
        case Code.NO_REQUEST:
            request = 0.0 if math.isnan(row.request_cores) else row.request_cores
            return (
                f"The pods request {request:g} cores of CPU, and a target in percent of the request needs "
                "more than 0."
            )
    return _advice(row, recommended or {})


def _unknown(row: Row) -> str:
    """Return which samples are missing, as a sentence."""
    if row.code is Code.NO_SAMPLES:
        if row.known_samples:
            return "0 samples of single pods are known in the past seven days, and advice needs at least 1."
        return (
            f"{row.known_samples} of the {row.expected_samples} samples of the past seven days are "
            "known, and advice needs at least 1."
        )
    if row.partial:
        return f"The metrics source answered in part ({row.partial}), and advice needs the whole answer."
    have = "has" if row.unmeasured == 1 else "have"
    return (
        f"{row.unmeasured} of the {_count(row.measurable, 'pod')} ready for ten minutes {have} "
        "no samples, and advice needs samples of at least 9 in 10."
    )


def _advice(row: Row, recommended: Mapping[str, Any]) -> str:
    note = ""
    if row.coverage < 1:
        note = f" {percent_known(row.coverage)} of the past seven days is known."
    if "containers" in recommended:
        parts = [
            " ".join([container["name"], *(f"{what} {size}" for what, size in container["requests"].items())])
            for container in recommended["containers"]
        ]
        return f"Requests by container: {'; '.join(parts) or 'none'}.{note}"
    future = ", the forecast of the next seven days included" if row.prediction["predictable"] else ""
    return (
        f"{row.replicas_min} to {row.replicas_max} replicas at {row.target_percent} % of the CPU request: "
        f"a pod uses {row.pod_p99_cores:.3g} cores at P99, the workload {row.lowest_median_cores:.3g} "
        f"in its idlest hour and {row.p95_cores:.3g} at P95{future}.{note}"
    )


def percent_known(coverage: float) -> str:
    """Print a coverage in percent."""
    return f"{known_percent(coverage):g} %"


def known_percent(coverage: float) -> float:
    """Give a coverage to a tenth of a percent; never 100 while some is missing, nor 0 while some is known."""
    nearest = round(coverage * 100, 1)
    if coverage < 1:
        nearest = min(nearest, 99.9)
    return max(nearest, 0.1) if coverage > 0 else 0.0


def _below(value: float, limit: float, digits: int = 4) -> str:
    """Print a number with as many digits as it takes to be seen below its limit."""
    texts = (f"{value:.{count}g}" for count in range(digits, 13))
    return next((text for text in texts if float(text) < limit), f"{value:.12g}")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
