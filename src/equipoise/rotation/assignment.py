"""Which policy looks after which workload. A policy acts in its own namespace only."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from equipoise.core.cluster import ObjectRef, Workload, WorkloadRef
from equipoise.crd.targets import Mode
from equipoise.engine.assignment import RejectedPolicy, assign_each, parse_policy
from equipoise.engine.isolation import Isolation
from equipoise.ports import PolicyObject
from equipoise.rotation.policy import RotationPolicy, RotationPolicySpec


class Assigned(msgspec.Struct, frozen=True):
    """One workload in the care of one policy."""

    source: ObjectRef
    policy: RotationPolicy
    mode: Mode
    workload: Workload


def assign(
    policies: Iterable[PolicyObject], workloads: Sequence[Workload], isolation: Isolation | None = None
) -> tuple[list[Assigned], Mapping[ObjectRef, RejectedPolicy]]:
    """Give each workload to one policy, and say which policies can't be followed.

    Two policies that want the same workload would fight: the first by name has it.
    """
    isolation = isolation or Isolation()
    by_namespace: dict[str, list[Workload]] = {}
    for workload in workloads:
        by_namespace.setdefault(workload.ref.namespace, []).append(workload)
    in_order = sorted(policies, key=lambda policy: (policy.ref.namespace, policy.ref.name))
    found, rejected = assign_each(
        in_order, lambda policy: _wanted(policy, by_namespace.get(policy.ref.namespace, ())), isolation
    )
    assigned: dict[WorkloadRef, Assigned] = {}
    for ref, items in found.items():
        for item in items:
            holder = assigned.setdefault(item.workload.ref, item)
            if holder is not item:
                sentence = f"{item.workload.ref} is looked after by policy {holder.source.name} already"
                rejected[ref] = RejectedPolicy("Conflict", sentence)
    return list(assigned.values()), rejected


def _wanted(policy: PolicyObject, near: Iterable[Workload]) -> list[Assigned] | RejectedPolicy:
    """Return what a policy wants of its own namespace, or why it can't be followed."""
    spec = parse_policy(policy, RotationPolicySpec.model_validate)
    if isinstance(spec, RejectedPolicy):
        return spec
    wanted = [workload for workload in near if _is_wanted(spec, workload)]
    if not wanted:
        return _nothing_there(spec)
    settings = spec.settings
    return [Assigned(policy.ref, settings, spec.mode, workload) for workload in wanted]


def _nothing_there(spec: RotationPolicySpec) -> RejectedPolicy:
    """Say that a policy is for nothing, by the path of the field that says so."""
    if spec.target_ref is None:
        return RejectedPolicy(
            "NoWorkload", "spec.selector: expected the labels of a workload in this namespace"
        )
    target = spec.target_ref
    found = f"no {target.kind} {target.name} of {target.api_version}"
    kinds = "the operator looks at Deployments, StatefulSets and ReplicaSets"
    sentence = f"spec.targetRef: expected a workload in this namespace, found {found} ({kinds})"
    return RejectedPolicy("NoWorkload", sentence)


def _is_wanted(spec: RotationPolicySpec, workload: Workload) -> bool:
    if spec.target_ref is not None:
        target = spec.target_ref
        group = target.api_version.rpartition("/")[0]
        return (group, target.kind, target.name) == (workload.ref.group, workload.ref.kind, workload.ref.name)
    assert spec.selector is not None, "a policy has a target or a selector"
    return spec.selector.selector.matches(dict(workload.labels))
