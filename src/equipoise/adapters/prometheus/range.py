"""Range queries of any length: split by time, asked for in parallel, put together.

Times are multiples of the step and every time belongs to exactly one request, so that no point is
lost or doubled at a seam. A request that proves too large is cut in two.

Raw samples as JSON: what a selector of a range answers at one time.

It costs the server two thirds of a rate at each step, and is then reduced by us as a remote read is. A long
answer costs it more than several short ones, in memory that is fresh each time: so a long time is asked for
in parts, whose series are put together here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import simdjson
from numpy.typing import NDArray

from equipoise.adapters.prometheus.client import OnBytes, PrometheusClient
from equipoise.adapters.prometheus.decode import QueryAnswer, decode_json, decode_number, expect
from equipoise.adapters.prometheus.errors import SPLITTABLE, Malformed, QueryFailed, TooManySeries
from equipoise.adapters.prometheus.matrix import (
    POINT_BYTES,
    SECONDS_MAX,
    Grid,
    Key,
    Matrix,
    concatenate,
    decode_matrix,
    each_series,
    points,
)
from equipoise.adapters.prometheus.remote_read.rates import rates_over
from equipoise.adapters.prometheus.remote_read.windows import STALE, RawSamples

Labels = tuple[tuple[str, str], ...]
Floats = NDArray[np.float64]

LOOKBACK_MS = 300_000
"""A series whose last sample is older has no present value: Prometheus' own rule."""
PARTS_MAX = 8
PART_MAX_BYTES = 12 * 1024 * 1024
"""How long an answer is planned to be: twice as long costs the server a fifth more, half as long no less."""
SAMPLES_AT_ONCE = 256 * 1024
"""So many are given at once, so that they are in the processor's cache when they are reduced."""


def query_range(
    client: PrometheusClient,
    expression: str,
    grid: Grid,
    labels: Sequence[str],
    on_bytes: OnBytes | None = None,
) -> Matrix:
    """Return the series of a query on a grid of any length, with these of their labels."""
    limits = client.limits
    bytes_planned = POINT_BYTES * _series_planned(client, expression, grid)
    points_max = min(limits.points_max, max(1, limits.answer_max_bytes // bytes_planned))
    firsts = range(0, grid.count, points_max)
    stretches = [grid.part(first, min(points_max, grid.count - first)) for first in firsts]
    answers = client.each(lambda part: _ask(client, expression, part, labels, on_bytes), stretches)
    parts = [part for answer in answers for part in answer]
    return parts[0] if len(parts) == 1 else concatenate(parts, grid)


def _series_planned(client: PrometheusClient, expression: str, grid: Grid) -> int:
    """Return how many series there are at the end, or the limit where that is not known or all would fit."""
    limits = client.limits
    if POINT_BYTES * limits.series_max * grid.count <= limits.answer_max_bytes:
        return limits.series_max
    try:
        counted = decode_number(client.instant(f"count({expression})", grid.end_ms / 1000))
    except QueryFailed:
        return limits.series_max
    return int(min(limits.series_max, counted)) if counted is not None and counted >= 1 else 1


def _ask(
    client: PrometheusClient, expression: str, grid: Grid, labels: Sequence[str], on_bytes: OnBytes | None
) -> list[Matrix]:
    """Return a stretch of series, in two halves where it is too large; less time is no fewer series."""
    try:
        answer = client.range(expression, grid, on_bytes)
        return [decode_matrix(answer, labels, grid, client.limits.series_max)]
    except SPLITTABLE as error:
        if isinstance(error, TooManySeries) or grid.count == 1:
            raise
    half = grid.count // 2
    halves = grid.part(0, half), grid.part(half, grid.count - half)
    return [found for part in halves for found in _ask(client, expression, part, labels, on_bytes)]


@dataclass(slots=True)
class _Scraped:
    """What has come of one series: times that rise, and as many values."""

    key: Key
    times_ms: list[NDArray[np.int64]] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    count: int = 0

    def add(self, times_ms: NDArray[np.int64], values: Floats) -> None:
        """Put samples behind the others; what a part before has told is left out."""
        first = 0
        if self.times_ms:
            first = int(np.searchsorted(times_ms, self.times_ms[-1][-1], side="right"))
        if first < len(times_ms):
            self.times_ms.append(times_ms[first:])
            self.values.append(np.ascontiguousarray(values[first:]))  # not the times beside them, too
            self.count += len(times_ms) - first


class Raw:
    """Series as they were scraped, from answers about times that follow one another; two may have one key."""

    def __init__(self, *, is_as_stored: bool = False) -> None:
        self._is_as_stored = is_as_stored
        """Whether twins and stale markers are given too, as VictoriaMetrics does."""
        self.has_histograms = False
        """Whether samples were left out since they are no floats."""
        self._series: dict[tuple[Labels, int], _Scraped] = {}
        self._answers = 0

    def __len__(self) -> int:
        return len(self._series)

    @property
    def samples(self) -> int:
        return sum(one.count for one in self._series.values())

    def add(self, answer: QueryAnswer, labels: Sequence[str], series_max: int) -> None:
        """Add an answer to a selector of a range; in each series the times rise, or it is refused.

        So are two series with the same labels, where there are several answers: nobody knows which is which.
        """
        expect(answer, "matrix")
        self._answers += 1
        parser, seen = simdjson.Parser(), Counter[Labels]()
        for one in each_series(answer, labels, series_max):
            self.has_histograms |= one.has_histograms
            if one.values:
                seconds, values = points(one.values, parser, answer.address)
                if self._is_as_stored:
                    seconds, values = _as_scraped(seconds, values)
                times_ms = _rising(seconds, answer.address)
                if not len(times_ms):
                    continue
                # In whatever order they are written.
                labels_read = tuple(sorted(decode_json(one.labels, dict[str, str], answer.address).items()))
                name = labels_read, seen[labels_read]
                seen[labels_read] += 1
                self._series.setdefault(name, _Scraped(one.key)).add(times_ms, values)
        if self._answers > 1 and any(number for _, number in self._series):
            raise Malformed(f"{answer.address} answered two series that have the same labels")

    def batches(self) -> Iterator[tuple[list[Key], RawSamples]]:
        """Yield all series, some at a time, each with its key."""
        held: list[_Scraped] = []
        samples = 0
        for one in self._series.values():
            held.append(one)
            samples += one.count
            if samples >= SAMPLES_AT_ONCE:
                yield _joined(held)
                held, samples = [], 0
        if held:
            yield _joined(held)


class WindowEnd(NamedTuple):
    """What samples tell about the window that ends now: one entry for each series."""

    keys: list[Key]
    rates: Floats
    """Per second, as Prometheus' `rate` has them."""
    spans: Floats
    """Seconds from the first to the last sample."""
    counts: Floats
    last: Floats
    """When the last sample was taken; NaN where the series has ended since."""


def at_the_end(raw: Raw, at_ms: int, window_ms: int) -> WindowEnd:
    """Reduce the samples of one window."""
    keys: list[Key] = []
    found: list[tuple[Floats, ...]] = []
    for some, held in raw.batches():
        is_ended = held.values[held.offsets[1:] - 1].view(np.int64) == STALE
        samples = held.without_stale()
        begin, end = samples.offsets[:-1], samples.offsets[1:]
        counts = (end - begin).astype(np.float64)
        spans, last = np.full(len(some), np.nan), np.full(len(some), np.nan)
        has = np.flatnonzero(counts)
        first_ms, last_ms = samples.times_ms[begin[has]], samples.times_ms[end[has] - 1]
        spans[has], last[has] = (last_ms - first_ms) / 1000.0, last_ms / 1000.0
        last[is_ended | (last < (at_ms - LOOKBACK_MS) / 1000.0)] = np.nan
        keys += some
        found.append((rates_over(samples, at_ms, window_ms), spans, counts, last))
    if not found:
        found.append((np.zeros(0),) * 4)
    return WindowEnd(keys, *(np.concatenate(column) for column in zip(*found, strict=True)))


def _joined(series: Sequence[_Scraped]) -> tuple[list[Key], RawSamples]:
    offsets = np.cumsum([0, *(one.count for one in series)])
    times_ms = np.concatenate([part for one in series for part in one.times_ms])
    values = np.concatenate([part for one in series for part in one.values])
    return [one.key for one in series], RawSamples(offsets, times_ms, values)


def _as_scraped(seconds: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Leave out twins, of which the last counts, and mark as the end what stands for it: NaN."""
    if len(seconds) > 1:
        is_kept = np.append(seconds[1:] != seconds[:-1], True)
        if not is_kept.all():
            seconds, values = seconds[is_kept], values[is_kept]
    is_end = np.isnan(values)
    if is_end.any():
        values = np.ascontiguousarray(values)
        values.view(np.int64)[is_end] = STALE
    return seconds, values


def _rising(seconds: Floats, address: str) -> NDArray[np.int64]:
    with np.errstate(over="ignore"):
        times_ms = seconds * 1000
    np.rint(times_ms, out=times_ms)
    if not (times_ms[1:] > times_ms[:-1]).all():
        raise Malformed(f"{address} answered samples of one series that are not in the order of time")
    if len(seconds) and not -SECONDS_MAX <= seconds[0] <= seconds[-1] <= SECONDS_MAX:
        raise Malformed(f"{address} answered an invalid timestamp")
    return times_ms.astype(np.int64)


def spans(start_ms: int, end_ms: int, text_bytes: float) -> list[tuple[int, int]]:
    """Cut a time into as many parts as its text is worth: of each its end, and how far it reaches back.

    It is cut at whole seconds: a server may read the time 0.043 as 0.042, and lose the sample between.
    """
    parts = min(max(1, -int(-text_bytes // PART_MAX_BYTES)), PARTS_MAX)
    cuts = {(start_ms + (end_ms - start_ms) * part // parts) // 1000 * 1000 for part in range(1, parts)}
    ends = [start_ms, *sorted(cut for cut in cuts if start_ms < cut < end_ms), end_ms]
    assert all(begin <= end for begin, end in pairwise(ends)), "the parts follow one another"
    return [(end, end - begin) for begin, end in pairwise(ends)]
