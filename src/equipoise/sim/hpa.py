"""What a HorizontalPodAutoscaler does: the algorithm of kube-controller-manager 1.35, as a pure function.

    ratio   = usage / target                    (of the pods whose sample counts)
    desired = current                           while the ratio is within the tolerance of 1
            = ceil(ratio x pods that count)     otherwise

Pods that are terminating or failed are ignored. Pending pods, and pods whose CPU sample was taken
before they were ready for one window, are set aside; when the rest asks for more, they count as idle, which
dampens the growth. Running pods without a sample count as idle when the rest asks for more and as fully busy
when it asks for less. If that turns the direction around, nothing changes.

Usage and requests are whole thousandths, as the controller compares them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

import msgspec

from equipoise.core.cluster import HpaMetric

Moment = tuple[float, int]
"""When, and how many replicas."""


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """At most so many pods, or percent of them, in a period."""

    type: Literal["Pods", "Percent"]
    value: int
    period_seconds: int


@dataclass(frozen=True, slots=True)
class HpaScalingRules:
    """One direction of a behavior."""

    policies: tuple[ScalingPolicy, ...]
    select: Literal["Max", "Min", "Disabled"] = "Max"
    stabilization_seconds: float | None = None
    """None: none for scale-up, the controller's own window for scale-down."""
    tolerance: float | None = None


UP_BY_DEFAULT = HpaScalingRules((ScalingPolicy("Pods", 4, 15), ScalingPolicy("Percent", 100, 15)))
DOWN_BY_DEFAULT = HpaScalingRules((ScalingPolicy("Percent", 100, 15),))


@dataclass(frozen=True, slots=True)
class Behavior:
    """`spec.behavior`, with the API server's defaults for what is left out."""

    up: HpaScalingRules = UP_BY_DEFAULT
    down: HpaScalingRules = DOWN_BY_DEFAULT


@dataclass(frozen=True, slots=True)
class HpaMemory:
    """What the controller remembers of one HPA; lost when the controller restarts."""

    recommendations: tuple[Moment, ...] = ()
    ups: tuple[Moment, ...] = ()
    downs: tuple[Moment, ...] = ()

    def begun(self, at: float, current: int) -> "HpaMemory":
        """Start from the replicas that were found, so that a restart scales nothing down at once."""
        return self if self.recommendations else HpaMemory(((at, current),), self.ups, self.downs)

    def recommended(self, at: float, replicas: int, window_seconds: float) -> "HpaMemory":
        """Remember a recommendation, and forget those that no window reaches."""
        return HpaMemory((*self.since(at - window_seconds), (at, replicas)), self.ups, self.downs)

    def since(self, when: float) -> tuple[Moment, ...]:
        """Return the recommendations from a time on. They are in order, and few are too old."""
        for index, moment in enumerate(self.recommendations):
            if moment[0] >= when:
                return self.recommendations[index:] if index else self.recommendations
        return ()

    def scaled(self, at: float, before: int, after: int, behavior: Behavior) -> "HpaMemory":
        """Remember a change of scale, which the policies count."""
        if after > before:
            ups = (*_recent(self.ups, at, behavior.up), (at, after - before))
            return HpaMemory(self.recommendations, ups, self.downs)
        downs = (*_recent(self.downs, at, behavior.down), (at, before - after))
        return HpaMemory(self.recommendations, self.ups, downs)


def _recent(moments: tuple[Moment, ...], at: float, rules: HpaScalingRules) -> tuple[Moment, ...]:
    longest_seconds = max((policy.period_seconds for policy in rules.policies), default=0)
    return tuple(moment for moment in moments if moment[0] >= at - longest_seconds)


def limited(
    memory: HpaMemory,
    behavior: Behavior | None,
    *,
    at: float,
    current: int,
    proposed: int,
    bounds: tuple[int, int],
    down_window_seconds: float,
) -> tuple[int, HpaMemory]:
    """Return the replicas that may be set now for a proposal, and the memory with it."""
    if behavior is None:
        memory = memory.recommended(at, proposed, down_window_seconds)
        stable = max(map(itemgetter(1), memory.recommendations))
        return min(max(stable, bounds[0]), bounds[1], max(2 * current, 4)), memory
    up_window_seconds = behavior.up.stabilization_seconds or 0.0
    if behavior.down.stabilization_seconds is not None:
        down_window_seconds = behavior.down.stabilization_seconds
    lowest = min([proposed, *_within(memory.recommendations, at, up_window_seconds)])
    highest = max([proposed, *_within(memory.recommendations, at, down_window_seconds)])
    stable = min(max(current, lowest), highest)
    memory = memory.recommended(at, proposed, max(up_window_seconds, down_window_seconds))
    return _rate_limited(memory, behavior, at, current, stable, bounds), memory


def _within(moments: tuple[Moment, ...], at: float, window_seconds: float) -> list[int]:
    return [replicas for when, replicas in moments if when > at - window_seconds]


def _rate_limited(
    memory: HpaMemory, behavior: Behavior, at: float, current: int, stable: int, bounds: tuple[int, int]
) -> int:
    if stable > current:
        limit = max(_up_limit(memory, behavior.up, at, current), current)
        return min(stable, bounds[1], limit)
    if stable < current:
        limit = min(_down_limit(memory, behavior.down, at, current), current)
        return max(stable, bounds[0], limit)
    return stable


def _at_period_start(memory: HpaMemory, policy: ScalingPolicy, at: float, current: int) -> int:
    added = sum(_within(memory.ups, at, policy.period_seconds))
    return current - added + sum(_within(memory.downs, at, policy.period_seconds))


def _up_limit(memory: HpaMemory, rules: HpaScalingRules, at: float, current: int) -> int:
    if rules.select == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        start = _at_period_start(memory, policy, at, current)
        # Rounded up: one pod and 10 % would else never become two.
        grown = math.ceil(start * (1 + policy.value / 100))
        limits.append(start + policy.value if policy.type == "Pods" else grown)
    return max(limits) if rules.select == "Max" else min(limits)


def _down_limit(memory: HpaMemory, rules: HpaScalingRules, at: float, current: int) -> int:
    if rules.select == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        start = _at_period_start(memory, policy, at, current)
        shrunk = int(start * (1 - policy.value / 100))
        limits.append(start - policy.value if policy.type == "Pods" else shrunk)
    return min(limits) if rules.select == "Max" else max(limits)


class HpaPod(msgspec.Struct, frozen=True, gc=False):
    """One pod as observed by the controller, for one metric."""

    usage_milli: int | None
    """None: there is no sample."""
    request_milli: int | None
    """None: some container asks for nothing."""
    sampled_at: float = 0.0
    window_seconds: float = 0.0
    started_at: float | None = 0.0
    """When the kubelet took it up."""
    is_ready: bool = True
    ready_changed_at: float = 0.0
    phase: str = "Running"
    is_terminating: bool = False


@dataclass(frozen=True, slots=True)
class HpaController:
    """The flags of the controller."""

    tolerance: float = 0.1
    down_window_seconds: float = 300.0
    cpu_initialization_seconds: float = 300.0
    initial_readiness_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class SimulatedHpaSpec:
    """The spec of one HPA."""

    metrics: tuple[HpaMetric, ...]
    replicas_min: int
    replicas_max: int
    behavior: Behavior | None = None


@dataclass(frozen=True, slots=True)
class HpaProposal:
    """The replicas to set, and the new memory; the present number means no change."""

    replicas: int
    memory: HpaMemory
    is_known: bool = True
    """Whether the metrics were sufficient for a proposal."""


NOISE_MILLI = 1e-6
"""What floats may add to a whole number of thousandths."""


class NoProposal(Exception):  # noqa: N818 - reads as a fact
    """A metric from which no number of replicas follows."""


def advise(
    spec: SimulatedHpaSpec,
    proposed_by_metrics: Callable[[], int | None],
    *,
    current: int,
    memory: HpaMemory,
    at: float,
    controller: HpaController,
) -> HpaProposal:
    """Return the replicas that one sync of the controller sets; metrics are asked only where it matters."""
    memory = memory.begun(at, current)
    if current == 0 and spec.replicas_min != 0:
        return HpaProposal(0, memory)
    if not spec.replicas_min <= current <= spec.replicas_max:
        desired = min(max(current, spec.replicas_min), spec.replicas_max)
        return HpaProposal(desired, _scaled(memory, spec, at, current, desired))
    proposed = proposed_by_metrics()
    if proposed is None:
        return HpaProposal(current, memory, is_known=False)
    desired, memory = limited(
        memory,
        spec.behavior,
        at=at,
        current=current,
        proposed=proposed,
        bounds=(spec.replicas_min, spec.replicas_max),
        down_window_seconds=controller.down_window_seconds,
    )
    return HpaProposal(desired, _scaled(memory, spec, at, current, desired))


def _scaled(memory: HpaMemory, spec: SimulatedHpaSpec, at: float, before: int, after: int) -> HpaMemory:
    if spec.behavior is None or before == after:
        return memory
    return memory.scaled(at, before, after, spec.behavior)


def highest(
    spec: SimulatedHpaSpec,
    pods_by_metric: Sequence[Sequence[HpaPod]],
    current: int,
    at: float,
    controller: HpaController,
) -> int | None:
    """Take the highest proposal. While one metric fails, the others may scale up, but never down."""
    proposals = []
    for metric, pods in zip(spec.metrics, pods_by_metric, strict=True):
        try:
            proposals.append(propose(metric, pods, current, at, controller, spec.behavior))
        except NoProposal:
            continue
    most = max(proposals, default=None)
    if most is not None and len(proposals) < len(spec.metrics) and most < current:
        return None
    return most


def propose(
    metric: HpaMetric,
    pods: Sequence[HpaPod],
    current: int,
    at: float,
    controller: HpaController,
    behavior: Behavior | None = None,
) -> int:
    """Return how many replicas one metric asks for, before any limit."""
    if metric.type not in {"Resource", "ContainerResource"}:
        raise NoProposal(f"metrics of type {metric.type} are not simulated")
    counted, unready, missing = _grouped(pods, metric.name, at, controller)
    if not counted:
        raise NoProposal("no pod has a sample that counts")
    is_utilization = metric.target_type == "Utilization"
    if is_utilization and any(pod.request_milli is None for pod in pods):
        raise NoProposal("a pod asks for nothing")
    ratio_of = _utilization(metric) if is_utilization else _average(metric)
    usages = [(pod.usage_milli or 0, pod.request_milli or 0) for pod in counted]
    ratio = ratio_of(usages)
    is_idle_counted = bool(unready) and ratio > 1
    within = _tolerance(controller, behavior)
    if not is_idle_counted and not missing:
        return current if within(ratio) else math.ceil(ratio * len(usages))
    if ratio < 1:
        usages += [(_fallback(metric, pod), pod.request_milli or 0) for pod in missing]
    elif ratio > 1:
        usages += [(0, pod.request_milli or 0) for pod in missing]
    if is_idle_counted:
        usages += [(0, pod.request_milli or 0) for pod in unready]
    corrected = ratio_of(usages)
    if within(corrected) or (ratio < 1 < corrected) or (ratio > 1 > corrected):
        return current
    desired = math.ceil(corrected * len(usages))
    is_turned = (corrected < 1 and desired > current) or (corrected > 1 and desired < current)
    return current if is_turned else desired


def _grouped(
    pods: Sequence[HpaPod], resource: str, at: float, controller: HpaController
) -> tuple[list[HpaPod], list[HpaPod], list[HpaPod]]:
    counted: list[HpaPod] = []
    unready: list[HpaPod] = []
    missing: list[HpaPod] = []
    for pod in pods:
        if pod.is_terminating or pod.phase == "Failed":
            continue
        if pod.phase == "Pending":
            unready.append(pod)
        elif pod.usage_milli is None:
            missing.append(pod)
        elif resource == "cpu" and _is_set_aside(pod, at, controller):
            unready.append(pod)
        else:
            counted.append(pod)
    return counted, unready, missing


def _is_set_aside(pod: HpaPod, at: float, controller: HpaController) -> bool:
    """Return whether a CPU sample still shows how the pod started, not how it works."""
    if pod.started_at is None:
        return True
    if pod.started_at + controller.cpu_initialization_seconds > at:
        return not pod.is_ready or pod.sampled_at < pod.ready_changed_at + pod.window_seconds
    return not pod.is_ready and pod.started_at + controller.initial_readiness_seconds > pod.ready_changed_at


Usages = Sequence[tuple[int, int]]


def _utilization(metric: HpaMetric) -> Callable[[Usages], float]:
    target_percent = int(metric.target_value)

    def ratio(usages: Usages) -> float:
        requested = sum(request for _, request in usages)
        if not requested:
            raise NoProposal("the pods ask for nothing")
        # Whole percents, cut off: the controller sees 109.9 % as 109 %.
        return (sum(usage for usage, _ in usages) * 100 // requested) / target_percent

    return ratio


def _average(metric: HpaMetric) -> Callable[[Usages], float]:
    target_milli = milli(metric.target_value)
    return lambda usages: (sum(usage for usage, _ in usages) // len(usages)) / target_milli


def _fallback(metric: HpaMetric, pod: HpaPod) -> int:
    """How busy a pod without a sample counts when the others would scale down."""
    if metric.target_type == "Utilization":
        return (pod.request_milli or 0) * max(100, int(metric.target_value)) // 100
    return milli(metric.target_value)


def _tolerance(controller: HpaController, behavior: Behavior | None) -> Callable[[float], bool]:
    up = down = controller.tolerance
    if behavior is not None:
        up = up if behavior.up.tolerance is None else behavior.up.tolerance
        down = down if behavior.down.tolerance is None else behavior.down.tolerance
    return lambda ratio: 1 - down <= ratio <= 1 + up


def milli(value: float) -> int:
    """Return a quantity in whole thousandths, rounded up as Kubernetes reads it."""
    return math.ceil(value * 1000 - NOISE_MILLI)
