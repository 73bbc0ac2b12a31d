"""What is known of one workload, its advice, the numbers derived from both, and the record.

A record has the few numbers
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
from equipoise.recommendation.settings import AdviceRequest, ResourcePolicy

BALANCER = "recommendation"
SUBJECT_SEPARATOR = " for "
"""Separates the workload from its Analytics in the subject of a decision."""
CONFIDENT_COVERAGE_MIN = 0.5
UNMEASURED_SHARE_MAX = 0.1
"""Largest share of pods without samples, among those that must have some, for which there is HPA advice."""
USAGE_FIGURES = (
    *("pod_p99_cores", "lowest_median_cores", "highest_median_cores"),
    *("p95_cores", "p95_past_cores", "peak_cores"),
)
"""The statistics of the usage, which facts, numbers and `Statistics` have under the same names."""


class ContainerFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A container's usage in the week, and what it asks for now; None where that is unknown or not set."""

    name: str
    cpu_cores: float | None = msgspec.field(name="cpu_p99_cores")
    """At the percentile of the settings, which is P99 unless they change it."""
    memory_peak_bytes: float | None
    cpu_request_cores: float | None = None
    memory_request_bytes: float | None = None
    cpu_limit_cores: float | None = None
    memory_limit_bytes: float | None = None
    is_oom_killed: bool = False
    """Whether it ran out of memory in the week, so that its peak is not known to be enough."""

    @property
    def is_measured(self) -> bool:
        return self.cpu_cores is not None or self.memory_peak_bytes is not None


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

    @property
    def is_incomplete(self) -> bool:
        """Whether a part of the samples is missing; one without any fails `NoSamples` instead."""
        has_some = self.known_samples > 0 or self.unmeasured < self.measurable
        is_lacking = self.unmeasured * 100 > round(UNMEASURED_SHARE_MAX * 100) * self.measurable
        return bool(self.partial) or (has_some and is_lacking)

    @property
    def has_usage(self) -> bool:
        """Whether the usage of any container is known."""
        return any(container.is_measured for container in self.containers)


class Advice(NamedTuple):
    """The advice for one workload; replicas and target are valid only where the code is Recommend."""

    code: Code
    fluctuation: float
    target_percent: int
    replicas_min: int
    replicas_max: int
    refusals: tuple[Code, ...] = ()
    """Every check that fails, in order; the first one is the code."""


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


class ContainerAmounts(msgspec.Struct, frozen=True):
    """Requests and limits of a container as Kubernetes quantities; what is not set is left out."""

    requests: dict[str, str]
    limits: dict[str, str]


class ContainerAdvice(msgspec.Struct, frozen=True):
    """What one container asks for now, and what it should ask for."""

    name: str
    current: ContainerAmounts
    recommended: ContainerAmounts


class AdviceDetails(msgspec.Struct, frozen=True):
    """The details of one workload's decision; where there is no advice, the HPA and containers are empty."""

    kind: str
    hpa: RecommendedHpa | None = None
    containers: list[RecommendedContainer] | None = None
    """The requests that are the advice itself, which is of the type Resource."""
    prediction: PredictionFacts | None = None
    """None where an error ended the advice before a forecast was made."""
    confidence: str = "low"
    coverage: float = 0.0
    refused_hpa: RecommendedHpa | None = None
    """The advice without the inspections that refuse it, for a plan that shows it."""
    sizes: list[ContainerAdvice] | None = None
    """The containers, where their usage was read."""

    @property
    def document(self) -> dict[str, Any]:
        """The fields that are specific to this balancer in the decision's document."""
        recommended: dict[str, Any] | None = None
        if self.containers is not None:
            recommended = {"containers": msgspec.to_builtins(self.containers)}
        elif self.hpa is not None:
            recommended = msgspec.to_builtins(self.hpa)
        document = {"kind": self.kind, "recommended": recommended}
        if self.refused_hpa is not None:
            document["wouldRecommend"] = msgspec.to_builtins(self.refused_hpa)
        if self.sizes is not None:
            document["containers"] = msgspec.to_builtins(self.sizes)
        return document | {
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
        "confidence": confidence(facts),
        "replicas": facts.replicas,
        "pods": facts.pods,
        "pods_available": facts.available,
        "request_cores": shown(facts.request_cores),
        "samples": facts.known_samples,
    }
    if advice.code is Code.METRICS_INCOMPLETE:
        numbers |= {"pods_measurable": facts.measurable, "pods_unmeasured": facts.unmeasured}
    return numbers if facts.pods_unknown is None else numbers | {"pods_unknown": facts.pods_unknown}


def confidence(facts: Facts) -> str:
    """Return `low` where less than half of the week has samples, or pods have none; else `high`."""
    is_low = facts.coverage < CONFIDENT_COVERAGE_MIN or facts.is_incomplete
    return "low" if is_low else "high"


def shown(value: float | None) -> float | None:
    """Return a number for JSON: None where it is unknown or infinite, else without floating-point noise."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.12g}")


def coverage_text(coverage: float) -> str:
    return f"{coverage_percent(coverage):g}%"


def coverage_percent(coverage: float) -> float:
    """Return a coverage to a tenth of a percent; 100 and 0 only where all or no samples are known."""
    nearest = round(coverage * 100, 1)
    if coverage < 1:
        nearest = min(nearest, 99.9)
    return max(nearest, 0.1) if coverage > 0 else 0.0


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
    settings = _policy_document(request, asker, is_applied=is_applied)
    has_readings = facts.known_samples > 0
    return recording.record(
        BALANCER, settings, facts, {}, decision, at, record_id, outcomes, has_readings=has_readings
    )


@lru_cache(maxsize=256)
def _policy_document(request: AdviceRequest, asker: str, *, is_applied: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"for": asker, "type": request.about.value, "isApplied": is_applied}
    document |= {"hasContainers": True} if request.has_containers else {}
    document |= {"showsRefused": True} if request.shows_refused else {}
    settings = request.policy.model_dump(by_alias=True, exclude={"resource"})
    if (resource := request.policy.resource) != ResourcePolicy():
        settings["resource"] = resource.model_dump(by_alias=True, exclude_defaults=True)
    return recording.as_json(document | {"settings": settings})
