"""Ways to the same numbers: samples that we reduce, by remote read or as JSON; or what the server reduces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.decode import HISTOGRAMS_LEFT_OUT, tidy
from equipoise.adapters.prometheus.errors import TooLarge, TooManySeries
from equipoise.adapters.prometheus.lots import Job
from equipoise.adapters.prometheus.measures import expression, reduce
from equipoise.adapters.prometheus.promql import selector
from equipoise.adapters.prometheus.range import RangeQuery, query_range
from equipoise.adapters.prometheus.raw import Raw, spans
from equipoise.adapters.prometheus.remote_read.read import RemoteRead
from equipoise.adapters.prometheus.remote_read.request import by_name
from equipoise.adapters.prometheus.remote_read.windows import Samples, Steps
from equipoise.adapters.prometheus.series import Key
from equipoise.adapters.prometheus.settings import Names

SAMPLES_SHARE_MAX = 1.5
"""So many times the samples that all rows of a lot would have are held: some come more often than most."""

OnBytes = Callable[[int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A row for each container, each once; NaN where a number is missing or is none that usage can be."""

    keys: list[Key]
    values: NDArray[np.float64]
    warnings: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    """Why samples may be missing, in the server's words."""


def by_remote_read(
    reader: RemoteRead,
    names: Names,
    job: Job,
    *,
    rows_max: int,
    is_closed: bool,
    on_bytes: OnBytes | None = None,
) -> Found:
    """Read raw samples and reduce them batch by batch as they come."""
    grid, window_ms = job.grid, job.window_ms
    steps = Steps(grid.start_ms, grid.step_ms, grid.count, window_ms, is_closed)
    start_ms = grid.start_ms - window_ms + (not is_closed)
    # Only what is written to takes memory.
    values = np.empty((rows_max, grid.count))
    keys: list[Key] = []
    histograms = 0
    for matchers in job.lot.matchers(names):
        asked = (by_name(job.measure.metric), *job.fixed, *matchers)
        for batch in reader.series(asked, start_ms, grid.end_ms, on_bytes):
            first, end = len(keys), len(keys) + len(batch.labels)
            if end > rows_max:
                raise _too_many(reader.address, rows_max)
            reduce(job.measure, Samples(batch.offsets, batch.times, batch.values), steps, values[first:end])
            _drop_nonsense(values[first:end])
            keys += reader.columns(batch, names.labels)
            histograms += batch.histograms
    warnings = (HISTOGRAMS_LEFT_OUT,) if histograms else ()
    return _unique(keys, values[: len(keys)], warnings)


def by_samples(
    client: Client,
    names: Names,
    job: Job,
    *,
    rows_max: int,
    is_closed: bool,
    is_as_stored: bool,
    turn: AbstractContextManager[object],
    on_bytes: OnBytes | None = None,
) -> Found:
    """Let PromQL give raw samples, which we reduce when it is our turn."""
    grid = job.grid
    steps = Steps(grid.start_ms, grid.step_ms, grid.count, job.window_ms, is_closed)
    # Only what is written to takes memory.
    values = np.empty((rows_max, grid.count))
    keys: list[Key] = []
    warnings: list[str] = []
    partial: list[str] = []
    requests = job.lot.matchers(names)
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
                raise TooLarge(
                    f"{client.address} answered {raw.samples} samples, more than the memory for one lot: "
                    "narrow the namespaces or the time range, or raise lots_max_bytes"
                )
        with turn:
            for some, samples in raw.lots():
                first, end = len(keys), len(keys) + len(some)
                reduce(job.measure, samples, steps, values[first:end])
                _drop_nonsense(values[first:end])
                keys += some
        warnings += [HISTOGRAMS_LEFT_OUT] * raw.has_histograms
    return replace(_unique(keys, values[: len(keys)], tidy(warnings)), partial=tidy(partial))


def by_promql(
    client: Client, names: Names, job: Job, *, rows_max: int, on_bytes: OnBytes | None = None
) -> Found:
    """Let the server reduce, in range queries that are split until they fit."""
    found: list[Found] = []
    for matchers in job.lot.matchers(names):
        selected = selector(job.measure.metric, (*job.fixed, *matchers))
        query = RangeQuery(
            expression(job.measure, selected, job.window_ms),
            start=job.grid.start_ms / 1000,
            end=job.grid.end_ms / 1000,
            step_seconds=job.grid.step_ms / 1000,
            labels=names.labels,
            names=names,
            duplicates="max",
        )
        matrix = query_range(client, query, on_bytes)
        values = matrix.values.astype(np.float64, copy=False)
        _drop_nonsense(values)
        found.append(Found(matrix.keys, values, matrix.warnings, matrix.partial))
        if sum(len(one.keys) for one in found) > rows_max:
            raise _too_many(client.address, rows_max)
    if len(found) == 1:
        return found[0]
    return Found(
        [key for one in found for key in one.keys],
        np.concatenate([one.values for one in found]),
        tuple(warning for one in found for warning in one.warnings),
        tuple(why for one in found for why in one.partial),
    )


def _too_many(address: str, rows_max: int) -> TooManySeries:
    return TooManySeries(
        f"{address} answered more than {rows_max} series, the memory for one lot: "
        "narrow the namespaces or the time range, or raise lots_max_bytes"
    )


def _drop_nonsense(values: NDArray[np.float64]) -> None:
    """Make missing what is negative or infinite: no usage is."""
    with np.errstate(invalid="ignore"):
        np.putmask(values, ~((values >= 0) & (values < np.inf)), np.nan)


def _unique(keys: list[Key], values: NDArray[np.float64], warnings: tuple[str, ...]) -> Found:
    """Let the larger value win where a container is scraped twice."""
    rows: dict[Key, int] = {}
    for row, key in enumerate(keys):
        first = rows.setdefault(key, row)
        if first != row:
            np.fmax(values[first], values[row], out=values[first])
    if len(rows) == len(keys):
        return Found(keys, values, warnings)
    return Found(list(rows), values[list(rows.values())], warnings)
