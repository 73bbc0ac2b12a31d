"""What to do on a node now: no more than closes the gap. Pure.

judged    = every rule: crossed or clear, and often enough in a row          (waterlines.py)
gap       = usage just before acting - lowest crossed waterline - what terminating pods still use
evicted   = the first pods in order, until no gap is left; at most the budget        (walk.py)
throttled = the first of the others, until no gap is left
restored  = in reverse order, one step each, while there is room below the waterlines (restore.py)
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from equipoise.core.decision import (
    Action,
    Decided,
    Decision,
    DisableScheduling,
    EnableScheduling,
    EvictPod,
    Held,
    RestorePod,
    ThrottlePod,
)
from equipoise.core.reason import Code, Reason
from equipoise.qos import explain
from equipoise.qos.observation import Observation, Resource
from equipoise.qos.policy import QosPolicy
from equipoise.qos.selection import (
    ActionPlan,
    Allowed,
    Deed,
    Gaps,
    Raise,
    allowed_actions,
    evictions,
    fresh_usage,
    gaps_above,
    gaps_below,
    orphans,
    raises,
    reduced,
    throttles,
)
from equipoise.qos.waterlines import QosMemory, Waterline, judge, remembered

NOTHING = QosMemory()
BUDGET_SHARE = 10
"""One pod in so many may be evicted in a round, at least one."""


class Round(NamedTuple):
    """Everything that one round is decided from and came to."""

    seen: Observation
    lines: Sequence[Waterline]
    evict: ActionPlan
    throttle: ActionPlan
    up: ActionPlan
    budget: int
    evicted: Sequence[Deed] = ()
    cut: Sequence[Deed] = ()
    throttled: Sequence[Deed] = ()
    raised: Sequence[Raise] = ()
    scheduling: Sequence[DisableScheduling | EnableScheduling] = ()
    cooling: str = ""
    """Until when restoring is held, in words; empty when it is not."""

    @property
    def left(self) -> tuple[Gaps, Gaps]:
        """The gaps of evicting and of throttling that are left over."""
        evict, throttle = self.evict.gaps, self.throttle.gaps
        for deed in (*self.evicted, *self.throttled):
            evict, throttle = reduced(evict, deed.released), reduced(throttle, deed.released)
        return evict, throttle


def decide(policy: QosPolicy, seen: Observation, memory: QosMemory = NOTHING) -> Decided[explain.QosDetails]:
    """Decide for one node."""
    lines = judge(policy, seen, memory)
    after = remembered(lines, memory, seen.at)
    planned = _acted(_opened(policy, seen, lines))
    if not (planned.evict.is_open or planned.throttle.is_open):
        planned = _restored(planned, after)
    planned = _scheduled(planned, after)
    return _decision(planned, after)


def _opened(policy: QosPolicy, seen: Observation, lines: list[Waterline]) -> Round:
    allowed = {pod.key: allowed_actions(policy, pod) for pod in seen.pods}
    fresh = fresh_usage(seen)

    def side(chosen: list[Waterline], gaps: Gaps, allowed: Mapping[str, Allowed] = allowed) -> ActionPlan:
        return ActionPlan(tuple(chosen), gaps, seen.pods, allowed)

    down = [line for line in lines if line.is_triggered]
    evict = [line for line in down if line.action.eviction is not None]
    throttle = [line for line in down if line.throttles(line.metric.resource)]
    up = [line for line in lines if line.throttles(Resource.CPU) and not line.is_preview]
    excess = policy.excess_percent
    default = max(1, len(seen.pods) // BUDGET_SHARE)
    return Round(
        seen,
        lines,
        evict=side(evict, gaps_above(evict, fresh, seen, excess)),
        throttle=side(throttle, gaps_above(throttle, fresh, seen, excess)),
        up=side(up, gaps_below([line for line in up if line.is_restored], fresh, seen)),
        budget=default if policy.evictions_per_round is None else policy.evictions_per_round,
    )


def _acted(planned: Round) -> Round:
    """Evict and throttle. What the budget cut is not released, so its pods may still be throttled."""
    wanted = evictions(planned.evict, planned.throttle)
    evicted, cut = wanted[: planned.budget], wanted[planned.budget :]
    gaps = planned.throttle.gaps
    for deed in evicted:
        gaps = reduced(gaps, deed.released)
    throttled = throttles(planned.throttle, gaps, {deed.pod.key for deed in evicted})
    return planned._replace(evicted=evicted, cut=cut, throttled=throttled)


def _restored(planned: Round, memory: QosMemory) -> Round:
    """Raise quotas where every rule that throttles is clear for long enough; hold it while cooling down."""
    alone = orphans(planned.up)
    lines = planned.up.lines
    is_clear = bool(lines) and all(line.is_restored for line in lines)
    is_read = all(
        planned.up.gaps[line.metric.name] is not None for line in lines if _is_bound(line, is_clear)
    )
    found = raises(planned.up) if is_clear and is_read else []
    cooling = explain.cooling(lines, memory, planned.seen.at) if found else ""
    return planned._replace(raised=[*alone, *found], cooling=cooling)


def _is_bound(line: Waterline, is_clear: bool) -> bool:  # noqa: FBT001 - a claim beside its subject
    return is_clear and line.metric.is_quantifiable


def _scheduled(planned: Round, memory: QosMemory) -> Round:
    """Let no pod come while a rule asks for that, and let them come again once all are clear."""
    seen = planned.seen
    lines = [line for line in planned.lines if line.action.is_scheduling and not line.is_preview]
    asking = [line for line in lines if line.is_triggered]
    if asking and not seen.is_scheduling_disabled:
        return planned._replace(scheduling=[DisableScheduling(seen.node, asking[0].metric.name)])
    if asking or not seen.is_scheduling_disabled or not all(line.is_restored for line in lines):
        return planned
    cooling = explain.cooling(lines, memory, seen.at)
    if cooling:
        return planned._replace(cooling=planned.cooling or cooling)
    return planned._replace(scheduling=[EnableScheduling(seen.node)])


def _decision(planned: Round, memory: QosMemory) -> Decided[explain.QosDetails]:
    actions, left = _actions(planned)
    raised: list[Action] = [_raise(one) for one in planned.raised]
    held = [
        Held(_evict(deed, None), Code.HELD_BY_BUDGET, explain.cut(planned.budget)) for deed in planned.cut
    ]
    is_bound = planned.cooling and any(one.metric for one in planned.raised)
    for one, action in zip(planned.raised, raised, strict=True):
        if is_bound and one.metric:
            held.append(Held(action, Code.HELD_BY_COOLDOWN, planned.cooling))
        else:
            actions.append(action)
    actions += planned.scheduling
    code = _code(planned, actions, held)
    details = explain.details(planned, left)
    reason = Reason.of(code, explain.sentence(code, planned, actions), details)
    decision = Decision(planned.seen.node, reason, tuple(actions), tuple(held), memory=memory.to_data())
    return Decided(decision, details)


def _actions(planned: Round) -> tuple[list[Action], tuple[Gaps, Gaps]]:
    """Put the deeds in the order of execution, with the gaps after each."""
    evict, throttle = planned.evict.gaps, planned.throttle.gaps
    is_all = bool(planned.evict.lines) and not planned.evict.is_precise and not planned.throttle.is_precise
    first: list[tuple[Deed, bool]] = [(deed, True) for deed in planned.evicted]
    second = [(deed, False) for deed in planned.throttled]
    actions: list[Action] = []
    for deed, is_eviction in [*second, *first] if is_all else [*first, *second]:
        evict, throttle = reduced(evict, deed.released), reduced(throttle, deed.released)
        actions.append(_evict(deed, evict) if is_eviction else _throttle(deed, throttle))
    return actions, (evict, throttle)


def _evict(deed: Deed, gaps: Gaps | None) -> EvictPod:
    return EvictPod(
        deed.pod.key,
        uid=deed.pod.uid,
        metric=deed.metric,
        release=explain.plain(deed.release),
        gap_after=None if gaps is None else explain.plain_gaps(gaps),
        grace_seconds=deed.grace_seconds,
    )


def _throttle(deed: Deed, gaps: Gaps) -> ThrottlePod:
    return ThrottlePod(
        deed.pod.key,
        deed.metric,
        uid=deed.pod.uid,
        release=explain.plain(deed.release),
        gap_after=explain.plain_gaps(gaps),
        quota=deed.quota,
        reclaim=deed.reclaim,
    )


def _raise(one: Raise) -> RestorePod:
    release = explain.plain(one.change.release) if one.metric else None
    return RestorePod(
        one.pod.key,
        one.metric,
        uid=one.pod.uid,
        release=release,
        gap_after=explain.plain_gaps(one.gaps),
        quota=one.change.quota,
    )


def _code(planned: Round, actions: Sequence[Action], held: Sequence[Held]) -> Code:
    """Choose the one reason: what is done, else what holds it, else why there is nothing to do."""
    if planned.evicted or planned.throttled:
        both = planned.evicted and planned.throttled
        return Code.THROTTLE_AND_EVICT if both else Code.EVICT if planned.evicted else Code.THROTTLE
    if any(isinstance(action, DisableScheduling) for action in actions):
        return Code.DISABLE_SCHEDULING
    if actions:
        return Code.RESTORE
    if held:
        return held[0].reason
    if planned.evict.is_open or planned.throttle.is_open:
        return Code.NO_ELIGIBLE_PODS
    if any(line.is_triggered and line.action.is_scheduling for line in planned.lines):
        return Code.DISABLE_SCHEDULING
    if planned.cooling:
        return Code.HELD_BY_COOLDOWN
    return Code.HELD_BY_THRESHOLD if explain.waiting(planned) else Code.BELOW_WATERLINES
