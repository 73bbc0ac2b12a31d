"""Objects of the four kinds put together: what they ask for as one, and what is wrong between them.

The custom resources: waterlines in two spellings, what to do at them, and to which pods.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from pydantic import BaseModel, Field

from equipoise.core.errors import BadInput
from equipoise.crd.definition import Column, Kind
from equipoise.crd.fields import Count, Part
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
    """One object, and where it was found."""

    kind: str
    name: str
    spec: BaseModel
    where: str


def assemble(objects: Iterable[QosObject]) -> QosPolicy:
    """Put objects together, or refuse the first that does not fit, by its path."""
    all_ = list(objects)
    _refuse_twice(all_)
    actions = _actions(all_)
    for one in all_:
        if (found := invalid_reference(one, actions)) is not None:
            raise BadInput(f"{one.where}.spec.{found}")
    return _combine(all_)


def assemble_valid(objects: Iterable[QosObject]) -> tuple[QosPolicy, tuple[str, ...]]:
    """Put together what fits, and say what is wrong with the objects, or the parts, that were left out."""
    all_ = list(objects)
    actions = _actions(all_)
    wrong = {id(one): found for one in all_ if (found := invalid_reference(one, actions)) is not None}
    doubtful = {id(one): found for one in all_ if (found := unknown_action(one, actions)) is not None}
    said = wrong | doubtful
    texts = tuple(f"{one.where}: spec.{said[id(one)]}" for one in all_ if id(one) in said)
    return _combine([one for one in all_ if id(one) not in wrong]), texts


def _actions(objects: Iterable[QosObject]) -> dict[str, AvoidanceActionSpec]:
    return {one.name: one.spec for one in objects if isinstance(one.spec, AvoidanceActionSpec)}


def _combine(all_: list[QosObject]) -> QosPolicy:
    actions = _actions(all_)
    pods = tuple(one.spec for one in all_ if isinstance(one.spec, PodQOSSpec))
    policies = tuple(_policy(one) for one in all_ if _rules(one.spec))
    return QosPolicy(policies=policies, actions=actions, pods=pods or None)


def invalid_reference(one: QosObject, actions: dict[str, AvoidanceActionSpec]) -> str | None:
    """Return what is wrong with an object beside these actions: the path below its spec, and why."""
    field = "objectiveEnsurances" if isinstance(one.spec, NodeQOSEnsurancePolicySpec) else "rules"
    for place, rule in enumerate(_rules(one.spec)):
        wrong = _wrong(rule, actions)
        if wrong:
            return f"{field}[{place}].actionName: {wrong}"
    return None


def unknown_action(one: QosObject, actions: Collection[str]) -> str | None:
    """Return which action a PodQOS allows that there is not, maybe not yet; its other actions hold."""
    names = one.spec.actions if isinstance(one.spec, PodQOSSpec) else ()
    for place, name in enumerate(names):
        if name not in actions:
            return (
                f"allowedActions[{place}]: expected the name of an AvoidanceAction, got {name!r}; "
                "this entry allows nothing"
            )
    return None


def _wrong(rule: ObjectiveEnsurance, actions: dict[str, AvoidanceActionSpec]) -> str:
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


def _policy(one: QosObject) -> NodePolicy:
    assert isinstance(one.spec, NodeQOSEnsurancePolicySpec | NodeQOSSpec), "only these have rules"
    return NodePolicy(name=one.name, selector=one.spec.selector, rules=one.spec.rules)


def _refuse_twice(objects: list[QosObject]) -> None:
    seen: set[tuple[str, str]] = set()
    for one in objects:
        if (one.kind, one.name) in seen:
            where = f"{one.where}.metadata.name"
            raise BadInput(f"{where}: expected a different name in each {one.kind}, got {one.name!r} twice")
        seen.add((one.kind, one.name))


GROUP = "ensurance.crane.io"
VERSION = "v1alpha1"
AGE = Column("Age", ".metadata.creationTimestamp", "date")


class Status(Part):
    """What came of it; what was done is told by the node and its pods."""

    observed_generation: Count | None = Field(
        None, alias="observedGeneration", description="The generation that this status is about."
    )
    conditions: Conditions = Field((), description="Ready, and why not.")


NODE_QOS_ENSURANCE_POLICY = Kind(
    group=GROUP,
    version=VERSION,
    name="NodeQOSEnsurancePolicy",
    plural="nodeqosensurancepolicies",
    description="Waterlines of nodes, and what is done when they are crossed.",
    body={"spec": NodeQOSEnsurancePolicySpec, "status": Status},
    required=("spec",),
    short_names=("nep",),
    is_namespaced=False,
    columns=(AGE,),
)
NODE_QOS = Kind(
    group=GROUP,
    version=VERSION,
    name="NodeQOS",
    plural="nodeqoss",
    description="Waterlines of nodes, and what is done when they are crossed; the later spelling.",
    body={"spec": NodeQOSSpec, "status": Status},
    required=("spec",),
    short_names=("nq",),
    is_namespaced=False,
    columns=(AGE,),
)
AVOIDANCE_ACTION = Kind(
    group=GROUP,
    version=VERSION,
    name="AvoidanceAction",
    plural="avoidanceactions",
    description="What is done when a waterline is crossed: throttle, evict, or let no new pod come.",
    body={"spec": AvoidanceActionSpec, "status": Status},
    required=("spec",),
    short_names=("avoid",),
    is_namespaced=False,
    columns=(Column("Cooldown", ".spec.coolDownSeconds", "integer", "In seconds."), AGE),
)
POD_QOS = Kind(
    group=GROUP,
    version=VERSION,
    name="PodQOS",
    plural="podqoss",
    description="Which pods may be acted on, and how.",
    body={"spec": PodQOSSpec, "status": Status},
    required=("spec",),
    short_names=("pq",),
    is_namespaced=False,
    columns=(AGE,),
)
QOS_KINDS = (NODE_QOS_ENSURANCE_POLICY, NODE_QOS, AVOIDANCE_ACTION, POD_QOS)
