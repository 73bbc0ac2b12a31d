"""Samples of many series, and the windows of time that they are looked at in."""

from __future__ import annotations

from dataclasses import dataclass

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
