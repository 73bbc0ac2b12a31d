"""The details of one workload's advice, the numbers derived from them, and one sentence.

The sentence of a refusal has both numbers: the observed value and the limit.
"""

import math
from typing import Any, NamedTuple

import msgspec

from equipoise.core.decision import Decision
from equipoise.core.reason import Code
from equipoise.recommendation.observe import PredictionFacts
from equipoise.recommendation.policy import PREFIX, RecommendationPolicy

CONFIDENT_COVERAGE_MIN = 0.5


class WorkloadFigures(NamedTuple):
    """All figures of one workload as plain numbers; NaN where one is unknown."""

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
    prediction: PredictionFacts
    measurable: int
    unmeasured: int
    partial: str

    @property
    def confidence(self) -> str:
        """`low` where less than half of the week has samples, else `high`."""
        is_low = self.coverage < CONFIDENT_COVERAGE_MIN or self.code is Code.METRICS_INCOMPLETE
        return "low" if is_low else "high"


class RecommendedHpa(msgspec.Struct, frozen=True):
    """What an HPA should have."""

    replicas_min: int = msgspec.field(name="minReplicas")
    replicas_max: int = msgspec.field(name="maxReplicas")
    target_percent: int = msgspec.field(name="targetUtilization")
    metrics: list[dict[str, Any]]
    behavior: dict[str, Any] | None


class RecommendedContainer(msgspec.Struct, frozen=True):
    """What one container should request."""

    name: str
    requests: dict[str, str]


class AdviceDetails(msgspec.Struct, frozen=True):
    """The details of one workload's decision; where there is no advice, the HPA and containers are empty."""

    kind: str
    hpa: RecommendedHpa | None = None
    containers: list[RecommendedContainer] | None = None
    prediction: PredictionFacts | None = None
    """None where an error ended the advice before a forecast was made."""
    confidence: str = "low"
    coverage: float = 0.0

    @property
    def is_advice(self) -> bool:
        """Whether there is advice that can be adopted."""
        return self.hpa is not None or self.containers is not None

    @property
    def document(self) -> dict[str, Any]:
        """The fields that are specific to this balancer in the decision's document."""
        recommended: dict[str, Any] | None = None
        if self.containers is not None:
            recommended = {"containers": msgspec.to_builtins(self.containers)}
        elif self.hpa is not None:
            recommended = msgspec.to_builtins(self.hpa)
        return {
            "kind": self.kind,
            "recommended": recommended,
            "prediction": {} if self.prediction is None else msgspec.to_builtins(self.prediction),
            "confidence": self.confidence,
        }

    @classmethod
    def of(cls, decision: Decision) -> "AdviceDetails":
        """Return the details from a decision's document, as far as a manifest needs them."""
        recommended = decision.extra["recommended"] or {}
        has_hpa = "maxReplicas" in recommended
        return cls(
            kind=decision.extra["kind"],
            hpa=msgspec.convert(recommended, RecommendedHpa) if has_hpa else None,
            prediction=msgspec.convert(decision.extra["prediction"], PredictionFacts),
        )


class DecisionNumbers(msgspec.Struct, frozen=True):
    """The numbers of a decision; None where something is unknown or infinite."""

    pod_p99_cores: float | None
    lowest_median_cores: float | None
    highest_median_cores: float | None
    p95_cores: float | None
    p95_past_cores: float | None
    peak_cores: float | None
    fluctuation: float | None
    coverage: float
    confidence: str
    replicas: int
    pods: int
    pods_available: int
    request_cores: float | None
    samples: int
    pods_measurable: int | msgspec.UnsetType = msgspec.UNSET
    pods_unmeasured: int | msgspec.UnsetType = msgspec.UNSET
    pods_unknown: int | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(cls, row: WorkloadFigures, pods_unknown: int | None) -> "DecisionNumbers":
        """Return the numbers of one workload; those of unmeasured pods only where they are the reason."""
        is_incomplete = row.code is Code.METRICS_INCOMPLETE
        return cls(
            pod_p99_cores=shown(row.pod_p99_cores),
            lowest_median_cores=shown(row.lowest_median_cores),
            highest_median_cores=shown(row.highest_median_cores),
            p95_cores=shown(row.p95_cores),
            p95_past_cores=shown(row.p95_past_cores),
            peak_cores=shown(row.peak_cores),
            fluctuation=shown(row.fluctuation),
            coverage=row.coverage,
            confidence=row.confidence,
            replicas=row.replicas,
            pods=row.pods,
            pods_available=row.available,
            request_cores=shown(row.request_cores),
            samples=row.known_samples,
            pods_measurable=row.measurable if is_incomplete else msgspec.UNSET,
            pods_unmeasured=row.unmeasured if is_incomplete else msgspec.UNSET,
            pods_unknown=msgspec.UNSET if pods_unknown is None else pods_unknown,
        )


def shown(value: float) -> float | None:
    """Return a number for JSON: None where it is unknown or infinite, else without floating-point noise."""
    return float(f"{value:.12g}") if math.isfinite(value) else None


def sentence(
    policy: RecommendationPolicy, row: WorkloadFigures, containers: list[RecommendedContainer] | None
) -> str:
    """Return the sentence of a decision; containers are set for advice of the type Resource."""
    match row.code:
        case Code.TOO_FEW_REPLICAS:
            needed, key = policy.replicas_needed(row.kind)
            has = _count(row.replicas, "replica")
            return f"The {row.kind} has {has}, and {PREFIX}{key} asks for at least {needed}."
        case Code.NO_PODS:
            return "The workload has 0 pods, and advice needs at least 1."
        case Code.TOO_FEW_AVAILABLE_PODS:
            share_min = policy.pod_available_share_min
            share, be = _below(row.available / row.pods, share_min, 3), "is" if row.pods == 1 else "are"
            return (
                f"{row.available} of {_count(row.pods, 'pod')} {be} available, a share of {share}, and "
                f"{PREFIX}pod-available-ratio asks for at least {share_min:.12g}."
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
    return _advice(row, containers)


def _unknown(row: WorkloadFigures) -> str:
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


def _advice(row: WorkloadFigures, containers: list[RecommendedContainer] | None) -> str:
    note = ""
    if row.coverage < 1:
        note = f" {coverage_text(row.coverage)} of the past seven days is known."
    if containers is not None:
        parts = [
            " ".join([each.name, *(f"{what} {size}" for what, size in each.requests.items())])
            for each in containers
        ]
        return f"Requests by container: {'; '.join(parts) or 'none'}.{note}"
    future = ", the forecast of the next seven days included" if row.prediction.is_predictable else ""
    return (
        f"{row.replicas_min} to {row.replicas_max} replicas at {row.target_percent} % of the CPU request: "
        f"a pod uses {row.pod_p99_cores:.3g} cores at P99, the workload {row.lowest_median_cores:.3g} "
        f"in its idlest hour and {row.p95_cores:.3g} at P95{future}.{note}"
    )


def coverage_text(coverage: float) -> str:
    return f"{coverage_percent(coverage):g} %"


def coverage_percent(coverage: float) -> float:
    """Return a coverage to a tenth of a percent; 100 and 0 only where all or no samples are known."""
    nearest = round(coverage * 100, 1)
    if coverage < 1:
        nearest = min(nearest, 99.9)
    return max(nearest, 0.1) if coverage > 0 else 0.0


def _below(value: float, limit: float, digits: int = 4) -> str:
    """Return a number with as many digits as it takes to be distinct from its limit."""
    texts = (f"{value:.{count}g}" for count in range(digits, 13))
    return next((text for text in texts if float(text) < limit), f"{value:.12g}")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
