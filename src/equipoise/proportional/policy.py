"""The policy of proportional scaling in its canonical form; `parse.py` reads the shorthand.

Sizes are rounded up to multiples that grow with the size, exactly, in whole billionths; a policy whose result
would fall while its input grows is rejected.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails

from equipoise.core.quantity import NANO, Quantity, print_exact
from equipoise.crd.fields import (
    Amount,
    AmountAboveZero,
    Name,
    OneOrMany,
    SchemaPart,
    SignedAmount,
    UniqueBy,
    also_written,
)
from equipoise.crd.targets import ApiVersion, LabelKey, LabelSelector, LabelValue
from equipoise.proportional.smoothing import INPUTS, InputName, Smoothing, number

BALANCER = "proportional"
SECTIONS = ("requests", "limits")
SLACK_PARTS = 1000
"""An input may be above a multiple by a thousandth of the distance: sums of allocatable are not round."""


class Cut(NamedTuple):
    """From `at` on, round up to a multiple of `every`."""

    at: int
    every: int


class Fall(NamedTuple):
    """Two sizes of which the larger is rounded to less."""

    low: int
    low_result: int
    high: int
    high_result: int


def cut_of(cuts: Sequence[Cut], size: int) -> Cut | None:
    """Return the cut with the largest `at` that the size has reached."""
    return max((cut for cut in cuts if cut.at <= size), default=None)


def rounded_up(size: int, every: int, *, slack: bool) -> int:
    """Round up to the next multiple, counted from 0; with slack, a little above a multiple counts as it."""
    assert every > 0, "segments have a distance"
    if slack:  # ceil(size / every - 1 / SLACK_PARTS), in whole numbers
        return -((every - SLACK_PARTS * size) // (SLACK_PARTS * every)) * every
    return -(-size // every) * every


def fall(cuts: Sequence[Cut], *, slack: bool) -> Fall | None:
    """Find where a larger size would be rounded to less; the cuts are in order.

    Within a cut nothing falls, so only their beginnings are compared with what comes right before.
    """
    for before, cut in pairwise((None, *cuts)):
        assert cut is not None
        high = rounded_up(cut.at, cut.every, slack=slack)
        if before is None:
            if high < cut.at:  # below the first cut sizes stay as they are
                low = (high + cut.at) // 2 + 1
                return Fall(low, low, cut.at, high)
            continue
        most = rounded_up(cut.at, before.every, slack=slack)
        if most > high:
            return Fall(_example(before, cut.at, most, slack=slack), most, cut.at, high)
    return None


def _example(before: Cut, end: int, result: int, *, slack: bool) -> int:
    """Return a readable size right below the end that is rounded to this result."""
    for distance in (NANO, NANO // 1000, 1):
        size = end - distance
        if size >= before.at and rounded_up(size, before.every, slack=slack) == result:
            return size
    return end - 1


StepRatio = Annotated[float, Field(ge=1, le=1000), BeforeValidator(number)]
UNIT_NANOS = {"cpu": NANO // 1000, "memory": NANO}
"""What a value is rounded up to: a millicore, a byte."""
CONTAINERS_MAX = 64
RULES_MAX = 32
SEGMENTS_MAX = 64
STEP_RATIO_MIN = 1.01


class ResourceName(StrEnum):
    """What a container asks for."""

    CPU = "cpu"
    MEMORY = "memory"


class TargetKind(StrEnum):
    """Whose pods can be scaled."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"
    REPLICA_SET = "ReplicaSet"


class UpdateMode(StrEnum):
    """How a change reaches the pods."""

    AUTO = "Auto"
    IN_PLACE = "InPlace"
    ROLLOUT = "Rollout"


class Segment(SchemaPart):
    """From one size on, how coarsely."""

    at: Amount = Field(description="The size from which this segment applies.")
    every: AmountAboveZero = Field(description="The size is rounded up to a multiple of this.")


def _cuts(segments: tuple[Segment, ...]) -> tuple[Cut, ...]:
    return tuple(sorted(Cut(segment.at.nanos, segment.every.nanos) for segment in segments))


def _rising(segments: tuple[Segment, ...], what: str, *, slack: bool) -> tuple[Segment, ...]:
    """Refuse segments by which a larger size would get less."""
    cuts = _cuts(segments)
    for low, high in pairwise(cuts):
        if low.at == high.at:
            raise ValueError(f"expected a different at in each segment, got {Quantity(low.at)} twice")
    if (found := fall(cuts, slack=slack)) is not None:
        raise ValueError(
            f"expected segments whose result does not fall while the {what} grows, got "
            f"{print_exact(found.low)} rounded to {print_exact(found.low_result)}, but "
            f"{print_exact(found.high)} to {print_exact(found.high_result)}"
        )
    return segments


class Function(SchemaPart):
    """base + slope x input / per, where the input is rounded up by its segment."""

    input: InputName | None = Field(
        None, description="The input: cores, memory, nodes or pods. Required with slope."
    )
    base: SignedAmount | None = Field(None, description="The value at input 0.")
    slope: SignedAmount | None = Field(None, description="What each unit of the input adds.")
    per: AmountAboveZero | None = Field(
        None, description="The amount of input that adds one slope; the default is 1."
    )
    segments: Annotated[tuple[Segment, ...], OneOrMany()] = Field(
        (),
        max_length=SEGMENTS_MAX,
        description="How the input is rounded up; below the first `at` it is not rounded.",
    )

    @property
    def cuts(self) -> tuple[Cut, ...]:
        return _cuts(self.segments)

    @field_validator("segments")
    @classmethod
    def _never_falls(cls, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        return _rising(segments, "input", slack=True)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.base is None and self.slope is None:
            raise ValueError("expected base, slope, or both")
        if self.input is None and self.slope is not None:
            raise ValueError(f"expected an input beside slope: one of {', '.join(INPUTS)}")
        return self


class Rule(SchemaPart):
    """One part of one resource's value; several for the same resource add up."""

    model_config = ConfigDict(
        json_schema_extra=also_written(
            "function", functions="Shorthand: one function, or a list whose results are added."
        )
    )

    resource: ResourceName = Field(description="cpu or memory.")
    min: Amount | None = Field(None, description="The minimum of the value; once per resource.")
    max: Amount | None = Field(None, description="The maximum of the value; once per resource.")
    function: Function = Field(description="How the value depends on the cluster's size.")


def _bounds_once(all_: tuple[Rule, ...]) -> tuple[Rule, ...]:
    for resource in ResourceName:
        own = [part for part in all_ if part.resource is resource]
        low = [part.min for part in own if part.min is not None]
        high = [part.max for part in own if part.max is not None]
        for name, given in (("min", low), ("max", high)):
            if len(given) > 1:
                raise ValueError(f"expected {name} once for {resource}, got it in {len(given)} rules")
        if low and high:
            unit = UNIT_NANOS[resource]
            if math.ceil(Fraction(low[0].nanos, unit)) > high[0].nanos // unit:
                raise ValueError(f"expected min of {resource} at or below max, got {low[0]} and {high[0]}")
    return all_


Rules = Annotated[tuple[Rule, ...], Field(max_length=RULES_MAX), AfterValidator(_bounds_once), OneOrMany()]


class ResourceRules(SchemaPart):
    """What a container asks for, and what it may use at most."""

    requests: Rules = Field((), description="The container's requests: cpu, memory.")
    limits: Rules = Field((), description="The container's limits: cpu, memory.")


class Quantization(SchemaPart):
    """Levels that a value is rounded up to."""

    resource: ResourceName = Field(description="cpu or memory.")
    base: Amount | None = Field(
        None, description="The first level. Without step, the distance between levels, which start at 0."
    )
    step: AmountAboveZero | None = Field(None, description="The distance between the first two levels.")
    step_ratio: StepRatio | None = Field(
        None,
        alias="stepRatio",
        description="The factor by which each further step grows: 1, or at least 1.01.",
    )
    step_max: AmountAboveZero | None = Field(None, alias="maxStep", description="The largest step.")
    segments: Annotated[tuple[Segment, ...], OneOrMany()] = Field(
        (),
        max_length=SEGMENTS_MAX,
        description="Instead of steps: the distance between levels from each size on.",
    )

    @property
    def cuts(self) -> tuple[Cut, ...]:
        return _cuts(self.segments)

    @field_validator("step_ratio")
    @classmethod
    def _grows_visibly(cls, ratio: float | None) -> float | None:
        if ratio is not None and 1 < ratio < STEP_RATIO_MIN:
            raise ValueError(f"expected 1, or at least {STEP_RATIO_MIN}, got {ratio}")
        return ratio

    @field_validator("step_max")
    @classmethod
    def _not_below_step(cls, most: Quantity | None, info: object) -> Quantity | None:
        step = getattr(info, "data", {}).get("step")
        if most is not None and step is not None and most.nanos < step.nanos:
            raise ValueError(f"expected maxStep at or above step ({step}), got {most}")
        return most

    @field_validator("segments")
    @classmethod
    def _never_falls(cls, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        return _rising(segments, "value", slack=False)

    @model_validator(mode="after")
    def _has_levels(self) -> Self:
        growth = {"step": self.step, "stepRatio": self.step_ratio, "maxStep": self.step_max}
        given = [name for name, value in growth.items() if value is not None]
        if self.segments and given:
            raise ValueError(f"expected segments or steps, not both, got segments and {given[0]}")
        if not self.segments and self.step is None:
            if given:
                raise ValueError(f"expected step beside {given[0]}")
            if self.base is None or not self.base.nanos:
                raise ValueError("expected a base above 0, a step, or segments")
        return self


class ContainerPolicy(SchemaPart):
    """One container of the pods, and how its resources follow the cluster."""

    model_config = ConfigDict(
        json_schema_extra=also_written(
            requests="Shorthand of resources.requests.", limits="Shorthand of resources.limits."
        )
    )

    name: Name = Field(description="The container's name.")
    resources: ResourceRules = Field(
        ResourceRules(), description="The resources that depend on the cluster's size."
    )
    quantization: Annotated[tuple[Quantization, ...], UniqueBy("resource"), OneOrMany()] = Field(
        (), max_length=len(ResourceName), description="The levels to which values are rounded up."
    )


def _at_least_one(containers: tuple[ContainerPolicy, ...]) -> tuple[ContainerPolicy, ...]:
    """Reject an empty list, after its items were validated."""
    if not containers:
        raise ValueError("expected at least one container, got none")
    return containers


class NodeSelector(LabelSelector):
    """Nodes by their labels; all terms must hold."""

    match_labels: dict[LabelKey, LabelValue] = Field(
        {}, alias="matchLabels", max_length=50, description="Labels that a node must have."
    )


class ScaledWorkloadRef(SchemaPart):
    """The workload, in the policy's own namespace."""

    api_version: ApiVersion = Field(
        "apps/v1", alias="apiVersion", description="The API version of the workload's kind."
    )
    kind: TargetKind = Field(description="Deployment, StatefulSet, DaemonSet or ReplicaSet.")
    name: Name = Field(description="The workload's name.")


class ScalingPolicySpec(SchemaPart):
    """Whose resources follow the cluster, and how."""

    model_config = ConfigDict(
        json_schema_extra=also_written("containers", container="Shorthand of containers: one, or a list.")
    )

    target_ref: ScaledWorkloadRef = Field(alias="scaleTargetRef", description="The workload to scale.")
    containers: Annotated[
        tuple[ContainerPolicy, ...], UniqueBy("name"), AfterValidator(_at_least_one), OneOrMany()
    ] = Field(
        max_length=CONTAINERS_MAX,
        description="The workload's containers and the functions of their resources.",
    )
    smoothing: Smoothing = Field(Smoothing(), description="The smoothing that prevents flapping.")
    node_selector: NodeSelector = Field(
        NodeSelector(),
        alias="nodeSelector",
        description="The nodes that count, by their labels. By default, all Ready nodes.",
    )
    update_mode: UpdateMode = Field(
        UpdateMode.AUTO,
        alias="updateMode",
        description="Auto resizes pods in place if nothing restarts, and otherwise changes the template.",
    )

    @property
    def inputs(self) -> frozenset[str]:
        """What must be known of the cluster."""
        resources = [container.resources for container in self.containers]
        functions = [part.function for each in resources for part in (*each.requests, *each.limits)]
        return frozenset(each.input for each in functions if each.input is not None)

    @model_validator(mode="after")
    def _shifts_what_it_uses(self) -> Self:
        """Reject a shift of an input that no function uses, which would have no effect."""
        delays = {"delayScaleDown": self.smoothing.delay_down, "delayScaleUp": self.smoothing.delay_up}
        for name, delay in delays.items():
            unused = sorted(set(delay.inputs if delay else ()) - self.inputs)
            if unused and self.inputs:
                used, first = ", ".join(sorted(self.inputs)), unused[0]
                wrong = ValueError(f"expected an input that a function uses ({used}), got {first}")
                place = ("smoothing", name, "inputs", first)
                detail = InitErrorDetails(type="value_error", loc=place, input=first, ctx={"error": wrong})
                raise ValidationError.from_exception_data(type(self).__name__, [detail])
        return self
