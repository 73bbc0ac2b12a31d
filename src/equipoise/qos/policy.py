"""What a user may ask of a node's quality of service: waterlines, what to do at them, and to which pods."""

import re
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from equipoise.crd.definition import Column, DefinedKind
from equipoise.crd.fields import AmountAboveZero, Count, Name, SchemaPart, UniqueBy, rule, rules
from equipoise.crd.status import Conditions
from equipoise.crd.targets import LabelKey, LabelSelector, LabelValue
from equipoise.engine.recording import as_json
from equipoise.qos.observation import COMPARATORS, METRICS

RULES_MAX = 64
ACTIONS_MAX = 64
VALUES_MAX = 50
SECONDS_MAX = 7 * 86400
ROUNDS_MAX = 10**6
THROTTLE_RULE = "expected cpuThrottle, memoryThrottle or both"
SELECTOR_RULE = "expected labelSelector or scopeSelector: without one it is for no pod"


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
        0, alias="minCPURatio", description="A container's quota is never below this percentage of its limit."
    )
    step_percent: StepPercent = Field(
        10,
        alias="stepCPURatio",
        description="By what percentage a quota is lowered in one round, and raised again later.",
    )


class MemoryThrottle(SchemaPart):
    """How the memory of a pod is throttled."""

    is_reclaimed: bool = Field(
        False, alias="forceGC", description="Whether the kernel takes back what the pod can do without."
    )


class Throttle(SchemaPart):
    """Take something from pods and leave them running."""

    model_config = ConfigDict(
        json_schema_extra=rules(rule("has(self.cpuThrottle) || has(self.memoryThrottle)", THROTTLE_RULE))
    )

    cpu: CpuThrottle | None = Field(None, alias="cpuThrottle", description="Lower their CPU quotas.")
    memory: MemoryThrottle | None = Field(None, alias="memoryThrottle", description="Reclaim their memory.")

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if self.cpu is None and self.memory is None:
            raise ValueError(THROTTLE_RULE)
        return self


class Eviction(SchemaPart):
    """Send pods away."""

    grace_seconds: Seconds | None = Field(
        None,
        alias="terminationGracePeriodSeconds",
        description="How long a pod gets to end; by default its own.",
    )


class AvoidanceActionSpec(SchemaPart):
    """What to do when a waterline is crossed; neither throttle nor eviction disables scheduling."""

    description: str = Field("", max_length=1024, description="For people.")
    cooldown_seconds: Seconds = Field(
        300, alias="coolDownSeconds", description="For how long after the last trigger nothing is restored."
    )
    throttle: Throttle | None = Field(None, description="Take something from pods and leave them running.")
    eviction: Eviction | None = Field(None, description="Send pods away.")
    sort_by: Annotated[tuple[Comparator, ...], AfterValidator(_once)] = Field(
        (),
        alias="sortBy",
        max_length=len(Comparator),
        description="In which order pods are acted on, instead of the metric's own.",
    )

    @property
    def disables_scheduling(self) -> bool:
        """Whether all it does is to let no new pod come."""
        return self.throttle is None and self.eviction is None


class RuleStrategy(StrEnum):
    """Whether a rule acts."""

    NONE = "None"
    PREVIEW = "Preview"


class MetricRule(SchemaPart):
    """A waterline: the metric and its value."""

    name: MetricName = Field(description="The metric; amounts in millicores and bytes, shares in percent.")
    value: AmountAboveZero = Field(description="The waterline is crossed when the metric is above this.")


class ObjectiveEnsurance(SchemaPart):
    """One rule: when which metric is above what, do this."""

    name: Name = Field(description="The rule's name.")
    metric_rule: MetricRule = Field(alias="metricRule", description="The waterline.")
    action_name: Name = Field(alias="actionName", description="The AvoidanceAction that is taken.")
    breaches_min: Rounds = Field(
        1,
        alias="avoidanceThreshold",
        description="In how many rounds in a row it must be crossed before anything is done.",
    )
    clear_min: Rounds = Field(
        1,
        alias="restoreThreshold",
        description="For how many rounds in a row it must not be crossed before anything is restored.",
    )
    strategy: RuleStrategy = Field(
        RuleStrategy.NONE, description="Preview says what it would do, and does nothing."
    )


Rules = Annotated[tuple[ObjectiveEnsurance, ...], UniqueBy("name")]


class NodeLocalGet(SchemaPart):
    """Usage that the agent reads itself; the only way there is."""

    cache_seconds: Seconds | None = Field(
        None, alias="localCacheTTLSeconds", description="Accepted, and without effect."
    )


class NodeQualityProbe(SchemaPart):
    """Where usage comes from."""

    node_local_get: NodeLocalGet = Field(
        NodeLocalGet(), alias="nodeLocalGet", description="The agent reads it from the node itself."
    )
    timeout_seconds: Seconds | None = Field(
        None, alias="timeoutSeconds", description="Accepted, and without effect."
    )


class NodeLabels(LabelSelector):
    """Nodes by their labels; all terms must hold."""

    match_labels: dict[LabelKey, LabelValue] = Field(
        {}, alias="matchLabels", max_length=50, description="Labels that a node must have."
    )


class _OfNodes(SchemaPart):
    selector: NodeLabels = Field(NodeLabels(), description="Which nodes it is for; by default all.")
    probe: NodeQualityProbe | None = Field(
        None, alias="nodeQualityProbe", description="Where usage comes from; the agent reads it itself."
    )


class NodeQOSEnsurancePolicySpec(_OfNodes):
    """Waterlines of some nodes."""

    rules: Rules = Field(
        alias="objectiveEnsurances", min_length=1, max_length=RULES_MAX, description="The rules."
    )


class NodeQOSSpec(_OfNodes):
    """Waterlines of some nodes, in the later spelling."""

    rules: Rules = Field(min_length=1, max_length=RULES_MAX, description="The rules.")


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

    name: ScopeName = Field(alias="scopeName", description="What is compared.")
    operator: ScopeOperator = Field(description="In, or NotIn for none of them.")
    values: tuple[Annotated[str, Field(max_length=253)], ...] = Field(
        min_length=1,
        max_length=VALUES_MAX,
        description="Classes, namespaces, or priorities such as 1000 and 1000-3000.",
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
        (), alias="matchExpressions", max_length=VALUES_MAX, description="The terms."
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
        None, alias="labelSelector", description="Pods by their labels; {} takes all."
    )
    scopes: ScopeSelector | None = Field(
        None, alias="scopeSelector", description="Pods by class, priority and namespace."
    )
    actions: tuple[Name, ...] = Field(
        (),
        alias="allowedActions",
        max_length=ACTIONS_MAX,
        description="The AvoidanceActions that may be taken.",
    )

    @model_validator(mode="after")
    def _selects(self) -> Self:
        if self.labels is None and self.scopes is None:
            raise ValueError(SELECTOR_RULE)
        return self


GROUP = "ensurance.crane.io"
VERSION = "v1alpha1"


class QosStatus(SchemaPart):
    """What came of it; what was done is told by the node and its pods."""

    observed_generation: Count | None = Field(
        None, alias="observedGeneration", description="The generation that this status is about."
    )
    conditions: Conditions = Field((), description="Ready, and why not.")


def _kind(
    spec: type[SchemaPart], name: str, plural: str, short_name: str, description: str, *columns: Column
) -> DefinedKind:
    return DefinedKind(
        group=GROUP,
        version=VERSION,
        name=name,
        plural=plural,
        description=description,
        body={"spec": spec, "status": QosStatus},
        required=("spec",),
        short_names=(short_name,),
        is_namespaced=False,
        columns=(*columns, Column("Age", ".metadata.creationTimestamp", "date")),
    )


_WATERLINES = "Waterlines of nodes, and what is done when they are crossed"
NODE_QOS_ENSURANCE_POLICY = _kind(
    NodeQOSEnsurancePolicySpec, "NodeQOSEnsurancePolicy", "nodeqosensurancepolicies", "nep", f"{_WATERLINES}."
)
NODE_QOS = _kind(NodeQOSSpec, "NodeQOS", "nodeqoss", "nq", f"{_WATERLINES}; the later spelling.")
AVOIDANCE_ACTION = _kind(
    AvoidanceActionSpec,
    "AvoidanceAction",
    "avoidanceactions",
    "avoid",
    "What is done when a waterline is crossed: throttle, evict, or let no new pod come.",
    Column("Cooldown", ".spec.coolDownSeconds", "integer", "In seconds."),
)
POD_QOS = _kind(PodQOSSpec, "PodQOS", "podqoss", "pq", "Which pods may be acted on, and how.")
QOS_KINDS = (NODE_QOS_ENSURANCE_POLICY, NODE_QOS, AVOIDANCE_ACTION, POD_QOS)


class NodePolicy(SchemaPart):
    """The waterlines of one object, whichever way it was spelt."""

    name: str
    selector: NodeLabels = NodeLabels()
    rules: tuple[ObjectiveEnsurance, ...] = ()


class QosPolicy(SchemaPart):
    """All that was asked for one node: what deciding needs."""

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
