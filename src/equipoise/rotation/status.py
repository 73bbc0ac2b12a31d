"""What came of each turn, and what a policy's status says of them; it is written when a reason changes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.core.cluster import WorkloadRef
from equipoise.core.decision import Decision, Outcome
from equipoise.core.reason import Code, Reason
from equipoise.engine.assignment import RejectedPolicy
from equipoise.engine.status import condition, has_condition, keep_transition_time, timestamp
from equipoise.ports import Actuator, FailedTurn, PolicyObject
from equipoise.rotation.assignment import Assigned
from equipoise.rotation.execute import MAYBE_GONE
from equipoise.rotation.progress import RotationDetails, RotationMemory

DECISIONS_MAX = 200
ROTATED = ("rotatedAt", "predictedImprovementPercent", "realisedImprovementPercent")


class CycleItem(NamedTuple):
    """What came of one workload's turn."""

    item: Assigned
    decision: Decision
    outcomes: Sequence[Outcome]
    details: RotationDetails = RotationDetails()
    told: Reason | None = None
    """What the workload was told already: how its rotation ended."""
    at: float = 0.0
    """When it was looked at."""
    trouble: str = ""
    """Why nobody knows what was done to it before."""
    failed: FailedTurn | None = None
    """The error that ended it."""

    @property
    def is_under_way(self) -> bool:
        """Whether a rotation has begun that has no verdict yet."""
        return self.details.memory.run is not None or any(o.result in MAYBE_GONE for o in self.outcomes)


def next_status(
    policy: PolicyObject,
    turns: Sequence[CycleItem],
    refusal: RejectedPolicy | None,
    at: float,
) -> dict[str, Any] | None:
    """Return the new status, or None when the old one still says the same."""
    now = timestamp(at)
    old = policy.status
    ready = _ready(policy, refusal)
    shown = sorted((turn.decision for turn in turns), key=lambda decision: decision.subject)[:DECISIONS_MAX]
    rotated = _rotated([turn.details.memory for turn in turns])
    if not _differs(old, policy.generation, ready, shown, len(turns), rotated):
        return None
    before = {entry.get("subject"): entry for entry in old.get("decisions", ())}
    status: dict[str, Any] = {
        "observedGeneration": policy.generation,
        "conditions": [keep_transition_time(ready, old, now)],
        "workloads": len(turns),
        "decisions": [_entry(decision, before.get(decision.subject), now) for decision in shown],
    }
    if shown:
        last = _foremost(shown)
        status["lastDecision"] = _said(last) | {"subject": last.subject, "at": now}
    return status | (rotated or {name: old[name] for name in ROTATED if name in old})


def _rotated(memories: Sequence[RotationMemory]) -> dict[str, Any]:
    """Return when a pod was last rotated, and what the last verified rotation promised and brought."""
    times = [memory.run.wave_at for memory in memories if memory.run is not None]
    verdicts = [memory.last for memory in memories if memory.last is not None]
    times += [verdict.rotated_at for verdict in verdicts]
    found: dict[str, Any] = {"rotatedAt": timestamp(max(times))} if times else {}
    verified = [verdict for verdict in verdicts if verdict.realised_percent is not None]
    if verified:
        last = max(verified, key=lambda verdict: verdict.ended_at)
        found["predictedImprovementPercent"] = round(last.predicted_percent, 2)
        found["realisedImprovementPercent"] = round(last.realised_percent or 0.0, 2)
    return found


def _ready(policy: PolicyObject, refusal: RejectedPolicy | None) -> dict[str, Any]:
    if refusal is not None:
        return condition("Ready", refusal.code, refusal.sentence, is_true=False, generation=policy.generation)
    return condition(
        "Ready", "Accepted", "The policy is followed.", is_true=True, generation=policy.generation
    )


def _differs(
    old: Mapping[str, Any],
    generation: int,
    ready: Mapping[str, Any],
    shown: Sequence[Decision],
    count: int,
    rotated: Mapping[str, Any],
) -> bool:
    reasons = {entry.get("subject"): entry.get("reason") for entry in old.get("decisions", ())}
    return (
        old.get("observedGeneration") != generation
        or old.get("workloads") != count
        or not has_condition(old, ready, ("status", "reason", "message"))
        or any(old.get(name) != value for name, value in rotated.items())
        or reasons != {decision.subject: decision.reason.code.value for decision in shown}
    )


def _entry(decision: Decision, before: Mapping[str, Any] | None, now: str) -> dict[str, Any]:
    said = _said(decision)
    is_same = before is not None and before.get("reason") == said["reason"]
    since = before.get("at") if before is not None and is_same else None
    return {"subject": decision.subject, **said, "at": since or now}


def _said(decision: Decision) -> dict[str, Any]:
    return {"reason": decision.reason.code.value, "sentence": decision.reason.sentence}


def _foremost(decisions: Sequence[Decision]) -> Decision:
    """Show the decision that a person would ask about first: one that acts, one that is held, any."""
    return min(
        decisions,
        key=lambda each: (
            not each.actions,
            not each.held,
            each.reason.code is Code.NO_HOT_PODS,
            each.subject,
        ),
    )


def tell_changes(
    actuator: Actuator,
    policy: PolicyObject,
    turns: Sequence[CycleItem],
    last: Mapping[WorkloadRef, CycleItem],
) -> None:
    """Attach the new reason to each workload whose reason changed; the first reason is no news.

    The status, which a new leader has too, shows the first of many workloads only.
    """
    shown = {entry.get("subject"): entry.get("reason") for entry in policy.status.get("decisions", ())}
    for turn in turns:
        reason, code = turn.decision.reason, turn.decision.reason.code.value
        ref = turn.item.workload.ref
        is_bad = turn.failed is not None  # which is news the first time, too
        first = "" if is_bad else code
        known = last[ref].decision.reason.code.value if ref in last else first
        is_news = not turn.outcomes and reason != turn.told
        if is_news and shown.get(turn.decision.subject, known) != code:
            about = turn.item.workload.object_ref
            actuator.record_event(about, code, reason.sentence, is_warning=is_bad)
