"""Range answers onto a fixed time grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import simdjson
from numpy.typing import NDArray

from equipoise.adapters.prometheus.decode import HISTOGRAMS_LEFT_OUT, Answer, expect, tidy
from equipoise.adapters.prometheus.errors import Malformed
from equipoise.adapters.prometheus.series import SECONDS_MAX, Key, each_series, points
from equipoise.model.errors import BadInput

Duplicates = Literal["max", "error"]
Float = np.float64 | np.float32
Floats = NDArray[Float]


@dataclass(frozen=True, slots=True)
class Grid:
    """Evenly spaced times, in whole milliseconds as Prometheus keeps them."""

    start_ms: int
    step_ms: int
    count: int

    @classmethod
    def over(cls, start: float, end: float, step_seconds: float) -> Grid:
        """Give the multiples of the step within [start, end].

        Caches in front of a Prometheus move a range to multiples of its step; ours is there already.
        """
        step_ms = round(step_seconds * 1000)
        if step_ms < 1:
            raise BadInput(f"step: at least 0.001 seconds was expected, not {step_seconds}")
        first = -(-round(start * 1000) // step_ms)
        last = round(end * 1000) // step_ms
        if last < first:
            raise BadInput(f"range: no multiple of {step_seconds} seconds lies from {start} to {end}")
        return cls(first * step_ms, step_ms, last - first + 1)

    @property
    def end_ms(self) -> int:
        """The last time."""
        return self.start_ms + (self.count - 1) * self.step_ms

    @property
    def timestamps(self) -> NDArray[np.float64]:
        """All times as Unix seconds."""
        return (self.start_ms + np.arange(self.count, dtype=np.int64) * self.step_ms) / 1000.0

    def part(self, first: int, count: int) -> Grid:
        """Give a stretch of this grid."""
        return Grid(self.start_ms + first * self.step_ms, self.step_ms, count)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Series as rows on one time grid; NaN where there is no sample."""

    keys: list[Key]
    timestamps: NDArray[np.float64]
    values: Floats
    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    """Why data may be missing, in the server's words."""


def decode_matrix(
    answer: Answer,
    labels: Sequence[str],
    grid: Grid,
    series_max: int,
    *,
    dtype: type[Float] = np.float64,
    duplicates: Duplicates = "error",
) -> Matrix:
    """Decode a range answer.

    Points outside the grid's ends are left out; points between its times, or two at one time, are
    refused. Series that are the same in these labels are refused, or the larger value wins.
    """
    expect(answer, "matrix")
    series = each_series(answer, labels, series_max)
    keys: list[Key] = []
    has_histograms = False
    values = np.full((len(series), grid.count), np.nan, dtype=dtype)
    parser, every = simdjson.Parser(), grid.timestamps
    for one in series:
        has_histograms |= one.has_histograms
        if not one.values:
            if not one.has_histograms:
                raise Malformed(f"{answer.address} answered a series without values")
            continue
        times, samples = points(one.values, parser, answer.address)
        row = values[len(keys)]
        if np.array_equal(times, every):
            row[:] = samples
        else:
            _place(times, samples, grid, row, answer.address)
        keys.append(one.key)
    values = values[: len(keys)]
    warnings = tidy((*answer.warnings, HISTOGRAMS_LEFT_OUT)) if has_histograms else answer.warnings
    if len(set(keys)) != len(keys):
        keys, values = _without_duplicates(keys, values, duplicates, answer.address)
    return Matrix(keys, grid.timestamps, values, warnings, answer.infos, answer.partial)


def _place(
    times: NDArray[np.float64], samples: NDArray[np.float64], grid: Grid, row: Floats, address: str
) -> None:
    if len(times) and float(np.abs(times).max()) > SECONDS_MAX:
        raise Malformed(f"{address} answered a timestamp that is no time")
    index, between = np.divmod(np.rint(times * 1000).astype(np.int64) - grid.start_ms, grid.step_ms)
    if between.any():
        raise Malformed(f"{address} answered points between the steps of {grid.step_ms / 1000:g} s asked for")
    if (np.diff(index) <= 0).any() and len(np.unique(index)) != len(index):
        raise Malformed(f"{address} answered two points at one time in one series")
    is_inside = (index >= 0) & (index < grid.count)
    with np.errstate(over="ignore"):  # beyond float32 is infinite
        row[index[is_inside]] = samples[is_inside]


def _without_duplicates(
    keys: Sequence[Key], values: Floats, duplicates: Duplicates, address: str
) -> tuple[list[Key], Floats]:
    rows: dict[Key, int] = {}
    for row, key in enumerate(keys):
        first = rows.setdefault(key, row)
        if first != row:
            if duplicates == "error":
                named = ", ".join(key) or "no labels"
                raise Malformed(f"{address} answered several series for ({named}): one was expected")
            np.fmax(values[first], values[row], out=values[first])
    return list(rows), values[list(rows.values())]


def concatenate(
    parts: Iterable[tuple[int, Matrix]],
    grid: Grid,
    address: str,
    *,
    dtype: type[Float] = np.float64,
    duplicates: Duplicates = "error",
) -> Matrix:
    """Put stretches of series, each with the index of its first time, into one matrix."""
    held = list(parts)
    rows: dict[Key, int] = {}
    for _, part in held:
        for key in part.keys:
            rows.setdefault(key, len(rows))
    values = np.full((len(rows), grid.count), np.nan, dtype=dtype)
    for first, part in held:
        where = np.fromiter((rows[key] for key in part.keys), dtype=np.intp, count=len(part.keys))
        columns = slice(first, first + part.values.shape[1])
        before = values[where, columns]
        if duplicates == "error" and bool((~np.isnan(before) & ~np.isnan(part.values)).any()):
            raise Malformed(f"{address} answered one series in two parts of a query")
        values[where, columns] = np.fmax(before, part.values)
    warnings = tidy(warning for _, part in held for warning in part.warnings)
    infos = tidy(info for _, part in held for info in part.infos)
    partial = tidy(why for _, part in held for why in part.partial)
    return Matrix(list(rows), grid.timestamps, values, warnings, infos, partial)
