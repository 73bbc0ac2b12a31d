"""Two ways to the same numbers: raw samples that we reduce, and PromQL that the server reduces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.decode import HISTOGRAMS_LEFT_OUT
from equipoise.adapters.prometheus.errors import TooManySeries
from equipoise.adapters.prometheus.matrix import Grid, Key
from equipoise.adapters.prometheus.measures import Measure, expression, reduce
from equipoise.adapters.prometheus.promql import Matcher, selector
from equipoise.adapters.prometheus.range import RangeQuery, query_range
from equipoise.adapters.prometheus.remote_read.rates import Samples, Steps
from equipoise.adapters.prometheus.remote_read.read import RemoteRead
from equipoise.adapters.prometheus.remote_read.request import by_name
from equipoise.adapters.prometheus.settings import Names


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A row for each container, each once; NaN where a number is missing or is none that usage can be."""

    keys: list[Key]
    values: NDArray[np.float64]
    warnings: tuple[str, ...] = ()


def by_remote_read(
    reader: RemoteRead,
    names: Names,
    measure: Measure,
    matchers: Sequence[Matcher],
    grid: Grid,
    window_ms: int,
    *,
    rows_max: int,
    is_closed: bool,
    on_bytes: Callable[[int], None] | None = None,
) -> Found:
    """Read raw samples and reduce them batch by batch as they come."""
    steps = Steps(grid.start_ms, grid.step_ms, grid.count, window_ms, is_closed)
    # Only what is written to takes memory.
    values = np.empty((rows_max, grid.count))
    keys: list[Key] = []
    histograms = 0
    asked = (by_name(measure.metric), *matchers)
    for batch in reader.series(asked, grid.start_ms - window_ms, grid.end_ms, on_bytes):
        first, end = len(keys), len(keys) + len(batch.labels)
        if end > rows_max:
            raise TooManySeries(
                f"{reader.address} answered more than {rows_max} series, the memory for one lot: "
                "narrow the namespaces or the time range, or raise lots_max_bytes"
            )
        reduce(measure, Samples(batch.offsets, batch.times, batch.values), steps, values[first:end])
        _drop_nonsense(values[first:end])
        keys += batch.columns(names.labels)
        histograms += batch.histograms
    warnings = (HISTOGRAMS_LEFT_OUT,) if histograms else ()
    return _unique(keys, values[: len(keys)], warnings)


def by_promql(
    client: Client,
    names: Names,
    measure: Measure,
    matchers: Sequence[Matcher],
    grid: Grid,
    window_ms: int,
) -> Found:
    """Let the server reduce, in range queries that are split until they fit."""
    query = RangeQuery(
        expression(measure, selector(measure.metric, matchers), window_ms),
        start=grid.start_ms / 1000,
        end=grid.end_ms / 1000,
        step_seconds=grid.step_ms / 1000,
        labels=names.labels,
        names=names,
        duplicates="max",
    )
    matrix = query_range(client, query)
    values = matrix.values.astype(np.float64, copy=False)
    _drop_nonsense(values)
    return Found(matrix.keys, values, matrix.warnings)


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
