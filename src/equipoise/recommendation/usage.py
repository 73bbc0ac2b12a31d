"""Histories of containers, reduced to the usage of each workload.

A missing sample may mean that a container did not exist or that it was not measured. A container counts as
alive from its first sample to its last; one of a running pod, from the pod's creation until now. While a live
container has no sample, the usage of its pod is unknown, and so is the workload's.

A StatefulSet is scaled at its highest ordinals, and its pods return under the same names. So pods that are
missing together from some ordinal upward, for long, while a lower one has samples, were scaled down and not
alive. All other pods without samples were alive and not measured: a lower one alone (its node was lost), all
of them (the metrics source was down), or the highest for a short time (a rolling update begins there).

Containers are summed into pods and pods into workloads: first rows of all groups at once, then second rows,
and so on, several times as fast as `reduceat`, which goes column by column.
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
    """Return the sum of each group's rows; NaN where a live row has no sample. No group is empty."""
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
    """Return when any row of each group was alive."""
    found = np.zeros((len(counts), is_alive.shape[1]), np.bool_)
    for groups, rows in _group_rows(counts):
        found[groups] |= is_alive[rows]
    return found


def _group_rows(counts: Whole) -> Iterator[tuple[Whole | slice, Whole]]:
    """Yield the groups that have an n-th row, and these rows, for each n; `counts` are the rows per group."""
    first = np.cumsum(counts) - counts
    for place in range(int(counts.max(initial=0))):
        groups = np.flatnonzero(counts > place)
        # A slice for all groups: an index would cost twice as much as the sum.
        yield slice(None) if len(groups) == len(counts) else groups, first[groups] + place


AWAY_SECONDS_MIN = 900.0
"""Shortest absence of pods that were scaled down; an update of one pod takes less."""


def alive_mask(
    first: Whole, last: Whole, is_observed: Claims, sets: Iterable[Sequence[Whole]], interval_seconds: float
) -> Claims:
    """Return when each row was alive: from its first to its last column, except while scaled down.

    `is_observed` marks columns with evidence of a row, measured or not. Each of `sets` is a StatefulSet: the
    rows of each of its pods, by ordinal.
    """
    columns = np.arange(is_observed.shape[1])
    is_alive = np.asarray((columns >= first[:, None]) & (columns <= last[:, None]))
    least = 1 + math.ceil(round(AWAY_SECONDS_MIN / interval_seconds, 6))
    for pods in sets:
        rows = np.concatenate(pods)
        if (is_alive[rows] & ~is_observed[rows]).any():
            are_observed = np.array([is_observed[each].any(axis=0) for each in pods])
            for each, is_away in zip(pods, scaled_away(are_observed, least), strict=True):
                is_alive[each] &= ~is_away
    return is_alive


def by_ordinal(pods: Sequence[str]) -> list[int]:
    """Return the indices of a StatefulSet's pods by ordinal; empty for fewer than two, or other names."""
    counted = [match for pod in pods if (match := OF_STATEFUL_SET.fullmatch(pod)) is not None]
    if len(counted) < max(2, len(pods)) or len({match["name"] for match in counted}) > 1:
        return []
    ordinals = [match[2] for match in counted]  # of any length, without leading zeros
    return sorted(range(len(pods)), key=lambda place: (len(ordinals[place]), ordinals[place]))


def scaled_away(are_observed: Claims, least: int) -> Claims:
    """Return when pods, by ordinal, were missing with all above for `least` columns, but not all below."""
    is_missing = np.empty_like(are_observed)
    is_any_observed = np.zeros(are_observed.shape[1], np.bool_)
    for pod in reversed(range(len(are_observed))):
        is_any_observed |= are_observed[pod]
        np.logical_not(is_any_observed, out=is_missing[pod])
    return _long_runs(is_missing & is_any_observed, least)


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
"""Most workloads per batch."""
BATCH_ROWS = 48
"""Most rows per batch: less than 4 MiB for a week of minutes, which the processor's cache holds.

From 4 MiB on, the allocator takes new large pages, which are not in the cache.
"""


class ContainerRow(NamedTuple):
    """A container, and its row in the history; -1 where it has none."""

    workload: int
    pod: str
    container: str
    row: int


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """The usage of a batch of workloads, with their pods and containers."""

    cores: Floats
    """One row per workload, on the grid of the history; NaN where unknown."""
    pod_p99_cores: Floats
    container_p99_cores: Mapping[tuple[int, str], float]
    """By the index of the workload in the batch, and the container's name."""
    pods_unknown: Whole
    """Running pods of which some container has no sample."""
    measurable: Whole
    """Pods that have been ready long enough to have samples."""
    unmeasured: Whole
    """Measurable pods whose usage is unknown."""

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
"""From this time after readiness a pod has samples: it was scraped, and its rate was computed."""


def _was_ready(pod: Pod, at: float) -> bool:
    """Return whether a pod was ready at a time; without a time of readiness, since its creation."""
    since = pod.created_at if pod.ready_since is None else pod.ready_since
    return pod.is_ready and since <= at


def is_running(pod: Pod) -> bool:
    """Return whether a pod is expected to have current samples."""
    return pod.phase == "Running" and pod.deletion_at is None


class HistoryReader:
    """Reads workloads from one part of the history, whose rows are sorted once."""

    def __init__(
        self,
        history: UsageHistory,
        ownership: PodOwnership,
        chosen: Sequence[WorkloadRef],
        at: float = -math.inf,
    ) -> None:
        """Sort the rows; without a time `at`, no pod is expected to have samples."""
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
        """Split the workloads into batches of bounded size; one with many pods is a batch of its own."""
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
        """Return the usage of a batch; percentiles of containers only where requested."""
        columns = len(self._history.timestamps)
        cores, p99 = np.full((len(batch), columns), np.nan), np.full(len(batch), np.nan)
        running = [
            {pod.name: pod for pod in self._ownership.pods.get(ref, ()) if is_running(pod)} for ref in batch
        ]
        present = [self._present(place, ref) for place, ref in enumerate(batch)]
        missing = [list(_missing(place, present[place], running[place])) for place in range(len(batch))]
        lacking = [{part.pod for part in parts} for parts in missing]
        ready_at = self._at - max(READY_SECONDS_MIN, 2 * self._history.window_seconds)
        ready = [{name for name, pod in pods.items() if _was_ready(pod, ready_at)} for pods in running]
        places = [place for place in range(len(batch)) if present[place]]
        parts = sorted(part for place in places for part in (*present[place], *missing[place]))
        containers: Mapping[tuple[int, str], float] = {}
        if parts:
            table = self._table(parts)
            is_alive = self._alive_mask(table, parts, running, batch)
            sizes = _sizes([part[:2] for part in parts])
            pods, are_alive = table, is_alive
            if len(sizes) < len(parts):  # else every pod has one container
                pods, are_alive = sum_groups(table, is_alive, sizes), any_alive(is_alive, sizes)
            counts = _sizes([place for (place, _), _ in groupby(part[:2] for part in parts)])
            cores[places] = sum_groups(pods, are_alive, counts)
            p99[places] = pooled_percentiles(pods, counts, P99)
            if by_container and len({part.container for part in parts}) == 1:
                # Pods of these workloads have one container, which uses all that they use.
                containers = {(place, parts[0].container): p99[place] for place in places}
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

    def _present(self, place: int, ref: WorkloadRef) -> list[ContainerRow]:
        history = self._history
        return [
            ContainerRow(place, history.pods[row], history.containers[row], row) for row in self._rows[ref]
        ]

    def _table(self, parts: Sequence[ContainerRow]) -> Floats:
        rows = np.array([part.row for part in parts])
        table: Floats = self._history.values[rows]
        table[rows < 0] = np.nan
        table[table > CORES_MAX] = np.nan  # not plausible: a broken counter
        return table

    def _alive_mask(
        self,
        table: Floats,
        parts: Sequence[ContainerRow],
        running: Sequence[Mapping[str, Pod]],
        batch: Sequence[WorkloadRef],
    ) -> Claims:
        is_observed = ~np.isnan(table)
        end = table.shape[1]
        first = np.where(is_observed.any(axis=1), is_observed.argmax(axis=1), end)
        last = end - 1 - is_observed[:, ::-1].argmax(axis=1)
        for number, part in enumerate(parts):
            pod = running[part.workload].get(part.pod)
            if pod is not None:
                expected = self._expected(pod)
                first[number] = min(first[number], expected)
                last[number] = end - 1
                is_observed[number, expected:] = (
                    True  # the API server shows that the pod was alive since then
                )
        return alive_mask(first, last, is_observed, _sets(parts, batch), self._interval_seconds())

    def _interval_seconds(self) -> float:
        times = self._history.timestamps
        return float(times[1] - times[0]) if len(times) > 1 else self._history.window_seconds

    def _expected(self, pod: Pod) -> int:
        """Return the first column in which a pod must have a rate, which takes two samples."""
        return int(
            np.searchsorted(self._history.timestamps, pod.created_at + 2 * self._history.window_seconds)
        )


def _missing(
    place: int, present: Sequence[ContainerRow], running: Mapping[str, Pod]
) -> Iterator[ContainerRow]:
    """Yield the containers of running pods that have no row."""
    measured = {(part.pod, part.container) for part in present}
    for pod in running.values():
        for container in pod.containers:
            if (pod.name, container.name) not in measured:
                yield ContainerRow(place, pod.name, container.name, -1)


def _sets(parts: Sequence[ContainerRow], batch: Sequence[WorkloadRef]) -> Iterator[list[Whole]]:
    """Yield the StatefulSets of a batch: the rows of each of their pods, by ordinal."""
    rows_of: dict[int, dict[str, list[int]]] = {}
    for number, part in enumerate(parts):
        if batch[part.workload].kind == "StatefulSet":
            rows_of.setdefault(part.workload, {}).setdefault(part.pod, []).append(number)
    for pods in rows_of.values():
        names, rows = list(pods), list(pods.values())
        if order := by_ordinal(names):
            yield [np.array(rows[place], np.intp) for place in order]


def _sizes(keys: Sequence[object]) -> Whole:
    """Return the lengths of runs of equal keys."""
    return np.array([sum(1 for _ in run) for _, run in groupby(keys)], np.intp)


def _by_container(table: Floats, parts: Sequence[ContainerRow]) -> Mapping[tuple[int, str], float]:
    keys = [(part.workload, part.container) for part in parts]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ordered = [keys[number] for number in order]
    found = pooled_percentiles(table[order], _sizes(ordered), P99)
    return dict(zip(dict.fromkeys(ordered), found.tolist(), strict=True))
