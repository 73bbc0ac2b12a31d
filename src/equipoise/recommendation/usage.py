"""Histories of containers, reduced to what advice needs of each workload.

A container lives from its first sample to its last; one of a pod that runs now lives from when that was made,
and until now. While one that lives has no sample, its pod is unknown, and so is the total.

A StatefulSet is scaled at its upper end, and its pods come back under the same names. So pods that were
missing together from some ordinal upward, and for long, while one below them was seen, had been scaled away,
and did not live. Missing in any other way they were there and not measured: a lower one alone (its node was
lost), all of them (the metrics source was down), or the upper end for a moment (an update begins there).

Containers are added up to pods and pods to workloads: the first rows of all groups at once, then the second
ones, and so on, which is several times as quick as `reduceat`, which goes column by column.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from equipoise.core.cluster import Pod, WorkloadRef
from equipoise.ports.cluster import UsageHistory
from equipoise.recommendation.ownership import OF_STATEFUL_SET, PodOwnership
from equipoise.recommendation.policy import CORES_MAX
from equipoise.stats.ranks import Claims, Floats, Whole, pooled_percentiles


def sum_groups(table: Floats, is_alive: Claims, counts: Whole) -> Floats:
    """Add the rows of each group up; unknown where one that was there has no sample. No group is empty."""
    assert counts.sum() == len(table) == len(is_alive), "every row belongs to a group"
    shape = (len(counts), table.shape[1])
    added, has_any, has_hole = np.zeros(shape), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for groups, rows in _group_rows(counts):
        values = table[rows]
        is_unknown = np.isnan(values)
        values[is_unknown] = 0
        added[groups] += values
        has_any[groups] |= ~is_unknown
        is_unknown &= is_alive[rows]
        has_hole[groups] |= is_unknown
    added[~has_any | has_hole] = np.nan
    return added


def any_alive(is_alive: Claims, counts: Whole) -> Claims:
    """Return when any row of each group was there."""
    found = np.zeros((len(counts), is_alive.shape[1]), np.bool_)
    for groups, rows in _group_rows(counts):
        found[groups] |= is_alive[rows]
    return found


def _group_rows(counts: Whole) -> Iterator[tuple[Whole | slice, Whole]]:
    """Yield the groups that have one more row, and that row; a group has so many of the rows, in order."""
    first = np.cumsum(counts) - counts
    for place in range(int(counts.max(initial=0))):
        groups = np.flatnonzero(counts > place)
        # All of them need no picking, which costs twice what the adding does.
        yield slice(None) if len(groups) == len(counts) else groups, first[groups] + place


AWAY_SECONDS_MIN = 900.0
"""From the first missing sample to the last: an update of one pod takes less."""


def alive_mask(
    first: Whole, last: Whole, is_seen: Claims, sets: Iterable[Sequence[Whole]], interval_seconds: float
) -> Claims:
    """Return when each row was there, from its first to its last column; not while it was scaled away.

    `is_seen` tells where something says that a row was there, whether measured or not. Each of `sets` is a
    StatefulSet: of each of its pods, by ordinal, the rows.
    """
    columns = np.arange(is_seen.shape[1])
    is_alive = np.asarray((columns >= first[:, None]) & (columns <= last[:, None]))
    least = 1 + math.ceil(round(AWAY_SECONDS_MIN / interval_seconds, 6))
    for pods in sets:
        rows = np.concatenate(pods)
        if (is_alive[rows] & ~is_seen[rows]).any():
            are_seen = np.array([is_seen[each].any(axis=0) for each in pods])
            for each, is_away in zip(pods, scaled_away(are_seen, least), strict=True):
                is_alive[each] &= ~is_away
    return is_alive


def by_ordinal(pods: Sequence[str]) -> list[int]:
    """Return the places of a StatefulSet's pods by ordinal; none where there are not two, or names differ."""
    counted = [match for pod in pods if (match := OF_STATEFUL_SET.fullmatch(pod)) is not None]
    if len(counted) < max(2, len(pods)) or len({match["name"] for match in counted}) > 1:
        return []
    ordinals = [match[2] for match in counted]  # digits of any length, without a leading 0
    return sorted(range(len(pods)), key=lambda place: (len(ordinals[place]), ordinals[place]))


def scaled_away(are_seen: Claims, least: int) -> Claims:
    """Return when pods, by ordinal, were missing with all above for so long, and one below was seen."""
    is_missing = np.empty_like(are_seen)
    is_upward_seen = np.zeros(are_seen.shape[1], np.bool_)
    for pod in reversed(range(len(are_seen))):
        is_upward_seen |= are_seen[pod]
        np.logical_not(is_upward_seen, out=is_missing[pod])
    return _long_runs(is_missing & is_upward_seen, least)


def _long_runs(claims: Claims, least: int) -> Claims:
    """Return the runs within rows that are long enough."""
    steps = np.zeros((claims.shape[0], claims.shape[1] + 1), np.int8)
    steps[:, :-1] = claims.view(np.int8)
    steps[:, 1:] -= claims.view(np.int8)
    flat = steps.ravel()
    starts, ends = np.flatnonzero(flat == 1), np.flatnonzero(flat == -1)
    is_short = ends - starts < least
    if not is_short.any():
        return claims
    flat[starts[is_short]] = 0
    flat[ends[is_short]] = 0
    return np.cumsum(steps[:, :-1], axis=1, dtype=np.int8).view(np.bool_)


P99 = 0.99
BATCH = 256
"""So many workloads at once, as long as their rows are not too many."""
BATCH_ROWS = 48
"""A week of minutes has less than 4 MiB of them, which the processor's cache holds while they are reduced.

From 4 MiB on, memory comes fresh on large pages, and is cold.
"""


class ContainerRow(NamedTuple):
    """A container, and its row in the history; -1 where it has none."""

    workload: int
    pod: str
    container: str
    row: int


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """What the workloads of a batch used, and their pods and containers."""

    cores: Floats
    """A row for each workload on the grid of the history; NaN where unknown."""
    pod_p99_cores: Floats
    container_p99_cores: Mapping[tuple[int, str], float]
    """By the workload's place in the batch, and the container's name."""
    pods_unknown: Whole
    """Pods that run now, and some container of which has no sample."""
    measurable: Whole
    """Pods that have been ready for so long that they must have samples."""
    unmeasured: Whole
    """Those of them that are unknown."""

    def rows(self, places: Sequence[int]) -> "Usage":
        """Return some of the workloads, in this order."""
        assert len(set(places)) == len(places), "no workload is taken twice"
        moved = {old: new for new, old in enumerate(places)}
        containers = {
            (moved[place], name): cores
            for (place, name), cores in self.container_p99_cores.items()
            if place in moved
        }
        return Usage(
            self.cores[places],
            self.pod_p99_cores[places],
            containers,
            self.pods_unknown[places],
            self.measurable[places],
            self.unmeasured[places],
        )


READY_SECONDS_MIN = 600.0
"""A pod that has been ready for so long must have samples: its scrape and the rate over it have come."""


def _was_ready(pod: Pod, at: float) -> bool:
    """Return whether a pod was ready then; without a time of readiness, its creation counts."""
    since = pod.created_at if pod.ready_since is None else pod.ready_since
    return pod.is_ready and since <= at


def is_running(pod: Pod) -> bool:
    """Return whether a pod can be expected to have samples now."""
    return pod.phase == "Running" and pod.deletion_at is None


class HistoryReader:
    """One part of the history, whose rows are sorted by workload once."""

    def __init__(
        self,
        history: UsageHistory,
        ownership: PodOwnership,
        chosen: Sequence[WorkloadRef],
        at: float = -math.inf,
    ) -> None:
        """Read at a time; without one, no pod is expected to have samples."""
        self._history, self._ownership, self._at = history, ownership, at
        self._rows: dict[WorkloadRef, list[int]] = {ref: [] for ref in chosen}
        owners: dict[tuple[str, str], WorkloadRef | None] = {}
        for row, key in enumerate(zip(history.namespaces, history.pods, strict=True)):
            if key not in owners:
                owners[key] = ownership.of(*key)
            ref = owners[key]
            if ref in self._rows:
                self._rows[ref].append(row)

    def batches(self) -> Iterator[list[WorkloadRef]]:
        """Cut the workloads into batches that memory holds; one with many pods is a batch of its own."""
        batch: list[WorkloadRef] = []
        held = 0
        for ref, rows in self._rows.items():
            if batch and (len(batch) == BATCH or held + len(rows) > BATCH_ROWS):
                yield batch
                batch, held = [], 0
            batch.append(ref)
            held += len(rows)
        if batch:
            yield batch

    def usage(self, batch: Sequence[WorkloadRef], *, by_container: bool = False) -> Usage:
        """Reduce the rows of a batch; the containers' own percentiles only where somebody asks."""
        columns = len(self._history.timestamps)
        cores, p99 = np.full((len(batch), columns), np.nan), np.full(len(batch), np.nan)
        running = [
            {pod.name: pod for pod in self._ownership.pods.get(ref, ()) if is_running(pod)} for ref in batch
        ]
        there = [self._there(place, ref) for place, ref in enumerate(batch)]
        missing = [list(_missing(place, there[place], running[place])) for place in range(len(batch))]
        lacking = [{part.pod for part in parts} for parts in missing]
        ready_at = self._at - max(READY_SECONDS_MIN, 2 * self._history.window_seconds)
        ready = [{name for name, pod in pods.items() if _was_ready(pod, ready_at)} for pods in running]
        seen = [place for place in range(len(batch)) if there[place]]
        parts = sorted(part for place in seen for part in (*there[place], *missing[place]))
        containers: Mapping[tuple[int, str], float] = {}
        if parts:
            table = self._table(parts)
            is_alive = self._alive_mask(table, parts, running, batch)
            sizes = _sizes([part[:2] for part in parts])
            pods, are_alive = table, is_alive
            if len(sizes) < len(parts):  # else every pod has one container
                pods, are_alive = sum_groups(table, is_alive, sizes), any_alive(is_alive, sizes)
            counts = _sizes([place for (place, _), _ in groupby(part[:2] for part in parts)])
            cores[seen] = sum_groups(pods, are_alive, counts)
            p99[seen] = pooled_percentiles(pods, counts, P99)
            if by_container and len({part.container for part in parts}) == 1:
                # Each workload's pods have but this one: it uses what they use.
                containers = {(place, parts[0].container): p99[place] for place in seen}
            elif by_container:
                containers = _by_container(table, parts)
        return Usage(
            cores,
            p99,
            containers,
            pods_unknown=np.array([len(pods) for pods in lacking], np.intp),
            measurable=np.array([len(pods) for pods in ready], np.intp),
            unmeasured=np.array([len(a & b) for a, b in zip(ready, lacking, strict=True)], np.intp),
        )

    def _there(self, place: int, ref: WorkloadRef) -> list[ContainerRow]:
        history = self._history
        return [
            ContainerRow(place, history.pods[row], history.containers[row], row) for row in self._rows[ref]
        ]

    def _table(self, parts: Sequence[ContainerRow]) -> Floats:
        rows = np.array([part.row for part in parts])
        table: Floats = self._history.values[rows]
        table[rows < 0] = np.nan
        table[table > CORES_MAX] = np.nan  # no cluster has so many: a counter went mad
        return table

    def _alive_mask(
        self,
        table: Floats,
        parts: Sequence[ContainerRow],
        running: Sequence[Mapping[str, Pod]],
        batch: Sequence[WorkloadRef],
    ) -> Claims:
        is_seen = ~np.isnan(table)
        end = table.shape[1]
        first = np.where(is_seen.any(axis=1), is_seen.argmax(axis=1), end)
        last = end - 1 - is_seen[:, ::-1].argmax(axis=1)
        for number, part in enumerate(parts):
            pod = running[part.workload].get(part.pod)
            if pod is not None:
                expected = self._expected(pod)
                first[number] = min(first[number], expected)
                last[number] = end - 1
                is_seen[number, expected:] = True  # by the API server: since then it was never away
        return alive_mask(first, last, is_seen, _sets(parts, batch), self._interval_seconds())

    def _interval_seconds(self) -> float:
        times = self._history.timestamps
        return float(times[1] - times[0]) if len(times) > 1 else self._history.window_seconds

    def _expected(self, pod: Pod) -> int:
        """Return the first column that must have a rate, which takes two samples."""
        return int(
            np.searchsorted(self._history.timestamps, pod.created_at + 2 * self._history.window_seconds)
        )


def _missing(place: int, there: Sequence[ContainerRow], running: Mapping[str, Pod]) -> Iterator[ContainerRow]:
    """Yield the containers of pods that run, and have no row."""
    measured = {(part.pod, part.container) for part in there}
    for pod in running.values():
        for container in pod.containers:
            if (pod.name, container.name) not in measured:
                yield ContainerRow(place, pod.name, container.name, -1)


def _sets(parts: Sequence[ContainerRow], batch: Sequence[WorkloadRef]) -> Iterator[list[Whole]]:
    """Yield the StatefulSets of a batch: of each of their pods, by ordinal, the rows."""
    rows_of: dict[int, dict[str, list[int]]] = {}
    for number, part in enumerate(parts):
        if batch[part.workload].kind == "StatefulSet":
            rows_of.setdefault(part.workload, {}).setdefault(part.pod, []).append(number)
    for pods in rows_of.values():
        names, rows = list(pods), list(pods.values())
        if order := by_ordinal(names):
            yield [np.array(rows[place], np.intp) for place in order]


def _sizes(keys: Sequence[object]) -> Whole:
    """Return the lengths of the runs of equal keys."""
    return np.array([sum(1 for _ in run) for _, run in groupby(keys)], np.intp)


def _by_container(table: Floats, parts: Sequence[ContainerRow]) -> Mapping[tuple[int, str], float]:
    keys = [(part.workload, part.container) for part in parts]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ordered = [keys[number] for number in order]
    found = pooled_percentiles(table[order], _sizes(ordered), P99)
    return dict(zip(dict.fromkeys(ordered), found.tolist(), strict=True))
