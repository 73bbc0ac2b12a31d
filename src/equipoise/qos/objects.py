"""The four custom resources, and how their objects become one policy.

Waterlines, in two spellings, name the actions to take, and so do selections of pods. An object alone can be
valid and still name an action that does not exist, or that does nothing for its metric: this is checked here.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from pydantic import BaseModel, Field

from equipoise.core.errors import BadInput
from equipoise.crd.definition import Column, DefinedKind
from equipoise.crd.fields import Count, SchemaPart
from equipoise.crd.status import Conditions
from equipoise.qos.observation import METRICS, NodeResource
from equipoise.qos.policy import (
    AvoidanceActionSpec,
    NodePolicy,
    NodeQOSEnsurancePolicySpec,
    NodeQOSSpec,
    ObjectiveEnsurance,
    PodQOSSpec,
    QosPolicy,
)


class QosObject(NamedTuple):
    """One object, and where it was found, for messages."""

    kind: str
    name: str
    spec: BaseModel
    where: str


def assemble(objects: Iterable[QosObject]) -> QosPolicy:
    """Return the objects as one policy; BadInput names the first that does not fit, by its path."""
    all_ = list(objects)
    _refuse_duplicates(all_)
    actions = _actions(all_)
    for one in all_:
        if (found := invalid_reference(one, actions)) is not None:
            raise BadInput(f"{one.where}.spec.{found}")
    return _combine(all_)


def assemble_valid(objects: Iterable[QosObject]) -> tuple[QosPolicy, tuple[str, ...]]:
    """Return the valid objects as one policy, and what is wrong with the objects or parts left out."""
    all_ = list(objects)
    actions = _actions(all_)
    valid, problems = [], []
    for one in all_:
        invalid = invalid_reference(one, actions)
        if invalid is None:
            valid.append(one)
        if (problem := invalid or unknown_action(one, actions)) is not None:
            problems.append(f"{one.where}: spec.{problem}")
    return _combine(valid), tuple(problems)


def _actions(objects: Iterable[QosObject]) -> dict[str, AvoidanceActionSpec]:
    return {one.name: one.spec for one in objects if isinstance(one.spec, AvoidanceActionSpec)}


def _combine(all_: list[QosObject]) -> QosPolicy:
    actions = _actions(all_)
    pods = tuple(one.spec for one in all_ if isinstance(one.spec, PodQOSSpec))
    policies = tuple(
        NodePolicy(name=one.name, selector=one.spec.selector, rules=one.spec.rules)
        for one in all_
        if isinstance(one.spec, NodeQOSEnsurancePolicySpec | NodeQOSSpec)
    )
    return QosPolicy(policies=policies, actions=actions, pods=pods or None)


def invalid_reference(one: QosObject, actions: dict[str, AvoidanceActionSpec]) -> str | None:
    """Return which action an object names that does not exist or fit: the path below its spec, and why."""
    field = "objectiveEnsurances" if isinstance(one.spec, NodeQOSEnsurancePolicySpec) else "rules"
    for place, rule in enumerate(_rules(one.spec)):
        if invalid := _invalid_action(rule, actions):
            return f"{field}[{place}].actionName: {invalid}"
    return None


def unknown_action(one: QosObject, actions: Collection[str]) -> str | None:
    """Return which action a PodQOS allows that does not exist (yet); its other actions hold."""
    names = one.spec.actions if isinstance(one.spec, PodQOSSpec) else ()
    for place, name in enumerate(names):
        if name not in actions:
            return (
                f"allowedActions[{place}]: expected the name of an AvoidanceAction, got {name!r}; "
                "this entry allows nothing"
            )
    return None


def _invalid_action(rule: ObjectiveEnsurance, actions: dict[str, AvoidanceActionSpec]) -> str:
    action = actions.get(rule.action_name)
    if action is None:
        return f"expected the name of an AvoidanceAction, got {rule.action_name!r}"
    if action.throttle is None:
        return ""
    resource = METRICS[rule.metric_rule.name].resource
    memory = action.throttle.memory
    if resource is NodeResource.MEMORY and (memory is None or not memory.is_reclaimed):
        return (
            f"expected an action with memoryThrottle.forceGC, since {rule.metric_rule.name} is about memory"
        )
    if resource is NodeResource.CPU and action.throttle.cpu is None:
        return f"expected an action with cpuThrottle, since {rule.metric_rule.name} is about CPU"
    return ""


def _rules(spec: BaseModel) -> tuple[ObjectiveEnsurance, ...]:
    return spec.rules if isinstance(spec, NodeQOSEnsurancePolicySpec | NodeQOSSpec) else ()


def _refuse_duplicates(objects: list[QosObject]) -> None:
    seen: set[tuple[str, str]] = set()
    for one in objects:
        if (one.kind, one.name) in seen:
            where = f"{one.where}.metadata.name"
            raise BadInput(f"{where}: expected a different name in each {one.kind}, got {one.name!r} twice")
        seen.add((one.kind, one.name))


GROUP = "ensurance.crane.io"
VERSION = "v1alpha1"


class QosStatus(SchemaPart):
    """What came of it; what was done is told by the node and its pods."""

    observed_generation: Count | None = Field(
        None, alias="observedGeneration", description="The generation that this status is about."
    )
    conditions: Conditions = Field((), description="Ready, and why not.")


def _kind(
    name: str, plural: str, short_name: str, spec: type[SchemaPart], description: str, *columns: Column
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


NODE_QOS_ENSURANCE_POLICY = _kind(
    "NodeQOSEnsurancePolicy",
    "nodeqosensurancepolicies",
    "nep",
    NodeQOSEnsurancePolicySpec,
    "Waterlines of nodes, and what is done when they are crossed.",
)
NODE_QOS = _kind(
    "NodeQOS",
    "nodeqoss",
    "nq",
    NodeQOSSpec,
    "Waterlines of nodes, and what is done when they are crossed; the later spelling.",
)
AVOIDANCE_ACTION = _kind(
    "AvoidanceAction",
    "avoidanceactions",
    "avoid",
    AvoidanceActionSpec,
    "What is done when a waterline is crossed: throttle, evict, or let no new pod come.",
    Column("Cooldown", ".spec.coolDownSeconds", "integer", "In seconds."),
)
POD_QOS = _kind("PodQOS", "podqoss", "pq", PodQOSSpec, "Which pods may be acted on, and how.")
QOS_KINDS = (NODE_QOS_ENSURANCE_POLICY, NODE_QOS, AVOIDANCE_ACTION, POD_QOS)
