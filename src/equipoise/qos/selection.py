"""Which pods are acted on: a greedy selection in sorted order that stops where the gap is closed. Pure.

Acting on all pods of a node would be simple and do far too much. Each kind of action has its waterlines, the
gaps above them, and the pods that a policy lets it act on; pods are taken in order until no gap is left.
Where a gap is unknown, all eligible pods are acted on, and throttled rather than evicted where both are
allowed. Where evicting and throttling serve the same resource, no more pods are evicted than are needed
beside throttling the others. Restoring goes in reverse order, one step each, while usage stays below the
waterlines.

Throttling one pod is exact, in whole microseconds of quota:

down      new = quota (or usage when unlimited) x (1 - step/100), at least the request and limit x ratio/100
          release = sum of max(0, usage - new) over the containers that it would be lower for
up        new = quota x (1 + step/100), at most the limit; unlimited where there is no limit and new has
          passed twice the usage
"""

import math
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from equipoise.core.quantity import NANO
from equipoise.qos.observation import (
    ALL_CHAIN,
    METRICS,
    NANOS_PER_MILLI,
    PERCENT,
    QUOTA_MIN_US,
    UNLIMITED,
    Metric,
    NodeResource,
    ObservedContainer,
    ObservedPod,
    bytes_of,
    millicores_of,
    sorted_by,
)
from equipoise.qos.policy import CpuThrottle
from equipoise.qos.waterlines import ZERO, Waterline, lowest_by_metric

Allowed = frozenset[str] | None
"""Names of actions; None allows all."""


Gaps = dict[str, Fraction | None]
"""By metric, in millicores or bytes; None where it is unknown."""


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
        if not metric:
            return self.lines[0].action.sort_by or ALL_CHAIN
        line = lowest_by_metric(self.lines)[metric]
        return line.action.sort_by or line.metric.chain


def reduced(gaps: Gaps, released: Mapping[NodeResource, Fraction]) -> Gaps:
    """Return the gaps less what was released of the resource of each."""
    return {
        name: None if gap is None else gap - released.get(METRICS[name].resource, ZERO)
        for name, gap in gaps.items()
    }


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
        amounts = [one.released.get(resource, ZERO) for one in _throttles_of(throttle, pod)]
        if amounts and pod.key not in evicted:
            found[pod.key] = max(amounts)
    return found


def _open(gaps: Gaps, resource: NodeResource, otherwise: Fraction) -> Fraction:
    """Return the widest gap of a resource: a selection exceeds it by one pod at most, unless it takes all."""
    if None in gaps.values():
        return otherwise
    own = (gap for name, gap in gaps.items() if gap and METRICS[name].resource is resource)
    return max(own, default=ZERO)


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
        # All pods, each for the first metric of which that releases something.
        pods = [pod for pod in plan.sorted_pods() if pod.key not in excluded]
        return [tried[0] for pod in pods if (tried := _throttles_of(plan, pod))]
    found: dict[str, PodAction] = {}
    for name in plan.gaps:
        for pod in plan.sorted_pods(name):
            gap = gaps[name]
            if gap is None or gap <= 0:
                break
            if pod.key in excluded or pod.key in found:
                continue
            planned = _throttle(plan.lines_for(pod, name), pod, METRICS[name])
            if planned is not None:
                found[pod.key] = planned
                gaps = reduced(gaps, planned.released)
    assert found.keys().isdisjoint(excluded), "an evicted pod is not throttled"
    return list(found.values())


def _throttles_of(plan: ActionPlan, pod: ObservedPod) -> list[PodAction]:
    """Return what throttling a pod could be, for each metric of which that releases something."""
    tried = (_throttle(plan.lines_for(pod, name), pod, METRICS[name]) for name in plan.gaps)
    return [one for one in tried if one is not None]


def _throttle(lines: list[Waterline], pod: ObservedPod, metric: Metric) -> PodAction | None:
    """Return the throttle of one pod by the largest step of its actions; None if it releases nothing."""
    if metric.resource is NodeResource.MEMORY:
        return _reclaim(lines, pod, metric)
    specs = _cpu_throttles(lines)
    if not specs:
        return None
    step, ratio_min = max(one.step_percent for one in specs), max(one.ratio_min_percent for one in specs)
    change = _change({part.name: _lower(part, step, ratio_min) for part in pod.containers})
    if change.release <= 0:
        return None
    assert min(change.quota.values()) >= QUOTA_MIN_US, "the kernel takes no smaller quota"
    return PodAction(pod, metric.name, {NodeResource.CPU: change.release}, quota=change.quota)


def _cpu_throttles(lines: Iterable[Waterline]) -> list[CpuThrottle]:
    throttles = [line.action.throttle for line in lines if line.action.throttle is not None]
    return [throttle.cpu for throttle in throttles if throttle.cpu is not None]


def _reclaim(lines: list[Waterline], pod: ObservedPod, metric: Metric) -> PodAction | None:
    specs = [line.action.throttle.memory for line in lines if line.action.throttle is not None]
    is_allowed = any(spec is not None and spec.is_reclaimed for spec in specs)
    amounts = {part.name: part.reclaimable_bytes for part in pod.containers if part.reclaimable_bytes > 0}
    if not is_allowed or not amounts:
        return None
    released = {NodeResource.MEMORY: Fraction(sum(amounts.values()))}
    return PodAction(pod, metric.name, released, reclaim=amounts)


class QuotaChange(NamedTuple):
    """New quotas by container, and how much less, or more, the pod can then use: millicores."""

    quota: dict[str, int]
    release: Fraction


class PodRestore(NamedTuple):
    """Higher quotas for a throttled pod, and the gaps after that; no metric if no policy throttles it."""

    pod: ObservedPod
    metric: str
    change: QuotaChange
    gaps: Gaps


def plan_unclaimed_restores(plan: ActionPlan) -> list[PodRestore]:
    """Return full restores of the pods that no policy throttles any more."""
    pods = [pod for pod in _throttled(plan.pods) if not plan.lines_for(pod)]
    changes = [(pod, _lifted(pod)) for pod in sorted_by(ALL_CHAIN, pods)]
    return [PodRestore(pod, "", change, {}) for pod, change in changes if change.quota]


def plan_restores(plan: ActionPlan) -> list[PodRestore]:
    """Return one step for each throttled pod, in reverse order, while usage stays below every waterline.

    A metric that can't be quantified sets no bound: it is clear, and a step is one step.
    """
    gaps = dict(plan.gaps)
    found: list[PodRestore] = []
    for pod in reversed(_throttled_by_policy(plan)):
        if any(gap is not None and gap <= 0 for gap in gaps.values()):
            break
        specs = _cpu_throttles(plan.lines_for(pod))
        assert specs, "a pod that no rule throttles is restored at once"
        step = min(one.step_percent for one in specs)  # of the actions that may have throttled it
        change = _change({part.name: _higher(part, step) for part in pod.containers})
        if change.quota:
            gaps = reduced(gaps, {NodeResource.CPU: change.release})
            found.append(PodRestore(pod, next(iter(gaps), ""), change, gaps))
    return found


def _throttled_by_policy(plan: ActionPlan) -> list[ObservedPod]:
    """Return the throttled pods that a policy throttles, in the order of the first waterline."""
    if not plan.lines:
        return []
    line = plan.lines[0]
    pods = [pod for pod in _throttled(plan.pods) if plan.lines_for(pod)]
    return sorted_by(line.action.sort_by or line.metric.chain, pods)


def _throttled(pods: Iterable[ObservedPod]) -> list[ObservedPod]:
    return [pod for pod in pods if pod.is_throttled and not pod.is_terminating]


def _change(changes: Mapping[str, tuple[int, Fraction] | None]) -> QuotaChange:
    """Return the changed quotas, and the sum of what they release; None keeps a container's quota."""
    known = {name: change for name, change in changes.items() if change is not None}
    release = sum((release for _, release in known.values()), ZERO)
    return QuotaChange({name: quota for name, (quota, _) in known.items()}, release)


def _lower(container: ObservedContainer, step: int, ratio_min: int) -> tuple[int, Fraction] | None:
    """Return a lower quota and its release; None if it would not reduce the usage."""
    if container.cpu_nanos is None:
        return None
    used = Fraction(container.cpu_nanos * container.period_us, NANO)
    is_unlimited = container.quota_us <= 0
    start = used if is_unlimited else Fraction(container.quota_us)
    wanted = start * (PERCENT - step) // PERCENT
    # The floors are rounded up and the step down: never below the request.
    request = math.ceil(Fraction(container.cpu_request_nanos * container.period_us, NANO))
    ratio = math.ceil(Fraction(container.cpu_limit_nanos * container.period_us * ratio_min, NANO * PERCENT))
    new = max(wanted, request, ratio, QUOTA_MIN_US)
    if new >= used or (not is_unlimited and new >= container.quota_us):
        return None
    return new, _millicores(used - new, container)


def _higher(container: ObservedContainer, step: int) -> tuple[int, Fraction] | None:
    """Return a quota one step nearer to the limit and its growth; None if we have not throttled this."""
    if not _is_below_limit(container):
        return None
    limit = container.limit_us
    new = max(container.quota_us * (PERCENT + step) // PERCENT, container.quota_us + 1)
    used = Fraction((container.cpu_nanos or 0) * container.period_us, NANO)
    grown = max(ZERO, new - used)
    if limit != UNLIMITED:
        new = min(new, limit)
        grown = max(ZERO, new - used)
    elif container.cpu_nanos is not None and new > 2 * used:
        new = UNLIMITED
    return new, _millicores(grown, container)


def _lifted(pod: ObservedPod) -> QuotaChange:
    """Return the quotas of the limits, for the containers that we throttled."""
    quota = {part.name: part.limit_us for part in pod.containers if _is_below_limit(part)}
    return QuotaChange(quota, ZERO)


def _is_below_limit(container: ObservedContainer) -> bool:
    if not container.is_throttled or container.quota_us <= 0:
        return False
    return container.limit_us == UNLIMITED or container.quota_us < container.limit_us


def _millicores(quota_us: Fraction, container: ObservedContainer) -> Fraction:
    return quota_us * NANO / (container.period_us * NANOS_PER_MILLI)
