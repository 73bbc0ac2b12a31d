"""What plans and forecasts promise, as structs: the schemas that we publish are made from them.

The numbers of a plan are its balancer's own, and an HPA's settings are Kubernetes'; here is what scripts may
rely on. More fields may be added to any of them. A file that users write is closed: in it, a field that is
not known is an error.
"""

# ruff: noqa: D101 - most are named as the part of the document that they are

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from equipoise.core.reason import Code
from equipoise.crd.definition import json_schema

Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Text = dict[str, str]
TextOrNull = dict[str, str | None]
MaybeAmount = float | str | UnsetType | None
NumberOrNull = dict[str, float | None]


def codes(*known: Code) -> Meta:
    """Return the choice of these reasons."""
    return Meta(extra_json_schema={"enum": [code.value for code in known]})


def either(*kinds: type[Struct], is_null: bool = False) -> Meta:
    """Return a choice of documents that nothing tells apart but their fields."""
    null = [{"type": "null"}] if is_null else []
    return Meta(extra_json_schema={"anyOf": [*(json_schema(kind) for kind in kinds), *null]})


class ActionDocument(Struct):
    kind: str
    pod: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    uid: str | UnsetType = UNSET


class HeldDocument(Struct):
    """One change that a guard held."""

    kind: str
    reason: Code
    pod: str | UnsetType = UNSET


class DecisionDocument(Struct):
    subject: str
    reason: Code
    sentence: str
    actions: list[ActionDocument]
    held: list[HeldDocument]
    numbers: dict[str, Any]


class PlanDocument(Struct):
    balancer: str
    decisions: list[DecisionDocument]


class ContainerDocument(Struct):
    name: str
    requests: Text
    limits: Text


_SMOOTHED = (Code.SET, Code.UNCHANGED, Code.HELD_BY_HYSTERESIS, Code.HELD_BY_PERCENTILE, Code.WARMING_UP)
_OF_CLUSTER = (
    *(Code.FOUGHT_BY, Code.REFUSED, Code.INFEASIBLE, Code.DEFERRED, Code.OPTED_OUT),
    *(Code.HELD_BY_PAUSE, Code.HELD_BY_LEADER, Code.HELD_BY_COOLDOWN, Code.HELD_BY_BUDGET),
    *(Code.HELD_BY_ROLLOUT, Code.HELD_BY_HEALTH),
)


class ReplayedStep(Struct):
    """One line of a file of observations."""

    timestamp: float | str
    reason: Annotated[str, codes(*_SMOOTHED)]
    target: Text
    applied: TextOrNull


class ProportionalNumbers(Struct):
    """What a proportional decision was made from."""

    inputs: Text
    current: TextOrNull
    target: TextOrNull


class SetResourcesDocument(Struct):
    """The only change of proportional scaling."""

    kind: Literal["SetResources"]


class ActionOutcome(Struct):
    kind: str
    result: str
    detail: str


class ProportionalDecision(Struct):
    """A decision with the containers, and the steps where a series was run."""

    subject: str
    reason: Annotated[str, codes(*_SMOOTHED, *_OF_CLUSTER)]
    sentence: str
    actions: list[SetResourcesDocument]
    held: list[Any]
    numbers: ProportionalNumbers
    containers: list[ContainerDocument]
    steps: list[ReplayedStep] | UnsetType = UNSET
    message: str | UnsetType = UNSET
    outcomes: list[ActionOutcome] | UnsetType = UNSET


class ProportionalPlan(Struct):
    balancer: Literal["proportional"]
    decisions: list[ProportionalDecision]


_QOS = (
    *(Code.THROTTLE, Code.EVICT, Code.THROTTLE_AND_EVICT, Code.RESTORE, Code.DISABLE_SCHEDULING),
    *(Code.BELOW_WATERLINES, Code.NO_ELIGIBLE_PODS, Code.HELD_BY_THRESHOLD, Code.HELD_BY_COOLDOWN),
    *(Code.HELD_BY_BUDGET, Code.HELD_BY_PAUSE),
)


class QosAction(Struct):
    """A change on a node, with the gaps that are left after it."""

    kind: Literal["EvictPod", "ThrottlePod", "RestorePod", "DisableScheduling", "EnableScheduling"]
    pod: str | UnsetType = UNSET
    node: str | UnsetType = UNSET
    metric: str | UnsetType = UNSET
    release: float | UnsetType | None = UNSET
    gap_after: NumberOrNull | UnsetType = UNSET
    quota: dict[str, int] | UnsetType = UNSET
    reclaim: dict[str, Count] | UnsetType = UNSET
    grace_seconds: Count | UnsetType = UNSET


class HeldQosAction(QosAction, kw_only=True):
    reason: Annotated[str, codes(*_QOS)]
    sentence: str


class RuleState(Struct):
    """What a rule says of the node."""

    metric: str
    usage: float | None
    waterline: float
    action: str
    state: Literal["Crossed", "Released", "Clear", "Unknown"]
    breaches: int
    clear: int
    triggered: bool
    preview: bool


class Gaps(Struct):
    """How much is to be freed, by action and metric."""

    evict: NumberOrNull
    throttleDown: NumberOrNull  # noqa: N815 - as it is printed
    throttleUp: NumberOrNull  # noqa: N815


class GapsLeft(Struct):
    """How much is left to be freed after all actions."""

    evict: NumberOrNull
    throttleDown: NumberOrNull  # noqa: N815


class QosNumbers(Struct):
    """What a decision about a node was made from."""

    gaps: Gaps
    left: GapsLeft
    budget: Count
    cut_by_budget: Count
    pods: Count
    eligible: Count
    unknown: Count
    terminating: Count
    refused: Count
    rules: dict[str, RuleState]


class QosDecision(Struct):
    subject: str
    reason: Annotated[str, codes(*_QOS)]
    sentence: str
    actions: list[QosAction]
    held: list[HeldQosAction]
    numbers: QosNumbers


class QosPlan(Struct):
    balancer: Literal["qos"]
    decisions: list[QosDecision]


class _Closed(Struct, forbid_unknown_fields=True):
    """A part of a file, in which a field that is not known is an error."""


class FileAmounts(_Closed):
    cpu: MaybeAmount = UNSET
    memory: MaybeAmount = UNSET


class FileContainer(_Closed):
    name: str
    cpu: MaybeAmount = UNSET
    memory: MaybeAmount = UNSET
    reclaimable: float | str | UnsetType = UNSET
    quota: Annotated[int, Meta(ge=-1)] | UnsetType = UNSET
    request: FileAmounts | UnsetType = UNSET
    limit: FileAmounts | UnsetType = UNSET


class FilePod(_Closed, kw_only=True, rename="camel"):
    name: str
    namespace: str | UnsetType = UNSET
    qos_class: Literal["BestEffort", "Burstable", "Guaranteed"] | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    priority_class_name: str | UnsetType = UNSET
    start_time: str | UnsetType = UNSET
    extended_cpu_limit: float | str | UnsetType = UNSET
    labels: Text | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    containers: list[FileContainer]


class FileNode(_Closed, kw_only=True):
    name: str | UnsetType = UNSET
    cpu_cores: float | str
    memory: float | str
    usage: dict[str, float | str | None]
    labels: Text | UnsetType = UNSET


class FileState(_Closed, rename="camel"):
    """What an agent would remember."""

    breaches: dict[str, Count] | UnsetType = UNSET
    clear: dict[str, Count] | UnsetType = UNSET
    throttled: list[str] | UnsetType = UNSET
    terminating: list[str] | UnsetType = UNSET
    last_trigger: float | str | dict[str, Any] | UnsetType | None = UNSET
    scheduling_disabled: bool | UnsetType = UNSET


class FileBudget(_Closed, rename="camel"):
    """How much a round may do."""

    evictions_per_round: Count | UnsetType = UNSET


class QosPlanFile(_Closed):
    """What `qos plan --from` reads; the policies in it have schemas of their own."""

    node: FileNode
    pods: list[FilePod]
    policies: list[dict[str, Any]]
    fresh: dict[str, float | str | None] | UnsetType = UNSET
    state: FileState | UnsetType = UNSET
    budget: FileBudget | UnsetType = UNSET
    now: str | UnsetType = UNSET


class ForecastDocument(Struct):
    """The coming days of one workload; `upper` is the end of a 95 % band."""

    predictable: bool
    period_seconds: float | None
    model: str
    interval_seconds: Annotated[float, Meta(gt=0)]
    margin: float
    notes: list[str]
    timestamps: list[float]
    values: list[float]
    upper: list[float]


class Backtest(ForecastDocument):
    """A forecast of what was held out, and how right it was."""

    error: float | None
    baseline_error: float | None
    coverage: float
