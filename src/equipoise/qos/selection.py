"""Which pods are acted on: a greedy selection in sorted order that stops where the gap is closed. Pure.

Acting on all pods of a node would be simple and do far too much. Each kind of action has its waterlines, the
gaps above them, and the pods that a policy lets it act on; pods are taken in order until no gap is left.
Where a gap is unknown, all eligible pods are acted on, and throttled rather than evicted where both are
allowed. Where evicting and throttling serve the same resource, no more pods are evicted than are needed
beside throttling the others. Restoring goes in reverse order, one step each, while usage stays below the
waterlines.
"""

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from equipoise.qos.observation import (
    DERIVED,
    METRICS,
    PERCENT,
    Metric,
    NodeResource,
    Observation,
    ObservedPod,
    bytes_of,
    millicores_of,
    sorted_by,
)
from equipoise.qos.policy import PodQOSSpec, QosPolicy, Scope, ScopeName, ScopeOperator, priorities
from equipoise.qos.throttle import QUOTA_MIN_US, QuotaChange, lifted, throttled_down, throttled_up
from equipoise.qos.waterlines import Usage, Waterline, lowest_by_metric, pending_release, usage_of

Allowed = frozenset[str] | None
"""Names of actions; None allows all."""
NO_ACTION: Allowed = frozenset()


def allowed_actions(policy: QosPolicy, pod: ObservedPod) -> Allowed:
    """Return which actions may be taken on a pod.

    None on static, mirror, critical and terminating pods. Without any PodQOS all actions on all others but
    those of DaemonSets; otherwise the actions of each PodQOS that selects the pod.
    """
    if pod.protection or pod.is_terminating:
        return NO_ACTION
    if policy.pods is None:
        return NO_ACTION if pod.is_daemon else None
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


Gaps = dict[str, Fraction | None]
"""By metric, in millicores or bytes; None where it is unknown."""
ALL_CHAIN = ("classAndPriority", "runningTime", "name")


def usage_before_acting(observation: Observation) -> Usage:
    """Return the usage right before acting; a share that was not read again is derived from its amount."""
    if observation.fresh is None:
        return usage_of(observation.usage, observation)
    texts: dict[str, str | None] = {**observation.usage, **observation.fresh}
    for share, amount in DERIVED.items():
        if amount in observation.fresh and share not in observation.fresh:
            texts.pop(share, None)
    return usage_of(texts, observation)


def gaps_above(
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


def gaps_below(lines: Iterable[Waterline], fresh: Usage, observation: Observation) -> Gaps:
    """Return how far usage is below the lowest waterline of each metric."""
    gaps: Gaps = {}
    for name, line in lowest_by_metric(lines).items():
        metric, used = line.metric, fresh.get(name)
        is_known = used is not None and metric.is_quantifiable
        gaps[name] = metric.amount(line.value - (used or 0), observation) if is_known else None
    return gaps


class ActionPlan(NamedTuple):
    """One kind of action: the waterlines that ask for it, the gaps, and the actions allowed on each pod."""

    lines: list[Waterline]
    gaps: Gaps
    pods: tuple[ObservedPod, ...]
    allowed: Mapping[str, Allowed]

    @property
    def is_precise(self) -> bool:
        """Whether every gap is known, so that no more pods are acted on than close them."""
        return all(gap is not None for gap in self.gaps.values())

    @property
    def is_open(self) -> bool:
        """Whether a gap is above zero, or unknown."""
        return any(gap is None or gap > 0 for gap in self.gaps.values())

    @property
    def unknown(self) -> str:
        """The first metric whose gap is unknown."""
        return next((name for name, gap in self.gaps.items() if gap is None), "")

    def lines_for(self, pod: ObservedPod, metric: str = "") -> list[Waterline]:
        """Return the waterlines whose action may be taken on this pod; of one metric, or of all."""
        allowed = self.allowed[pod.key]
        return [
            line
            for line in self.lines
            if (allowed is None or line.action_name in allowed) and metric in {"", line.metric.name}
        ]

    def sorted_pods(self, metric: str = "") -> list[ObservedPod]:
        """Return the pods that may be acted on for a metric, or for all of them, in order."""
        eligible = [pod for pod in self.pods if self.lines_for(pod, metric)]
        return sorted_by(self._chain(metric), eligible)

    def _chain(self, metric: str) -> tuple[str, ...]:
        line = lowest_by_metric(self.lines)[metric] if metric else self.lines[0]
        own = tuple(one.value for one in line.action.sort_by)
        return own or (line.metric.chain if metric else ALL_CHAIN)


def reduced(gaps: Gaps, released: Mapping[NodeResource, Fraction]) -> Gaps:
    """Return the gaps less what was released of the resource of each."""
    return {
        name: None if gap is None else gap - released.get(METRICS[name].resource, Fraction(0))
        for name, gap in gaps.items()
    }


ZERO = Fraction(0)
Released = dict[NodeResource, Fraction]


class PodAction(NamedTuple):
    """An eviction or a throttle of one pod: for which metric, and what it releases of each resource."""

    pod: ObservedPod
    metric: str
    released: Released
    quota: dict[str, int] | None = None
    reclaim: dict[str, int] | None = None
    grace_seconds: int | None = None

    @property
    def release(self) -> Fraction | None:
        """What it releases of its own metric; None where that is unknown."""
        metric = METRICS[self.metric]
        return self.released.get(metric.resource) if metric.is_quantifiable else None


def plan_evictions(evict: ActionPlan, throttle: ActionPlan) -> list[PodAction]:
    """Return every eviction that the gaps ask for, also beyond the budget."""
    if not evict.lines:
        return []
    return _precise_evictions(evict, throttle) if evict.is_precise else _all_evictions(evict, throttle)


def _all_evictions(evict: ActionPlan, throttle: ActionPlan) -> list[PodAction]:
    """Evict all pods but those that are throttled instead."""
    throttled: set[str] = set()
    if throttle.lines and not throttle.is_precise:
        throttled = {planned.pod.key for planned in plan_throttles(throttle, throttle.gaps, ())}
    return [
        _eviction(evict, pod, evict.unknown)
        for pod in evict.sorted_pods()
        if pod.key not in throttled and pod.is_evictable
    ]


def _precise_evictions(evict: ActionPlan, throttle: ActionPlan) -> list[PodAction]:
    gaps, throttle_gaps = dict(evict.gaps), dict(throttle.gaps)
    found: dict[str, PodAction] = {}
    for name in evict.gaps:
        candidates = [
            _eviction(evict, pod, name)
            for pod in evict.sorted_pods(name)
            if pod.key not in found and pod.is_evictable and _is_known(METRICS[name], pod)
        ]
        for planned in candidates[: _count_needed(name, candidates, gaps, throttle, throttle_gaps, found)]:
            found[planned.pod.key] = planned
            gaps, throttle_gaps = reduced(gaps, planned.released), reduced(throttle_gaps, planned.released)
    return list(found.values())


def _count_needed(
    name: str,
    candidates: list[PodAction],
    gaps: Gaps,
    throttle: ActionPlan,
    throttle_gaps: Gaps,
    evicted: Mapping[str, PodAction],
) -> int:
    """Return how many evictions close the gap of this metric, together with throttling the other pods.

    Where even all that throttling could release is too little, no selection is tried: one for each candidate
    would cost the square of the pods.
    """
    resource = METRICS[name].resource
    can_throttle = any(line.throttles(resource) for line in throttle.lines)
    potential = _throttle_potential(throttle, resource, evicted) if can_throttle else {}
    left, total = gaps[name] or ZERO, sum(potential.values(), ZERO)
    highest = max(potential.values(), default=ZERO)
    for count, planned in enumerate(candidates):
        if left <= 0:
            return count
        if can_throttle and left <= min(total, _open(throttle_gaps, resource, total) + highest):
            excluded = {*evicted, *(one.pod.key for one in candidates[:count])}
            others = plan_throttles(throttle, throttle_gaps, excluded)
            if left <= sum((one.released.get(resource, ZERO) for one in others), ZERO):
                return count
        left -= planned.released.get(resource, ZERO)
        total -= potential.get(planned.pod.key, ZERO)
        throttle_gaps = reduced(throttle_gaps, planned.released)
    return len(candidates)


def _throttle_potential(
    throttle: ActionPlan, resource: NodeResource, evicted: Mapping[str, PodAction]
) -> dict[str, Fraction]:
    """Return the most that throttling could release of each pod, whichever rule asks for it."""
    found: dict[str, Fraction] = {}
    for pod in throttle.pods:
        tried = [_throttle(throttle.lines_for(pod, name), pod, METRICS[name]) for name in throttle.gaps]
        amounts = [one.released.get(resource, ZERO) for one in tried if one is not None]
        if amounts and pod.key not in evicted:
            found[pod.key] = max(amounts)
    return found


def _open(gaps: Gaps, resource: NodeResource, otherwise: Fraction) -> Fraction:
    """Return the widest gap of a resource: a selection exceeds it by one pod at most, unless it takes all."""
    known = [gap for gap in gaps.values() if gap is not None]
    if len(known) < len(gaps):
        return otherwise
    return max(
        (gap for name, gap in gaps.items() if gap and METRICS[name].resource is resource), default=ZERO
    )


def _is_known(metric: Metric, pod: ObservedPod) -> bool:
    return metric.releases is not None and metric.releases(pod) is not None


def _eviction(evict: ActionPlan, pod: ObservedPod, metric: str) -> PodAction:
    lines = evict.lines_for(pod)
    graces = [line.action.eviction.grace_seconds for line in lines if line.action.eviction is not None]
    grace = min((seconds for seconds in graces if seconds is not None), default=None)
    amounts = {NodeResource.MEMORY: bytes_of(pod), NodeResource.CPU: millicores_of(pod)}
    released = {resource: amount for resource, amount in amounts.items() if amount is not None}
    return PodAction(pod, metric, released, grace_seconds=grace)


def plan_throttles(plan: ActionPlan, gaps: Gaps, excluded: Collection[str]) -> list[PodAction]:
    """Return throttles that release something, until the gaps are closed."""
    if not plan.lines:
        return []
    if not plan.is_precise:
        return _all_throttles(plan, excluded)
    found: dict[str, PodAction] = {}
    for name in plan.gaps:
        for pod in plan.sorted_pods(name):
            gap = gaps[name]
            if gap is None or gap <= 0:
                break
            planned = None
            if pod.key not in excluded and pod.key not in found:
                planned = _throttle(plan.lines_for(pod, name), pod, METRICS[name])
            if planned is not None:
                found[pod.key] = planned
                gaps = reduced(gaps, planned.released)
    assert found.keys().isdisjoint(excluded), "an evicted pod is not throttled"
    return list(found.values())


def _all_throttles(plan: ActionPlan, excluded: Collection[str]) -> list[PodAction]:
    found = []
    for pod in plan.sorted_pods():
        if pod.key in excluded:
            continue
        tried = (_throttle(plan.lines_for(pod, name), pod, METRICS[name]) for name in plan.gaps)
        planned = next((one for one in tried if one is not None), None)
        if planned is not None:
            found.append(planned)
    return found


def _throttle(lines: list[Waterline], pod: ObservedPod, metric: Metric) -> PodAction | None:
    """Return the throttle of one pod by the largest step of its actions; None if it releases nothing."""
    if metric.resource is NodeResource.MEMORY:
        return _reclaim(lines, pod, metric)
    throttles = [line.action.throttle for line in lines if line.action.throttle is not None]
    specs = [throttle.cpu for throttle in throttles if throttle.cpu is not None]
    if not specs:
        return None
    step, ratio_min = max(one.step_percent for one in specs), max(one.ratio_min_percent for one in specs)
    change = throttled_down(pod, step, ratio_min)
    if change.release <= 0:
        return None
    assert min(change.quota.values()) >= QUOTA_MIN_US, "the kernel takes no smaller quota"
    return PodAction(pod, metric.name, {NodeResource.CPU: change.release}, quota=change.quota)


def _reclaim(lines: list[Waterline], pod: ObservedPod, metric: Metric) -> PodAction | None:
    specs = [line.action.throttle.memory for line in lines if line.action.throttle is not None]
    if not any(spec is not None and spec.is_reclaimed for spec in specs):
        return None
    amounts = {part.name: part.reclaimable_bytes for part in pod.containers if part.reclaimable_bytes > 0}
    if not amounts:
        return None
    released = {NodeResource.MEMORY: Fraction(sum(amounts.values()))}
    return PodAction(pod, metric.name, released, reclaim=amounts)


class PodRestore(NamedTuple):
    """Higher quotas for a throttled pod, and the gaps after that; no metric if no policy throttles it."""

    pod: ObservedPod
    metric: str
    change: QuotaChange
    gaps: Gaps


def plan_unclaimed_restores(plan: ActionPlan) -> list[PodRestore]:
    """Return full restores of the pods that no policy throttles any more."""
    found = []
    for pod in sorted_by(ALL_CHAIN, _throttled(plan.pods)):
        if not plan.lines_for(pod):
            change = lifted(pod)
            if change.quota:
                found.append(PodRestore(pod, "", change, {}))
    return found


def plan_restores(plan: ActionPlan) -> list[PodRestore]:
    """Return one step for each throttled pod, in reverse order, while usage stays below every waterline.

    A metric that can't be quantified sets no bound: it is clear, and a step is one step.
    """
    gaps = dict(plan.gaps)
    found: list[PodRestore] = []
    for pod in reversed(_ordered(plan)):
        if any(gap is not None and gap <= 0 for gap in gaps.values()):
            break
        change = throttled_up(pod, _step(plan.lines_for(pod)))
        if change.quota:
            gaps = {name: None if gap is None else gap - change.release for name, gap in gaps.items()}
            found.append(PodRestore(pod, next(iter(gaps), ""), change, gaps))
    return found


def _ordered(plan: ActionPlan) -> list[ObservedPod]:
    line = next(iter(plan.lines), None)
    chain = (
        ALL_CHAIN if line is None else tuple(one.value for one in line.action.sort_by) or line.metric.chain
    )
    return sorted_by(chain, [pod for pod in _throttled(plan.pods) if plan.lines_for(pod)])


def _throttled(pods: Iterable[ObservedPod]) -> list[ObservedPod]:
    return [pod for pod in pods if pod.is_throttled and not pod.is_terminating]


def _step(lines: Iterable[Waterline]) -> int:
    """Return the smallest step of the actions that may have throttled it."""
    steps = [
        line.action.throttle.cpu.step_percent
        for line in lines
        if line.action.throttle is not None and line.action.throttle.cpu is not None
    ]
    assert steps, "a pod that no rule throttles is restored at once"
    return min(steps)
