"""What a user may ask of the recommendation: the seed's `ehpa.` keys, with its defaults."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, field_validator, model_validator

from equipoise.core.documents import validated
from equipoise.core.errors import BadInput
from equipoise.core.quantity import parse_typed_cores
from equipoise.crd.fields import Number, SchemaPart, Whole

PREFIX = "ehpa."
CORES_MAX = 1e12


class AdviceType(StrEnum):
    """What the advice is about: how many replicas, or what each container asks for."""

    HPA = "HPA"
    RESOURCE = "Resource"


class RecommendationPolicy(SchemaPart):
    """The settings of a recommendation. Their names are the seed's keys without the prefix."""

    deployment_replicas_min: Whole = Field(
        1, alias="deployment-min-replicas", ge=0, description="Smaller Deployments get no advice."
    )
    stateful_set_replicas_min: Whole = Field(
        1, alias="statefulset-min-replicas", ge=0, description="Smaller StatefulSets get no advice."
    )
    workload_replicas_min: Whole = Field(
        1, alias="workload-min-replicas", ge=0, description="Smaller workloads of any kind get no advice."
    )
    pod_ready_seconds_min: Number = Field(
        30, alias="pod-min-ready-seconds", ge=0, description="A pod is available once it was Ready so long."
    )
    pod_available_share_min: Number = Field(
        0.5,
        alias="pod-available-ratio",
        ge=0,
        le=1,
        description="With a smaller share of available pods there is no advice.",
    )
    replicas_min_default: Whole = Field(
        2, alias="default-min-replicas", ge=0, description="minReplicas is never advised below this."
    )
    replicas_max_factor: Number = Field(
        3,
        alias="max-replicas-factor",
        gt=0,
        le=1e6,
        description="How far maxReplicas is above the P95's need.",
    )
    peak_cores_min: Annotated[float, BeforeValidator(parse_typed_cores), Field(le=CORES_MAX)] = Field(
        10,
        alias="min-cpu-usage-threshold",
        description="Workloads that never used so many cores get no advice.",
    )
    fluctuation_min: Number = Field(
        1.5,
        alias="fluctuation-threshold",
        ge=0,
        description="The busiest hour of the day must use so many times what the idlest uses.",
    )
    target_percent_min: Whole = Field(
        30,
        alias="min-cpu-target-utilization",
        ge=1,
        le=1000,
        description="The lowest target that is advised.",
    )
    target_percent_max: Whole = Field(
        75,
        alias="max-cpu-target-utilization",
        ge=1,
        le=1000,
        description="The highest target that is advised.",
    )
    inherits_hpa: bool = Field(
        True, alias="reference-hpa", description="Whether an HPA's other metrics and behavior are kept."
    )
    time_zone: str = Field("UTC", alias="time-zone", description="Whose hours of the day are compared.")

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError, KeyError) as error:
            raise ValueError(f"expected a time zone such as Europe/Berlin, got {name!r}") from error
        return name

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.target_percent_min > self.target_percent_max:
            raise ValueError(
                f"expected {PREFIX}min-cpu-target-utilization ({self.target_percent_min}) at or below "
                f"{PREFIX}max-cpu-target-utilization, got {self.target_percent_max}"
            )
        return self

    def replicas_needed(self, kind: str) -> tuple[int, str]:
        """Return how many replicas this kind must have, and the key that asks for it."""
        own = {
            "Deployment": (self.deployment_replicas_min, "deployment-min-replicas"),
            "StatefulSet": (self.stateful_set_replicas_min, "statefulset-min-replicas"),
        }
        return max(own.get(kind, (-1, "")), (self.workload_replicas_min, "workload-min-replicas"))


def read_policy(config: Mapping[str, str], source: str) -> RecommendationPolicy:
    """Read `ehpa.KEY: VALUE` as a manifest or `--set` has them."""
    settings = {}
    for key, value in config.items():
        if not key.startswith(PREFIX):
            raise BadInput(f"{source}: {key}: expected a key that starts with {PREFIX}")
        settings[key.removeprefix(PREFIX)] = value
    try:
        return validated(RecommendationPolicy, settings, source)
    except BadInput as error:
        text = str(error).removeprefix(f"{source}: ")
        where = "" if text.startswith("document: ") else PREFIX
        raise BadInput(f"{source}: {where}{text.removeprefix('document: ')}") from error
