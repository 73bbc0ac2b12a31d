"""Strategies for reading usage: samples that we reduce, by remote read or as JSON, or PromQL's reductions.

A reduction is defined twice, for our samples and as PromQL. A query about all containers is split into few
requests: batches of namespaces, and parts of large namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.client import OnBytes, PrometheusClient
from equipoise.adapters.prometheus.decode import HISTOGRAMS_LEFT_OUT, tidy
from equipoise.adapters.prometheus.errors import PrometheusTooLarge, TooManySeries
from equipoise.adapters.prometheus.matrix import POINT_BYTES, Grid, Key, merge_rows
from equipoise.adapters.prometheus.promql import (
    EXACT_NAMES_MAX,
    EXACT_NAMES_MAX_BYTES,
    Matcher,
    one_of,
    selector,
)
from equipoise.adapters.prometheus.range import Raw, query_range, spans
from equipoise.adapters.prometheus.remote_read.frames import by_name
from equipoise.adapters.prometheus.remote_read.rates import highest, last, rates
from equipoise.adapters.prometheus.remote_read.read import RemoteRead
from equipoise.adapters.prometheus.remote_read.windows import Floats, RawSamples, Steps
from equipoise.adapters.prometheus.settings import LabelNames
from equipoise.core.quantity import print_seconds
from equipoise.ports.cluster import Measure, Reduction

_REDUCE: dict[Reduction, Callable[[RawSamples, Steps, Floats | None], Floats]] = {
    Reduction.RATE: rates,
    Reduction.HIGHEST: highest,
    Reduction.LAST: last,
}
_FUNCTIONS = {Reduction.RATE: "rate", Reduction.HIGHEST: "max_over_time", Reduction.LAST: "last_over_time"}


def reduce(measure: Measure, samples: RawSamples, steps: Steps, out: Floats) -> None:
    """Reduce raw samples to a row for each series and a column for each step."""
    assert out.shape == (len(samples.offsets) - 1, steps.count), "the rows to fill are those of the series"
    _REDUCE[measure.reduction](samples, steps, out)


SAMPLES_PER_TIME_MAX = 1.25
TEXT_MAX_BYTES = 32 * 1024 * 1024
"""The largest planned answer of a batch as JSON."""


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """Namespaces or pods that are read and reduced at once."""

    namespaces: tuple[str, ...] | None
    """None means all namespaces."""
    pods: tuple[str, ...] = ()
    """Pods of its single namespace; empty means all."""
    groups: frozenset[object] | None = None
    """The groups of these pods; None means all."""
    series: int | None = None
    """The number of series, if known."""

    @property
    def is_part(self) -> bool:
        """Return whether this is a part of a namespace, which is not split further."""
        return self.groups is not None

    def matchers(self, names: LabelNames) -> list[tuple[Matcher, ...]]:
        """Return the matchers of each request, with few enough pods for lookups by name."""
        within = () if self.namespaces is None else (one_of(names.namespace, self.namespaces),)
        if not self.is_part:
            return [within]
        return [(*within, one_of(names.pod, some)) for some in _runs(self.pods)]

    def has_room_for(self, series: int, series_max: int) -> bool:
        return (self.series or 0) + series <= series_max

    def joined(self, other: QueryBatch) -> QueryBatch:
        """Return the union of two parts of a namespace."""
        groups = (self.groups or frozenset()) | (other.groups or frozenset())
        series = (self.series or 0) + (other.series or 0)
        return QueryBatch(self.namespaces, (*self.pods, *other.pods), groups, series)

    def halves(self, all_namespaces: Sequence[str]) -> tuple[QueryBatch, ...]:
        """Cut it in two, between namespaces; nothing when it is one. `known` are all there are."""
        namespaces = tuple(all_namespaces) if self.namespaces is None else self.namespaces
        middle = len(namespaces) // 2
        halves = (namespaces[:middle], namespaces[middle:]) if middle else ()
        return tuple(QueryBatch(half) for half in halves)


@dataclass(frozen=True, slots=True)
class Job:
    """A measure of a batch."""

    measure: Measure
    batch: QueryBatch
    grid: Grid
    window_ms: int
    interval_ms: float
    """The usual interval between two samples."""
    fixed: tuple[Matcher, ...]
    """The matchers of every request."""

    def of(self, batch: QueryBatch) -> Job:
        return replace(self, batch=batch)

    @property
    def samples(self) -> float:
        """Return the approximate number of samples of a series."""
        return (self.grid.end_ms - self.grid.start_ms + self.window_ms) / self.interval_ms

    @property
    def text_bytes(self) -> float:
        """Return the approximate size of its samples as JSON."""
        if self.batch.series is None:
            return float(TEXT_MAX_BYTES)
        return POINT_BYTES * self.samples * self.batch.series

    @property
    def has_few_samples(self) -> bool:
        """Return whether there are few samples for each time: then they cost the server less than rates."""
        return self.samples <= SAMPLES_PER_TIME_MAX * self.grid.count


def _runs(pods: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Split names into runs that a server still looks up one by one."""
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


def packed(series_by_namespace: Mapping[str, int], series_max: int) -> list[QueryBatch]:
    """Return batches of namespaces in the order of names, so that plans are deterministic."""
    batches: list[QueryBatch] = []
    for namespace, series in series_by_namespace.items():
        has_room = bool(batches) and batches[-1].has_room_for(series, series_max)
        before = batches.pop() if has_room else QueryBatch(())
        batches.append(
            QueryBatch((*(before.namespaces or ()), namespace), series=series + (before.series or 0))
        )
    planned = [namespace for batch in batches for namespace in batch.namespaces or ()]
    assert planned == list(series_by_namespace), "each namespace is in one lot"
    return batches


def parts(
    namespace: str, series_by_pod: Mapping[str, int], groups: Sequence[object], series_max: int
) -> list[QueryBatch]:
    """Split a namespace into batches of whole groups; a group beyond the limit has its own batch.

    The groups are those of the pods, in their order; pods of the group None are left out.
    """
    members: dict[object, list[str]] = {}
    for pod, group in zip(series_by_pod, groups, strict=True):
        if group is not None:
            members.setdefault(group, []).append(pod)
    batches: list[QueryBatch] = []
    for group, pods in members.items():
        series = sum(series_by_pod[pod] for pod in pods)
        part = QueryBatch((namespace,), tuple(pods), frozenset({group}), series)
        if batches and batches[-1].has_room_for(series, series_max):
            part = batches.pop().joined(part)
        batches.append(part)
    assert sum(len(batch.pods) for batch in batches) == sum(map(len, members.values())), (
        "each pod is in one lot"
    )
    return batches


SAMPLES_SHARE_MAX = 1.5
"""So many times the samples that all rows of a lot would have are held: some come more often than most."""


@dataclass(frozen=True, slots=True, eq=False)
class ReducedUsage:
    """A row for each container, each once; NaN where a number is missing or is none that usage can be."""

    keys: list[Key]
    values: NDArray[np.float64]
    warnings: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    """Why samples may be missing: the server's own warnings."""

    def __post_init__(self) -> None:
        assert len(self.keys) == len(self.values), "a row for each key"


def by_remote_read(
    client: PrometheusClient,
    names: LabelNames,
    job: Job,
    *,
    rows_max: int,
    is_closed: bool,
    on_bytes: OnBytes | None = None,
) -> ReducedUsage:
    """Read raw samples and reduce them as they arrive."""
    reader, grid, window_ms = RemoteRead(client.transport), job.grid, job.window_ms
    steps = Steps(grid.start_ms, grid.step_ms, grid.count, window_ms, is_closed)
    start_ms = grid.start_ms - window_ms + (not is_closed)
    # Only what is written to takes memory.
    values = np.empty((rows_max, grid.count))
    keys: list[Key] = []
    histograms = 0
    for matchers in job.batch.matchers(names):
        asked = (by_name(job.measure.metric), *job.fixed, *matchers)
        for batch in reader.series(asked, start_ms, grid.end_ms, on_bytes):
            first, end = len(keys), len(keys) + len(batch.labels)
            if end > rows_max:
                raise _too_many(reader.address, rows_max)
            reduce(
                job.measure, RawSamples(batch.offsets, batch.times, batch.values), steps, values[first:end]
            )
            _drop_nonsense(values[first:end])
            keys += reader.columns(batch, names.labels)
            histograms += batch.histograms
    warnings = (HISTOGRAMS_LEFT_OUT,) if histograms else ()
    return ReducedUsage(*merge_rows(keys, values[: len(keys)]), warnings)


def by_samples(
    client: PrometheusClient,
    names: LabelNames,
    job: Job,
    *,
    rows_max: int,
    is_closed: bool,
    is_as_stored: bool,
    turn: AbstractContextManager[object],
    on_bytes: OnBytes | None = None,
) -> ReducedUsage:
    """Read raw samples by PromQL and reduce them."""
    grid = job.grid
    steps = Steps(grid.start_ms, grid.step_ms, grid.count, job.window_ms, is_closed)
    # Only what is written to takes memory.
    values = np.empty((rows_max, grid.count))
    keys: list[Key] = []
    warnings: list[str] = []
    partial: list[str] = []
    requests = job.batch.matchers(names)
    parts = spans(grid.start_ms - job.window_ms, grid.end_ms, job.text_bytes / max(1, len(requests)))
    for matchers in requests:
        asked, raw = selector(job.measure.metric, (*job.fixed, *matchers)), Raw(is_as_stored=is_as_stored)
        for end_ms, span_ms in parts:
            answer = client.instant(f"{asked}[{span_ms}ms]", end_ms / 1000, on_bytes)
            warnings += answer.warnings
            partial += answer.partial
            with turn:
                raw.add(answer, names.labels, client.limits.series_max)
            del answer  # before the next one is waited for
            if len(keys) + len(raw) > rows_max:
                raise _too_many(client.address, rows_max)
            if raw.samples > SAMPLES_SHARE_MAX * rows_max * job.samples:
                raise PrometheusTooLarge(
                    f"{client.address} answered {raw.samples} samples, more than the memory of one lot: "
                    "narrow the namespaces or the time range, or raise lots_max_bytes"
                )
        with turn:
            for some, samples in raw.batches():
                first, end = len(keys), len(keys) + len(some)
                reduce(job.measure, samples, steps, values[first:end])
                _drop_nonsense(values[first:end])
                keys += some
        warnings += [HISTOGRAMS_LEFT_OUT] * raw.has_histograms
    return ReducedUsage(*merge_rows(keys, values[: len(keys)]), tidy(warnings), tidy(partial))


def by_promql(
    client: PrometheusClient, names: LabelNames, job: Job, *, rows_max: int, on_bytes: OnBytes | None = None
) -> ReducedUsage:
    """Read the server's reductions by range queries, which are split until they fit."""
    found: list[ReducedUsage] = []
    for matchers in job.batch.matchers(names):
        selected = selector(job.measure.metric, (*job.fixed, *matchers))
        # Without `max by` or `round`, which would triple its cost.
        function, window = _FUNCTIONS[job.measure.reduction], print_seconds(job.window_ms / 1000)
        query = f"{function}({selected}[{window}])"
        matrix = query_range(client, query, job.grid, names.labels, on_bytes)
        _drop_nonsense(matrix.values)
        found.append(ReducedUsage(matrix.keys, matrix.values, matrix.warnings, matrix.partial))
        if sum(len(one.keys) for one in found) > rows_max:
            raise _too_many(client.address, rows_max)
    if len(found) == 1:
        return found[0]
    return ReducedUsage(
        [key for one in found for key in one.keys],
        np.concatenate([one.values for one in found]),
        tuple(warning for one in found for warning in one.warnings),
        tuple(why for one in found for why in one.partial),
    )


def _too_many(address: str, rows_max: int) -> TooManySeries:
    return TooManySeries(
        f"{address} answered more than {rows_max} series, the memory of one lot: "
        "narrow the namespaces or the time range, or raise lots_max_bytes"
    )


def _drop_nonsense(values: NDArray[np.float64]) -> None:
    """Set negative and infinite values, which are no usage, to NaN."""
    with np.errstate(invalid="ignore"):
        np.putmask(values, ~((values >= 0) & (values < np.inf)), np.nan)
