"""The input of a cycle: the workload of each policy, the cluster's size, the pods, the autoscalers.

The cluster is read once for all policies. If two policies target one workload, neither is followed. An input
that cannot be counted is unknown, never zero, and a policy that needs it changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from equipoise.core.cluster import (
    FINISHED,
    Hpa,
    Node,
    ObjectRef,
    Pod,
    Selector,
    Workload,
    WorkloadRef,
    hpas_by_workload,
)
from equipoise.core.documents import explain
from equipoise.core.errors import DECODE_ERRORS, BadInput, WorldFailed
from equipoise.core.quantity import NANO, NumberFormat, Quantity
from equipoise.crd.targets import Mode
from equipoise.engine.isolation import Isolation
from equipoise.engine.policies import RejectedPolicy, assign_each, parse_policy, pods_by_workload
from equipoise.ports import Cluster, FailedTurn, PolicyObject
from equipoise.ports.actions import Sizes, every_workload
from equipoise.proportional.applied import (
    AppliedState,
    active_pods,
    detect_reverts,
    pods_outdated,
    values_in_force,
)
from equipoise.proportional.decide import STUCK, Observation, moment_of
from equipoise.proportional.functions import CompiledPolicy, Slot
from equipoise.proportional.parse import WrittenScalingPolicySpec
from equipoise.proportional.policy import ScalingPolicySpec, UpdateMode
from equipoise.proportional.smoothing import INPUTS

HASH_LABEL = "pod-template-hash"


class Assignment(msgspec.Struct, frozen=True):
    """A workload, and the only policy that may change it."""

    policy: PolicyObject
    compiled: CompiledPolicy
    mode: Mode
    workload: Workload

    @property
    def ref(self) -> WorkloadRef:
        return self.workload.ref


Compiled = CompiledPolicy | RejectedPolicy


@dataclass(slots=True)
class PolicyCache:
    """Compiles each generation of a policy once: compiling 2,000 policies in every cycle is expensive."""

    _compiled: dict[str, tuple[tuple[int, str], Compiled]] = field(default_factory=dict)

    def read(
        self, policies: Iterable[PolicyObject], isolation: Isolation | None = None
    ) -> dict[ObjectRef, Compiled]:
        """Return every policy compiled, or why it is rejected; only new and edited ones are compiled.

        A policy whose compilation raises an unexpected exception is not cached.
        """
        isolation = isolation or Isolation()
        fresh: dict[str, tuple[tuple[int, str], Compiled]] = {}
        found: dict[ObjectRef, Compiled] = {}
        for policy in policies:
            edition = (policy.generation, policy.unreadable)
            entry = self._compiled.get(policy.ref.uid)
            if entry is None or entry[0] != edition:
                compiled = isolation.attempt(str(policy.ref), partial(parse_policy, policy, _compile))
                if isinstance(compiled, FailedTurn):
                    found[policy.ref] = RejectedPolicy.of_failure(compiled)
                    continue
                entry = (edition, compiled)
            fresh[policy.ref.uid] = entry
            found[policy.ref] = entry[1]
        self._compiled = fresh
        return found


def _compile(spec: Mapping[str, Any]) -> CompiledPolicy:
    try:
        return CompiledPolicy.of(WrittenScalingPolicySpec.model_validate(dict(spec)))
    except DECODE_ERRORS as error:
        problem = explain(error)
        where = "spec: " if problem.startswith("document: ") else "spec."
        raise BadInput(f"{where}{problem.removeprefix('document: ')}") from error


def target_of(policy: PolicyObject, spec: ScalingPolicySpec) -> WorkloadRef:
    """Return the workload's name; it is in the policy's own namespace."""
    target = spec.target_ref
    return WorkloadRef(target.api_version, target.kind.value, policy.ref.namespace, target.name).canonical


def assign(
    policies: Sequence[PolicyObject],
    compiled: Mapping[ObjectRef, Compiled],
    sizes: Sizes,
    mode: Mode,
    isolation: Isolation | None = None,
) -> tuple[list[Assignment], dict[ObjectRef, RejectedPolicy]]:
    """Return the assigned policies with their workloads, and why the others are rejected."""
    isolation = isolation or Isolation()
    rejected: dict[ObjectRef, RejectedPolicy] = {}
    by_target: dict[WorkloadRef, list[str]] = defaultdict(list)
    readable: dict[ObjectRef, tuple[CompiledPolicy, WorkloadRef]] = {}
    for policy in policies:
        found = compiled[policy.ref]
        if isinstance(found, RejectedPolicy):
            rejected[policy.ref] = found
            continue
        ref = target_of(policy, found.spec)
        by_target[ref].append(policy.ref.name)
        readable[policy.ref] = (found, ref)
    advised = sizes.advised() if readable else {}

    def assign_one(policy: PolicyObject) -> Assignment | RejectedPolicy:
        own, ref = readable[policy.ref]
        others = sorted(name for name in by_target[ref] if name != policy.ref.name)
        setter = _setter(advised, ref)
        if others:
            names = ", ".join(others)
            why = f"{ref} is also the target of {names}, so none of these policies changes it"
            return RejectedPolicy("Conflict", f"spec.scaleTargetRef: {why}")
        if setter:
            return RejectedPolicy("Conflict", f"spec.scaleTargetRef: {setter}, so nothing is changed")
        workload = sizes.workload(ref)
        if workload is None:
            hint = " (for a ReplicaSet of a Deployment, name the Deployment)"
            found = f"{ref}{hint if ref.kind == 'ReplicaSet' else ''}"
            sentence = f"spec.scaleTargetRef: expected a workload in this namespace, found no {found}"
            return RejectedPolicy("NoWorkload", sentence)
        return _misfit(own.spec, ref, workload) or Assignment(policy, own, mode, workload)

    to_assign = [policy for policy in policies if policy.ref in readable]
    assigned, not_assigned = assign_each(to_assign, assign_one, isolation)
    assert len(assigned) + len(rejected) + len(not_assigned) == len(compiled), "each policy has one answer"
    return list(assigned.values()), rejected | not_assigned


def _setter(advised: Mapping[WorkloadRef, str], ref: WorkloadRef) -> str:
    """Return which VPA sets the requests of a workload or may do so, as the beginning of a sentence."""
    if vpa := advised.get(ref):
        return f"{vpa} already sets the requests of {ref}"
    vpa = advised.get(every_workload(ref.namespace))
    return f"{vpa}, may set the requests of {ref}" if vpa else ""


def _misfit(spec: ScalingPolicySpec, ref: WorkloadRef, workload: Workload) -> RejectedPolicy | None:
    """Return why the policy does not fit the workload that it names."""
    if ref.kind == "ReplicaSet" and workload.owner is not None:
        maker = f"{workload.owner.kind} {workload.owner.name}"
        sentence = (
            f"expected a workload without a controller, but {maker} controls {ref}: name {maker} instead"
        )
        return RejectedPolicy("NoWorkload", f"spec.scaleTargetRef: {sentence}")
    existing = [container.name for container in workload.containers]
    for number, container in enumerate(spec.containers):
        if container.name not in existing:
            has = ", ".join(existing) or "none"
            sentence = f"expected a container of {ref} ({has}), got {container.name}"
            return RejectedPolicy("NoContainer", f"spec.containers[{number}].name: {sentence}")
    return None


class ClusterSize(NamedTuple):
    """The cluster's size, as quantities; an unknown input is absent."""

    inputs: Mapping[str, str]
    nodes_ready: int
    unknown: Mapping[str, str] = {}
    """Why an input is unknown, by its name."""


def cluster_size(nodes: Sequence[Node], pods_on: Mapping[str, int] | None, selector: Selector) -> ClusterSize:
    """Return the size of the Ready nodes that are selected; without `pods_on` the pods are unknown."""
    labelled = [node for node in nodes if selector.matches(dict(node.labels))]
    ready = [node for node in labelled if node.is_ready]
    unsized = [node for node in ready if node.cpu_cores <= 0 or node.memory_bytes <= 0]
    inputs = {"nodes": str(len(ready))}
    unknown = {}
    if unsized:
        counts = f"{len(unsized)} of {len(ready)} Ready nodes"
        why = f"{counts} do not report their size, such as {unsized[0].name}"
        unknown = {"cores": why, "memory": why}
    else:
        inputs["cores"] = str(Quantity(sum(round(node.cpu_cores * NANO) for node in ready)))
        memory = sum(int(node.memory_bytes) for node in ready)
        inputs["memory"] = str(Quantity(memory * NANO, NumberFormat.BINARY))
    if pods_on is None:
        unknown["pods"] = "only the pods of some namespaces are visible"
    else:
        inputs["pods"] = str(sum(pods_on.get(node.name, 0) for node in ready))
    assert set(inputs) | set(unknown) == set(INPUTS), "each input is counted or unknown"
    return ClusterSize(inputs, len(ready), unknown)


@dataclass(slots=True)
class ScalingSnapshot:
    """The cluster as read in one cycle; its size is counted once for each node selector."""

    at: float
    nodes: Sequence[Node]
    pods: Mapping[WorkloadRef, Sequence[Pod]]
    hpas: Mapping[WorkloadRef, Sequence[Hpa]]
    pods_on: Mapping[str, int] | None
    """The number of pods of each node; None if only some namespaces are watched."""
    _sizes: dict[Selector, ClusterSize] = field(default_factory=dict)

    def size(self, selector: Selector) -> ClusterSize:
        if selector not in self._sizes:
            self._sizes[selector] = cluster_size(self.nodes, self.pods_on, selector)
        return self._sizes[selector]


def take_snapshot(
    cluster: Cluster,
    assigned: Sequence[Assignment],
    at: float,
    namespace: str | None,
    isolation: Isolation,
    *,
    is_cluster_wide: bool,
) -> ScalingSnapshot:
    """Read the cluster once for all policies; with a namespace, the input `pods` is unknown."""
    needs_all = any("pods" in item.compiled.spec.inputs for item in assigned)
    pods_namespace = None if needs_all and is_cluster_wide else namespace
    pods = cluster.pods(pods_namespace) if assigned else ()
    is_whole = is_cluster_wide and pods_namespace is None
    placed = Counter(pod.node for pod in pods if needs_all and pod.node and pod.phase not in FINISHED)
    return ScalingSnapshot(
        at=at,
        nodes=cluster.nodes() if assigned else (),
        pods=owned_pods([item.workload for item in assigned], pods, isolation),
        hpas=hpas_by_workload(cluster.hpas(namespace) if assigned else ()),
        pods_on=placed if is_whole else None,
    )


def _owns(workload: Workload, pod: Pod) -> bool:
    """Return whether the workload owns the pod.

    The name of a Deployment's ReplicaSet is its own and the hash of the template, which is a label of the
    pods.
    """
    ref, owner = workload.ref, pod.owner
    if owner is None:
        return False
    if ref.kind != "Deployment":
        return (owner.kind, owner.uid) == (ref.kind, workload.uid)
    name, _, ending = owner.name.rpartition("-")
    hashed = dict(pod.labels).get(HASH_LABEL, ending)
    return owner.kind == "ReplicaSet" and (name, ending) == (ref.name, hashed)


owned_pods = partial(pods_by_workload, owns=_owns)


def stuck(pods: Iterable[Pod]) -> dict[str, str]:
    """Return the first pod whose node can't allocate its requests, by the state of its resize."""
    found: dict[str, str] = {}
    for pod in sorted(pods, key=attrgetter("name")):
        if pod.resize is not None and pod.resize.state in STUCK:
            words = f" ({pod.resize.message})" if pod.resize.message else ""
            found.setdefault(pod.resize.state, f"{pod.name}{words}")
    return found


def utilization_warning(hpas: Iterable[Hpa], slots: Iterable[Slot]) -> str:
    """Return a warning if an HPA's target is a percentage of the scaled requests; empty otherwise."""
    requested = {slot.resource.value for slot in slots if slot.section == "requests"}
    for hpa in hpas:
        for metric in hpa.metrics:
            if metric.target_type == "Utilization" and metric.name in requested:
                share = f"{metric.target_value:g}% of the {metric.name} request"
                scales = f"HorizontalPodAutoscaler {hpa.name} scales at {share}"
                return f"{scales}, and this policy changes the request"
    return ""


def unknown_size(item: Assignment, snapshot: ScalingSnapshot) -> RejectedPolicy | None:
    """Return the rejection of a policy that needs an unknown input, or None."""
    size = snapshot.size(item.compiled.selector)
    if not size.nodes_ready:
        return RejectedPolicy("NoNodes", "spec.nodeSelector: expected at least one Ready node, found none")
    unknown = sorted(item.compiled.spec.inputs & set(size.unknown))
    if not unknown:
        return None
    return RejectedPolicy("InputUnknown", f"{unknown[0]}: {size.unknown[unknown[0]]}, so nothing is changed")


def observe(item: Assignment, snapshot: ScalingSnapshot, applied: AppliedState) -> Observation:
    """Return the cluster's size and the workload's values in force as an observation."""
    slots, spec = item.compiled.slots, item.compiled.spec
    pods = active_pods(snapshot.pods[item.ref])
    current = values_in_force(spec.update_mode, slots, item.workload, pods, applied)
    is_template = spec.update_mode is UpdateMode.ROLLOUT or applied.is_rollout
    size = snapshot.size(item.compiled.selector)
    assert spec.inputs <= set(size.inputs), "a policy with an unknown input is rejected before"
    return Observation(
        subject=item.ref.subject,
        at=snapshot.at,
        inputs={name: size.inputs[name] for name in sorted(spec.inputs)},
        current={slot.key: slot.text(current[slot.key]) for slot in slots if slot.key in current},
        pods=len(pods),
        pods_behind=0 if is_template else len(pods_outdated(pods, slots, current)),
        stuck=stuck(pods),
    )


def confirm_reverts(
    item: Assignment,
    applied: AppliedState,
    pods: Sequence[Pod],
    accepted: Collection[str],
    cluster: Cluster,
    at: float,
) -> tuple[AppliedState, frozenset[str]]:
    """Detect reverts; before one counts, read the pods again: a delayed cache still has the old values."""
    slots, workload, at_ms = item.compiled.slots, item.workload, moment_of(at)
    found, lost = detect_reverts(applied, slots, workload, pods, accepted, at_ms)
    if not lost or applied.is_rollout:
        return found, lost
    try:
        fresh = owned_pods([workload], cluster.pods_now(workload))[item.ref]
    except WorldFailed:
        return found, lost  # use the snapshot: to stop too early is safer than to write too often
    return detect_reverts(applied, slots, workload, active_pods(fresh), accepted, at_ms)


def name_contending_manager(
    item: Assignment, applied: AppliedState, pods: Sequence[Pod], sizes: Sizes
) -> AppliedState:
    """Return the state with the name of the field manager that reverts the values, once it is contended."""
    if applied.contending_manager or not applied.is_contended:
        return applied
    slots, target = item.compiled.slots, item.workload.object_ref
    if not applied.is_rollout:
        for pod in pods_outdated(pods, slots, applied.values)[:1]:
            target = ObjectRef("v1", "Pod", pod.namespace, pod.name, pod.uid)
    names = []
    for slot in slots:
        try:
            names.append(sizes.setter_of(target, slot.container, slot.section, slot.resource.value))
        except WorldFailed:
            continue  # the name is for people; without it the contention is over all the same
    manager = next((name for name in names if name), "another field manager")
    return msgspec.structs.replace(applied, contending_manager=manager, generation=item.policy.generation)
