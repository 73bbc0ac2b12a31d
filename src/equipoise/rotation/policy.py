"""What a user may ask of the rotation.

`RotationPolicy` is what deciding needs, wherever it was written: in the environment, in a file, on the
command line, in the cluster. `RotationPolicySpec` is the `spec` of the custom resource: the same settings,
and which workloads they are for.
"""

from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from equipoise.crd.definition import Column, DefinedKind
from equipoise.crd.fields import Count, Memory, Moment, Number, SchemaPart, Span, Whole, rule, rules
from equipoise.crd.status import ENTRIES_MAX, PolicyStatus, WorkloadDecision
from equipoise.crd.targets import LabelSelector, Mode, WorkloadTarget
from equipoise.crd.windows import Window
from equipoise.engine.recording import as_json

WARM_UP_SECONDS = 300.0
"""How long a new pod gets, after its first full metrics window, before it may be judged."""
AGE_MIN_SECONDS = 600.0
"""A younger pod is judged only where minPodAge says so."""
TARGET_RULE = "expected exactly one of targetRef and selector"
QUERY_RULE = "expected a query because kafkaLag is enabled"


class KafkaLag(SchemaPart):
    """Hold rotation while a consumer group lags: a rotation stops consumption."""

    is_enabled: bool = Field(
        False, alias="enabled", description="Whether rotation is held while the consumer group lags."
    )
    threshold: Number = Field(1000, ge=0, description="Rotation is held at this lag and above.")
    query: str = Field(
        "",
        max_length=4096,
        description="A Prometheus query that returns the lag. Rotation is held while it returns no value.",
    )


class RotationPolicy(SchemaPart):
    """The settings of one workload's rotation; the defaults are the seed's."""

    top_k: Whole = Field(
        2,
        alias="topK",
        ge=1,
        description="How many of the hottest and of the coldest candidates are compared.",
    )
    tolerance_multiplier: Number = Field(
        1.5,
        alias="toleranceMultiplier",
        gt=0,
        description="A pod is hot if it uses more than this times the HPA's target.",
    )
    improvement_percent_min: Number = Field(
        10,
        alias="minimumImprovementPercent",
        ge=0,
        le=100,
        description="Pods are rotated only if the predicted improvement exceeds this, in percent.",
    )
    replicas_min: Whole = Field(
        3, alias="minReplicas", ge=1, description="A workload with fewer ready pods is not rotated."
    )
    metrics_window_seconds: Annotated[float, Span(1)] = Field(
        300, alias="metricsWindow", description="The period over which CPU usage is averaged."
    )
    pod_age_min_seconds: Annotated[float, Span(0)] | None = Field(
        None,
        alias="minPodAge",
        description="Younger pods are no candidates. The default is metricsWindow + 5m, at least 10m.",
    )
    hpa_prefix: str = Field(
        "", alias="hpaPrefix", max_length=253, description="Only HPAs whose name starts with this are used."
    )
    hpa_metric_name: str = Field(
        "cpu",
        alias="hpaMetricName",
        min_length=1,
        max_length=253,
        description="The name of the HPA metric to use.",
    )
    kafka_lag: KafkaLag = Field(
        KafkaLag(), alias="kafkaLag", description="Hold rotation while a Kafka consumer group lags."
    )
    unavailable_pods_max: Whole = Field(
        1,
        alias="maxUnavailable",
        ge=1,
        description="How many pods of a workload may be unavailable at the same time.",
    )
    cooldown_seconds: Annotated[float, Span(0)] = Field(
        900, alias="cooldown", description="How long a workload is not rotated again after a rotation."
    )
    rotations_per_hour_max: Whole = Field(
        4, alias="rotationsPerHour", ge=1, description="How many rotations a workload may have per hour."
    )
    windows: tuple[Window, ...] = Field(
        (),
        max_length=20,
        description="When pods may be rotated. Without windows, they may be at any time.",
    )
    debounce_cycles: Whole = Field(
        3,
        alias="debounceCycles",
        ge=1,
        description="For how many cycles in a row a pod must be hot before the first eviction.",
    )
    includes_stateful_sets: bool = Field(
        False, alias="includeStatefulSets", description="Whether StatefulSets may be rotated too."
    )
    sync_period_seconds: Annotated[float, Span(1)] = Field(
        30,
        alias="syncPeriod",
        description="The shortest time between two cycles; never shorter than the operator's interval.",
    )
    includes_local_storage: bool = Field(
        False,
        alias="includeLocalStorage",
        description="Whether pods with an emptyDir or hostPath volume may be rotated too.",
    )

    @property
    def candidate_age_min_seconds(self) -> float:
        """The age from which a pod's usage is representative."""
        if self.pod_age_min_seconds is not None:
            return self.pod_age_min_seconds
        return max(self.metrics_window_seconds + WARM_UP_SECONDS, AGE_MIN_SECONDS)


class RotationPolicySpec(RotationPolicy):
    """What to keep in balance, and how."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("has(self.targetRef) != has(self.selector)", TARGET_RULE),
            rule(
                "!self.kafkaLag.enabled || (has(self.kafkaLag.query) && size(self.kafkaLag.query) > 0)",
                QUERY_RULE,
                path=".kafkaLag.query",
            ),
        )
    )

    target_ref: WorkloadTarget | None = Field(
        None, alias="targetRef", description="The one workload that the policy applies to."
    )
    selector: LabelSelector | None = Field(
        None, description="The workloads that the policy applies to, by their labels; {} selects all."
    )
    mode: Mode = Field(Mode.PREVIEW, description="Preview only reports what would be done; Enforce does it.")

    @property
    def settings(self) -> RotationPolicy:
        """What deciding needs of it, without whom it is for."""
        return RotationPolicy.model_construct(
            **{name: getattr(self, name) for name in RotationPolicy.model_fields}
        )

    @field_validator("kafka_lag")
    @classmethod
    def _has_query_where_enabled(cls, lag: KafkaLag) -> KafkaLag:
        if lag.is_enabled and not lag.query:
            raise ValueError(QUERY_RULE)
        return lag

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if (self.target_ref is None) == (self.selector is None):
            raise ValueError(TARGET_RULE)
        return self


class RotationPolicyStatus(PolicyStatus):
    """The observed state of a policy."""

    workloads: Count | None = Field(None, description="How many workloads the policy applies to.")
    decisions: tuple[WorkloadDecision, ...] = Field(
        (),
        max_length=ENTRIES_MAX,
        description="The last decision for each workload, up to 200; `workloads` counts all.",
    )
    predicted_improvement_percent: Number | None = Field(
        None,
        alias="predictedImprovementPercent",
        description="The predicted improvement of the last rotation, in percent.",
    )
    realised_improvement_percent: Number | None = Field(
        None,
        alias="realisedImprovementPercent",
        description="The measured improvement of the last rotation, in percent.",
    )
    rotated_at: Moment | None = Field(None, alias="rotatedAt", description="When a pod was last rotated.")
    memory: Memory = Field({}, description="Always empty: the workload's Ledger has the state of rotations.")


ROTATION_POLICY = DefinedKind(
    group="equipoise.dev",
    version="v1alpha1",
    name="RotationPolicy",
    plural="rotationpolicies",
    description="Rotates the hottest and coldest pods of autoscaled workloads in its own namespace.",
    body={"spec": RotationPolicySpec, "status": RotationPolicyStatus},
    required=("spec",),
    short_names=("rotpol",),
    columns=(
        Column("Mode", ".spec.mode"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", ".status.lastDecision.reason"),
        Column("Workloads", ".status.workloads", "integer"),
        Column(
            "Improvement", ".status.realisedImprovementPercent", "number", "Measured improvement, in percent."
        ),
        Column("Why", ".status.lastDecision.sentence", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)

ENVIRONMENT = {
    "REBALANCE_TOP_K_PODS": ("topK",),
    "TOLERANCE_MULTIPLIER": ("toleranceMultiplier",),
    "MINIMUM_IMPROVEMENT_PERCENT": ("minimumImprovementPercent",),
    "MINIMUM_PODS_REQUIRED": ("minReplicas",),
    "METRICS_TIME_WINDOW": ("metricsWindow",),
    "HPA_PREFIX": ("hpaPrefix",),
    "HPA_METRIC_NAME": ("hpaMetricName",),
    "KAFKA_LAG_ENABLED": ("kafkaLag", "enabled"),
    "KAFKA_LAG_THRESHOLD": ("kafkaLag", "threshold"),
    "KAFKA_LAG_QUERY": ("kafkaLag", "query"),
}
"""The environment variables of the earlier rebalancer, with the setting of each."""


@lru_cache(maxsize=256)
def policy_json(policy: RotationPolicy) -> dict[str, Any]:
    """Return a policy as its records have it; one policy decides for many workloads, again and again."""
    # Not pydantic's own JSON, which prints durations as text, to the millisecond.
    return as_json(policy.model_dump(by_alias=True))
