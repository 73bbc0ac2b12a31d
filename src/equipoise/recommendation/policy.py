"""The seed's custom resources: an Analytics asks for advice, a Recommendation has that."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from equipoise.core.errors import BadInput
from equipoise.crd.definition import Column, DefinedKind
from equipoise.crd.fields import SPAN_SECONDS_MAX, Count, Moment, Name, SchemaPart
from equipoise.crd.status import ENTRIES_MAX, Conditions, Reason, Sentence
from equipoise.crd.targets import ApiVersion, KindName, LabelSelector
from equipoise.recommendation.settings import AdviceRequest, AdviceType, read_policy
from equipoise.stats.predict import Algorithm

GROUP, VERSION = "analysis.crane.io", "v1alpha1"
PERIOD_SECONDS = 86400
SELECTORS_MAX = 100
CONFIG_KEYS_MAX = 50
LATER = "Of later versions of Crane; not written here."
VALUE_LENGTH_MAX = 262_144
"""What an annotation may hold, and so what advice that becomes one may weigh."""
KINDS_OF_WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet")

Word = Annotated[str, Field(max_length=253)]
ConfigText = Annotated[str, Field(max_length=1024)]
AdviceText = Annotated[str, Field(max_length=VALUE_LENGTH_MAX)]


class CompletionType(StrEnum):
    """How often somebody wants advice."""

    ONCE = "Once"
    PERIODICAL = "Periodical"


class AdoptionType(StrEnum):
    """What becomes of advice beside being told."""

    STATUS = "Status"
    STATUS_AND_ANNOTATION = "StatusAndAnnotation"
    AUTO = "Auto"


class CompletionStrategy(SchemaPart):
    """Once, or again and again."""

    type: CompletionType = Field(
        CompletionType.ONCE,
        alias="completionStrategyType",
        description="Once gives advice when it is made or changed; Periodical again and again.",
    )
    period_seconds: Annotated[int, Field(ge=1, le=int(SPAN_SECONDS_MAX))] | None = Field(
        None, alias="periodSeconds", description="How long between two looks; a day where it is not said."
    )

    @property
    def seconds(self) -> float | None:
        """How long an answer stands; None for ever."""
        return None if self.type is CompletionType.ONCE else float(self.period_seconds or PERIOD_SECONDS)


class ResourceSelector(SchemaPart):
    """Workloads of one kind in the Analytics' own namespace: one by name, or those with these labels."""

    kind: KindName = Field(description="Deployment, StatefulSet or ReplicaSet.")
    api_version: ApiVersion = Field(
        "apps/v1", alias="apiVersion", description="The API version of the workload's kind."
    )
    name: Name | None = Field(None, description="The workload's name; without, all that have the labels.")
    label_selector: LabelSelector | None = Field(
        None, alias="labelSelector", description="Labels that a workload must have; {} takes all."
    )

    @field_validator("kind")
    @classmethod
    def _is_kind_of_workloads(cls, kind: str) -> str:
        if kind not in KINDS_OF_WORKLOADS:
            raise ValueError(f"expected Deployment, StatefulSet or ReplicaSet, got {kind!r}")
        return kind

    @model_validator(mode="after")
    def _is_of_its_group(self) -> Self:
        if self.api_version.rpartition("/")[0] != "apps":
            raise ValueError(f"expected apiVersion apps/v1 for a {self.kind}, got {self.api_version!r}")
        return self


class AnalyticsSpec(SchemaPart):
    """Which workloads need advice, of which type, how often, and with which settings."""

    type: AdviceType = Field(description="HPA: replicas and target. Resource: requests of the containers.")
    resource_selectors: tuple[ResourceSelector, ...] = Field(
        alias="resourceSelectors",
        max_length=SELECTORS_MAX,
        description="The workloads; each selector must find one.",
        json_schema_extra={"minItems": 1},
    )
    completion_strategy: CompletionStrategy = Field(
        CompletionStrategy(), alias="completionStrategy", description="How often."
    )
    config: dict[Word, ConfigText] = Field(
        {},
        max_length=CONFIG_KEYS_MAX,
        description="Settings by their keys, such as ehpa.default-min-replicas.",
    )
    algorithm: Algorithm = Field(
        Algorithm.PROFILE, alias="algorithmType", description="What forecasts the coming week."
    )
    adoption: AdoptionType | None = Field(
        None,
        alias="adoptionType",
        description="What becomes of the advice; where it is not said, each Recommendation says it.",
    )

    @field_validator("resource_selectors")
    @classmethod
    def _has_one(cls, selectors: tuple[ResourceSelector, ...]) -> tuple[ResourceSelector, ...]:
        # Not by `min_length`, which would count a bad selector as none and complain twice.
        if not selectors:
            raise ValueError("expected at least one selector")
        return selectors

    @field_validator("config")
    @classmethod
    def _is_known(cls, config: dict[str, str]) -> dict[str, str]:
        try:
            read_policy(config, "config")
        except BadInput as error:
            raise ValueError(str(error).removeprefix("config: ")) from error
        return config

    @property
    def request(self) -> AdviceRequest:
        """What deciding needs of it."""
        return AdviceRequest(read_policy(self.config, "spec.config"), self.type, self.algorithm)


class ObjectReference(SchemaPart):
    """Any object, as the core API names one."""

    api_version: Word | None = Field(None, alias="apiVersion", description="The API version of its kind.")
    kind: Word | None = Field(None, description="Its kind.")
    namespace: Word | None = Field(None, description="Its namespace.")
    name: Word | None = Field(None, description="Its name.")
    uid: Word | None = Field(None, description="The incarnation of that name.")
    resource_version: Word | None = Field(None, alias="resourceVersion", description="Not read.")
    field_path: Word | None = Field(None, alias="fieldPath", description="Not read.")


class RecommenderReference(SchemaPart):
    """Who gave the advice, in later versions of Crane; not written here."""

    name: Word | None = Field(None, description="The recommender's name.")
    config: dict[Word, ConfigText] = Field({}, max_length=CONFIG_KEYS_MAX, description="Its settings.")


class Mission(ObjectReference):
    """One workload of an Analytics, and the Recommendation for it."""

    target_ref: ObjectReference | None = Field(None, alias="targetRef", description="The workload.")
    last_start_time: Moment | None = Field(
        None, alias="lastStartTime", description="When it was last looked at."
    )
    message: Sentence = Field("", description="Success, or which check failed, with both numbers.")
    recommender_ref: RecommenderReference | None = Field(None, alias="recommenderRef", description=LATER)


class AnalyticsStatus(SchemaPart):
    """What came of it."""

    conditions: Conditions = Field((), description="Ready, and why not.")
    last_update_time: Moment | None = Field(
        None, alias="lastUpdateTime", description="When advice was last given."
    )
    observed_generation: Count | None = Field(
        None, alias="observedGeneration", description="The generation that the recommendations are about."
    )
    recommendations: tuple[Mission, ...] = Field(
        (), max_length=ENTRIES_MAX, description="Up to 200 of them; recommendationsTotal counts all."
    )
    recommendations_total: Count | None = Field(
        None, alias="recommendationsTotal", description="How many workloads were looked at."
    )
    recommended_total: Count | None = Field(
        None, alias="recommendedTotal", description="How many of them got advice."
    )


class RecommendationSpec(SchemaPart):
    """What the advice is about, and what becomes of it."""

    target_ref: ObjectReference = Field(alias="targetRef", description="The workload.")
    type: AdviceType = Field(description="HPA: replicas and target. Resource: requests of the containers.")
    completion_strategy: CompletionStrategy = Field(
        CompletionStrategy(),
        alias="completionStrategy",
        description="Not read: the Analytics that owns this says when to look again.",
    )
    adoption: AdoptionType = Field(
        AdoptionType.STATUS_AND_ANNOTATION,
        alias="adoptionType",
        description="Status only; also an annotation on the workload; or also an HPA of ours.",
    )


class RecommendationStatus(SchemaPart):
    """The advice."""

    conditions: Conditions = Field((), description="Ready, or which check failed; Adopted, and why not.")
    observed_generation: Count | None = Field(
        None, alias="observedGeneration", description="The generation that this status is about."
    )
    last_update_time: Moment | None = Field(
        None, alias="lastUpdateTime", description="When the advice last changed."
    )
    recommended_value: AdviceText = Field(
        "", alias="recommendedValue", description="The advice as YAML; absent where there is none."
    )
    reason: Reason | None = Field(
        None, description="The decision's code, Recommend or the check that failed."
    )
    description: Sentence = Field("", description="The decision's sentence, with its numbers.")
    confidence: Annotated[str, Field(max_length=16)] | None = Field(
        None, description="low where less than half of the week is known, else high."
    )
    coverage_percent: Annotated[float, Field(ge=0, le=100)] | None = Field(
        None, alias="coveragePercent", description="How much of the past seven days is known."
    )
    target_ref: ObjectReference | None = Field(None, alias="targetRef", description=LATER)
    recommended_info: AdviceText = Field("", alias="recommendedInfo", description=LATER)
    current_info: AdviceText = Field("", alias="currentInfo", description=LATER)
    action: Word | None = Field(None, description=LATER)


ANALYTICS = DefinedKind(
    group=GROUP,
    version=VERSION,
    name="Analytics",
    plural="analytics",
    description="Asks for HPA or resource advice for workloads in its own namespace.",
    body={"spec": AnalyticsSpec, "status": AnalyticsStatus},
    required=("spec",),
    short_names=("analytics",),
    columns=(
        Column("Type", ".spec.type", priority=1),
        Column("Strategy", ".spec.completionStrategy.completionStrategyType", priority=1),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status", priority=1),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason", priority=1),
        Column("Workloads", ".status.recommendationsTotal", "integer", priority=1),
        Column("Recommended", ".status.recommendedTotal", "integer", priority=1),
        Column("Updated", ".status.lastUpdateTime", "date", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)

RECOMMENDATION = DefinedKind(
    group=GROUP,
    version=VERSION,
    name="Recommendation",
    plural="recommendations",
    description="Advice for one workload. Equipoise writes it; only adoptionType is yours to change.",
    body={"spec": RecommendationSpec, "status": RecommendationStatus},
    required=("spec",),
    short_names=("recommend",),
    columns=(
        Column("Type", ".spec.type"),
        Column("Kind", ".spec.targetRef.kind", priority=1),
        Column("Workload", ".spec.targetRef.name"),
        Column(
            "Ready", ".status.conditions[?(@.type=='Ready')].status", description="Whether there is advice."
        ),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        Column("Adoption", ".spec.adoptionType", priority=1),
        Column("Adopted", ".status.conditions[?(@.type=='Adopted')].status", priority=1),
        Column("Confidence", ".status.confidence", priority=1),
        Column("Why", ".status.description", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
