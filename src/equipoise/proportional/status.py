"""The status of a live policy, and whether it is worth a write. Pure.

The API server should not be written to in every cycle. A status is written when a reason or a condition
changes or a change is about to be made; other differences (a target, the window) wait for a checkpoint, at
most once a minute.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from equipoise.core.decision import Decision
from equipoise.core.reason import Code
from equipoise.crd.targets import Mode
from equipoise.engine.assignment import RejectedPolicy
from equipoise.engine.status import condition, has_condition, keep_transition_time, timestamp
from equipoise.ports import PolicyObject
from equipoise.proportional.assignment import Prepared
from equipoise.proportional.decide import Assessment, time_of
from equipoise.proportional.functions import Slot
from equipoise.proportional.smoothing import ProportionalMemory, ValueChange


def status_of(slots: Sequence[Slot], assessment: Assessment, memory: ProportionalMemory) -> dict[str, Any]:
    """Return what a status says of each value and of the window, as a manifest has it."""
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
        status["lastChange"] = _change(slot, change)
    return status


def _change(slot: Slot, change: ValueChange) -> dict[str, Any]:
    before = {} if change.before is None else {"before": slot.text(change.before)}
    return {"at": _time(change.at), **before, "after": slot.text(change.after)}


def _time(milliseconds: int) -> str:
    return time_of(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


CHECKPOINT_SECONDS = 60.0
READY, APPLIED, WARNING = "Ready", "Applied", "UtilizationChanges"
_MODES = {
    Mode.ENFORCE: "The policy is followed (compat.mode is Enforce).",
    Mode.PREVIEW: "The policy is previewed: nothing is changed while compat.mode is Preview.",
}


class StatusInput(NamedTuple):
    """All that a status is made from."""

    decision: Decision
    assessment: Assessment
    memory: Mapping[str, Any]
    """What is to be kept, deeds included."""
    mode: Mode
    pods_at_target: int
    pods: int
    cost: str = ""
    """What the change under way costs; empty when there is none."""
    warning: str = ""
    is_acting: bool = False
    """Whether something is about to be done."""


def refused_status(policy: PolicyObject, refusal: RejectedPolicy, at: float) -> dict[str, Any] | None:
    """Return why a policy is not followed; None when it says so already. What is remembered is kept."""
    ready = condition(READY, refusal.code, refusal.sentence, is_true=False, generation=policy.generation)
    old = policy.status
    if old.get("observedGeneration") == policy.generation and _is_said(old, [ready]):
        return None
    kept = {name: old[name] for name in ("memory",) if name in old}
    conditions = [keep_transition_time(ready, old, timestamp(at))]
    return kept | {"observedGeneration": policy.generation, "conditions": conditions}


def next_status(
    policy: PolicyObject, prepared: Prepared, told: StatusInput, at: float, said_at: float | None
) -> dict[str, Any] | None:
    """Return the new status, or None when it can wait."""
    old, now, decision = policy.status, timestamp(at), told.decision
    conditions = _conditions(policy, told)
    memory = ProportionalMemory.from_data(told.memory)
    status = status_of(prepared.asked.slots, told.assessment, memory) | {
        "observedGeneration": policy.generation,
        "podsAtTarget": f"{told.pods_at_target}/{told.pods}",
        "memory": dict(told.memory),
    }
    if told.cost or "message" in old:
        status["message"] = told.cost or old["message"]
    reason = {"reason": decision.reason.code.value, "sentence": decision.reason.sentence}
    is_news = told.is_acting or _is_news(old, policy.generation, conditions, decision, status)
    if not is_news and (_is_same(old, status) or not _is_due(told.memory, prepared, at, said_at)):
        return None
    before = old.get("lastDecision", {})
    is_kept = not is_news and before.get("reason") == reason["reason"]
    status["lastDecision"] = before if is_kept else reason | {"subject": decision.subject, "at": now}
    status["conditions"] = [keep_transition_time(condition, old, now) for condition in conditions]
    return status


def _is_news(
    old: Mapping[str, Any],
    generation: int,
    conditions: Sequence[Mapping[str, Any]],
    decision: Decision,
    status: Mapping[str, Any],
) -> bool:
    reasons = {entry.get("name"): entry.get("reason") for entry in old.get("resources", ())}
    return (
        old.get("observedGeneration") != generation
        or old.get("lastDecision", {}).get("reason") != decision.reason.code.value
        or reasons != {entry["name"]: entry.get("reason") for entry in status["resources"]}
        or not _is_said(old, conditions)
        or _is_whole(old.get("podsAtTarget", "")) != _is_whole(status["podsAtTarget"])
        or _settled(old) != _settled(status)
    )


def _settled(status: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what must never be forgotten: who fights, and how often."""
    deeds = status.get("memory", {}).get("deeds", {})
    return deeds.get("foughtBy"), deeds.get("reverts")


def _is_same(old: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    return all(old.get(name) == part for name, part in status.items())


def _is_due(memory: Mapping[str, Any], prepared: Prepared, at: float, said_at: float | None) -> bool:
    """Whether it is time for a checkpoint: each minute, or twice a window while nothing in it differs."""
    if said_at is None or at < said_at:
        return True
    wait = CHECKPOINT_SECONDS
    rule = prepared.spec.smoothing.percentile
    windows = memory.get("windows", {}).values()
    if rule is not None and all(len({target for _, target in window}) <= 1 for window in windows):
        wait = max(wait, rule.window_seconds / 2)
    return at - said_at >= wait


def _conditions(policy: PolicyObject, told: StatusInput) -> list[dict[str, Any]]:
    generation = policy.generation
    found = [condition(READY, "Accepted", _MODES[told.mode], is_true=True, generation=generation)]
    is_applied, reason, message = _applied(told)
    found.append(condition(APPLIED, reason, message, is_true=is_applied, generation=generation))
    if told.warning:
        found.append(condition(WARNING, "UtilizationHpa", told.warning, is_true=True, generation=generation))
    return found


def _applied(told: StatusInput) -> tuple[bool, str, str]:
    """Return whether all pods have what is in force, and why, as a word and a sentence."""
    code = told.decision.reason.code
    if told.mode is Mode.PREVIEW and told.decision.actions:
        return False, "Preview", "Nothing is changed in a preview."
    if code in {Code.FOUGHT_BY, Code.REFUSED, Code.INFEASIBLE, Code.DEFERRED}:
        return False, code.value, told.decision.reason.sentence
    if told.decision.actions:
        return False, "InProgress", "Pods are being brought to it."
    if told.decision.held:
        return False, code.value, "A change waits."
    if told.pods_at_target < told.pods:
        return False, "InProgress", "Some pods do not have what is in force yet."
    return True, "AllPods", "All pods have what is in force."


def _is_said(old: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the conditions are there already; words with numbers in them may differ."""
    before = {each.get("type") for each in old.get("conditions", ())}
    fields = ("status", "reason", "observedGeneration")
    is_same = {each["type"] for each in conditions} == before
    return is_same and all(has_condition(old, each, fields) for each in conditions)


def _is_whole(ratio: str) -> bool:
    done, _, all_ = ratio.partition("/")
    return done == all_


def kept_memory(before: ProportionalMemory, after: ProportionalMemory, *, is_done: bool) -> dict[str, Any]:
    """Return what deciding remembers from now on; a change that was not made is not remembered as one."""
    return (after if is_done else msgspec.structs.replace(after, changes=before.changes)).to_data()
