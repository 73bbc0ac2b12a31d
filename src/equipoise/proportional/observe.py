"""Reads the cluster once for all policies: its size, the pods of each target, the autoscalers.

A cluster's size is what its Ready nodes can allocate, cordoned ones included, and the pods on them. An input
that cannot be counted is unknown, never zero, and a policy that needs it changes nothing.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import msgspec

from equipoise.core.cluster import Hpa, Node, ObjectRef, Pod, Selector, Workload, WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.core.quantity import NANO, Format, Quantity
from equipoise.engine.assignment import RejectedPolicy
from equipoise.engine.isolation import Isolation
from equipoise.ports import Cluster, FailedTurn
from equipoise.ports.actions import Sizes
from equipoise.proportional.applied import (
    FINISHED,
    AppliedState,
    active_pods,
    detect_reverts,
    pods_outdated,
    values_in_force,
)
from equipoise.proportional.assignment import Assigned
from equipoise.proportional.decide import STUCK, Observation, moment_of
from equipoise.proportional.functions import Slot
from equipoise.proportional.policy import UpdateMode


class Size(NamedTuple):
    """What was counted, as quantities; what is unknown is absent, and why it is."""

    inputs: Mapping[str, str]
    nodes_ready: int
    nodes_unknown: int = 0
    """Ready nodes that do not say how large they are."""
    unknown: Mapping[str, str] = {}
    """Why an input is unknown, by its name."""


def count(nodes: Sequence[Node], pods_on: Mapping[str, int] | None, selector: Selector) -> Size:
    """Count the Ready nodes that are selected; without `pods_on` the pods are unknown."""
    labelled = [node for node in nodes if selector.matches(dict(node.labels))]
    ready = [node for node in labelled if node.is_ready]
    silent = [node for node in ready if node.cpu_cores <= 0 or node.memory_bytes <= 0]
    inputs = {"nodes": str(len(ready))}
    unknown = {}
    if silent:
        counts = f"{len(silent)} of {len(ready)} Ready nodes"
        why = f"{counts} do not say how large they are, such as {silent[0].name}"
        unknown = {"cores": why, "memory": why}
    else:
        inputs["cores"] = str(Quantity(sum(round(node.cpu_cores * NANO) for node in ready)))
        memory = sum(int(node.memory_bytes) for node in ready)
        inputs["memory"] = str(Quantity(memory * NANO, Format.BINARY))
    if pods_on is None:
        unknown["pods"] = "only the pods of some namespaces are seen"
    else:
        inputs["pods"] = str(sum(pods_on.get(node.name, 0) for node in ready))
    return Size(inputs, len(ready), len(silent), unknown)


def pods_by_node(pods: Iterable[Pod]) -> dict[str, int]:
    """Count the pods on each node that have not ended."""
    found: dict[str, int] = {}
    for pod in pods:
        if pod.node and pod.phase not in FINISHED:
            found[pod.node] = found.get(pod.node, 0) + 1
    return found


HASH_LABEL = "pod-template-hash"
Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class ClusterSnapshot:
    """The cluster as one cycle reads it; its size is counted once for each node selector."""

    at: float
    nodes: Sequence[Node]
    pods: Mapping[WorkloadRef, Sequence[Pod]]
    hpas: Mapping[WorkloadRef, Sequence[Hpa]]
    pods_on: Mapping[str, int] | None
    """How many pods each node has; None where only some namespaces are watched."""
    _sizes: dict[Selector, Size] = field(default_factory=dict)

    def size(self, selector: Selector) -> Size:
        """Count the nodes that are selected."""
        found = self._sizes.get(selector)
        if found is None:
            found = self._sizes[selector] = count(self.nodes, self.pods_on, selector)
        return found


def take_snapshot(
    cluster: Cluster,
    assigned: Sequence[Assigned],
    at: float,
    namespace: str | None,
    isolation: Isolation | None = None,
    *,
    sees_all_pods: bool,
) -> ClusterSnapshot:
    """Read the cluster once for all policies; with a namespace, the input `pods` is unknown."""
    needs_all = any("pods" in item.prepared.spec.inputs for item in assigned)
    place = None if needs_all and sees_all_pods else namespace
    pods = cluster.pods(place) if assigned else ()
    is_whole = sees_all_pods and place is None
    hpas: dict[WorkloadRef, list[Hpa]] = defaultdict(list)
    for hpa in cluster.hpas(namespace) if assigned else ():
        hpas[hpa.target.canonical].append(hpa)
    return ClusterSnapshot(
        at=at,
        nodes=cluster.nodes() if assigned else (),
        pods=pods_by_workload([item.workload for item in assigned], pods, isolation),
        hpas=hpas,
        pods_on=pods_by_node(pods) if is_whole and needs_all else ({} if is_whole else None),
    )


def pods_by_workload(
    workloads: Iterable[Workload], pods: Iterable[Pod], isolation: Isolation | None = None
) -> Mapping[WorkloadRef, Sequence[Pod]]:
    """Return the pods of each workload: those that its selector picks in its namespace.

    They are found by one of the selector's labels, so that a workload costs what its own pods cost. One whose
    selector fails is left out: what its pods are is unknown.
    """
    isolation = isolation or Isolation()
    wanted = list(workloads)
    keys = {(each.ref.namespace, pair) for each in wanted if (pair := _exact(each.selector)) is not None}
    by_label: dict[tuple[str, tuple[str, str]], list[Pod]] = defaultdict(list)
    by_namespace: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_namespace[pod.namespace].append(pod)
        for pair in pod.labels:
            if (pod.namespace, pair) in keys:
                by_label[pod.namespace, pair].append(pod)

    def picked(workload: Workload) -> list[Pod]:
        ref, selector = workload.ref, workload.selector
        pair = _exact(selector)
        near = by_namespace[ref.namespace] if pair is None else by_label[ref.namespace, pair]
        matching = [pod for pod in near if selector.requirements and selector.matches(dict(pod.labels))]
        return [pod for pod in matching if _is_kin(pod, workload)]

    found: dict[WorkloadRef, Sequence[Pod]] = {}
    for workload in wanted:
        own = isolation.attempt(workload.ref.subject, partial(picked, workload))
        if not isinstance(own, FailedTurn):
            found[workload.ref] = own
    return found


def _exact(selector: Selector) -> tuple[str, str] | None:
    terms = [term for term in selector.requirements if term.operator == "In" and len(term.values) == 1]
    return (terms[-1].key, terms[-1].values[0]) if terms else None


def _is_kin(pod: Pod, workload: Workload) -> bool:
    """Whether it is of this very workload: selectors of two may overlap, and labels anybody can write.

    A Deployment's ReplicaSets have its name and the hash of their template, which is a label of their pods.
    """
    ref, owner = workload.ref, pod.owner
    if owner is None:
        return False
    if ref.kind != "Deployment":
        return (owner.kind, owner.uid) == (ref.kind, workload.uid)
    name, _, ending = owner.name.rpartition("-")
    hashed = dict(pod.labels).get(HASH_LABEL, ending)
    return owner.kind == "ReplicaSet" and (name, ending) == (ref.name, hashed)


def stuck(pods: Iterable[Pod]) -> dict[str, str]:
    """Name the first pod whose node can't give what it asks for, by what the node says."""
    found: dict[str, str] = {}
    for pod in sorted(pods, key=lambda pod: pod.name):
        state = pod.resize.state if pod.resize is not None else ""
        if pod.resize is not None and state in STUCK:
            words = f" ({pod.resize.message})" if pod.resize.message else ""
            found.setdefault(state, f"{pod.name}{words}")
    return found


def utilization_warning(hpas: Iterable[Hpa], slots: Iterable[Slot]) -> str:
    """Warn where a change of requests changes what an HPA's percentage means; or say nothing."""
    requested = {slot.resource.value for slot in slots if slot.section == "requests"}
    for hpa in hpas:
        for metric in hpa.metrics:
            if metric.target_type == "Utilization" and metric.name in requested:
                share = f"{metric.target_value:g} % of the {metric.name} request"
                return f"HorizontalPodAutoscaler {hpa.name} scales at {share}, which changes with the request"
    return ""


def unknown_size(item: Assigned, snapshot: ClusterSnapshot) -> RejectedPolicy | None:
    """Return which input of the policy is unknown, if any: what is missing is never zero."""
    size = snapshot.size(item.prepared.selector)
    if not size.nodes_ready:
        return RejectedPolicy("NoNodes", "spec.nodeSelector: expected at least one Ready node, found none")
    for name in sorted(item.prepared.spec.inputs & set(size.unknown)):
        return RejectedPolicy("InputUnknown", f"{name}: {size.unknown[name]}, so nothing is changed")
    return None


def observe(item: Assigned, snapshot: ClusterSnapshot, applied: AppliedState) -> Observation:
    """Join the cluster's size with what the workload has."""
    asked, spec = item.prepared.asked, item.prepared.spec
    pods = active_pods(snapshot.pods[item.ref])
    current = values_in_force(spec.update_mode, asked.slots, item.workload, pods, applied)
    is_template = spec.update_mode is UpdateMode.ROLLOUT or applied.is_rollout
    size = snapshot.size(item.prepared.selector)
    return Observation(
        subject=item.ref.subject,
        at=snapshot.at,
        inputs={name: size.inputs[name] for name in sorted(spec.inputs)},
        current={slot.key: slot.text(current[slot.key]) for slot in asked.slots if slot.key in current},
        pods=len(pods),
        pods_behind=0 if is_template else len(pods_outdated(pods, asked.slots, current)),
        stuck=stuck(pods),
    )


def confirm_reverts(
    item: Assigned,
    applied: AppliedState,
    pods: Sequence[Pod],
    accepted: Collection[str],
    cluster: Cluster,
    at: float,
) -> tuple[AppliedState, frozenset[str]]:
    """Detect reverts, and read the pods anew before one counts: a late cache still has the old values."""
    slots, workload, at_ms = item.prepared.asked.slots, item.workload, moment_of(at)
    found, lost = detect_reverts(applied, slots, workload, pods, accepted, at_ms)
    if not lost or applied.is_rollout:
        return found, lost
    try:
        fresh = pods_by_workload([workload], cluster.pods_now(workload))[item.ref]
    except WorldFailed:
        return found, lost  # the snapshot counts: better stop too early than write too often
    return detect_reverts(applied, slots, workload, active_pods(fresh), accepted, at_ms)


def name_contending_manager(
    item: Assigned, applied: AppliedState, pods: Sequence[Pod], sizes: Sizes
) -> AppliedState:
    """Find which field manager puts other values back, once it has happened too often."""
    if applied.contending_manager or not applied.is_contended:
        return applied
    slots, target = item.prepared.asked.slots, about(item.workload)
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


def about(workload: Workload) -> ObjectRef:
    """Return the object that an event about a workload is recorded at."""
    ref = workload.ref
    return ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, workload.uid)
