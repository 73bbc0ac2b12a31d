"""Raw samples onto an even grid of times: the rate of counters, the last value of gauges; or their highest.

Pure: arrays in, one row for each series out, NaN where too little is known. A window holds the samples
after its begin, up to and with its end; before version 3, Prometheus also counted one right at its begin.
The rate is Prometheus' own: the rise with resets made good, stretched to the window's ends where the
next sample would have been about due.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from equipoise.adapters.prometheus.remote_read.windows import (
    COUNTER_MAX,
    Floats,
    Integers,
    RawSamples,
    Steps,
    even_rates,
    stretch,
)

CELLS_AT_ONCE = 64 * 1024
"""Rows are reduced in lots whose arrays stay in the processor's cache."""
WINDOW_INTERVALS = 2.5
"""Two samples at the least, even where they are late; and no edge falls on an even grid of samples."""

Reduce = Callable[[RawSamples, Steps, Integers, Floats], None]


def window_for(interval_ms: float, step_ms: int) -> int:
    """Return a window that misses no sample between steps and holds two, for samples at this interval."""
    intervals = max(2, -(-step_ms // max(1, round(interval_ms))))
    return round((intervals + WINDOW_INTERVALS - 2) * interval_ms)


def intervals_of(samples: RawSamples) -> Floats:
    """Return the mean time between two samples of each series, in milliseconds; NaN without two."""
    counts = np.diff(samples.offsets)
    usual = np.full(len(counts), np.nan)
    many = np.flatnonzero(counts > 1)
    spans = samples.times_ms[samples.offsets[many + 1] - 1] - samples.times_ms[samples.offsets[many]]
    usual[many] = spans / (counts[many] - 1)
    return usual


def rates(samples: RawSamples, steps: Steps, out: Floats | None = None) -> Floats:
    """Return the rise of counters per second."""
    samples = samples.without_stale()
    if out is None:
        out = np.empty((len(samples.offsets) - 1, steps.count))
    windows = _windows(samples, steps)
    usual = np.flatnonzero(windows == steps.window_ms).tolist()
    is_left = windows != steps.window_ms
    for row, columns in even_rates(samples, steps, usual, out):
        if columns is None:
            is_left[row] = True
        else:
            out[row, columns] = _rates_at(samples.part(row, row + 1), steps, columns)
    rows = np.flatnonzero(is_left)
    for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else ():
        first, end = int(run[0]), int(run[-1]) + 1
        _reduced(samples.part(first, end), steps, windows[first:end], _rates, out[first:end])
    return out


def rates_over(samples: RawSamples, at_ms: int, window_ms: int) -> Floats:
    """Return the rise of counters per second over one window, the same for all series."""
    out = np.empty((len(samples.offsets) - 1, 1))
    windows = np.full(len(out), window_ms, dtype=np.int64)
    _reduced(samples.without_stale(), Steps(at_ms, 1, 1, window_ms), windows, _rates, out)
    return out[:, 0]


def highest(samples: RawSamples, steps: Steps, out: Floats | None = None) -> Floats:
    """Return the highest of all samples, in the only column: one window has them all."""
    samples = samples.without_stale()
    if out is None:
        out = np.empty((len(samples.offsets) - 1, steps.count))
    out[:] = np.nan
    some = np.flatnonzero(np.diff(samples.offsets))
    if len(some):
        out[some, 0] = np.fmax.reduceat(samples.values, samples.offsets[some])
    return out


def last(samples: RawSamples, steps: Steps, out: Floats | None = None) -> Floats:
    """Return the last value within each window; none where the series was marked as ended since."""
    if out is None:
        out = np.empty((len(samples.offsets) - 1, steps.count))
    _reduced(samples, steps, _windows(samples, steps), _last, out)
    return out


def _reduced(samples: RawSamples, steps: Steps, windows: Integers, reduce: Reduce, out: Floats) -> None:
    rows = len(samples.offsets) - 1
    batch = max(1, CELLS_AT_ONCE // max(1, steps.count))
    for first in range(0, rows, batch):
        end = min(first + batch, rows)
        part = samples.part(first, end)
        if len(part.times_ms):
            reduce(part, steps, windows[first:end], out[first:end])
        else:
            out[first:end] = np.nan


def _windows(samples: RawSamples, steps: Steps) -> Integers:
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


def _ends(part: RawSamples, steps: Steps, late_ms: Integers | int) -> Integers:
    """Return, for each series and step, the index after the last sample that is at least so old."""
    rows = len(part.offsets) - 1
    counts = np.diff(part.offsets)
    if isinstance(late_ms, np.ndarray):
        late_ms = np.repeat(late_ms, counts)
    behind = part.times_ms + (late_ms - steps.start_ms + steps.step_ms - 1)
    slots = np.clip(behind // steps.step_ms, 0, steps.count)
    slots += np.repeat(np.arange(rows) * (steps.count + 1), counts)
    counted = np.bincount(slots, minlength=rows * (steps.count + 1))
    return np.cumsum(counted).reshape(rows, steps.count + 1)[:, : steps.count]


def _bounds(part: RawSamples, steps: Steps, windows: Integers) -> tuple[Integers, Integers]:
    return _ends(part, steps, windows + steps.is_closed), _ends(part, steps, 0)


def _last(part: RawSamples, steps: Steps, windows: Integers, out: Floats) -> None:
    begin, end = _bounds(part, steps, windows)
    part.values.take(end - 1, out=out, mode="clip")
    out[end == begin] = np.nan


def _rates(part: RawSamples, steps: Steps, windows: Integers, out: Floats) -> None:
    begin, end = _bounds(part, steps, windows)
    now = (np.arange(steps.count) * steps.step_ms).astype(np.float64)
    _rate(part, steps, (begin, end), now, windows[:, None], out)


def _rates_at(series: RawSamples, steps: Steps, columns: Integers) -> Floats:
    """Return the rates of one series at some of the steps."""
    times, now = series.times_ms - steps.start_ms, columns * steps.step_ms
    begin = np.searchsorted(times, now - steps.window_ms, side="left" if steps.is_closed else "right")
    end = np.searchsorted(times, now, side="right")
    found = np.empty(len(columns))
    _rate(series, steps, (begin, end), now.astype(np.float64), np.array(steps.window_ms), found)
    return found


def _rate(
    part: RawSamples,
    steps: Steps,
    bounds: tuple[Integers, Integers],
    now: Floats,
    windows: Integers,
    out: Floats,
) -> None:
    """Reckon the rates of windows, given where the samples of each begin and end."""
    begin, end = bounds
    count = end - begin
    final = end - 1
    values, lost, broken = _mended(part)
    rise = values.take(final, out=out, mode="clip")
    rise -= values.take(begin, mode="clip")
    if lost is not None:
        rise += lost.take(final, mode="clip") - lost.take(begin, mode="clip")
    times = (part.times_ms - steps.start_ms).astype(np.float64)
    span, to_start = times.take(final, mode="clip"), times.take(begin, mode="clip")
    to_end = now - span
    span -= to_start
    to_start -= now - windows
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = part.values.take(begin, mode="clip")
        stretch(rise, value, (span, to_start, to_end), count - 1, windows)
    rise[count < 2] = np.nan  # noqa: PLR2004
    if broken is not None:
        rise[broken[end] != broken[begin]] = np.nan


def _mended(part: RawSamples) -> tuple[Floats, Floats | None, Integers | None]:
    """Return the values, what resets lost before each, and how many NaN came before each; None for none.

    What was lost is kept apart, so that a rise without a reset is not rounded.
    """
    values, broken = part.values, None
    is_number = np.abs(values) < COUNTER_MAX
    if not is_number.all():
        broken = np.concatenate(([0], np.cumsum(~is_number)))
        values = np.where(is_number, values, 0.0)
    falls = np.flatnonzero(values[1:] < values[:-1]) + 1
    if len(falls):  # from one series to the next is none
        falls = falls[~np.isin(falls, part.offsets)]
    if not len(falls):
        return values, None, broken
    lost = np.zeros(len(values))
    lost[falls] = values[falls - 1]
    # By series, so that the rounding of one is no matter of its neighbours.
    for row in np.unique(np.searchsorted(part.offsets, falls, side="right") - 1).tolist():
        series = lost[part.offsets[row] : part.offsets[row + 1]]
        np.cumsum(series, out=series)
    return values, lost, broken
