"""Which policy looks after which workload. A policy acts in its own namespace only."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from pydantic import ValidationError

from equipoise.model.cluster import Workload
from equipoise.model.crd.targets import Mode
from equipoise.model.references import ObjectRef, WorkloadRef
from equipoise.model.validation import explain
from equipoise.ports import PolicyObject
from equipoise.rotation.policy import RotationPolicy, RotationPolicySpec


class Assigned(msgspec.Struct, frozen=True):
    """One workload in the care of one policy."""

    source: ObjectRef
    policy: RotationPolicy
    mode: Mode
    workload: Workload


def assign(
    policies: Iterable[PolicyObject], workloads: Sequence[Workload]
) -> tuple[list[Assigned], Mapping[ObjectRef, str]]:
    """Give each workload to one policy, and say which policies can't be followed.

    Two policies that want the same workload would fight: the first by name has it.
    """
    by_namespace: dict[str, list[Workload]] = {}
    for workload in workloads:
        by_namespace.setdefault(workload.ref.namespace, []).append(workload)
    assigned: dict[WorkloadRef, Assigned] = {}
    refused: dict[ObjectRef, str] = {}
    for policy in sorted(policies, key=lambda policy: (policy.ref.namespace, policy.ref.name)):
        try:
            spec = RotationPolicySpec.model_validate(policy.spec)
        except ValidationError as error:
            refused[policy.ref] = f"spec.{explain(error)}"
            continue
        wanted = [each for each in by_namespace.get(policy.ref.namespace, ()) if _is_wanted(spec, each)]
        for workload in wanted:
            holder = assigned.get(workload.ref)
            if holder is None:
                assigned[workload.ref] = Assigned(policy.ref, spec.settings, spec.mode, workload)
            else:
                refused[policy.ref] = f"{workload.ref} is looked after by policy {holder.source.name} already"
    return list(assigned.values()), refused


def _is_wanted(spec: RotationPolicySpec, workload: Workload) -> bool:
    if spec.target_ref is not None:
        target = spec.target_ref
        return (target.kind, target.name) == (workload.ref.kind, workload.ref.name)
    assert spec.selector is not None, "a policy has a target or a selector"
    if workload.ref.kind == "StatefulSet" and not spec.includes_stateful_sets:
        return False
    return spec.selector.selector.matches(dict(workload.labels))
