"""What is known of one workload, its advice, the numbers derived from both, one sentence, and the record.

The sentence of a refusal has both numbers: the observed value and the limit. A record has the few numbers
that decided, from which a replay decides again, and not the week of samples.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from equipoise.core.decision import Decision, Outcome, Record
from equipoise.core.reason import Code
from equipoise.engine import recording
from equipoise.recommendation.forecast import HourlyUsage
from equipoise.recommendation.observe import PredictionFacts
from equipoise.recommendation.policy import PREFIX, AdviceRequest, AdviceType, RecommendationPolicy

BALANCER = "recommendation"
SUBJECT_SEPARATOR = " for "
"""Separates the workload from its Analytics in the subject of a decision."""
CONFIDENT_COVERAGE_MIN = 0.5
USAGE_FIGURES = (
    *("pod_p99_cores", "lowest_median_cores", "highest_median_cores"),
    *("p95_cores", "p95_past_cores", "peak_cores"),
)
"""The statistics of the usage, which facts, numbers and `Statistics` have under the same names."""


class ContainerFacts(msgspec.Struct, frozen=True):
    """A container's usage in the week; None where it is unknown."""

    name: str
    cpu_p99_cores: float | None
    memory_peak_bytes: float | None


class Facts(msgspec.Struct, frozen=True):
    """The inputs of one workload's decision; None where one is unknown."""

    subject: str
    kind: str
    replicas: int
    pods: int
    available: int
    pods_unknown: int | None
    """Running pods of which some container has no sample; None for files."""
    request_cores: float | None
    pod_p99_cores: float | None
    lowest_median_cores: float | None
    highest_median_cores: float | None
    p95_cores: float | None
    p95_past_cores: float | None
    peak_cores: float | None
    known_samples: int
    expected_samples: int
    prediction: PredictionFacts
    metrics: list[dict[str, Any]] = []
    behavior: dict[str, Any] | None = None
    containers: list[ContainerFacts] = []
    hourly_usage: HourlyUsage | None = msgspec.field(name="picture", default=None)
    """For display, where there is advice; nothing is decided from it."""
    measurable: int = 0
    """Pods that have been ready long enough to have samples."""
    unmeasured: int = 0
    """Measurable pods that have no samples."""
    partial: str = ""
    """Why the source's answer was partial."""

    @property
    def coverage(self) -> float:
        """The known share of a week's samples of the measurable pods."""
        measured_share = 1.0 - self.unmeasured / max(self.measurable, 1)
        return min(self.known_samples / self.expected_samples, 1.0) * measured_share


class Advice(NamedTuple):
    """The advice for one workload; replicas and target are valid only where the code is Recommend."""

    code: Code
    fluctuation: float
    target_percent: int
    replicas_min: int
    replicas_max: int


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


def numbers_of(facts: Facts, advice: Advice) -> dict[str, Any]:
    """Return the numbers of a decision, in order; None where something is unknown or infinite.

    Those of unmeasured pods are there only where they are the reason.
    """
    numbers = {
        **{name: shown(getattr(facts, name)) for name in USAGE_FIGURES},
        "fluctuation": shown(advice.fluctuation),
        "coverage": facts.coverage,
        "confidence": confidence(facts, advice.code),
        "replicas": facts.replicas,
        "pods": facts.pods,
        "pods_available": facts.available,
        "request_cores": shown(facts.request_cores),
        "samples": facts.known_samples,
    }
    if advice.code is Code.METRICS_INCOMPLETE:
        numbers |= {"pods_measurable": facts.measurable, "pods_unmeasured": facts.unmeasured}
    return numbers if facts.pods_unknown is None else numbers | {"pods_unknown": facts.pods_unknown}


def confidence(facts: Facts, code: Code) -> str:
    """Return `low` where less than half of the week has samples, else `high`."""
    is_low = facts.coverage < CONFIDENT_COVERAGE_MIN or code is Code.METRICS_INCOMPLETE
    return "low" if is_low else "high"


def shown(value: float | None) -> float | None:
    """Return a number for JSON: None where it is unknown or infinite, else without floating-point noise."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.12g}")


def sentence(
    policy: RecommendationPolicy, facts: Facts, advice: Advice, containers: list[RecommendedContainer] | None
) -> str:
    """Return the sentence of a decision; containers are set for advice of the type Resource."""
    match advice.code:
        case Code.TOO_FEW_REPLICAS:
            needed, key = policy.replicas_needed(facts.kind)
            has = _count(facts.replicas, "replica")
            return f"The {facts.kind} has {has}, and {PREFIX}{key} asks for at least {needed}."
        case Code.NO_PODS:
            return "The workload has 0 pods, and advice needs at least 1."
        case Code.TOO_FEW_AVAILABLE_PODS:
            share_min = policy.pod_available_share_min
            share, be = _below(facts.available / facts.pods, share_min, 3), "is" if facts.pods == 1 else "are"
            return (
                f"{facts.available} of {_count(facts.pods, 'pod')} {be} available, a share of {share}, and "
                f"{PREFIX}pod-available-ratio asks for at least {share_min:.12g}."
            )
        case Code.METRICS_INCOMPLETE | Code.NO_SAMPLES:
            return _unknown(facts, advice.code)
        case Code.LOW_USAGE:
            assert facts.peak_cores is not None, "what is below a limit is known"
            peak = _below(facts.peak_cores, policy.peak_cores_min)
            return (
                f"The highest CPU usage of the past seven days is {peak} cores, below "
                f"{PREFIX}min-cpu-usage-threshold, which is {policy.peak_cores_min:.12g}."
            )
        case Code.LOW_FLUCTUATION:
            times = _below(advice.fluctuation, policy.fluctuation_min)
            return (
                f"The busiest hour of the day uses {times} times what the idlest uses "
                f"({facts.highest_median_cores:.3g} and {facts.lowest_median_cores:.3g} cores), below "
                f"{PREFIX}fluctuation-threshold, which is {policy.fluctuation_min:.12g}."
            )
        case Code.NO_REQUEST:
            return (
                f"The pods request {facts.request_cores or 0.0:g} cores of CPU, and a target in percent of "
                "the request needs more than 0."
            )
    return _advice(facts, advice, containers)


def _unknown(facts: Facts, code: Code) -> str:
    """Return which samples are missing, as a sentence."""
    if code is Code.NO_SAMPLES:
        if facts.known_samples:
            return "0 samples of single pods are known in the past seven days, and advice needs at least 1."
        return (
            f"{facts.known_samples} of the {facts.expected_samples} samples of the past seven days are "
            "known, and advice needs at least 1."
        )
    if facts.partial:
        return f"The metrics source answered in part ({facts.partial}), and advice needs the whole answer."
    have = "has" if facts.unmeasured == 1 else "have"
    return (
        f"{facts.unmeasured} of the {_count(facts.measurable, 'pod')} ready for ten minutes {have} "
        "no samples, and advice needs samples of at least 9 in 10."
    )


def _advice(facts: Facts, advice: Advice, containers: list[RecommendedContainer] | None) -> str:
    note = ""
    if facts.coverage < 1:
        note = f" {coverage_text(facts.coverage)} of the past seven days is known."
    if containers is not None:
        parts = [
            " ".join([each.name, *(f"{what} {size}" for what, size in each.requests.items())])
            for each in containers
        ]
        return f"Requests by container: {'; '.join(parts) or 'none'}.{note}"
    future = ", the forecast of the next seven days included" if facts.prediction.is_predictable else ""
    return (
        f"{advice.replicas_min} to {advice.replicas_max} replicas at {advice.target_percent} % of the CPU "
        f"request: a pod uses {facts.pod_p99_cores:.3g} cores at P99, the workload "
        f"{facts.lowest_median_cores:.3g} in its idlest hour and {facts.p95_cores:.3g} at P95{future}.{note}"
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


def named_for(decision: Decision, asker: str) -> Decision:
    """Return the decision with the Analytics in its subject: a workload may be selected by several."""
    if not asker:
        return decision
    return structs.replace(decision, subject=f"{decision.subject}{SUBJECT_SEPARATOR}{asker}")


def record(
    request: AdviceRequest,
    facts: Facts,
    decision: Decision,
    at: float,
    record_id: str,
    *,
    asker: str = "",
    outcomes: tuple[Outcome, ...] = (),
) -> Record:
    """Return the record of a decision whose subject names the asker already."""
    is_applied = bool(decision.actions or decision.held)
    settings = _policy_document(request.policy, request.about, asker, is_applied=is_applied)
    has_readings = facts.known_samples > 0
    return recording.record(
        BALANCER, settings, facts, {}, decision, at, record_id, outcomes, has_readings=has_readings
    )


@lru_cache(maxsize=256)
def _policy_document(
    policy: RecommendationPolicy, about: AdviceType, asker: str, *, is_applied: bool
) -> dict[str, Any]:
    settings = policy.model_dump(by_alias=True)
    return recording.as_json(
        {"for": asker, "type": about.value, "isApplied": is_applied, "settings": settings}
    )
