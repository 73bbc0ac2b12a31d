"""The custom resource `ScalingPolicy`, the status of a live one, and whether it must be written now.

The API server should not get a write in every cycle. A status is written when a reason or a condition changes
or a change is about to be made; other differences (a target, the window) are written by a checkpoint, at most
once a minute.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from equipoise.core.cluster import Workload
from equipoise.core.decision import Decision, Outcome
from equipoise.core.reason import Code
from equipoise.crd.definition import Column, DefinedKind
from equipoise.crd.fields import Amount, Count, Memory, Moment, SchemaPart, Text, UniqueBy
from equipoise.crd.status import ENTRIES_MAX, PolicyStatus, Reason, Sentence
from equipoise.crd.targets import Mode
from equipoise.engine.policies import (
    RejectedPolicy,
    condition,
    has_condition,
    keep_transition_time,
    timestamp,
)
from equipoise.ports import Actuator, PolicyObject
from equipoise.proportional.applied import KEY, PolicyMemory
from equipoise.proportional.decide import Assessment
from equipoise.proportional.functions import CompiledPolicy, Slot
from equipoise.proportional.parse import WrittenScalingPolicySpec
from equipoise.proportional.smoothing import ProportionalMemory


def status_of(slots: Sequence[Slot], assessment: Assessment, memory: ProportionalMemory) -> dict[str, Any]:
    """Return the status of each value and of the window, in the form of a manifest."""
    status: dict[str, Any] = {"resources": [_resource(slot, assessment, memory) for slot in slots]}
    if memory.since is not None:
        count = max(map(len, memory.windows.values()), default=0)
        status["window"] = {"observations": count, "since": _time(memory.since)}
    return status


def _resource(slot: Slot, assessment: Assessment, memory: ProportionalMemory) -> dict[str, Any]:
    smoothed = assessment.smoothed[slot.key]
    values = {
        "current": assessment.current.get(slot.key),
        "target": assessment.targets[slot.key],
        "scaleUpBelow": smoothed.low,
        "scaleDownAbove": smoothed.high,
    }
    status: dict[str, Any] = {"name": slot.key}
    status |= {name: slot.text(value) for name, value in values.items() if value is not None}
    status["reason"] = smoothed.code.value
    if (change := memory.changes.get(slot.key)) is not None:
        before = {} if change.before is None else {"before": slot.text(change.before)}
        status["lastChange"] = {"at": _time(change.at), **before, "after": slot.text(change.after)}
    return status


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


CHECKPOINT_SECONDS = 60.0
REPORTED = frozenset({Code.FOUGHT_BY, Code.REFUSED, Code.INFEASIBLE, Code.DEFERRED})
"""Reasons for which an event is recorded at the workload when they begin."""
READY, APPLIED, WARNING = "Ready", "Applied", "UtilizationChanges"
_MODES = {
    Mode.ENFORCE: "The policy was accepted, and its values are applied.",
    Mode.PREVIEW: "The policy was accepted. Its values are only previewed because compat.mode is Preview.",
}


class StatusInput(NamedTuple):
    """The inputs of a status."""

    decision: Decision
    assessment: Assessment
    memory: PolicyMemory
    mode: Mode
    pods_at_target: int
    pods: int
    cost: str = ""
    """Whether the change in progress restarts anything, as a sentence; empty without a change."""
    warning: str = ""
    is_executed: bool = False
    """Whether a change is about to be made."""


def rejected_status(policy: PolicyObject, rejection: RejectedPolicy, at: float) -> dict[str, Any] | None:
    """Return the status of a rejected policy, with its memory; None if it has the rejection already."""
    ready = condition(READY, rejection.code, rejection.sentence, is_true=False, generation=policy.generation)
    old = policy.status
    if old.get("observedGeneration") == policy.generation and _has_conditions(old, [ready]):
        return None
    preserved = {name: old[name] for name in ("memory",) if name in old}
    conditions = [keep_transition_time(ready, old, timestamp(at))]
    return preserved | {"observedGeneration": policy.generation, "conditions": conditions}


def next_status(
    policy: PolicyObject,
    compiled: CompiledPolicy,
    status_input: StatusInput,
    at: float,
    written_at: float | None,
) -> dict[str, Any] | None:
    """Return the new status, or None if none is due; `written_at` is the time of the last write."""
    pods_at_target = f"{status_input.pods_at_target}/{status_input.pods}"
    assert 0 <= status_input.pods_at_target <= status_input.pods, f"{pods_at_target} pods"
    old, now, decision = policy.status, timestamp(at), status_input.decision
    conditions = _conditions(policy, status_input)
    status = status_of(compiled.slots, status_input.assessment, status_input.memory.smoothing) | {
        "observedGeneration": policy.generation,
        "podsAtTarget": pods_at_target,
        "memory": status_input.memory.to_data(),
    }
    if status_input.cost or "message" in old:
        status["message"] = status_input.cost or old["message"]
    reason = {"reason": decision.reason.code.value, "sentence": decision.reason.sentence}
    before = old.get("lastDecision", {})
    is_significant = (
        status_input.is_executed
        or not _has_conditions(old, conditions)
        or _essence(old, before.get("reason")) != _essence(status, reason["reason"])
    )
    is_same = all(old.get(name) == part for name, part in status.items())
    is_due = not is_same and _is_due(status_input.memory.smoothing, compiled, at, written_at)
    if not is_significant and not is_due:
        return None
    is_same_decision = not is_significant and before.get("reason") == reason["reason"]
    status["lastDecision"] = before if is_same_decision else reason | {"subject": decision.subject, "at": now}
    status["conditions"] = [keep_transition_time(condition, old, now) for condition in conditions]
    return status


def _essence(status: Mapping[str, Any], reason: str | None) -> tuple[Any, ...]:
    """Return what is written at once when it changes, given the reason of the decision.

    Of the memory, a new leader needs at once who reverted values, and when.
    """
    reasons = {entry.get("name"): entry.get("reason") for entry in status.get("resources", ())}
    done, _, total = status.get("podsAtTarget", "").partition("/")
    applied = status.get("memory", {}).get(KEY, {})
    contention = applied.get("foughtBy"), applied.get("reverts")
    return status.get("observedGeneration"), reason, reasons, done == total, contention


def _is_due(
    memory: ProportionalMemory, compiled: CompiledPolicy, at: float, written_at: float | None
) -> bool:
    """Return whether a checkpoint is due: each minute, or twice a window while its targets are equal."""
    if written_at is None or at < written_at:
        return True
    wait = CHECKPOINT_SECONDS
    percentile = compiled.spec.smoothing.percentile
    windows = memory.windows.values()
    if percentile is not None and all(len({target for _, target in window}) <= 1 for window in windows):
        wait = max(wait, percentile.window_seconds / 2)
    return at - written_at >= wait


def _conditions(policy: PolicyObject, status_input: StatusInput) -> list[dict[str, Any]]:
    judged = partial(condition, generation=policy.generation)
    is_applied, reason, message = _applied(status_input)
    found = [
        judged(READY, "Accepted", _MODES[status_input.mode], is_true=True),
        judged(APPLIED, reason, message, is_true=is_applied),
    ]
    if status_input.warning:
        found.append(judged(WARNING, "UtilizationHpa", status_input.warning, is_true=True))
    return found


def _applied(status_input: StatusInput) -> tuple[bool, str, str]:
    """Return whether all pods have the values in force, and the condition's reason and message."""
    code = status_input.decision.reason.code
    if status_input.mode is Mode.PREVIEW and status_input.decision.actions:
        return False, "Preview", "The change is only previewed because compat.mode is Preview."
    if code in REPORTED:
        return False, code.value, status_input.decision.reason.sentence
    if status_input.decision.actions:
        return False, "InProgress", "The change is in progress."
    if status_input.decision.held:
        return False, code.value, f"The change waits: {status_input.decision.reason.sentence}"
    if status_input.pods_at_target < status_input.pods:
        return False, "InProgress", "Some pods do not have the values in force yet."
    return True, "AllPods", "All pods have the values in force."


def _has_conditions(old: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a status has exactly these conditions; messages, which have numbers, may differ."""
    before = {each.get("type") for each in old.get("conditions", ())}
    fields = ("status", "reason", "observedGeneration")
    is_same = {each["type"] for each in conditions} == before
    return is_same and all(has_condition(old, each, fields) for each in conditions)


def report_event(
    actuator: Actuator,
    workload: Workload,
    policy: PolicyObject,
    status_input: StatusInput,
    outcomes: Sequence[Outcome],
) -> None:
    """Record an event at the workload: the result of a change, or a new reason that prevents it."""
    reason = status_input.decision.reason
    before = policy.status.get("lastDecision", {}).get("reason")
    if outcomes:
        results = "; ".join(f"{each.result}: {each.detail}".rstrip(": ") for each in outcomes)
        is_warning = any(outcome.result != "Accepted" for outcome in outcomes)
        sentence = f"{reason.sentence} {status_input.cost} {results}."
    elif reason.code in REPORTED and before != reason.code.value:
        sentence, is_warning = reason.sentence, True
    else:
        return
    actuator.record_event(workload.object_ref, reason.code.value, sentence, is_warning=is_warning)


SlotName = Annotated[
    str,
    Text(
        r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.(requests|limits)\.(cpu|memory)$",
        "a container's resource such as kube-dns.requests.cpu",
        280,
    ),
]
Ratio = Annotated[str, Text(r"^[0-9]{1,9}/[0-9]{1,9}$", "two counts such as 3/5", 19)]


class LastChange(SchemaPart):
    """When a value was last replaced."""

    at: Moment = Field(description="When it was replaced.")
    before: Amount | None = Field(None, description="The value before; absent if unknown.")
    after: Amount = Field(description="The value since.")


class ResourceStatus(SchemaPart):
    """One resource of one container."""

    name: SlotName = Field(description="The value's name: CONTAINER.requests.cpu.")
    current: Amount | None = Field(None, description="The value in force.")
    target: Amount | None = Field(None, description="The latest value for the cluster's size.")
    scale_up_below: Amount | None = Field(
        None, alias="scaleUpBelow", description="The value is raised if it is below this."
    )
    scale_down_above: Amount | None = Field(
        None, alias="scaleDownAbove", description="The value is lowered if it is above this."
    )
    reason: Reason | None = Field(None, description="Why the value was set or is held.")
    last_change: LastChange | None = Field(
        None, alias="lastChange", description="The last replacement of the value."
    )


class WindowStatus(SchemaPart):
    """The targets that smoothing uses."""

    observations: Count = Field(0, description="How many targets the window has.")
    since: Moment | None = Field(None, description="When the first target of this policy was observed.")


class ScalingPolicyStatus(PolicyStatus):
    """The observed state of a policy."""

    resources: Annotated[tuple[ResourceStatus, ...], UniqueBy("name")] = Field(
        (), max_length=ENTRIES_MAX, description="The latest target of each resource, and why it is held."
    )
    window: WindowStatus | None = Field(None, description="The targets that smoothing uses.")
    pods_at_target: Ratio | None = Field(
        None, alias="podsAtTarget", description="How many pods have the values in force, of all pods."
    )
    message: Sentence = Field("", description="Whether the change restarts anything.")
    memory: Memory = Field({}, description="The state that the next decision needs.")


SCALING_POLICY = DefinedKind(
    group="scalingpolicy.kope.io",
    version="v1alpha1",
    name="ScalingPolicy",
    plural="scalingpolicies",
    description="Lets a workload's requests and limits follow the size of the cluster, without flapping.",
    body={"spec": WrittenScalingPolicySpec, "status": ScalingPolicyStatus},
    required=("spec",),
    short_names=("scalpol",),
    columns=(
        Column("Kind", ".spec.scaleTargetRef.kind"),
        Column("Target", ".spec.scaleTargetRef.name"),
        Column(
            "Ready", ".status.conditions[?(@.type=='Ready')].status", description="Whether it is followed."
        ),
        Column("Reason", ".status.lastDecision.reason"),
        Column("Pods", ".status.podsAtTarget", description="Pods that have the values in force."),
        Column("Why", ".status.lastDecision.sentence", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
