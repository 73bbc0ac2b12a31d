"""What a policy's status says of a decision: targets, thresholds, the window, the last change. Pure."""

from collections.abc import Sequence
from typing import Any

from equipoise.model.decision import Decision
from equipoise.proportional.functions import Slot, slots
from equipoise.proportional.memory import Change, ProportionalMemory
from equipoise.proportional.observation import time_of
from equipoise.proportional.policy import ScalingPolicySpec


def status_of(policy: ScalingPolicySpec, decision: Decision) -> dict[str, Any]:
    """Give the parts of the status that a decision is known by, as a manifest has them."""
    return status_by_slot(slots(policy), decision)


def status_by_slot(slots: Sequence[Slot], decision: Decision) -> dict[str, Any]:
    """Give the same for a policy that was taken apart before."""
    memory = ProportionalMemory.from_data(decision.memory)
    status: dict[str, Any] = {"resources": [_resource(slot, decision, memory) for slot in slots]}
    if memory.since is not None:
        count = max(map(len, memory.windows.values()), default=0)
        status["window"] = {"observations": count, "since": _time(memory.since)}
    return status | {"memory": decision.memory}


def _resource(slot: Slot, decision: Decision, memory: ProportionalMemory) -> dict[str, Any]:
    numbers = decision.reason.numbers
    known = {
        "current": numbers["current"][slot.key],
        "target": numbers["target"][slot.key],
        "scaleUpBelow": numbers["scale_up_below"][slot.key],
        "scaleDownAbove": numbers["scale_down_above"][slot.key],
        "reason": numbers["reasons"][slot.key],
        "lastChange": _change(slot, memory.changes.get(slot.key)),
    }
    return {"name": slot.key} | {key: part for key, part in known.items() if part is not None}


def _change(slot: Slot, change: Change | None) -> dict[str, Any] | None:
    if change is None:
        return None
    before = {} if change.before is None else {"before": slot.text(change.before)}
    return {"at": _time(change.at), **before, "after": slot.text(change.after)}


def _time(milliseconds: int) -> str:
    return time_of(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
