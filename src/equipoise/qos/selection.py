"""The walks: sorted pods, one after the other, until the gap is closed. No pod twice.

Where a gap can't be told, all eligible pods are acted on, and throttled rather than evicted where both may
be. Where both ask for the same resource and gaps are known, no more pods are evicted than are needed beside
throttling the others.

Which pods may be acted on, and by which actions.

One kind of action in one round: the waterlines that ask for it, the gaps, and whom it may touch.

Giving back what was taken, stepwise and in reverse order, as far as the waterlines have room.
"""

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from equipoise.qos.observation import (
    DERIVED,
    METRICS,
    PERCENT,
    Metric,
    Observation,
    PodSeen,
    Resource,
    bytes_of,
    millicores_of,
    sorted_by,
)
from equipoise.qos.policy import PodQOSSpec, QosPolicy, Scope, ScopeName, ScopeOperator, priorities
from equipoise.qos.throttle import Change, lifted, throttled_down, throttled_up
from equipoise.qos.waterlines import Usage, Waterline, lowest, released_of, usage_of

Allowed = frozenset[str] | None
"""Names of actions; None allows all."""
NOBODY: Allowed = frozenset()


def allowed_actions(policy: QosPolicy, pod: PodSeen) -> Allowed:
    """Return which actions may be taken on a pod.

    Static, mirror and critical pods are never touched, nor one that is on its way out. Without any PodQOS all
    others but those of DaemonSets may be; with one, those that some PodQOS selects.
    """
    if pod.protection or pod.is_terminating:
        return NOBODY
    if policy.pods is None:
        return NOBODY if pod.is_daemon else None
    return frozenset(name for asked in policy.pods if selects(asked, pod) for name in asked.actions)


def selects(asked: PodQOSSpec, pod: PodSeen) -> bool:
    """Whether a PodQOS is about this pod: all that it says must hold."""
    if asked.labels is not None and not asked.labels.selector.matches(pod.labels):
        return False
    return asked.scopes is None or all(_holds(term, pod) for term in asked.scopes.terms)


def _holds(term: Scope, pod: PodSeen) -> bool:
    match term.name:
        case ScopeName.PRIORITY:
            is_within = any(pod.priority in priorities(value) for value in term.values)
        case ScopeName.NAMESPACE:
            is_within = pod.namespace in term.values
        case ScopeName.QOS_CLASS:
            is_within = pod.qos_class in term.values
    return is_within is (term.operator is ScopeOperator.IN)


Gaps = dict[str, Fraction | None]
"""By metric, in millicores or bytes; None where it can't be told."""
ALL_CHAIN = ("classAndPriority", "runningTime", "name")


def fresh_usage(seen: Observation) -> Usage:
    """Return the usage just before acting; a share that was not read again follows its amount."""
    if seen.fresh is None:
        return usage_of(seen.usage, seen)
    texts: dict[str, str | None] = {**seen.usage, **seen.fresh}
    for share, amount in DERIVED.items():
        if amount in seen.fresh and share not in seen.fresh:
            texts.pop(share, None)
    return usage_of(texts, seen)


def gaps_above(lines: Iterable[Waterline], fresh: Usage, seen: Observation, excess_percent: int) -> Gaps:
    """Return how far usage is above the lowest waterline of each metric; terminating pods count as gone."""
    gaps: Gaps = {}
    for name, line in lowest(lines).items():
        metric, used = line.metric, fresh.get(name)
        if used is None or not metric.is_quantifiable:
            gaps[name] = None
            continue
        gap = metric.amount(used, seen) - metric.amount(line.value, seen) - released_of(metric, seen)
        gaps[name] = gap * (PERCENT + excess_percent) / PERCENT if gap > 0 else gap
    return gaps


def gaps_below(lines: Iterable[Waterline], fresh: Usage, seen: Observation) -> Gaps:
    """Return how far usage is below the lowest waterline of each metric."""
    gaps: Gaps = {}
    for name, line in lowest(lines).items():
        metric, used = line.metric, fresh.get(name)
        is_known = used is not None and metric.is_quantifiable
        gaps[name] = metric.amount(line.value - (used or 0), seen) if is_known else None
    return gaps


class ActionPlan(NamedTuple):
    """Evicting or throttling, as far as this round asks for it."""

    lines: tuple[Waterline, ...]
    gaps: Gaps
    pods: tuple[PodSeen, ...]
    allowed: Mapping[str, Allowed]

    @property
    def is_precise(self) -> bool:
        """Whether every gap is known, so that no more pods are touched than close them."""
        return all(gap is not None for gap in self.gaps.values())

    @property
    def is_open(self) -> bool:
        """Whether there is a gap to close, or one that nobody can tell."""
        return any(gap is None or gap > 0 for gap in self.gaps.values())

    @property
    def unknown(self) -> str:
        """The first metric whose gap can't be told."""
        return next((name for name, gap in self.gaps.items() if gap is None), "")

    def lines_for(self, pod: PodSeen, metric: str = "") -> list[Waterline]:
        """Return the waterlines whose action may be taken on this pod; of one metric, or of all."""
        allowed = self.allowed[pod.key]
        return [
            line
            for line in self.lines
            if (allowed is None or line.action_name in allowed) and metric in {"", line.metric.name}
        ]

    def sorted_pods(self, metric: str = "") -> list[PodSeen]:
        """Return the pods that may be acted on for a metric, or for all of them, in order."""
        eligible = [pod for pod in self.pods if self.lines_for(pod, metric)]
        return sorted_by(self._chain(metric), eligible)

    def _chain(self, metric: str) -> tuple[str, ...]:
        line = lowest(self.lines)[metric] if metric else self.lines[0]
        own = tuple(one.value for one in line.action.sort_by)
        return own or (line.metric.chain if metric else ALL_CHAIN)


def reduced(gaps: Gaps, released: Mapping[Resource, Fraction]) -> Gaps:
    """Subtract what was released from the gap of every metric that it counts for."""
    return {
        name: None if gap is None else gap - released.get(METRICS[name].resource, Fraction(0))
        for name, gap in gaps.items()
    }


ZERO = Fraction(0)
Released = dict[Resource, Fraction]


class Deed(NamedTuple):
    """One pod to act on, for which metric, and what that releases of each resource."""

    pod: PodSeen
    metric: str
    released: Released
    quota: dict[str, int] | None = None
    reclaim: dict[str, int] | None = None
    grace_seconds: int | None = None

    @property
    def release(self) -> Fraction | None:
        """What it releases of its own metric, where that can be told."""
        metric = METRICS[self.metric]
        return self.released.get(metric.resource) if metric.is_quantifiable else None


def evictions(evict: ActionPlan, throttle: ActionPlan) -> list[Deed]:
    """Return every eviction that is asked for; the budget is counted elsewhere."""
    if not evict.lines:
        return []
    return _precise_evictions(evict, throttle) if evict.is_precise else _all_evictions(evict, throttle)


def _all_evictions(evict: ActionPlan, throttle: ActionPlan) -> list[Deed]:
    """Everybody goes, but for those that can be throttled instead."""
    spared: set[str] = set()
    if throttle.lines and not throttle.is_precise:
        spared = {deed.pod.key for deed in throttles(throttle, throttle.gaps, ())}
    return [
        _eviction(evict, pod, evict.unknown)
        for pod in evict.sorted_pods()
        if pod.key not in spared and pod.is_evictable
    ]


def _precise_evictions(evict: ActionPlan, throttle: ActionPlan) -> list[Deed]:
    gaps, beside = dict(evict.gaps), dict(throttle.gaps)
    found: dict[str, Deed] = {}
    for name in evict.gaps:
        candidates = [
            _eviction(evict, pod, name)
            for pod in evict.sorted_pods(name)
            if pod.key not in found and pod.is_evictable and _is_known(METRICS[name], pod)
        ]
        for deed in candidates[: _fewest(name, candidates, gaps, throttle, beside, found)]:
            found[deed.pod.key] = deed
            gaps, beside = reduced(gaps, deed.released), reduced(beside, deed.released)
    return list(found.values())


def _fewest(
    name: str,
    candidates: list[Deed],
    gaps: Gaps,
    throttle: ActionPlan,
    beside: Gaps,
    gone: Mapping[str, Deed],
) -> int:
    """Count how many must go so that, with throttling the others, the gap of this metric is closed.

    Where even all that throttling could release is too little, it is not tried: a walk for each candidate
    would cost the square of the pods.
    """
    resource = METRICS[name].resource
    helps = any(line.throttles(resource) for line in throttle.lines)
    able = _able(throttle, resource, gone) if helps else {}
    left, most, one_most = gaps[name] or ZERO, sum(able.values(), ZERO), max(able.values(), default=ZERO)
    for count, deed in enumerate(candidates):
        if left <= 0:
            return count
        if helps and left <= min(most, _open(beside, resource, most) + one_most):
            excluded = {*gone, *(one.pod.key for one in candidates[:count])}
            others = throttles(throttle, beside, excluded)
            if left <= sum((one.released.get(resource, ZERO) for one in others), ZERO):
                return count
        left -= deed.released.get(resource, ZERO)
        most -= able.get(deed.pod.key, ZERO)
        beside = reduced(beside, deed.released)
    return len(candidates)


def _able(throttle: ActionPlan, resource: Resource, gone: Mapping[str, Deed]) -> dict[str, Fraction]:
    """Return the most that throttling could release of each pod, whichever rule asks for it."""
    found: dict[str, Fraction] = {}
    for pod in throttle.pods:
        deeds = [_throttle(throttle.lines_for(pod, name), pod, METRICS[name]) for name in throttle.gaps]
        amounts = [deed.released.get(resource, ZERO) for deed in deeds if deed is not None]
        if amounts and pod.key not in gone:
            found[pod.key] = max(amounts)
    return found


def _open(gaps: Gaps, resource: Resource, otherwise: Fraction) -> Fraction:
    """Return the widest gap of a resource: a walk goes one pod beyond it at most, unless all are acted on."""
    known = [gap for gap in gaps.values() if gap is not None]
    if len(known) < len(gaps):
        return otherwise
    return max(
        (gap for name, gap in gaps.items() if gap and METRICS[name].resource is resource), default=ZERO
    )


def _is_known(metric: Metric, pod: PodSeen) -> bool:
    return metric.releases is not None and metric.releases(pod) is not None


def _eviction(evict: ActionPlan, pod: PodSeen, metric: str) -> Deed:
    lines = evict.lines_for(pod)
    graces = [line.action.eviction.grace_seconds for line in lines if line.action.eviction is not None]
    grace = min((seconds for seconds in graces if seconds is not None), default=None)
    amounts = {Resource.MEMORY: bytes_of(pod), Resource.CPU: millicores_of(pod)}
    released = {resource: amount for resource, amount in amounts.items() if amount is not None}
    return Deed(pod, metric, released, grace_seconds=grace)


def throttles(side: ActionPlan, gaps: Gaps, excluded: Collection[str]) -> list[Deed]:
    """Throttle the pods that it releases something of, until the gaps are closed."""
    if not side.lines:
        return []
    if not side.is_precise:
        return _all_throttles(side, excluded)
    found: dict[str, Deed] = {}
    for name in side.gaps:
        for pod in side.sorted_pods(name):
            gap = gaps[name]
            if gap is None or gap <= 0:
                break
            deed = None
            if pod.key not in excluded and pod.key not in found:
                deed = _throttle(side.lines_for(pod, name), pod, METRICS[name])
            if deed is not None:
                found[pod.key] = deed
                gaps = reduced(gaps, deed.released)
    return list(found.values())


def _all_throttles(side: ActionPlan, excluded: Collection[str]) -> list[Deed]:
    found = []
    for pod in side.sorted_pods():
        if pod.key in excluded:
            continue
        deeds = (_throttle(side.lines_for(pod, name), pod, METRICS[name]) for name in side.gaps)
        deed = next((one for one in deeds if one is not None), None)
        if deed is not None:
            found.append(deed)
    return found


def _throttle(lines: list[Waterline], pod: PodSeen, metric: Metric) -> Deed | None:
    """Throttle one pod as its actions together ask; None where that would release nothing."""
    if metric.resource is Resource.MEMORY:
        return _reclaim(lines, pod, metric)
    asked = [line.action.throttle.cpu for line in lines if line.action.throttle is not None]
    known = [part for part in asked if part is not None]
    if not known:
        return None
    step = max(part.step_percent for part in known)
    change: Change = throttled_down(pod, step, max(part.ratio_min_percent for part in known))
    if change.release <= 0:
        return None
    return Deed(pod, metric.name, {Resource.CPU: change.release}, quota=change.quota)


def _reclaim(lines: list[Waterline], pod: PodSeen, metric: Metric) -> Deed | None:
    asked = [line.action.throttle.memory for line in lines if line.action.throttle is not None]
    if not any(part is not None and part.is_reclaimed for part in asked):
        return None
    amounts = {part.name: part.reclaimable_bytes for part in pod.containers if part.reclaimable_bytes > 0}
    if not amounts:
        return None
    return Deed(pod, metric.name, {Resource.MEMORY: Fraction(sum(amounts.values()))}, reclaim=amounts)


class Raise(NamedTuple):
    """One throttled pod, its new quotas, and what it may then use more."""

    pod: PodSeen
    metric: str
    change: Change
    gaps: Gaps


def orphans(side: ActionPlan) -> list[Raise]:
    """Give back at once where no policy throttles the pod any more."""
    found = []
    for pod in sorted_by(ALL_CHAIN, _throttled(side.pods)):
        if not side.lines_for(pod):
            change = lifted(pod)
            if change.quota:
                found.append(Raise(pod, "", change, {}))
    return found


def raises(side: ActionPlan) -> list[Raise]:
    """Walk the throttled pods in reverse while there is room below every waterline.

    Where usage could not be read, nothing is raised. A metric that can't be quantified sets no bound: it is
    clear, and a step is one step.
    """
    gaps = dict(side.gaps)
    found: list[Raise] = []
    for pod in reversed(_ordered(side)):
        if any(gap is not None and gap <= 0 for gap in gaps.values()):
            break
        change = throttled_up(pod, _step(side.lines_for(pod)))
        if change.quota:
            gaps = {name: None if gap is None else gap - change.release for name, gap in gaps.items()}
            found.append(Raise(pod, next(iter(gaps), ""), change, gaps))
    return found


def _ordered(side: ActionPlan) -> list[PodSeen]:
    line = next(iter(side.lines), None)
    chain = (
        ALL_CHAIN if line is None else tuple(one.value for one in line.action.sort_by) or line.metric.chain
    )
    return sorted_by(chain, [pod for pod in _throttled(side.pods) if side.lines_for(pod)])


def _throttled(pods: Iterable[PodSeen]) -> list[PodSeen]:
    return [pod for pod in pods if pod.is_throttled and not pod.is_terminating]


def _step(lines: Iterable[Waterline]) -> int:
    """Take the most cautious step of those that may have throttled it."""
    steps = [
        line.action.throttle.cpu.step_percent
        for line in lines
        if line.action.throttle is not None and line.action.throttle.cpu is not None
    ]
    return min(steps)
