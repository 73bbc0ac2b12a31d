"""Samples of many series, and the windows of time that they are looked at in.

Rates of counters whose samples come evenly: one in each slot of time, as most do.

Then the samples of a window need not be looked for. Its last one stands a fixed number of places further than
that of the window before, and its first one is one of two: all are slices, for two thirds of what it costs to
find and gather them. What is not even (a gap, a reset, two samples in a slot) is left to who looks for each
sample. The reckoning is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STALE = 0x7FF0_0000_0000_0002
"""The bits of the NaN that marks the end of a series."""
DUE = 1.1
"""A sample was about due when it is missing for no longer than so many intervals."""
COUNTER_MAX = 1e12
"""In seconds, thirty thousand years of a core: more is no count.

What resets lose is added up; beside such a number, what the others lost would be rounded away.
"""


@dataclass(frozen=True, slots=True, eq=False)
class RawSamples:
    """Series one behind the other, each with rising times."""

    offsets: Integers
    """Where each series begins, and the end of the last."""
    times_ms: Integers
    values: Floats

    def __post_init__(self) -> None:
        assert self.offsets[-1] == len(self.times_ms) == len(self.values), "the last series ends at the end"

    def without_stale(self) -> RawSamples:
        """Leave out stale markers, which say that a series ended, and are no samples."""
        is_kept = self.values.view(np.int64) != STALE
        if is_kept.all():
            return self
        before = np.concatenate(([0], np.cumsum(is_kept)))
        return RawSamples(before[self.offsets], self.times_ms[is_kept], self.values[is_kept])

    def part(self, first: int, last: int) -> RawSamples:
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        offsets = self.offsets[first : last + 1] - begin
        return RawSamples(offsets, self.times_ms[begin:end], self.values[begin:end])


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
        return self.start_ms + np.arange(self.count, dtype=np.int64) * self.step_ms


def stretch(
    rise: Floats,
    value: Floats,
    lengths_ms: tuple[Floats, Floats, Floats],
    intervals: Floats | Integers,
    windows_ms: Integers | int,
) -> None:
    """Make rates of rises: each is stretched from its span to its window, and divided by that.

    The lengths are the span, and how far the window reaches before the first sample and after the last; they
    are spoilt. The value is the first sample's. There is at least one.
    """
    # In seconds, as Prometheus reckons, so that even ties go the same way.
    span, to_start, to_end = (np.divide(length, 1000.0, out=length) for length in lengths_ms)
    average = span / intervals
    _stop_at_zero(to_start, span, rise, value)
    reach = span + _stretched(to_start, average)
    reach += _stretched(to_end, average)
    reach /= span
    reach /= windows_ms / 1000.0
    rise *= reach


def _stop_at_zero(to_start: Floats, span: Floats, rise: Floats, value: Floats) -> None:
    """Stretch back no further than to where the counter would have been 0."""
    least, most = value.min(), to_start.max() * rise.max()
    if least >= 0 and most >= 0 and least * span.min() >= most:
        return  # none is short, which is quicker to say than to look for
    is_short = (span * value < to_start * rise) & (value >= 0)
    if is_short.any():
        to_start[is_short] = span[is_short] * (value[is_short] / rise[is_short])


def _stretched(to_edge: Floats, average: Floats) -> Floats:
    """Reach for the window's edge where a sample was about due there, else half an interval."""
    if not to_edge.max() < average.min() * DUE:  # else all are due
        np.putmask(to_edge, ~(to_edge < average * DUE), average * 0.5)
    return to_edge


RUN_MIN = 64
"""So many columns are worth a run of their own."""
LEFT_SHARE_MAX = 0.25
"""Up to this share of the columns, those that are left are looked up one by one."""
SURE_MIN = 2
"""A rate takes two samples."""
PER_STEP_MAX = 60
"""Samples in a step that still count as even: more are rather two series in one."""
LOOKS = 9
"""Gaps between samples that tell how far they are apart; half of them may be odd ones."""


class _Run(NamedTuple):
    """Samples that rise, in slots that follow one another."""

    begin: int
    end: int
    slot: int
    """The slot of the first one."""
    is_shared: tuple[bool, bool] = (False, False)
    """Whether the first and the last slot have a sample more, which is not of the run."""


class _Even:
    """How steps and windows lie on slots; slot 0 ends at the first step."""

    def __init__(self, steps: Steps, per_step: int) -> None:
        self._steps, self._per_step = steps, per_step
        self._slot_ms = steps.step_ms // per_step
        self._sure = steps.window_ms // self._slot_ms
        """So many of the last samples are in every window; the one before may be."""
        self._lead = self._sure + 1
        slots = np.arange(-self._lead, steps.count * per_step + 1)
        self._ends: Floats = (slots * self._slot_ms).astype(np.float64)
        self._now: Floats = self._ends[self._lead :: per_step][: steps.count]
        self._begins: Floats = self._now - steps.window_ms
        self._places: Integers = np.arange(steps.count) * per_step

    @classmethod
    def of(cls, steps: Steps, per_step: int) -> _Even | None:
        """Lay so many slots on a step; None where that can't be, or a window may have too few samples."""
        if per_step < 1 or steps.step_ms % per_step:
            return None
        return cls(steps, per_step) if steps.window_ms * per_step >= SURE_MIN * steps.step_ms else None

    def reduce(self, times_ms: Integers, values: Floats, out: Floats) -> Integers | None:
        """Write the rates of a series; give the columns that are left, or None for too many of them."""
        times = np.empty(len(times_ms) + 1)
        times[0] = -np.inf  # whoever looks before the first sample finds one that is in no window
        np.subtract(times_ms, float(self._steps.start_ms), out=times[1:])
        first, last = self._slot(times[1]), self._slot(times[-1])
        # A window that ends before the second sample has no two, nor one that begins after the last but one.
        begin = min(max(int(-(-times[2] // self._steps.step_ms)), 0), self._steps.count)
        end = int((times[-2] + self._steps.window_ms) // self._steps.step_ms) + 1
        end = min(max(end, begin), self._steps.count)
        out[:begin] = out[end:] = np.nan
        left, at = [], begin
        for run in self._runs(times, values, first, last):
            done = self._run(run, times, values, out)
            if done.start < done.stop:
                left.append(np.arange(at, done.start))
                at = done.stop
        left.append(np.arange(at, end))
        columns = np.concatenate(left)
        return columns if len(columns) <= LEFT_SHARE_MAX * (end - begin) + 1 else None

    def _slot(self, time: float) -> int:
        return -int(-time // self._slot_ms)

    def _runs(self, times: Floats, values: Floats, first: int, last: int) -> Iterator[_Run]:
        """Cut a series where it is not even."""
        is_rising = values[1:] >= values[:-1]  # which NaN is not
        if self._is_one_each(times[1:], first, last) and is_rising.all():
            yield _Run(0, len(values), first)
            return
        slots = -np.floor_divide(-times[1:], float(self._slot_ms))
        is_cut = np.diff(slots) != 1
        is_cut |= ~is_rising
        cuts = [0, *(np.flatnonzero(is_cut) + 1).tolist(), len(values)]
        for begin, end in pairwise(cuts):
            if end - begin >= RUN_MIN * self._per_step:
                is_first_shared = begin > 0 and slots[begin - 1] == slots[begin]
                is_last_shared = end < len(slots) and slots[end] == slots[end - 1]
                yield _Run(begin, end, int(slots[begin]), (is_first_shared, is_last_shared))

    def _is_one_each(self, times: Floats, first: int, last: int) -> bool:
        begin = first + self._lead
        if begin < 0 or last - first != len(times) - 1 or last + self._lead >= len(self._ends):
            return False
        early = self._ends[begin : begin + len(times)] - times
        return bool(early.min() >= 0) and bool(early.max() < self._slot_ms)

    def _run(self, run: _Run, times: Floats, values: Floats, out: Floats) -> slice:
        """Write the rates within a run, and give the columns.

        In a run that begins the series, nothing is before its first sample, and nothing need be.
        """
        per_step, is_first = self._per_step, run.begin == 0
        first = run.slot + self._sure - is_first + run.is_shared[0]
        column = max(-(-first // per_step), 0)
        last = run.slot + run.end - run.begin - 1 - run.is_shared[1]
        count = min(last // per_step + 1, self._steps.count) - column
        if count <= 0 or not (values[run.begin] > -COUNTER_MAX and values[run.end - 1] < COUNTER_MAX):
            return slice(0, 0)
        done = slice(column, column + count)
        final = run.begin + column * per_step - run.slot
        self._reckon(times, values, final, done, out[done])
        return done

    def _reckon(self, times: Floats, values: Floats, final: int, columns: slice, out: Floats) -> None:
        """Reckon the rates of windows whose last samples stand from `final` on; `times` has one before."""
        per_step, sure = self._per_step, self._sure
        end = final + (len(out) - 1) * per_step + 1
        latest, now = times[final + 1 : end + 1 : per_step], self._now[columns]
        begins = self._begins[columns]
        compare = np.greater_equal if self._steps.is_closed else np.greater
        has_more = compare(times[final + 1 - sure : end + 1 - sure : per_step], begins)
        place = self._places[: len(out)] + (final + 1 - sure)
        np.subtract(place, has_more, out=place)
        value = values.take(place, mode="clip")
        begin = times[1:].take(place, mode="clip")
        rise = np.subtract(values[final:end:per_step], value, out=out)
        span = latest - begin
        to_start = np.subtract(begin, begins, out=begin)
        to_end = now - latest
        intervals = has_more + float(sure - 1)
        stretch(rise, value, (span, to_start, to_end), intervals, self._steps.window_ms)


def even_rates(
    samples: RawSamples, steps: Steps, rows: Sequence[int], out: Floats
) -> Iterator[tuple[int, Integers | None]]:
    """Write the rates of series as far as they come evenly; give of which row which columns are left.

    None are all of them.
    """
    evens: dict[int, _Even | None] = {}
    per_step = _per_step(samples, steps)
    for row in rows:
        often = per_step[row]
        if often not in evens:
            evens[often] = _Even.of(steps, often)
        even, span = evens[often], slice(int(samples.offsets[row]), int(samples.offsets[row + 1]))
        left = None
        if even is not None:
            left = even.reduce(samples.times_ms[span], samples.values[span], out[row])
        if left is None or len(left):
            yield row, left


def _per_step(samples: RawSamples, steps: Steps) -> list[int]:
    """Guess how many samples of each series come in a step; 0 where that is no number to go by."""
    counts = np.diff(samples.offsets)
    if not len(samples.times_ms):
        return [0] * len(counts)
    looks = (samples.offsets[:-1, None] + np.linspace(0, np.maximum(counts - 2, 0), LOOKS).T).astype(np.int64)
    apart = samples.times_ms.take(looks + 1, mode="clip") - samples.times_ms.take(looks, mode="clip")
    usual = np.sort(apart, axis=1)[:, LOOKS // 2]
    often = np.rint(steps.step_ms / np.maximum(usual, 1)).astype(np.int64)
    is_likely = (often <= PER_STEP_MAX) & (counts > RUN_MIN * often)
    return [int(number) for number in np.where(is_likely, often, 0)]
