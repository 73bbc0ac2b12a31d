"""One kind of action in one round: the waterlines that ask for it, the gaps, and whom it may touch."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from equipoise.qos.comparators import sorted_by
from equipoise.qos.eligible import Allowed
from equipoise.qos.metrics import DERIVED, METRICS, PERCENT, Resource
from equipoise.qos.observation import Observation, PodSeen
from equipoise.qos.waterlines import Usage, Waterline, lowest, released_of, usage_of

Gaps = dict[str, Fraction | None]
"""By metric, in millicores or bytes; None where it can't be told."""
ALL_CHAIN = ("classAndPriority", "runningTime", "name")


def fresh_usage(seen: Observation) -> Usage:
    """Give the usage just before acting; a share that was not read again follows its amount."""
    if seen.fresh is None:
        return usage_of(seen.usage, seen)
    texts: dict[str, str | None] = {**seen.usage, **seen.fresh}
    for share, amount in DERIVED.items():
        if amount in seen.fresh and share not in seen.fresh:
            texts.pop(share, None)
    return usage_of(texts, seen)


def gaps_above(lines: Iterable[Waterline], fresh: Usage, seen: Observation, excess_percent: int) -> Gaps:
    """Give how far usage is above the lowest waterline of each metric; terminating pods count as gone."""
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
    """Give how far usage is below the lowest waterline of each metric."""
    gaps: Gaps = {}
    for name, line in lowest(lines).items():
        metric, used = line.metric, fresh.get(name)
        is_known = used is not None and metric.is_quantifiable
        gaps[name] = metric.amount(line.value - (used or 0), seen) if is_known else None
    return gaps


class Side(NamedTuple):
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
        """Give the waterlines whose action may be taken on this pod; of one metric, or of all."""
        allowed = self.allowed[pod.key]
        return [
            line
            for line in self.lines
            if (allowed is None or line.action_name in allowed) and metric in {"", line.metric.name}
        ]

    def sorted_pods(self, metric: str = "") -> list[PodSeen]:
        """Give the pods that may be acted on for a metric, or for all of them, in order."""
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
