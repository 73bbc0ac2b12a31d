"""The walks: sorted pods, one after the other, until the gap is closed. No pod twice.

Where a gap can't be told, all eligible pods are acted on, and throttled rather than evicted where both may
be. Where both ask for the same resource and gaps are known, no more pods are evicted than are needed beside
throttling the others.
"""

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import NamedTuple

from equipoise.qos.metrics import METRICS, Metric, Resource, bytes_of, millicores_of
from equipoise.qos.observation import PodSeen
from equipoise.qos.sides import Gaps, Side, reduced
from equipoise.qos.throttle import Change, throttled_down
from equipoise.qos.waterlines import Waterline

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


def evictions(evict: Side, throttle: Side) -> list[Deed]:
    """Give every eviction that is asked for; the budget is counted elsewhere."""
    if not evict.lines:
        return []
    return _precise_evictions(evict, throttle) if evict.is_precise else _all_evictions(evict, throttle)


def _all_evictions(evict: Side, throttle: Side) -> list[Deed]:
    """Everybody goes, but for those that can be throttled instead."""
    spared: set[str] = set()
    if throttle.lines and not throttle.is_precise:
        spared = {deed.pod.key for deed in throttles(throttle, throttle.gaps, ())}
    return [
        _eviction(evict, pod, evict.unknown)
        for pod in evict.sorted_pods()
        if pod.key not in spared and pod.is_evictable
    ]


def _precise_evictions(evict: Side, throttle: Side) -> list[Deed]:
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
    throttle: Side,
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


def _able(throttle: Side, resource: Resource, gone: Mapping[str, Deed]) -> dict[str, Fraction]:
    """Give the most that throttling could release of each pod, whichever rule asks for it."""
    found: dict[str, Fraction] = {}
    for pod in throttle.pods:
        deeds = [_throttle(throttle.lines_for(pod, name), pod, METRICS[name]) for name in throttle.gaps]
        amounts = [deed.released.get(resource, ZERO) for deed in deeds if deed is not None]
        if amounts and pod.key not in gone:
            found[pod.key] = max(amounts)
    return found


def _open(gaps: Gaps, resource: Resource, otherwise: Fraction) -> Fraction:
    """Give the widest gap of a resource: a walk goes one pod beyond it at most, unless all are acted on."""
    known = [gap for gap in gaps.values() if gap is not None]
    if len(known) < len(gaps):
        return otherwise
    return max(
        (gap for name, gap in gaps.items() if gap and METRICS[name].resource is resource), default=ZERO
    )


def _is_known(metric: Metric, pod: PodSeen) -> bool:
    return metric.releases is not None and metric.releases(pod) is not None


def _eviction(evict: Side, pod: PodSeen, metric: str) -> Deed:
    lines = evict.lines_for(pod)
    graces = [line.action.eviction.grace_seconds for line in lines if line.action.eviction is not None]
    grace = min((seconds for seconds in graces if seconds is not None), default=None)
    amounts = {Resource.MEMORY: bytes_of(pod), Resource.CPU: millicores_of(pod)}
    released = {resource: amount for resource, amount in amounts.items() if amount is not None}
    return Deed(pod, metric, released, grace_seconds=grace)


def throttles(side: Side, gaps: Gaps, excluded: Collection[str]) -> list[Deed]:
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


def _all_throttles(side: Side, excluded: Collection[str]) -> list[Deed]:
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
