"""The kinds of node quality of service, and what the operator's leader writes into their status.

It is whether each object is valid, how many nodes it is for, and on how many it is crossed now. An agent sees
one node: it reports which rules are crossed in a condition of the node, and the leader counts these
conditions. A node whose agent has not reported lately, or has not reported a rule, is unknown, which is not
zero. A status is written at most once a minute, and only when its content is new.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from equipoise.core.cluster import Node, ObjectRef
from equipoise.core.errors import WorldFailed
from equipoise.core.quantity import NANO
from equipoise.crd.definition import Column, DefinedKind, Standing
from equipoise.crd.fields import Count, SchemaPart
from equipoise.crd.status import Conditions, Sentence
from equipoise.engine.isolation import Isolation
from equipoise.engine.policies import (
    RejectedPolicy,
    condition,
    has_condition,
    keep_transition_time,
    parse_policy,
    status_error,
    timestamp,
    write_status,
)
from equipoise.ports import Cluster, CycleReport, Leadership, OwnedPolicies, PolicyObject
from equipoise.qos.explain import value_of
from equipoise.qos.observation import METRICS
from equipoise.qos.policy import (
    AvoidanceActionSpec,
    NodeQOSEnsurancePolicySpec,
    NodeQOSSpec,
    ObjectiveEnsurance,
    PodQOSSpec,
    RuleStrategy,
)
from equipoise.qos.waterlines import QosObject, WaterlineSpec, invalid_reference, unknown_action

GROUP = "ensurance.crane.io"
VERSION = "v1alpha1"


class QosStatus(SchemaPart):
    """The state of the object, by the operator's leader; actions are reported on the node and its pods."""

    observed_generation: Count | None = Field(
        None, alias="observedGeneration", description="The generation that this status is about."
    )
    conditions: Conditions = Field((), description="Ready, and why not.")
    summary: Sentence = Field("", description="The rules or the actions of the spec, in one line.")
    nodes: Count | None = Field(None, description="How many nodes it is for; absent where it is not valid.")
    nodes_crossed: Count | None = Field(
        None,
        alias="nodesCrossed",
        description="On how many of these a rule of it is crossed now; absent where no agent has reported.",
    )
    nodes_unknown: Count | None = Field(
        None, alias="nodesUnknown", description="Of how many nodes that is unknown."
    )


_READY = "?(@.type=='Ready')"
_COUNTS = (
    Column("Ready", f".status.conditions[{_READY}].status", description="Whether agents follow it."),
    Column("Nodes", ".status.nodes", "integer", "Nodes that it is for."),
    Column("Crossed", ".status.nodesCrossed", "integer", "Nodes on which a rule is crossed now."),
    Column("Unknown", ".status.nodesUnknown", "integer", "Nodes of which that is unknown.", priority=1),
    Column("Reason", f".status.conditions[{_READY}].reason", priority=1),
    Column("Why", f".status.conditions[{_READY}].message", priority=1),
    Column("Age", ".metadata.creationTimestamp", "date"),
)


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
        columns=(*columns, *_COUNTS),
    )


_WATERLINES = "Waterlines of node metrics, and the actions that are taken above them"
_RULES = Column("Rules", ".status.summary", description="The waterlines, each with its action.")
NODE_QOS_ENSURANCE_POLICY = _kind(
    NodeQOSEnsurancePolicySpec,
    "NodeQOSEnsurancePolicy",
    "nodeqosensurancepolicies",
    "nep",
    f"{_WATERLINES}.",
    _RULES,
)
NODE_QOS = _kind(NodeQOSSpec, "NodeQOS", "nodeqoss", "nq", f"{_WATERLINES}, in the later spelling.", _RULES)
AVOIDANCE_ACTION = _kind(
    AvoidanceActionSpec,
    "AvoidanceAction",
    "avoidanceactions",
    "avoid",
    "The action to take above a waterline: throttle pods, evict pods, or disable scheduling of new pods.",
    Column("Action", ".status.summary", description="The action above a waterline."),
    Column("Cooldown", ".spec.coolDownSeconds", "integer", "In seconds."),
)
POD_QOS = _kind(
    PodQOSSpec,
    "PodQOS",
    "podqoss",
    "pq",
    "The actions that are allowed on pods.",
    Column("Actions", ".status.summary", description="The AvoidanceActions that are allowed."),
)
QOS_KINDS = (NODE_QOS_ENSURANCE_POLICY, NODE_QOS, AVOIDANCE_ACTION, POD_QOS)


def read_spec(kind: str, spec: Mapping[str, Any]) -> BaseModel:
    """Return the spec of an object of a qos kind; raises one of DECODE_ERRORS where it is invalid."""
    model: type[BaseModel] = next(each.body["spec"] for each in QOS_KINDS if each.name == kind)
    return model.model_validate(dict(spec), by_alias=True, by_name=False)


SUMMARY_PARTS_MAX = 3
REPORT_SECONDS_MAX = 900.0
"""The age at which an agent's report counts as unknown: it is renewed every five minutes."""
INTERVAL_SECONDS = 60.0
AGAIN_SECONDS = 3600.0
"""How long a status is not written again that was written and is not there."""


def summary(spec: BaseModel) -> str:
    """Return the rules or the actions of a spec in one line, such as `cpu_total_usage > 6 cores: evict`."""
    if isinstance(spec, WaterlineSpec):
        return _listed([_rule_summary(rule) for rule in spec.rules])
    if isinstance(spec, PodQOSSpec):
        return _listed(spec.actions)
    assert isinstance(spec, AvoidanceActionSpec), "there are four kinds, and three specs"
    if spec.disables_scheduling:
        return "DisableScheduling"
    parts = []
    if spec.throttle is not None and spec.throttle.cpu is not None:
        parts.append(f"ThrottleCPU ({spec.throttle.cpu.step_percent}% per cycle)")
    if spec.throttle is not None and spec.throttle.memory is not None:
        parts.append("ReclaimMemory" if spec.throttle.memory.is_reclaimed else "ReclaimMemory (off)")
    if spec.eviction is not None:
        seconds = spec.eviction.grace_seconds
        parts.append("Evict" if seconds is None else f"Evict ({seconds} s to end)")
    return ", ".join(parts)


def _rule_summary(rule: ObjectiveEnsurance) -> str:
    metric, value = METRICS[rule.metric_rule.name], Fraction(rule.metric_rule.value.nanos, NANO)
    preview = " (preview)" if rule.strategy is RuleStrategy.PREVIEW else ""
    return f"{metric.name} > {value_of(metric, value)}: {rule.action_name}{preview}"


def _listed(parts: Sequence[str]) -> str:
    more = len(parts) - SUMMARY_PARTS_MAX
    return ", ".join(parts[:SUMMARY_PARTS_MAX]) + (f" and {more} more" if more > 0 else "")


class JudgedObject(NamedTuple):
    """What is known of one object; counts are None where they are unknown, and all where it is not valid."""

    policy: PolicyObject
    rejection: RejectedPolicy | None
    summary: str = ""
    nodes: int | None = None
    crossed: int | None = None
    unknown: int | None = None

    def content(self) -> dict[str, Any]:
        """Return the status without its condition."""
        counts = {"nodes": self.nodes, "nodesCrossed": self.crossed, "nodesUnknown": self.unknown}
        known: dict[str, Any] = {name: count for name, count in counts.items() if count is not None}
        return {"observedGeneration": self.policy.generation, "summary": self.summary} | known

    def ready(self) -> dict[str, Any]:
        code, sentence = self.rejection or ("Accepted", "The spec is valid.")
        generation = self.policy.generation
        return condition("Ready", code, sentence, is_true=self.rejection is None, generation=generation)


def judge_objects(policies: Iterable[PolicyObject], nodes: Sequence[Node], at: float) -> list[JudgedObject]:
    """Return each object with its counts: whether it is valid is judged as agents do."""
    rejected: dict[ObjectRef, RejectedPolicy] = {}
    read: dict[ObjectRef, QosObject] = {}
    listed = list(policies)
    for policy in listed:
        kind = policy.ref.kind
        found = parse_policy(policy, partial(read_spec, kind))
        if isinstance(found, RejectedPolicy):
            rejected[policy.ref] = found
        else:
            read[policy.ref] = QosObject(kind, policy.ref.name, found, str(policy.ref))
    actions = {one.name: one.spec for one in read.values() if isinstance(one.spec, AvoidanceActionSpec)}
    followed = {ref: one for ref, one in read.items() if invalid_reference(one, actions) is None}
    rules = _rules_by_node(followed.values(), nodes)
    reports = {node.name: _report(node, at) for node in nodes}
    judged = []
    for policy in listed:
        if (one := read.get(policy.ref)) is None:
            judged.append(JudgedObject(policy, rejected[policy.ref]))
            continue
        invalid = invalid_reference(one, actions) or unknown_action(one, actions)
        rejection = None if invalid is None else RejectedPolicy("InvalidAction", f"spec.{invalid}.")
        if policy.ref not in followed:
            judged.append(JudgedObject(policy, rejection, summary(one.spec)))
            continue
        counts = _counted(one, rules, reports)
        if rejection is None and isinstance(one.spec, WaterlineSpec) and not counts[0]:
            expected = "spec.selector: expected the labels of a node, and none of"
            rejection = RejectedPolicy("NoNodes", f"{expected} {len(nodes)} nodes has them.")
        judged.append(JudgedObject(policy, rejection, summary(one.spec), *counts))
    return judged


class NodeRule(NamedTuple):
    """A rule that is for a node."""

    owner: QosObject
    key: str
    """`POLICY/RULE`, as agents report it."""
    action_name: str


def _rules_by_node(objects: Iterable[QosObject], nodes: Sequence[Node]) -> dict[str, list[NodeRule]]:
    found: dict[str, list[NodeRule]] = {node.name: [] for node in nodes}
    for one in objects:
        if not isinstance(one.spec, WaterlineSpec):
            continue
        own = [NodeRule(one, f"{one.name}/{rule.name}", rule.action_name) for rule in one.spec.rules]
        for node in nodes:
            if one.spec.selector.selector.matches(dict(node.labels)):
                found[node.name] += own
    return found


def _report(node: Node, at: float) -> Mapping[str, bool]:
    """Return whether each rule is crossed, as the node's agent reported it; a rule may be missing."""
    report = node.rules
    if report is None or report.reported_at is None or at - report.reported_at > REPORT_SECONDS_MAX:
        return {}
    return report.rules()


def _counted(
    one: QosObject, rules: Mapping[str, list[NodeRule]], reports: Mapping[str, Mapping[str, bool]]
) -> tuple[int, int | None, int]:
    """Return the number of nodes that an object is for, of those where it is crossed, and of unknown ones.

    An action is for the nodes of the rules that name it, a PodQOS for those of the actions that it allows.
    """

    def is_concerned(rule: NodeRule) -> bool:
        if isinstance(one.spec, WaterlineSpec):
            return rule.owner is one
        return rule.action_name in (one.spec.actions if isinstance(one.spec, PodQOSSpec) else {one.name})

    count = crossed = unknown = 0
    for node, all_ in rules.items():
        states = [reports[node].get(rule.key) for rule in all_ if is_concerned(rule)]
        count += bool(states)
        crossed += any(states)
        unknown += bool(states) and not any(states) and None in states
    assert crossed + unknown <= count, "a node is crossed, unknown or clear"
    return count, None if count and unknown == count else crossed, unknown


def next_status(judged: JudgedObject, at: float) -> dict[str, Any] | None:
    """Return the status of an object, or None if its content is the present one's."""
    old, content, ready = judged.policy.status, judged.content(), judged.ready()
    present = {name: value for name, value in old.items() if name != "conditions"}
    if present == content and has_condition(old, ready, ("status", "reason", "message")):
        return None
    return {"conditions": [keep_transition_time(ready, old, timestamp(at))], **content}


@dataclass(slots=True)
class QosStatusLoop:
    """Writes the status of all qos objects while this replica leads."""

    policies: OwnedPolicies
    cluster: Cluster
    leadership: Leadership
    takes_over: bool = False
    """Whether objects of kinds that somebody else has defined get a status too."""
    name: str = "qos"
    interval_seconds: float = field(default_factory=lambda: INTERVAL_SECONDS)
    _isolation: Isolation = field(default_factory=Isolation)
    _written: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    """By UID, when and what was written last: an older definition drops fields that it does not have."""

    def cycle(self, at: float) -> CycleReport:
        """Write each status whose content is new; what cannot be read is a warning, and changes nothing."""
        if self.leadership.epoch() is None:
            self._written.clear()
            return CycleReport((), ())
        self._isolation.begin(at, self.leadership)
        try:
            listed = self.policies.policies()
            judged = judge_objects(listed, self.cluster.nodes() if listed else (), at)
            ours = {kind: self._is_written(kind) for kind in {one.ref.kind for one in listed}}
        except WorldFailed as error:
            return CycleReport((), (), (f"the status of the qos kinds is not written: {error}",))
        uids = {one.ref.uid for one in listed}
        self._written = {uid: last for uid, last in self._written.items() if uid in uids}
        errors = [self._write(one, at) for one in judged if ours[one.policy.ref.kind]]
        warnings = list(dict.fromkeys(error for error in errors if error))
        return CycleReport((), (), warnings, failed_turns=self._isolation.failed)

    def _is_written(self, kind: str) -> bool:
        return self.takes_over or self.policies.standing(kind) is Standing.OURS

    def _write(self, judged: JudgedObject, at: float) -> str:
        policy = judged.policy

        def write() -> str:
            status, content = next_status(judged, at), judged.content() | judged.ready()
            written_at, last = self._written.get(policy.ref.uid, (at, {}))
            if status is None or (last == content and at - written_at < AGAIN_SECONDS):
                return ""
            is_written, error = write_status(self.policies.write_status, policy, status)
            if is_written:
                self._written[policy.ref.uid] = at, content
            return error

        return status_error(self._isolation, policy, write)
