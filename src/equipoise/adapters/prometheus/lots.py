"""How a question about all containers becomes few requests: lots of namespaces, parts of large ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from equipoise.adapters.prometheus.matrix import Grid
from equipoise.adapters.prometheus.promql import Matcher, one_of
from equipoise.adapters.prometheus.series import POINT_BYTES
from equipoise.adapters.prometheus.settings import Names
from equipoise.adapters.prometheus.shards import EXACT_NAMES_MAX, EXACT_NAMES_MAX_BYTES
from equipoise.model.history import Measure

SAMPLES_PER_TIME_MAX = 1.25
TEXT_MAX_BYTES = 32 * 1024 * 1024
"""What a lot may be as JSON, as far as it is known before."""


@dataclass(frozen=True, slots=True)
class Lot:
    """What is read, reduced and given at once."""

    namespaces: tuple[str, ...] | None
    """None are all there are."""
    pods: tuple[str, ...] = ()
    """Of its one namespace; none are all."""
    groups: frozenset[object] | None = None
    """Which groups these pods are; None are all."""
    series: int | None = None
    """How many there are, as far as that is known."""

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a namespace, which is cut no further."""
        return self.groups is not None

    def matchers(self, names: Names) -> list[tuple[Matcher, ...]]:
        """Give the matchers of each request; so few pods in one that the server looks them up by name."""
        within = () if self.namespaces is None else (one_of(names.namespace, self.namespaces),)
        if not self.is_part:
            return [within]
        return [(*within, one_of(names.pod, some)) for some in _runs(self.pods)]

    def has_room_for(self, series: int, series_max: int) -> bool:
        """Whether so many more fit in."""
        return (self.series or 0) + series <= series_max

    def joined(self, other: Lot) -> Lot:
        """Put two parts of a namespace together."""
        groups = (self.groups or frozenset()) | (other.groups or frozenset())
        series = (self.series or 0) + (other.series or 0)
        return Lot(self.namespaces, (*self.pods, *other.pods), groups, series)

    def halves(self, known: Sequence[str]) -> tuple[Lot, ...]:
        """Cut it in two, between namespaces; nothing when it is one. `known` are all there are."""
        namespaces = tuple(known) if self.namespaces is None else self.namespaces
        middle = len(namespaces) // 2
        halves = (namespaces[:middle], namespaces[middle:]) if middle else ()
        return tuple(Lot(half) for half in halves)


@dataclass(frozen=True, slots=True)
class Job:
    """A measure of a lot."""

    measure: Measure
    lot: Lot
    grid: Grid
    window_ms: int
    interval_ms: float
    """The usual time between two samples."""
    fixed: tuple[Matcher, ...]
    """The matchers that each request has."""

    def of(self, lot: Lot) -> Job:
        """Give the same for another lot."""
        return replace(self, lot=lot)

    @property
    def samples(self) -> float:
        """How many samples a series has, about."""
        return (self.grid.end_ms - self.grid.start_ms + self.window_ms) / self.interval_ms

    @property
    def text_bytes(self) -> float:
        """How long its samples are as JSON, about."""
        if self.lot.series is None:
            return float(TEXT_MAX_BYTES)
        return POINT_BYTES * self.samples * self.lot.series

    @property
    def has_few_samples(self) -> bool:
        """Whether samples are hardly more than times: then they cost the server less than a rate at each."""
        return self.samples <= SAMPLES_PER_TIME_MAX * self.grid.count


def _runs(pods: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Cut names into runs that a server still looks up one by one."""
    run: list[str] = []
    size = 0
    for pod in pods:
        if run and (len(run) == EXACT_NAMES_MAX or size + len(pod) > EXACT_NAMES_MAX_BYTES):
            yield tuple(run)
            run, size = [], 0
        run.append(pod)
        size += len(pod)
    if run:
        yield tuple(run)


def packed(series_by_namespace: Mapping[str, int], series_max: int) -> list[Lot]:
    """Fill lots in the order of names, so that a plan is the same every time."""
    lots: list[Lot] = []
    for namespace, series in series_by_namespace.items():
        has_room = bool(lots) and lots[-1].has_room_for(series, series_max)
        before = lots.pop() if has_room else Lot(())
        lots.append(Lot((*(before.namespaces or ()), namespace), series=series + (before.series or 0)))
    return lots


def parts(
    namespace: str, series_by_pod: Mapping[str, int], groups: Sequence[object], series_max: int
) -> list[Lot]:
    """Cut a namespace into lots of whole groups; a group beyond the limit is a lot of its own.

    The groups are those of the pods, in their order; pods of the group None are left out.
    """
    members: dict[object, list[str]] = {}
    for pod, group in zip(series_by_pod, groups, strict=True):
        if group is not None:
            members.setdefault(group, []).append(pod)
    lots: list[Lot] = []
    for group, pods in members.items():
        series = sum(series_by_pod[pod] for pod in pods)
        part = Lot((namespace,), tuple(pods), frozenset({group}), series)
        if lots and lots[-1].has_room_for(series, series_max):
            part = lots.pop().joined(part)
        lots.append(part)
    return lots
