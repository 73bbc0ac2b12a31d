"""What to do on a node now: no more than closes the gap. Pure.

rules     = every rule: crossed or clear, and often enough in a row                     (waterlines.py)
gap       = usage just before acting - lowest crossed waterline - what terminating pods still use
evicted   = the first pods in order, until no gap is left; at most the budget            (selection.py)
throttled = the first of the others, until no gap is left
restored  = in reverse order, one step each, while usage is below the waterlines
"""

from collections.abc import Iterable, Sequence
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
from equipoise.qos.observation import DERIVED, PERCENT, NodeResource, Observation, ObservedPod
from equipoise.qos.policy import PodQOSSpec, QosPolicy, Scope, ScopeName, ScopeOperator, priorities
from equipoise.qos.selection import (
    ActionPlan,
    Allowed,
    Gaps,
    PodAction,
    PodRestore,
    plan_evictions,
    plan_restores,
    plan_throttles,
    plan_unclaimed_restores,
    reduced,
)
from equipoise.qos.waterlines import (
    NO_MEMORY,
    QosMemory,
    Usage,
    Waterline,
    judge_rules,
    lowest_by_metric,
    next_memory,
    pending_release,
    usage_of,
)

BUDGET_SHARE = 10
"""One pod in so many may be evicted in a round, at least one."""


class NodePlan(NamedTuple):
    """The inputs of one decision, and the actions that it plans."""

    observation: Observation
    lines: Sequence[Waterline]
    evict: ActionPlan
    throttle: ActionPlan
    restore: ActionPlan
    budget: int
    evicted: Sequence[PodAction] = ()
    over_budget: Sequence[PodAction] = ()
    throttled: Sequence[PodAction] = ()
    restored: Sequence[PodRestore] = ()
    scheduling: Sequence[DisableScheduling | EnableScheduling] = ()
    cooldown: str = ""
    """How long restoring is held, as a sentence; empty if it is not."""

    @property
    def is_open(self) -> bool:
        """Whether a gap is to be closed by evicting or throttling."""
        return self.evict.is_open or self.throttle.is_open

    @property
    def gaps_left(self) -> tuple[Gaps, Gaps]:
        """The gaps of evicting and of throttling after all actions."""
        evict, throttle = self.evict.gaps, self.throttle.gaps
        for one in (*self.evicted, *self.throttled):
            evict, throttle = reduced(evict, one.released), reduced(throttle, one.released)
        return evict, throttle


def decide(
    policy: QosPolicy, observation: Observation, memory: QosMemory = NO_MEMORY
) -> Decided[explain.QosDetails]:
    """Return what to do on one node, and why."""
    lines = judge_rules(policy, observation, memory)
    after = next_memory(lines, memory, observation.at)
    plan = _plan_reduction(_open_plan(policy, observation, lines))
    if not plan.is_open:
        plan = _plan_restore(plan, after)
    plan = _plan_scheduling(plan, after)
    assert len(plan.evicted) <= plan.budget, "evictions beyond the budget are held"
    evicted, throttled = ({one.pod.key for one in done} for done in (plan.evicted, plan.throttled))
    assert not evicted & throttled, "a pod is evicted or throttled, not both"
    assert all(plan.evict.lines_for(one.pod) for one in plan.evicted), "a policy allows each eviction"
    assert all(plan.throttle.lines_for(one.pod) for one in plan.throttled), "and each throttle"
    return _decision(plan, after)


def _open_plan(policy: QosPolicy, observation: Observation, lines: list[Waterline]) -> NodePlan:
    """Return a plan without any action: the gaps, and which pods may be acted on for them."""
    pods = observation.pods
    allowed = {pod.key: allowed_actions(policy, pod) for pod in pods}
    fresh = _usage_before_acting(observation)
    triggered = [line for line in lines if line.is_triggered]
    evict = [line for line in triggered if line.action.eviction is not None]
    throttle = [line for line in triggered if line.throttles(line.metric.resource)]
    restore = [line for line in lines if line.throttles(NodeResource.CPU) and not line.is_preview]
    restorable = [line for line in restore if line.allows_restore]
    excess = policy.excess_percent
    default = max(1, len(pods) // BUDGET_SHARE)
    return NodePlan(
        observation,
        lines,
        evict=ActionPlan(evict, _gaps_above(evict, fresh, observation, excess), pods, allowed),
        throttle=ActionPlan(throttle, _gaps_above(throttle, fresh, observation, excess), pods, allowed),
        restore=ActionPlan(restore, _gaps_below(restorable, fresh, observation), pods, allowed),
        budget=default if policy.evictions_per_round is None else policy.evictions_per_round,
    )


def allowed_actions(policy: QosPolicy, pod: ObservedPod) -> Allowed:
    """Return which actions may be taken on a pod.

    None on static, mirror, critical and terminating pods. Without any PodQOS all actions on all others but
    those of DaemonSets; otherwise the actions of each PodQOS that selects the pod.
    """
    if pod.protection or pod.is_terminating or (policy.pods is None and pod.is_daemon):
        return frozenset()
    if policy.pods is None:
        return None
    return frozenset(name for spec in policy.pods if _selects(spec, pod) for name in spec.actions)


def _selects(spec: PodQOSSpec, pod: ObservedPod) -> bool:
    if spec.labels is not None and not spec.labels.selector.matches(pod.labels):
        return False
    return spec.scopes is None or all(_holds(term, pod) for term in spec.scopes.terms)


def _holds(term: Scope, pod: ObservedPod) -> bool:
    match term.name:
        case ScopeName.PRIORITY:
            is_within = any(pod.priority in priorities(value) for value in term.values)
        case ScopeName.NAMESPACE:
            is_within = pod.namespace in term.values
        case ScopeName.QOS_CLASS:
            is_within = pod.qos_class in term.values
    return is_within is (term.operator is ScopeOperator.IN)


def _usage_before_acting(observation: Observation) -> Usage:
    """Return the usage right before acting; a share that was not read again is derived from its amount."""
    if observation.fresh is None:
        return usage_of(observation.usage, observation)
    texts: dict[str, str | None] = {**observation.usage, **observation.fresh}
    for share, amount in DERIVED.items():
        if amount in observation.fresh and share not in observation.fresh:
            texts.pop(share, None)
    return usage_of(texts, observation)


def _gaps_above(
    lines: Iterable[Waterline], fresh: Usage, observation: Observation, excess_percent: int
) -> Gaps:
    """Return how far usage is above the lowest waterline of each metric; terminating pods are released."""
    gaps: Gaps = {}
    for name, line in lowest_by_metric(lines).items():
        metric, used = line.metric, fresh.get(name)
        if used is None or not metric.is_quantifiable:
            gaps[name] = None
            continue
        above = metric.amount(used, observation) - metric.amount(line.value, observation)
        gap = above - pending_release(metric, observation)
        gaps[name] = gap * (PERCENT + excess_percent) / PERCENT if gap > 0 else gap
    return gaps


def _gaps_below(lines: Iterable[Waterline], fresh: Usage, observation: Observation) -> Gaps:
    """Return how far usage is below the lowest waterline of each metric."""
    gaps: Gaps = {}
    for name, line in lowest_by_metric(lines).items():
        metric, used = line.metric, fresh.get(name)
        is_known = used is not None and metric.is_quantifiable
        gaps[name] = metric.amount(line.value - (used or 0), observation) if is_known else None
    return gaps


def _plan_reduction(plan: NodePlan) -> NodePlan:
    """Evict and throttle. An eviction over the budget releases nothing, so its pod may still be throttled."""
    evictions = plan_evictions(plan.evict, plan.throttle)
    evicted, over_budget = evictions[: plan.budget], evictions[plan.budget :]
    gaps = plan.throttle.gaps
    for one in evicted:
        gaps = reduced(gaps, one.released)
    throttled = plan_throttles(plan.throttle, gaps, {one.pod.key for one in evicted})
    return plan._replace(evicted=evicted, over_budget=over_budget, throttled=throttled)


def _plan_restore(plan: NodePlan, memory: QosMemory) -> NodePlan:
    """Raise quotas if every rule that throttles is clear for long enough, and its usage was read.

    The cool-down holds this; a pod that no policy throttles any more is restored at once.
    """
    lines = plan.restore.lines
    is_clear = bool(lines) and all(line.allows_restore for line in lines)
    if is_clear:
        gaps = [plan.restore.gaps[line.metric.name] for line in lines if line.metric.is_quantifiable]
        is_clear = None not in gaps
    restored = plan_restores(plan.restore) if is_clear else []
    cooldown = explain.cooldown(lines, memory, plan.observation.at) if restored else ""
    unclaimed = plan_unclaimed_restores(plan.restore)
    return plan._replace(restored=[*unclaimed, *restored], cooldown=cooldown)


def _plan_scheduling(plan: NodePlan, memory: QosMemory) -> NodePlan:
    """Disable scheduling while a rule asks for that, and enable it again once all such rules are clear."""
    observation = plan.observation
    lines = [line for line in plan.lines if line.action.disables_scheduling and not line.is_preview]
    triggered = [line for line in lines if line.is_triggered]
    if triggered and not observation.is_scheduling_disabled:
        return plan._replace(scheduling=[DisableScheduling(observation.node, triggered[0].metric.name)])
    if triggered or not observation.is_scheduling_disabled or not all(line.allows_restore for line in lines):
        return plan
    cooldown = explain.cooldown(lines, memory, observation.at)
    if cooldown:
        return plan._replace(cooldown=plan.cooldown or cooldown)
    return plan._replace(scheduling=[EnableScheduling(observation.node)])


def _decision(plan: NodePlan, memory: QosMemory) -> Decided[explain.QosDetails]:
    actions = _reductions(plan)
    why_cut = explain.over_budget(plan.budget)
    held = [Held(_evict(one, None), Code.HELD_BY_BUDGET, why_cut) for one in plan.over_budget]
    for one in plan.restored:
        if plan.cooldown and one.metric:
            held.append(Held(_restore(one), Code.HELD_BY_COOLDOWN, plan.cooldown))
        else:
            actions.append(_restore(one))
    actions += plan.scheduling
    code = _code(plan, actions, held)
    details = explain.details(plan)
    reason = Reason.of(code, explain.sentence(code, plan, actions), details)
    decision = Decision(plan.observation.node, reason, tuple(actions), tuple(held), memory=memory.to_data())
    return Decided(decision, details)


def _reductions(plan: NodePlan) -> list[Action]:
    """Return evictions and throttles in the order of execution.

    Evictions come first, unless the gaps of both are unknown: then throttling may be enough.
    """
    evict, throttle = plan.evict.gaps, plan.throttle.gaps
    is_unknown = bool(plan.evict.lines) and not plan.evict.is_precise and not plan.throttle.is_precise
    evictions = [(one, True) for one in plan.evicted]
    throttles = [(one, False) for one in plan.throttled]
    actions: list[Action] = []
    for one, is_eviction in [*throttles, *evictions] if is_unknown else [*evictions, *throttles]:
        evict, throttle = reduced(evict, one.released), reduced(throttle, one.released)
        actions.append(_evict(one, evict) if is_eviction else _throttle(one, throttle))
    assert (evict, throttle) == plan.gaps_left, "what is left does not depend on the order"
    return actions


def _evict(one: PodAction, gaps: Gaps | None) -> EvictPod:
    return EvictPod(
        one.pod.key,
        uid=one.pod.uid,
        metric=one.metric,
        release=explain.plain(one.release),
        gap_after=None if gaps is None else explain.plain_gaps(gaps),
        grace_seconds=one.grace_seconds,
    )


def _throttle(one: PodAction, gaps: Gaps) -> ThrottlePod:
    return ThrottlePod(
        one.pod.key,
        one.metric,
        uid=one.pod.uid,
        release=explain.plain(one.release),
        gap_after=explain.plain_gaps(gaps),
        quota=one.quota,
        reclaim=one.reclaim,
    )


def _restore(one: PodRestore) -> RestorePod:
    return RestorePod(
        one.pod.key,
        one.metric,
        uid=one.pod.uid,
        release=explain.plain(one.change.release) if one.metric else None,
        gap_after=explain.plain_gaps(one.gaps),
        quota=one.change.quota,
    )


def _code(plan: NodePlan, actions: Sequence[Action], held: Sequence[Held]) -> Code:
    """Choose the one reason: what is done, else what holds it, else why there is nothing to do."""
    if plan.evicted or plan.throttled:
        both = plan.evicted and plan.throttled
        return Code.THROTTLE_AND_EVICT if both else Code.EVICT if plan.evicted else Code.THROTTLE
    if any(isinstance(action, DisableScheduling) for action in actions):
        return Code.DISABLE_SCHEDULING
    if actions:
        return Code.RESTORE
    if held:
        return held[0].reason
    if plan.is_open:
        return Code.NO_ELIGIBLE_PODS
    if any(line.is_triggered and line.action.disables_scheduling for line in plan.lines):
        return Code.DISABLE_SCHEDULING
    if plan.cooldown:
        return Code.HELD_BY_COOLDOWN
    return Code.HELD_BY_THRESHOLD if explain.rules_waiting(plan) else Code.BELOW_WATERLINES
