"""Which policy sets the resources of which workload; where two would, neither does."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec

from equipoise.core.cluster import ObjectRef, Selector, Workload, WorkloadRef
from equipoise.core.documents import explain
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.crd.targets import Mode
from equipoise.engine.assignment import RejectedPolicy, assign_each, parse_policy
from equipoise.engine.isolation import Isolation
from equipoise.ports import FailedTurn, PolicyObject
from equipoise.ports.actions import Sizes, every_workload
from equipoise.proportional.functions import CompiledPolicy
from equipoise.proportional.parse import WrittenScalingPolicySpec
from equipoise.proportional.policy import ScalingPolicySpec
from equipoise.proportional.record import policy_json


class Prepared(NamedTuple):
    """A policy, read and taken apart once for each of its generations."""

    spec: ScalingPolicySpec
    asked: CompiledPolicy
    document: dict[str, Any]
    """As its records have it."""
    selector: Selector

    @classmethod
    def of(cls, spec: ScalingPolicySpec) -> "Prepared":
        """Take it apart."""
        return cls(spec, CompiledPolicy.of(spec), policy_json(spec), spec.node_selector.selector)


class Assigned(msgspec.Struct, frozen=True):
    """One workload in the care of one policy."""

    policy: PolicyObject
    prepared: Prepared
    mode: Mode
    workload: Workload

    @property
    def ref(self) -> WorkloadRef:
        """The workload's name."""
        return self.workload.ref


@dataclass(slots=True)
class Readings:
    """Remembers what policies say, so that 2,000 of them are not read anew in every cycle."""

    _known: dict[str, tuple[tuple[int, str], Prepared | RejectedPolicy]] = field(default_factory=dict)

    def read(
        self, policies: Iterable[PolicyObject], isolation: Isolation | None = None
    ) -> dict[ObjectRef, Prepared | RejectedPolicy]:
        """Read the new and the edited ones, and forget those that have gone.

        One whose reading fails for a reason that nobody foresaw is read anew the next time.
        """
        isolation = isolation or Isolation()
        fresh: dict[str, tuple[tuple[int, str], Prepared | RejectedPolicy]] = {}
        found: dict[ObjectRef, Prepared | RejectedPolicy] = {}
        for policy in policies:
            known = self._known.get(policy.ref.uid)
            edition = (policy.generation, policy.unreadable)
            if known is None or known[0] != edition:
                read = isolation.attempt(str(policy.ref), partial(parse_policy, policy, _prepare))
                if isinstance(read, FailedTurn):
                    found[policy.ref] = RejectedPolicy.of_failure(read)
                    continue
                known = (edition, read)
            fresh[policy.ref.uid] = known
            found[policy.ref] = known[1]
        self._known = fresh
        return found


def _prepare(spec: Mapping[str, Any]) -> Prepared:
    try:
        return Prepared.of(WrittenScalingPolicySpec.model_validate(dict(spec)))
    except DECODE_ERRORS as error:
        said = explain(error)
        where = "spec: " if said.startswith("document: ") else "spec."
        raise BadInput(f"{where}{said.removeprefix('document: ')}") from error


def target_of(policy: PolicyObject, spec: ScalingPolicySpec) -> WorkloadRef:
    """Name the workload, which is in the policy's own namespace."""
    target = spec.target_ref
    return WorkloadRef(target.api_version, target.kind.value, policy.ref.namespace, target.name).canonical


def assign(
    policies: Sequence[PolicyObject],
    readings: Mapping[ObjectRef, Prepared | RejectedPolicy],
    sizes: Sizes,
    mode: Mode,
    isolation: Isolation | None = None,
) -> tuple[list[Assigned], dict[ObjectRef, RejectedPolicy]]:
    """Return each policy its workload, and say which policies can't be followed."""
    isolation = isolation or Isolation()
    rejected: dict[ObjectRef, RejectedPolicy] = {}
    rivals: dict[WorkloadRef, list[str]] = defaultdict(list)
    readable: dict[ObjectRef, tuple[Prepared, WorkloadRef]] = {}
    for policy in policies:
        read = readings[policy.ref]
        if isinstance(read, RejectedPolicy):
            rejected[policy.ref] = read
            continue
        ref = target_of(policy, read.spec)
        rivals[ref].append(policy.ref.name)
        readable[policy.ref] = (read, ref)
    advised = sizes.advised() if readable else {}

    def assign_one(policy: PolicyObject) -> Assigned | RejectedPolicy:
        read, ref = readable[policy.ref]
        others = sorted(name for name in rivals[ref] if name != policy.ref.name)
        setter = _setter(advised, ref)
        workload = None if others or setter else sizes.workload(ref)
        refusal = _refusal(read.spec, ref, others, setter, workload)
        if workload is None or refusal is not None:
            assert refusal is not None, "whatever has no workload says why"
            return refusal
        return Assigned(policy, read, mode, workload)

    followed = [policy for policy in policies if policy.ref in readable]
    assigned, others_rejected = assign_each(followed, assign_one, isolation)
    return list(assigned.values()), rejected | others_rejected


def _setter(advised: Mapping[WorkloadRef, str], ref: WorkloadRef) -> str:
    """Return who sets the requests of a workload or may do so, as the beginning of a sentence."""
    if vpa := advised.get(ref):
        return f"{vpa} sets the requests of {ref} already"
    if vpa := advised.get(every_workload(ref.namespace)):
        return f"{vpa}, may set the requests of {ref}"
    return ""


def _refusal(
    spec: ScalingPolicySpec,
    ref: WorkloadRef,
    others: Sequence[str],
    setter: str,
    workload: Workload | None,
) -> RejectedPolicy | None:
    if others:
        names = ", ".join(others)
        sentence = f"spec.scaleTargetRef: {ref} is also the target of {names}, so nothing is changed for any"
        return RejectedPolicy("Conflict", sentence)
    if setter:
        return RejectedPolicy("Conflict", f"spec.scaleTargetRef: {setter}, so nothing is changed")
    if workload is None:
        sentence = f"spec.scaleTargetRef: expected a workload in this namespace, found no {ref}"
        hint = " (one that a Deployment made is scaled by naming the Deployment)"
        return RejectedPolicy("NoWorkload", f"{sentence}{hint if ref.kind == 'ReplicaSet' else ''}")
    if ref.kind == "ReplicaSet" and workload.owner is not None:
        maker = f"{workload.owner.kind} {workload.owner.name}"
        sentence = f"expected a workload of its own, but {maker} made {ref}: name {maker} instead"
        return RejectedPolicy("NoWorkload", f"spec.scaleTargetRef: {sentence}")
    known = [container.name for container in workload.containers]
    for number, container in enumerate(spec.containers):
        if container.name not in known:
            has = ", ".join(known) or "none"
            sentence = f"expected a container of {ref} ({has}), got {container.name}"
            return RejectedPolicy("NoContainer", f"spec.containers[{number}].name: {sentence}")
    return None
