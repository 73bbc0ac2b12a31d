"""Rates, highest and last values on a grid are what a plain reckoning gives, cell by cell."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.adapters.prometheus.remote_read import rates as reducing
from equipoise.adapters.prometheus.remote_read.rates import highest, intervals_of, last, rates, window_for
from equipoise.adapters.prometheus.remote_read.windows import STALE, RawSamples, Steps

Series = list[tuple[int, float]]
STALE_MARKER = float(np.array([STALE], dtype=np.int64).view(np.float64)[0])


def samples_of(*series: Series) -> RawSamples:
    offsets = np.cumsum([0, *map(len, series)])
    times = np.array([time for one in series for time, _ in one], dtype=np.int64)
    values = np.array([value for one in series for _, value in one], dtype=np.float64)
    return RawSamples(offsets, times, values)


def plain_rate(series: Series, at: int, window: int, *, is_closed: bool = False) -> float:
    """Reckon one rate as Prometheus' documentation tells."""
    held = [s for s in series if (at - window <= s[0] if is_closed else at - window < s[0]) and s[0] <= at]
    if len(held) < 2 or not all(math.isfinite(value) for _, value in held):
        return math.nan
    rise = held[-1][1] - held[0][1]
    rise += sum(one[1] for one, other in itertools.pairwise(held) if other[1] < one[1])
    span = (held[-1][0] - held[0][0]) / 1000
    average = span / (len(held) - 1)
    to_start, to_end = (held[0][0] - at + window) / 1000, (at - held[-1][0]) / 1000
    if rise > 0 and held[0][1] >= 0:
        to_start = min(to_start, span * (held[0][1] / rise))
    reach = span
    for edge in (to_start, to_end):
        reach += edge if edge < average * 1.1 else average / 2
    return rise * (reach / span / (window / 1000))


@st.composite
def counters(draw: st.DrawFn) -> Series:
    """Counters that rise, stand and reset, with gaps, and sometimes something that is no number."""
    time, value, series = draw(st.integers(-50_000, 50_000)), draw(st.floats(0, 1e6)), []
    for _ in range(draw(st.integers(0, 30))):
        series.append((time, value))
        time += draw(st.sampled_from([9_000, 10_000, 10_000, 11_000, 60_000]))
        value = draw(
            st.sampled_from([value, value + 1.5, value + 1000.25, 0.0, value / 2, math.nan, math.inf])
            if math.isfinite(value)
            else st.floats(0, 1e6)
        )
    return series


@settings(max_examples=150, deadline=None)
@given(
    st.lists(counters(), min_size=1, max_size=5), st.booleans(), st.sampled_from([25_000, 30_000, 100_000])
)
def test_rates_of_many_series_are_the_plain_ones(batch: list[Series], is_closed: bool, window: int) -> None:
    """Resets, gaps, one sample, none, NaN and Inf; windows with and without the sample at their begin."""
    steps = Steps(-20_000, 10_000, 40, window, is_closed)
    found = rates(samples_of(*batch), steps)
    # Sparse series are given a wider window of their own.
    own = reducing._windows(samples_of(*batch), steps)
    for row, series in enumerate(batch):
        expected = [plain_rate(series, int(at), int(own[row]), is_closed=is_closed) for at in steps.times_ms]
        np.testing.assert_allclose(found[row], expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(counters(), min_size=1, max_size=4), st.sampled_from([25_000, 30_000, 500_000]))
def test_highest_and_last_are_the_plain_ones(batch: list[Series], window: int) -> None:
    """The highest is of all samples, and NaN is none; the last one is of each window."""
    steps = Steps(0, 10_000, 40, window)
    samples = samples_of(*batch)
    own = reducing._windows(samples, steps)
    top, final = highest(samples, Steps(400_000, 10_000, 1, 400_000)), last(samples, steps)
    for row, series in enumerate(batch):
        numbers = [value for _, value in series if not math.isnan(value)]
        np.testing.assert_equal(top[row], [max(numbers, default=math.nan)])
        for column, at in enumerate(steps.times_ms.tolist()):
            held = [value for time, value in series if at - own[row] < time <= at]
            np.testing.assert_equal(final[row, column], held[-1] if held else math.nan)


def test_a_reset_counts_what_came_after_it() -> None:
    """A counter that fell began anew at 0."""
    series = [(0, 100.0), (10_000, 110.0), (20_000, 5.0), (30_000, 15.0)]
    assert rates(samples_of(series), Steps(30_000, 10_000, 1, 30_001))[0, 0] == pytest.approx(
        25 / 30, rel=1e-3
    )


@pytest.mark.parametrize("mad", [1e308, -1e308, 1e20])
def test_a_counter_that_goes_mad_is_unknown_and_spoils_no_other(mad: float) -> None:
    """What it loses by resets is added to nobody's, whose own resets would be rounded away."""
    steps = Steps(0, 10_000, 10, 25_000)
    values = [1.0, mad, 0.0, mad, 0.0, mad, 2.0, 3.0, 4.0, 5.0]
    wild = [(10_000 * n, value) for n, value in enumerate(values)]
    sane = [(10_000 * n, n % 5 * 20.0) for n in range(10)]
    found = rates(samples_of(wild, sane), steps)
    assert np.isnan(found[0, 1:8]).all()
    assert found[0, 9] == pytest.approx(0.1)
    np.testing.assert_array_equal(found[1], rates(samples_of(sane), steps)[0])


def test_missing_stays_missing() -> None:
    """Before, after, in a gap, and for a series without samples."""
    series = [(i * 10_000, float(i)) for i in range(10) if not 3 <= i <= 7]
    found = rates(samples_of(series, []), Steps(-30_000, 10_000, 20, 25_000))
    assert np.isnan(found[1]).all()
    known = np.flatnonzero(~np.isnan(found[0])) * 10_000 - 30_000
    assert known.tolist() == [10_000, 20_000, 30_000, 90_000, 100_000]


def test_a_stale_marker_ends_a_gauge_and_is_no_sample_of_a_counter() -> None:
    """It is a NaN with bits of its own."""
    series = [(0, 1.0), (10_000, 2.0), (20_000, STALE_MARKER), (30_000, 4.0)]
    steps = Steps(0, 10_000, 4, 25_000)
    np.testing.assert_equal(last(samples_of(series), steps)[0], [1.0, 2.0, math.nan, 4.0])
    np.testing.assert_equal(highest(samples_of(series[:3]), Steps(20_000, 10_000, 1, 20_000)), [[2.0]])
    without = [sample for sample in series if not math.isnan(sample[1])]
    np.testing.assert_equal(rates(samples_of(series), steps), rates(samples_of(without), steps))


def test_a_series_that_is_sampled_slowly_gets_a_window_that_holds_two() -> None:
    """Whatever the others have; a gap does not make a series slow."""
    slow = [(i * 120_000, 60.0 * i) for i in range(20)]
    gappy = [(i * 10_000, 5.0 * i) for i in range(20)] + [(9_000_000, 200.0)]
    samples, steps = samples_of(slow, gappy), Steps(600_000, 60_000, 20, 150_000)
    assert intervals_of(samples)[0] == 120_000
    found = rates(samples, steps)
    np.testing.assert_allclose(found[0], 0.5)
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize(
    ("interval", "step", "window"),
    [(60_000, 60_000, 150_000), (15_000, 60_000, 67_500), (60_000, 10_000, 150_000)],
)
def test_a_window_holds_two_samples_and_no_edge_falls_on_one(interval: int, step: int, window: int) -> None:
    """Half an interval more than whole ones, and never less than a step."""
    assert window_for(interval, step) == window


def test_rows_may_be_written_where_they_belong() -> None:
    """So that a large answer needs no copy."""
    out = np.zeros((3, 4))
    series = [(i * 10_000, float(i)) for i in range(10)]
    steps = Steps(30_000, 10_000, 4, 25_000)
    rates(samples_of(series), steps, out[1:2])
    np.testing.assert_allclose(out, [[0.0] * 4, [0.1] * 4, [0.0] * 4])
