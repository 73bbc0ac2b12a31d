"""Which policy looks after which workload. A policy acts in its own namespace only."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from equipoise.model.cluster import Workload
from equipoise.model.crd.targets import Mode
from equipoise.model.errors import DECODE_ERRORS
from equipoise.model.references import ObjectRef, WorkloadRef
from equipoise.model.validation import explain
from equipoise.ports import PolicyObject
from equipoise.rotation.policy import RotationPolicy, RotationPolicySpec


class Refusal(NamedTuple):
    """Why a policy is not followed, or not in full: the condition's reason and message."""

    code: str
    sentence: str


class Assigned(msgspec.Struct, frozen=True):
    """One workload in the care of one policy."""

    source: ObjectRef
    policy: RotationPolicy
    mode: Mode
    workload: Workload


def assign(
    policies: Iterable[PolicyObject], workloads: Sequence[Workload]
) -> tuple[list[Assigned], Mapping[ObjectRef, Refusal]]:
    """Give each workload to one policy, and say which policies can't be followed.

    Two policies that want the same workload would fight: the first by name has it.
    """
    by_namespace: dict[str, list[Workload]] = {}
    for workload in workloads:
        by_namespace.setdefault(workload.ref.namespace, []).append(workload)
    assigned: dict[WorkloadRef, Assigned] = {}
    refused: dict[ObjectRef, Refusal] = {}
    for policy in sorted(policies, key=lambda policy: (policy.ref.namespace, policy.ref.name)):
        if policy.unreadable:
            refused[policy.ref] = Refusal("Unreadable", f"The object cannot be read: {policy.unreadable}")
            continue
        try:
            spec = RotationPolicySpec.model_validate(policy.spec)
        except DECODE_ERRORS as error:
            refused[policy.ref] = Refusal("InvalidSpec", f"spec.{explain(error)}")
            continue
        wanted = [each for each in by_namespace.get(policy.ref.namespace, ()) if _is_wanted(spec, each)]
        if not wanted:
            refused[policy.ref] = _nothing_there(spec)
        settings = spec.settings
        for workload in wanted:
            holder = assigned.get(workload.ref)
            if holder is None:
                assigned[workload.ref] = Assigned(policy.ref, settings, spec.mode, workload)
            else:
                sentence = f"{workload.ref} is looked after by policy {holder.source.name} already"
                refused[policy.ref] = Refusal("Conflict", sentence)
    return list(assigned.values()), refused


def _nothing_there(spec: RotationPolicySpec) -> Refusal:
    """Say that a policy is for nothing, by the path of the field that says so."""
    if spec.target_ref is None:
        return Refusal("NoWorkload", "spec.selector: expected the labels of a workload in this namespace")
    target = spec.target_ref
    found = f"no {target.kind} {target.name} of {target.api_version}"
    kinds = "the operator looks at Deployments, StatefulSets and ReplicaSets"
    sentence = f"spec.targetRef: expected a workload in this namespace, found {found} ({kinds})"
    return Refusal("NoWorkload", sentence)


def _is_wanted(spec: RotationPolicySpec, workload: Workload) -> bool:
    if spec.target_ref is not None:
        target = spec.target_ref
        group = target.api_version.rpartition("/")[0]
        return (group, target.kind, target.name) == (workload.ref.group, workload.ref.kind, workload.ref.name)
    assert spec.selector is not None, "a policy has a target or a selector"
    return spec.selector.selector.matches(dict(workload.labels))
