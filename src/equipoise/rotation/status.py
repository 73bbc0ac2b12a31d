"""The workloads of each policy, the result of a cycle for each, and the policy's status.

A policy applies to its own namespace only. Every write of a status triggers all watches of the object, so it
is written only when a reason changes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from equipoise.core.cluster import ObjectRef, Workload, WorkloadRef
from equipoise.core.decision import Decision, Outcome
from equipoise.core.reason import Code, Reason
from equipoise.crd.targets import Mode
from equipoise.engine.isolation import Isolation
from equipoise.engine.policies import (
    RejectedPolicy,
    assign_each,
    condition,
    has_condition,
    keep_transition_time,
    parse_policy,
    timestamp,
)
from equipoise.ports import Actuator, FailedTurn, PolicyObject
from equipoise.rotation.policy import RotationPolicy, RotationPolicySpec
from equipoise.rotation.progress import RotationDetails, RotationMemory

DECISIONS_MAX = 200
ROTATED = ("rotatedAt", "predictedImprovementPercent", "realisedImprovementPercent")
MAYBE_EVICTED = frozenset({"Accepted", "Unknown"})
"""Results of an eviction after which the pod counts as away, whatever the snapshot showed."""


class Target(msgspec.Struct, frozen=True):
    """One workload and its policy."""

    source: ObjectRef
    policy: RotationPolicy
    mode: Mode
    workload: Workload


def assign(
    policies: Iterable[PolicyObject], workloads: Sequence[Workload], isolation: Isolation | None = None
) -> tuple[list[Target], Mapping[ObjectRef, RejectedPolicy]]:
    """Return each workload with its policy, and the policies that are rejected, wholly or in part.

    Of two policies for the same workload, the first by name takes precedence.
    """
    isolation = isolation or Isolation()
    by_namespace: dict[str, list[Workload]] = defaultdict(list)
    for workload in workloads:
        by_namespace[workload.ref.namespace].append(workload)
    in_order = sorted(policies, key=lambda policy: (policy.ref.namespace, policy.ref.name))
    found, rejected = assign_each(
        in_order, lambda policy: _targets(policy, by_namespace[policy.ref.namespace]), isolation
    )
    targets: dict[WorkloadRef, Target] = {}
    for ref, own in found.items():
        for target in own:
            holder = targets.setdefault(target.workload.ref, target)
            if holder is not target:
                sentence = f"the policy {holder.source.name} already targets {target.workload.ref}"
                rejected[ref] = RejectedPolicy("Conflict", sentence)
    return list(targets.values()), rejected


def _targets(policy: PolicyObject, nearby: Iterable[Workload]) -> list[Target] | RejectedPolicy:
    """Return the workloads of a policy in its namespace, or why the policy is rejected."""
    spec = parse_policy(policy, RotationPolicySpec.model_validate)
    if isinstance(spec, RejectedPolicy):
        return spec
    settings, target = spec.settings, spec.target_ref
    chosen = [workload for workload in nearby if _is_target(spec, workload)]
    if chosen:
        return [Target(policy.ref, settings, spec.mode, workload) for workload in chosen]
    if target is None:
        sentence = "spec.selector: expected the labels of a workload in this namespace"
        return RejectedPolicy("NoWorkload", sentence)
    found = f"no {target.kind} {target.name} of {target.api_version}"
    kinds = "supported kinds are Deployment, StatefulSet and ReplicaSet"
    sentence = f"spec.targetRef: expected a workload in this namespace, found {found} ({kinds})"
    return RejectedPolicy("NoWorkload", sentence)


def _is_target(spec: RotationPolicySpec, workload: Workload) -> bool:
    if spec.target_ref is not None:
        target = spec.target_ref
        group = target.api_version.rpartition("/")[0]
        return (group, target.kind, target.name) == (workload.ref.group, workload.ref.kind, workload.ref.name)
    assert spec.selector is not None, "a policy has a target or a selector"
    return spec.selector.selector.matches(dict(workload.labels))


class CycleItem(NamedTuple):
    """The decision and outcomes of a cycle for one workload."""

    target: Target
    decision: Decision
    outcomes: Sequence[Outcome]
    details: RotationDetails = RotationDetails()
    reported: Reason | None = None
    """The reason of the event that was recorded in this cycle already: how the rotation ended."""
    at: float = 0.0
    """When the workload was observed."""
    ledger_error: str = ""
    """Why its ledger could not be read; empty if it could."""
    failed: FailedTurn | None = None
    """The error that ended its part of the cycle."""

    @property
    def is_under_way(self) -> bool:
        """Whether a rotation has begun that has no result yet."""
        return self.details.memory.run is not None or any(o.result in MAYBE_EVICTED for o in self.outcomes)


def next_status(
    policy: PolicyObject, items: Sequence[CycleItem], rejected: RejectedPolicy | None, at: float
) -> dict[str, Any] | None:
    """Return the new status, or None where the current one is up to date."""
    now = timestamp(at)
    old = policy.status
    code, message = rejected or ("Accepted", "The policy was accepted.")
    ready = condition("Ready", code, message, is_true=rejected is None, generation=policy.generation)
    shown = sorted((item.decision for item in items), key=lambda decision: decision.subject)[:DECISIONS_MAX]
    rotated = _rotated([item.details.memory for item in items])
    before = {entry.get("subject"): entry for entry in old.get("decisions", ())}
    is_same = (
        old.get("observedGeneration") == policy.generation
        and old.get("workloads") == len(items)
        and has_condition(old, ready, ("status", "reason", "message"))
        and all(old.get(name) == value for name, value in rotated.items())
        and {subject: entry.get("reason") for subject, entry in before.items()}
        == {decision.subject: decision.reason.code.value for decision in shown}
    )
    if is_same:
        return None
    status: dict[str, Any] = {
        "observedGeneration": policy.generation,
        "conditions": [keep_transition_time(ready, old, now)],
        "workloads": len(items),
        "decisions": [_entry(decision, before.get(decision.subject, {}), now) for decision in shown],
    }
    if shown:
        last = min(shown, key=_by_interest)
        status["lastDecision"] = _reason(last) | {"subject": last.subject, "at": now}
    return status | (rotated or {name: old[name] for name in ROTATED if name in old})


def _rotated(memories: Sequence[RotationMemory]) -> dict[str, Any]:
    """Return when a pod was last rotated, and what the last measured rotation predicted and realised."""
    results = [memory.last for memory in memories if memory.last is not None]
    times = [memory.run.wave_at for memory in memories if memory.run is not None]
    times += [result.rotated_at for result in results]
    rotated: dict[str, Any] = {"rotatedAt": timestamp(max(times))} if times else {}
    measured = [result for result in results if result.realised_percent is not None]
    if measured:
        last = max(measured, key=lambda result: result.ended_at)
        rotated["predictedImprovementPercent"] = round(last.predicted_percent, 2)
        rotated["realisedImprovementPercent"] = round(last.realised_percent or 0.0, 2)
    return rotated


def _entry(decision: Decision, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a decision as the status shows it, with the time since which its reason holds."""
    reason = _reason(decision)
    since = before.get("at") if before.get("reason") == reason["reason"] else None
    return {"subject": decision.subject, **reason, "at": since or now}


def _reason(decision: Decision) -> dict[str, Any]:
    return {"reason": decision.reason.code.value, "sentence": decision.reason.sentence}


def _by_interest(decision: Decision) -> tuple[bool, bool, bool, str]:
    """Return a sort key: decisions with actions first, then those that are held."""
    is_idle = decision.reason.code is Code.NO_HOT_PODS
    return not decision.actions, not decision.held, is_idle, decision.subject


def report_changes(
    actuator: Actuator,
    policy: PolicyObject,
    items: Sequence[CycleItem],
    last: Mapping[WorkloadRef, CycleItem],
) -> None:
    """Record an event on each workload whose reason changed; the first reason is no change.

    The previous reasons are from the status, which a new leader has, too; it lists the first workloads only.
    """
    shown = {entry.get("subject"): entry.get("reason") for entry in policy.status.get("decisions", ())}
    for item in items:
        reason, code, ref = item.decision.reason, item.decision.reason.code.value, item.target.workload.ref
        is_error = item.failed is not None  # an error counts as a change the first time, too
        first = "" if is_error else code
        before = last[ref].decision.reason.code.value if ref in last else first
        is_new = not item.outcomes and reason != item.reported
        if is_new and shown.get(item.decision.subject, before) != code:
            about = item.target.workload.object_ref
            actuator.record_event(about, code, reason.sentence, is_warning=is_error)
