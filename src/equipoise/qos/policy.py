"""What a user may ask of a node's quality of service: waterlines, what to do at them, and to which pods."""

import re
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from equipoise.crd.fields import AmountAboveZero, Name, SchemaPart, UniqueBy, rule, rules
from equipoise.crd.targets import LabelKey, LabelSelector, LabelValue
from equipoise.engine.recording import as_json
from equipoise.qos.observation import COMPARATORS, METRICS

RULES_MAX = 64
ACTIONS_MAX = 64
VALUES_MAX = 50
SECONDS_MAX = 7 * 86400
ROUNDS_MAX = 10**6
THROTTLE_RULE = "expected cpuThrottle, memoryThrottle or both"
SELECTOR_RULE = "expected labelSelector, scopeSelector or both: without them no pod is selected"


def _known_metric(name: str) -> str:
    if name not in METRICS:
        raise ValueError(f"expected one of {', '.join(METRICS)}, got {name!r}")
    return name


MetricName = Annotated[str, AfterValidator(_known_metric), Field(json_schema_extra={"enum": list(METRICS)})]


class Comparator(StrEnum):
    """What pods can be sorted by."""

    CLASS_AND_PRIORITY = "classAndPriority"
    CPU_USAGE = "cpuUsage"
    MEMORY_USAGE = "memoryUsage"
    EXT_CPU_USAGE = "extCpuUsage"
    RUNNING_TIME = "runningTime"
    NAME = "name"


assert {one.value for one in Comparator} == set(COMPARATORS), "every comparator can be named"


def _once(names: tuple[Comparator, ...]) -> tuple[Comparator, ...]:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"expected each comparator once, got {name.value} twice")
    return names


def _number(value: object) -> object:
    """Refuse what a lax reader would take for a number."""
    if isinstance(value, bool | str):
        raise ValueError(f"expected a number, got {value!r}")
    return value


Percent = Annotated[int, Field(ge=0, le=100), BeforeValidator(_number)]
StepPercent = Annotated[int, Field(ge=1, le=100), BeforeValidator(_number)]
Seconds = Annotated[int, Field(ge=0, le=SECONDS_MAX), BeforeValidator(_number)]
Rounds = Annotated[int, Field(ge=1, le=ROUNDS_MAX), BeforeValidator(_number)]


class CpuThrottle(SchemaPart):
    """How far the CPU of a pod is throttled."""

    ratio_min_percent: Percent = Field(
        0, alias="minCPURatio", description="The lowest CPU quota, in percent of the container's limit."
    )
    step_percent: StepPercent = Field(
        10,
        alias="stepCPURatio",
        description="The percentage by which one cycle lowers the CPU quota or raises it again.",
    )


class MemoryThrottle(SchemaPart):
    """How the memory of a pod is throttled."""

    is_reclaimed: bool = Field(
        False, alias="forceGC", description="Whether the kernel reclaims memory that the pod can do without."
    )


class Throttle(SchemaPart):
    """Limit CPU or memory of pods and keep them running."""

    model_config = ConfigDict(
        json_schema_extra=rules(rule("has(self.cpuThrottle) || has(self.memoryThrottle)", THROTTLE_RULE))
    )

    cpu: CpuThrottle | None = Field(None, alias="cpuThrottle", description="Lower the CPU quotas of pods.")
    memory: MemoryThrottle | None = Field(None, alias="memoryThrottle", description="Reclaim memory of pods.")

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if self.cpu is None and self.memory is None:
            raise ValueError(THROTTLE_RULE)
        return self


class Eviction(SchemaPart):
    """Evict pods."""

    grace_seconds: Seconds | None = Field(
        None,
        alias="terminationGracePeriodSeconds",
        description="The termination grace period in seconds; by default that of the pod.",
    )


class AvoidanceActionSpec(SchemaPart):
    """What to do when a waterline is crossed; neither throttle nor eviction disables scheduling."""

    description: str = Field("", max_length=1024, description="A text for readers; it has no effect.")
    cooldown_seconds: Seconds = Field(
        300, alias="coolDownSeconds", description="Seconds from the last trigger until pods are restored."
    )
    throttle: Throttle | None = Field(None, description="Limit CPU or memory of pods and keep them running.")
    eviction: Eviction | None = Field(None, description="Evict pods.")
    sort_by: Annotated[tuple[Comparator, ...], AfterValidator(_once)] = Field(
        (),
        alias="sortBy",
        max_length=len(Comparator),
        description="The order in which pods are acted on; by default that of the metric.",
    )

    @property
    def disables_scheduling(self) -> bool:
        """Whether the action only disables scheduling of new pods."""
        return self.throttle is None and self.eviction is None


class RuleStrategy(StrEnum):
    """Whether a rule acts."""

    NONE = "None"
    PREVIEW = "Preview"


class MetricRule(SchemaPart):
    """A waterline: the metric and its value."""

    name: MetricName = Field(description="The metric: usage in millicores or bytes, utilization in percent.")
    value: AmountAboveZero = Field(description="The waterline. It is crossed while the metric is above it.")


class ObjectiveEnsurance(SchemaPart):
    """One rule: the waterline of a metric, and the action to take above it."""

    name: Name = Field(description="The name of the rule.")
    metric_rule: MetricRule = Field(alias="metricRule", description="The metric and its waterline.")
    action_name: Name = Field(alias="actionName", description="The name of the AvoidanceAction to take.")
    breaches_min: Rounds = Field(
        1,
        alias="avoidanceThreshold",
        description="The number of consecutive cycles above the waterline before the action is taken.",
    )
    clear_min: Rounds = Field(
        1,
        alias="restoreThreshold",
        description="The number of consecutive cycles at or below the waterline before pods are restored.",
    )
    strategy: RuleStrategy = Field(
        RuleStrategy.NONE, description="With Preview, the rule is evaluated and takes no action."
    )


Rules = Annotated[tuple[ObjectiveEnsurance, ...], UniqueBy("name")]


class NodeLocalGet(SchemaPart):
    """Usage that the agent reads from the node; no other source exists."""

    cache_seconds: Seconds | None = Field(
        None, alias="localCacheTTLSeconds", description="Accepted for compatibility; it has no effect."
    )


class NodeQualityProbe(SchemaPart):
    """Where usage comes from."""

    node_local_get: NodeLocalGet = Field(
        NodeLocalGet(), alias="nodeLocalGet", description="The agent reads usage from the node itself."
    )
    timeout_seconds: Seconds | None = Field(
        None, alias="timeoutSeconds", description="Accepted for compatibility; it has no effect."
    )


class NodeLabels(LabelSelector):
    """Nodes by their labels; all terms must hold."""

    match_labels: dict[LabelKey, LabelValue] = Field(
        {}, alias="matchLabels", max_length=50, description="Labels that a node must have."
    )


class _OfNodes(SchemaPart):
    selector: NodeLabels = Field(NodeLabels(), description="The nodes with these rules; by default all.")
    probe: NodeQualityProbe | None = Field(
        None, alias="nodeQualityProbe", description="The source of usage; always the node itself."
    )


class NodeQOSEnsurancePolicySpec(_OfNodes):
    """Waterlines of some nodes."""

    rules: Rules = Field(
        alias="objectiveEnsurances", min_length=1, max_length=RULES_MAX, description="The list of rules."
    )


class NodeQOSSpec(_OfNodes):
    """Waterlines of some nodes, in the later spelling."""

    rules: Rules = Field(min_length=1, max_length=RULES_MAX, description="The list of rules.")


class ScopeName(StrEnum):
    """What a scope compares."""

    QOS_CLASS = "QOSClass"
    PRIORITY = "Priority"
    NAMESPACE = "Namespace"


class ScopeOperator(StrEnum):
    """How a scope compares."""

    IN = "In"
    NOT_IN = "NotIn"


class Scope(SchemaPart):
    """One term of a scope selector; NotIn means none of the values."""

    name: ScopeName = Field(alias="scopeName", description="The property of the pod that is compared.")
    operator: ScopeOperator = Field(description="In: one of the values matches. NotIn: none of them does.")
    values: tuple[Annotated[str, Field(max_length=253)], ...] = Field(
        min_length=1,
        max_length=VALUES_MAX,
        description="QoS classes, namespaces, or priorities such as 1000 and 1000-3000.",
    )

    @model_validator(mode="after")
    def _has_priorities(self) -> Self:
        if self.name is ScopeName.PRIORITY:
            for value in self.values:
                priorities(value)
        return self


_PRIORITIES = re.compile(r"(-?[0-9]{1,10})(?:-([0-9]{1,10}))?")


def priorities(text: str) -> range:
    """Read `1000` or `1000-3000`; both ends are within."""
    found = _PRIORITIES.fullmatch(text)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if high < low:
        raise ValueError(f"expected a priority such as 1000, or a range such as 1000-3000, got {text!r}")
    return range(low, high + 1)


class ScopeSelector(SchemaPart):
    """Pods by their class, priority and namespace; all terms must hold."""

    terms: tuple[Scope, ...] = Field(
        (), alias="matchExpressions", max_length=VALUES_MAX, description="The terms; all must match."
    )


class PodLabels(LabelSelector):
    """Pods by their labels; all terms must hold."""

    match_labels: dict[LabelKey, LabelValue] = Field(
        {}, alias="matchLabels", max_length=50, description="Labels that a pod must have."
    )


class PodQOSSpec(SchemaPart):
    """Which pods may be acted on, and how. With any PodQOS, pods that none allows are left alone."""

    model_config = ConfigDict(
        json_schema_extra=rules(rule("has(self.labelSelector) || has(self.scopeSelector)", SELECTOR_RULE))
    )

    labels: PodLabels | None = Field(
        None, alias="labelSelector", description="Selects pods by labels; {} selects all."
    )
    scopes: ScopeSelector | None = Field(
        None, alias="scopeSelector", description="Selects pods by QoS class, priority and namespace."
    )
    actions: tuple[Name, ...] = Field(
        (),
        alias="allowedActions",
        max_length=ACTIONS_MAX,
        description="The names of the AvoidanceActions that may be taken on these pods.",
    )

    @model_validator(mode="after")
    def _selects(self) -> Self:
        if self.labels is None and self.scopes is None:
            raise ValueError(SELECTOR_RULE)
        return self


class NodePolicy(SchemaPart):
    """The waterlines of one object, whichever way it was spelt."""

    name: str
    selector: NodeLabels = NodeLabels()
    rules: tuple[ObjectiveEnsurance, ...] = ()


class QosPolicy(SchemaPart):
    """All policies for one node: an input of the decision."""

    policies: tuple[NodePolicy, ...] = ()
    actions: dict[str, AvoidanceActionSpec] = Field({})
    pods: tuple[PodQOSSpec, ...] | None = None
    """None where there is no PodQOS at all."""
    evictions_per_round: Annotated[int, Field(ge=0)] | None = None
    """By default a tenth of the node's pods, at least one."""
    excess_percent: Annotated[int, Field(ge=0)] = 0
    """By how much a gap is widened."""


def policy_json(policy: QosPolicy) -> dict[str, Any]:
    """Return a policy as its records have it."""
    return as_json(policy.model_dump(mode="json", by_alias=True))
