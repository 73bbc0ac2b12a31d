"""Giving back what was taken, stepwise and in reverse order, as far as the waterlines have room."""

from collections.abc import Iterable
from typing import NamedTuple

from equipoise.qos.comparators import sorted_by
from equipoise.qos.observation import PodSeen
from equipoise.qos.sides import ALL_CHAIN, Gaps, Side
from equipoise.qos.throttle import Change, lifted, throttled_up
from equipoise.qos.waterlines import Waterline


class Raise(NamedTuple):
    """One throttled pod, its new quotas, and what it may then use more."""

    pod: PodSeen
    metric: str
    change: Change
    gaps: Gaps


def orphans(side: Side) -> list[Raise]:
    """Give back at once where no policy throttles the pod any more."""
    found = []
    for pod in sorted_by(ALL_CHAIN, _throttled(side.pods)):
        if not side.lines_for(pod):
            change = lifted(pod)
            if change.quota:
                found.append(Raise(pod, "", change, {}))
    return found


def raises(side: Side) -> list[Raise]:
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


def _ordered(side: Side) -> list[PodSeen]:
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
