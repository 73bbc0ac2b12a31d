"""What a user may ask of the rotation."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from equipoise.model.duration import parse_seconds

WARM_UP_SECONDS = 300.0
"""How long a new pod gets, after its first full metrics window, before it may be judged."""


def _not_a_claim(value: object) -> object:
    """Refuse a boolean where a number belongs; a lax reader would take `true` for 1."""
    if isinstance(value, bool):
        raise ValueError(f"expected a number, got {str(value).lower()}")
    return value


Whole = Annotated[int, BeforeValidator(_not_a_claim)]
Number = Annotated[float, BeforeValidator(_not_a_claim)]
Seconds = Annotated[float, BeforeValidator(parse_seconds)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True)


class KafkaLag(_Settings):
    """Hold rotation while a consumer group lags: a rotation stops consumption."""

    is_enabled: bool = Field(False, alias="enabled")
    threshold: Number = Field(1000, ge=0)
    query: str = ""


class RotationPolicy(_Settings):
    """The settings of one workload's rotation; the defaults are the seed's."""

    top_k: Whole = Field(2, alias="topK", ge=1)
    tolerance_multiplier: Number = Field(1.5, alias="toleranceMultiplier", gt=0)
    improvement_percent_min: Number = Field(10, alias="minimumImprovementPercent", ge=0, le=100)
    replicas_min: Whole = Field(3, alias="minReplicas", ge=1)
    metrics_window_seconds: Seconds = Field(300, alias="metricsWindow", ge=1)
    pod_age_min_seconds: Seconds | None = Field(None, alias="minPodAge", ge=0)
    hpa_prefix: str = Field("", alias="hpaPrefix")
    hpa_metric_name: str = Field("cpu", alias="hpaMetricName", min_length=1)
    kafka_lag: KafkaLag = Field(KafkaLag(), alias="kafkaLag")

    @property
    def candidate_age_min_seconds(self) -> float:
        """The age from which a pod's usage says something about the pod."""
        if self.pod_age_min_seconds is not None:
            return self.pod_age_min_seconds
        return self.metrics_window_seconds + WARM_UP_SECONDS


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
"""The variables of the seed's tool, and the setting that each one gives."""
