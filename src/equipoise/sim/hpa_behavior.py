"""How fast an HPA may move: its memory of the recent past, stabilization and scaling policies.

As kube-controller-manager 1.35 has it. An HPA without a `behavior` follows an older rule (at most the
double or 4, whichever is more; down to the highest recommendation of the controller's window), and not
the defaults that a `behavior` gets for what it leaves out.
"""

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

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
