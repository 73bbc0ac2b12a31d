"""The settings of advice: the seed's keys (`ehpa.KEY`), and those of requests and limits (`resource.KEY`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, field_validator, model_validator

from equipoise.core.documents import validated
from equipoise.core.errors import BadInput
from equipoise.core.quantity import parse_bytes, parse_typed_cores
from equipoise.crd.fields import Number, SchemaPart, Whole
from equipoise.stats.predict import CORES_MAX, Algorithm

PREFIX, RESOURCE_PREFIX = "ehpa.", "resource."

Percent = Annotated[Whole, Field(ge=1, le=1000)]


class AdviceType(StrEnum):
    """What the advice is about: how many replicas, or what each container asks for."""

    HPA = "HPA"
    RESOURCE = "Resource"


BYTES_MAX = 1e15
"""Largest plausible request of memory."""


def _percent(value: object) -> object:
    """Return a percentage of a user's input: `15`, `15%` and `0.15` are the same."""
    text = str(value).strip()
    expected = f"expected a percentage such as 15, 15% or 0.15, got {value!r}"
    if isinstance(value, bool):
        raise ValueError(expected)
    try:
        number = float(text.removesuffix("%"))
    except ValueError as error:
        raise ValueError(expected) from error
    is_share = 0 < number < 1 and not text.endswith("%")
    return float(f"{number * 100:.12g}") if is_share else number


Margin = Annotated[float, BeforeValidator(_percent), Field(ge=0, le=1000)]


class ResourcePolicy(SchemaPart):
    """The settings of requests and limits. A percentage is kept as 15, not as 0.15."""

    cpu_percentile: Annotated[float, BeforeValidator(_percent), Field(ge=50, le=100)] = Field(
        99, alias="cpu-percentile", description="Which percentile of CPU usage a request covers."
    )
    cpu_margin_percent: Margin = Field(
        15, alias="cpu-margin", description="How far a CPU request is above that percentile, in percent."
    )
    memory_margin_percent: Margin = Field(
        15, alias="memory-margin", description="How far a memory request is above the peak, in percent."
    )
    cpu_cores_min: Annotated[float, BeforeValidator(parse_typed_cores), Field(le=CORES_MAX)] = Field(
        0.001, alias="min-cpu", description="The smallest CPU request."
    )
    memory_bytes_min: Annotated[float, BeforeValidator(parse_bytes), Field(le=BYTES_MAX)] = Field(
        0, alias="min-memory", description="The smallest memory request."
    )
    change_percent_min: Annotated[float, BeforeValidator(_percent), Field(ge=0, le=1000)] = Field(
        0,
        alias="min-change-percent",
        description="A request that would change by less, in percent of today's, stays as it is.",
    )
    containers_excluded: str = Field(
        "",
        alias="exclude-containers",
        max_length=1024,
        description="Containers without advice, by name or pattern, such as istio-proxy,linkerd-*.",
    )
    cpu_limits: Literal["keep", "remove"] = Field(
        "keep",
        alias="cpu-limits",
        description="Whether CPU limits stay, raised to the request where that is higher, or are removed.",
    )

    def excludes(self, container: str) -> bool:
        patterns = (each.strip() for each in self.containers_excluded.split(","))
        return any(fnmatchcase(container, pattern) for pattern in patterns)


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
    pod_available_share_min: Annotated[Number, Field(ge=0, le=1)] = Field(
        0.5,
        alias="pod-available-ratio",
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
    target_percent_min: Percent = Field(
        30, alias="min-cpu-target-utilization", description="The lowest target that is advised."
    )
    target_percent_max: Percent = Field(
        75, alias="max-cpu-target-utilization", description="The highest target that is advised."
    )
    inherits_hpa: bool = Field(
        True, alias="reference-hpa", description="Whether an HPA's other metrics and behavior are kept."
    )
    time_zone: str = Field("UTC", alias="time-zone", description="Whose hours of the day are compared.")
    resource: ResourcePolicy = ResourcePolicy()
    """The settings of requests and limits, whose keys have a prefix of their own."""

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

    def replicas_limits(self, kind: str) -> list[tuple[int, str]]:
        """Return the fewest replicas that each key asks for of this kind."""
        own = {
            "Deployment": (self.deployment_replicas_min, "deployment-min-replicas"),
            "StatefulSet": (self.stateful_set_replicas_min, "statefulset-min-replicas"),
        }
        return [own.get(kind, (-1, "")), (self.workload_replicas_min, "workload-min-replicas")]

    def replicas_needed(self, kind: str) -> tuple[int, str]:
        """Return how many replicas this kind must have, and the key that asks for it."""
        return max(self.replicas_limits(kind))


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """A request for advice: its settings, its type, and the algorithm of the forecast."""

    policy: RecommendationPolicy
    about: AdviceType = AdviceType.HPA
    algorithm: Algorithm | None = Algorithm.PROFILE
    has_containers: bool = False
    """Whether HPA advice has the requests of the containers beside it."""
    shows_refused: bool = False
    """Whether HPA advice that an inspection refuses is shown beside the reason, as one-shot plans do."""

    @property
    def needs_containers(self) -> bool:
        return self.has_containers or self.about is AdviceType.RESOURCE


def read_policy(config: Mapping[str, str], source: str) -> RecommendationPolicy:
    """Read `ehpa.KEY: VALUE` and `resource.KEY: VALUE` as a manifest or `--set` has them."""
    settings: dict[str, dict[str, Any]] = {PREFIX: {}, RESOURCE_PREFIX: {}}
    for key, value in config.items():
        prefix = next((each for each in settings if key.startswith(each)), None)
        if prefix is None:
            raise BadInput(f"{source}: {key}: expected a key that starts with {PREFIX} or {RESOURCE_PREFIX}")
        settings[prefix][key.removeprefix(prefix)] = value
    if "resource" in settings[PREFIX]:
        raise BadInput(f"{source}: {PREFIX}resource: unknown key")
    resource = _read(ResourcePolicy, settings[RESOURCE_PREFIX], source, RESOURCE_PREFIX)
    policy = _read(RecommendationPolicy, settings[PREFIX], source, PREFIX)
    return policy.model_copy(update={"resource": resource})


Model = TypeVar("Model", ResourcePolicy, RecommendationPolicy)


def _read(model: type[Model], settings: Mapping[str, Any], source: str, prefix: str) -> Model:
    try:
        return validated(model, settings, source)
    except BadInput as error:
        text = str(error).removeprefix(f"{source}: ")
        where = "" if text.startswith("document: ") else prefix
        raise BadInput(f"{source}: {where}{text.removeprefix('document: ')}") from error
