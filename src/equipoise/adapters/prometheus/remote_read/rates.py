"""Raw samples onto an even grid of times: the rate of counters, the last value of gauges; or their highest.

Pure: arrays in, one row for each series out, NaN where too little is known. A window holds the samples
after its begin, up to and with its end; before version 3, Prometheus also counted one right at its begin.
The rate is Prometheus' own: the rise with resets made good, stretched to the window's ends where the
next sample would have been about due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STALE = 0x7FF0_0000_0000_0002
"""The bits of the NaN that marks the end of a series."""
CELLS_AT_ONCE = 64 * 1024
"""Rows are reduced in lots whose arrays stay in the processor's cache."""
DUE = 1.1
"""A sample was about due when it is missing for no longer than so many intervals."""
COUNTER_MAX = 1e12
"""In seconds, thirty thousand years of a core: more is no count.

What resets lose is added up for all series of a lot; beside such a number the others' would be rounded away.
"""
WINDOW_INTERVALS = 2.5
"""Two samples at the least, even where they are late; and no edge falls on an even grid of samples."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Series one behind the other, each with rising times."""

    offsets: Integers
    """Where each series begins, and the end of the last."""
    times_ms: Integers
    values: Floats

    def without_stale(self) -> Samples:
        """Leave out stale markers, which say that a series ended, and are no samples."""
        is_kept = self.values.view(np.int64) != STALE
        if is_kept.all():
            return self
        before = np.concatenate(([0], np.cumsum(is_kept)))
        return Samples(before[self.offsets], self.times_ms[is_kept], self.values[is_kept])

    def part(self, first: int, last: int) -> Samples:
        """Give some of the series."""
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        offsets = self.offsets[first : last + 1] - begin
        return Samples(offsets, self.times_ms[begin:end], self.values[begin:end])


@dataclass(frozen=True, slots=True)
class Steps:
    """The times to reduce to, and how far back each looks."""

    start_ms: int
    step_ms: int
    count: int
    window_ms: int
    is_closed: bool = False
    """Whether a sample right at a window's begin is in it."""

    @property
    def times_ms(self) -> Integers:
        """All times."""
        return self.start_ms + np.arange(self.count, dtype=np.int64) * self.step_ms


Reduce = Callable[[Samples, Steps, Integers, Floats], None]


def window_for(interval_ms: float, step_ms: int) -> int:
    """Give a window that misses no sample between steps and holds two, for samples at this interval."""
    intervals = max(2, -(-step_ms // max(1, round(interval_ms))))
    return round((intervals + WINDOW_INTERVALS - 2) * interval_ms)


def intervals_of(samples: Samples) -> Floats:
    """Give the mean time between two samples of each series, in milliseconds; NaN without two."""
    counts = np.diff(samples.offsets)
    usual = np.full(len(counts), np.nan)
    many = np.flatnonzero(counts > 1)
    spans = samples.times_ms[samples.offsets[many + 1] - 1] - samples.times_ms[samples.offsets[many]]
    usual[many] = spans / (counts[many] - 1)
    return usual


def rates(samples: Samples, steps: Steps, out: Floats | None = None) -> Floats:
    """Give the rise of counters per second."""
    return _reduced(samples.without_stale(), steps, _rates, out)


def highest(samples: Samples, steps: Steps, out: Floats | None = None) -> Floats:
    """Give the highest of all samples, in the only column: one window has them all."""
    samples = samples.without_stale()
    if out is None:
        out = np.empty((len(samples.offsets) - 1, steps.count))
    out[:] = np.nan
    some = np.flatnonzero(np.diff(samples.offsets))
    if len(some):
        out[some, 0] = np.fmax.reduceat(samples.values, samples.offsets[some])
    return out


def last(samples: Samples, steps: Steps, out: Floats | None = None) -> Floats:
    """Give the last value within each window; none where the series was marked as ended since."""
    return _reduced(samples, steps, _last, out)


def _reduced(samples: Samples, steps: Steps, reduce: Reduce, out: Floats | None) -> Floats:
    rows = len(samples.offsets) - 1
    if out is None:
        out = np.empty((rows, steps.count))
    windows = _windows(samples, steps)
    lot = max(1, CELLS_AT_ONCE // max(1, steps.count))
    for first in range(0, rows, lot):
        end = min(first + lot, rows)
        part = samples.part(first, end)
        if len(part.times_ms):
            reduce(part, steps, windows[first:end], out[first:end])
        else:
            out[first:end] = np.nan
    return out


def _windows(samples: Samples, steps: Steps) -> Integers:
    """Widen the window of series that are sampled too slowly for it."""
    windows = np.full(len(samples.offsets) - 1, steps.window_ms, dtype=np.int64)
    with np.errstate(invalid="ignore"):
        slow = np.flatnonzero(2 * intervals_of(samples) > steps.window_ms)
    for row in slow.tolist():
        # The mean that was compared counts gaps as well; the median does not.
        interval = float(np.median(np.diff(samples.part(row, row + 1).times_ms)))
        if 2 * interval > steps.window_ms:
            windows[row] = window_for(interval, steps.step_ms)
    return windows


def _ends(part: Samples, steps: Steps, late_ms: Integers | int) -> Integers:
    """Give, for each series and step, the index after the last sample that is at least so old."""
    rows = len(part.offsets) - 1
    counts = np.diff(part.offsets)
    if isinstance(late_ms, np.ndarray):
        late_ms = np.repeat(late_ms, counts)
    behind = part.times_ms + (late_ms - steps.start_ms + steps.step_ms - 1)
    slots = np.clip(behind // steps.step_ms, 0, steps.count)
    slots += np.repeat(np.arange(rows) * (steps.count + 1), counts)
    counted = np.bincount(slots, minlength=rows * (steps.count + 1))
    return np.cumsum(counted).reshape(rows, steps.count + 1)[:, : steps.count]


def _bounds(part: Samples, steps: Steps, windows: Integers) -> tuple[Integers, Integers]:
    return _ends(part, steps, windows + steps.is_closed), _ends(part, steps, 0)


def _last(part: Samples, steps: Steps, windows: Integers, out: Floats) -> None:
    begin, end = _bounds(part, steps, windows)
    part.values.take(end - 1, out=out, mode="clip")
    out[end == begin] = np.nan


def _rates(part: Samples, steps: Steps, windows: Integers, out: Floats) -> None:
    begin, end = _bounds(part, steps, windows)
    count = end - begin
    final = end - 1
    values, lost, broken = _mended(part)
    rise = values.take(final, out=out, mode="clip")
    rise -= values.take(begin, mode="clip")
    if lost is not None:
        rise += lost.take(final, mode="clip") - lost.take(begin, mode="clip")
    times = (part.times_ms - steps.start_ms).astype(np.float64)
    now = np.arange(steps.count) * float(steps.step_ms)
    span, to_start = times.take(final, mode="clip"), times.take(begin, mode="clip")
    to_end = now - span
    span -= to_start
    to_start -= now - windows[:, None]
    # In seconds from here on, as Prometheus reckons, so that even ties go the same way.
    span /= 1000.0
    to_start /= 1000.0
    to_end /= 1000.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        average = span / (count - 1)
        _stop_at_zero(to_start, span, rise, part.values.take(begin, mode="clip"))
        reach = span + _stretch(to_start, average)
        reach += _stretch(to_end, average)
        reach /= span
        reach /= windows[:, None] / 1000.0
        rise *= reach
    rise[count < 2] = np.nan  # noqa: PLR2004
    if broken is not None:
        rise[broken[end] != broken[begin]] = np.nan


def _stretch(to_edge: Floats, average: Floats) -> Floats:
    """Reach for the window's edge where a sample was about due there, else half an interval."""
    return np.where(to_edge < average * DUE, to_edge, average * 0.5)


def _mended(part: Samples) -> tuple[Floats, Floats | None, Integers | None]:
    """Give the values, what resets lost before each, and how many were no numbers before each; None for none.

    What was lost is kept apart, so that a rise without a reset is not rounded.
    """
    values, broken = part.values, None
    is_number = np.abs(values) < COUNTER_MAX
    if not is_number.all():
        broken = np.concatenate(([0], np.cumsum(~is_number)))
        values = np.where(is_number, values, 0.0)
    falls = np.flatnonzero(values[1:] < values[:-1]) + 1
    # From one series to the next is no fall.
    falls = falls[~np.isin(falls, part.offsets)]
    if not len(falls):
        return values, None, broken
    lost = np.zeros(len(values))
    lost[falls] = values[falls - 1]
    return values, np.cumsum(lost), broken


def _stop_at_zero(to_start: Floats, span: Floats, rise: Floats, value: Floats) -> None:
    """Stretch back no further than to where the counter would have been 0."""
    is_short = (span * value < to_start * rise) & (value >= 0)
    if is_short.any():
        to_start[is_short] = span[is_short] * (value[is_short] / rise[is_short])


__all__ = [
    "Samples",
    "Steps",
    "highest",
    "intervals_of",
    "last",
    "rates",
    "window_for",
]
