"""What `recommendation plan` and `apply` promise, as structs, like those in `documents.py`."""

# ruff: noqa: D101 - most are named as the part of the document that they are

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from equipoise.cli.documents import AtLeastOne, Share, codes, either
from equipoise.core.reason import Code
from equipoise.ports import ApplyResult

ADVICE = (
    *(Code.RECOMMEND, Code.TOO_FEW_REPLICAS, Code.TOO_FEW_AVAILABLE_PODS, Code.NO_PODS),
    *(Code.LOW_USAGE, Code.LOW_FLUCTUATION, Code.NO_SAMPLES, Code.NO_REQUEST),
    *(Code.METRICS_INCOMPLETE, Code.INTERNAL_ERROR),
)
_GUARDS = (Code.HELD_BY_PAUSE, Code.OPTED_OUT, Code.NOT_OURS, Code.NOT_APPLIED)


class HpaDocument(Struct, rename="camel"):
    min_replicas: AtLeastOne
    max_replicas: AtLeastOne
    target_utilization: AtLeastOne
    metrics: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    behavior: dict[str, Any] | None


class ContainerRequests(Struct):
    name: str
    requests: dict[str, Any]


class ContainerAmountsDocument(Struct):
    """Kubernetes quantities; what is unknown or not set is left out."""

    requests: dict[str, str]
    limits: dict[str, str]


class ContainerAdviceDocument(Struct):
    name: str
    current: ContainerAmountsDocument
    recommended: ContainerAmountsDocument


class ResourceAdvice(Struct):
    containers: list[ContainerRequests]


class PredictionDocument(Struct):
    """Whether the coming days can be told from the past."""

    predictable: bool
    period_seconds: float | None
    model: str
    error: float | None
    baseline_error: float | None


class AdviceNumbersDocument(Struct):
    """What advice was made from."""

    pod_p99_cores: float | None
    lowest_median_cores: float | None
    highest_median_cores: float | None
    p95_cores: float | None
    peak_cores: float | None
    fluctuation: float | None
    coverage: Share
    confidence: Literal["low", "high"]


class AdviceDecision(Struct, kw_only=True):
    subject: str
    reason: Annotated[str, codes(*ADVICE)]
    sentence: str
    actions: list[Any]
    held: list[Any]
    numbers: AdviceNumbersDocument
    recommended: Annotated[Any, either(HpaDocument, ResourceAdvice, is_null=True)]
    prediction: PredictionDocument
    would_recommend: Annotated[
        HpaDocument | UnsetType | None,
        Meta(description="What an HPA would get if the inspections did not refuse it."),
    ] = field(name="wouldRecommend", default=UNSET)
    containers: Annotated[
        list[ContainerAdviceDocument] | UnsetType,
        Meta(description="What each container asks for, and should; where its usage was read."),
    ] = UNSET


class RecommendationPlan(Struct):
    balancer: Literal["recommendation"]
    decisions: list[AdviceDecision]


class HpaChange(Struct):
    kind: Literal["ApplyHpa"]
    workload: str
    manifest: dict[str, Any]


class HeldHpaChange(HpaChange):
    reason: Annotated[str, codes(*_GUARDS)]


class HpaOutcome(HpaChange):
    result: Annotated[
        str, Meta(extra_json_schema={"enum": [*(each.value for each in ApplyResult), "Unknown"]})
    ]
    detail: str


class AppliedDecision(AdviceDecision, kw_only=True):
    """What became of one workload's advice."""

    reason: Annotated[str, codes(*ADVICE, *_GUARDS)]
    actions: Annotated[list[HpaChange], Meta(max_length=1)]
    held: Annotated[list[HeldHpaChange], Meta(max_length=1)]
    outcomes: Annotated[list[HpaOutcome], Meta(max_length=1)]
    dry_run: bool


class AppliedPlan(Struct):
    balancer: Literal["recommendation"]
    decisions: list[AppliedDecision]
