"""Series that come evenly are reckoned by slices; to the last bit as by who looks for each sample."""

import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.adapters.prometheus.remote_read import rates as reducing
from equipoise.adapters.prometheus.remote_read import windows as even
from equipoise.adapters.prometheus.remote_read.rates import rates, window_for
from equipoise.adapters.prometheus.remote_read.windows import RawSamples, Steps

STEP_MS = 60_000


def looked_for(samples: RawSamples, steps: Steps) -> np.ndarray:
    """Reckon by looking for the samples of each window, series by series."""
    out = np.empty((len(samples.offsets) - 1, steps.count))
    for row in range(len(out)):
        one = samples.part(row, row + 1)
        windows = reducing._windows(one, steps)
        reducing._reduced(one, steps, windows, reducing._rates, out[row : row + 1])
    return out


def joined(series: list[tuple[np.ndarray, np.ndarray]]) -> RawSamples:
    offsets = np.cumsum([0, *(len(times) for times, _ in series)])
    return RawSamples(
        offsets,
        np.concatenate([times for times, _ in series]).astype(np.int64),
        np.concatenate([values for _, values in series]).astype(np.float64),
    )


@st.composite
def scraped(draw: st.DrawFn, interval_ms: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """Scrape a counter: early or late, with gaps, resets, what is no number, a birth and a death."""
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    begin_ms, end_ms = steps.start_ms - steps.window_ms, steps.start_ms + steps.count * STEP_MS
    phase = draw(st.sampled_from([0, 1, interval_ms // 2, interval_ms - 1]))
    times = np.arange(begin_ms + phase, end_ms, interval_ms)
    jitter = draw(st.sampled_from([0, 1, interval_ms // 20, interval_ms // 20, interval_ms // 3]))
    times = times + chance.integers(-jitter, jitter + 1, len(times))
    values = np.cumsum(chance.integers(0, draw(st.sampled_from([1, 4000, 4000])), len(times))) * 0.25
    values += draw(st.sampled_from([0.0, 0.0, 1e6, -3.0]))
    for place in chance.integers(1, len(values), draw(st.sampled_from([0, 0, 1, 3]))):
        values[place:] -= values[place] * draw(st.sampled_from([1.0, 0.5]))
    for place in chance.integers(0, len(values), draw(st.sampled_from([0, 0, 0, 1, 3]))):
        values[place] = draw(st.sampled_from([np.nan, np.inf, 1e13]))
    # Somebody else scrapes it too, now and then.
    for place in chance.integers(0, len(times), draw(st.sampled_from([0, 1, 1, 3]))):
        between = times[place] + draw(st.sampled_from([1, interval_ms // 7, interval_ms // 2]))
        at = int(np.searchsorted(times, between))
        if between not in times:
            value = values[min(at, len(values) - 1)] if draw(st.booleans()) else values[at - 1]
            times, values = np.insert(times, at, between), np.insert(values, at, value)
    is_kept = np.ones(len(times), dtype=np.bool_)
    for place in chance.integers(0, len(times), draw(st.sampled_from([0, 0, 1, 4]))):
        is_kept[place : place + draw(st.sampled_from([1, 2, 40]))] = False
    is_kept[: draw(st.sampled_from([0, 0, 1, len(times) // 3]))] = False
    is_kept[len(times) - draw(st.sampled_from([0, 0, 1, len(times) // 4])) :] = False
    return times[is_kept], values[is_kept]


@settings(max_examples=400, deadline=None)
@given(st.data(), st.sampled_from([15_000, 30_000, 60_000, 20_000, 90_000]), st.booleans())
def test_even_series_have_the_rates_of_who_looks_for_each_sample(
    data: st.DataObject, interval_ms: int, is_closed: bool
) -> None:
    """Whatever is not even in them, and however many samples a step has."""
    window = data.draw(st.sampled_from([window_for(interval_ms, STEP_MS), 2 * max(interval_ms, STEP_MS)]))
    steps = Steps(1_700_000_040_000, STEP_MS, data.draw(st.sampled_from([150, 400])), window, is_closed)
    series = data.draw(st.lists(scraped(interval_ms, steps), min_size=1, max_size=3))
    samples = joined(series)
    np.testing.assert_array_equal(rates(samples, steps), looked_for(samples, steps))


@pytest.mark.parametrize("interval_ms", [15_000, 30_000, 60_000])
def test_nothing_is_looked_for_where_all_is_even(interval_ms: int) -> None:
    """One sample in each slot, three seconds early or late: no column is left."""
    steps = Steps(1_700_000_040_000, STEP_MS, 500, window_for(interval_ms, STEP_MS))
    times = np.arange(
        steps.start_ms - 4 * STEP_MS + interval_ms // 2, steps.start_ms + 500 * STEP_MS, interval_ms
    )
    times = times[times >= steps.start_ms - steps.window_ms]
    times += np.random.default_rng(7).integers(-3000, 3001, len(times))
    samples = joined([(times, np.arange(len(times)) * 7.0 + 1e5)] * 2)
    out = np.empty((2, 500))
    with patch.object(reducing, "_rate", side_effect=AssertionError("looked for")):
        rates(samples, steps, out)
    np.testing.assert_array_equal(out, looked_for(samples, steps))


def test_a_gap_and_a_reset_leave_a_few_columns() -> None:
    """The others are still slices."""
    steps = Steps(0, STEP_MS, 1000, 150_000)
    times = np.arange(-90_000, 1000 * STEP_MS, STEP_MS)
    values = np.arange(len(times)) * 2.0 + 50
    values[700:] -= values[700]
    is_kept = np.ones(len(times), dtype=np.bool_)
    is_kept[300:310] = False
    samples = joined([(times[is_kept], values[is_kept])])
    ((row, left),) = even.even_rates(samples, steps, [0], np.empty((1, 1000)))
    assert row == 0
    assert left is not None
    assert 10 <= len(left) <= 18
    np.testing.assert_array_equal(rates(samples, steps), looked_for(samples, steps))


def test_two_samples_in_one_slot_are_both_seen() -> None:
    """Before it and behind it, the windows that reach there are looked at sample by sample."""
    steps = Steps(0, STEP_MS, 300, 150_000)
    times = np.arange(-90_000, 300 * STEP_MS, STEP_MS)
    values = np.arange(len(times)) * 10.0 + 1e6
    more = [
        (np.insert(times, place, times[place] - 15_000), np.insert(values, place, values[place] - 5))
        for place in (100, 200)
    ]
    samples = joined(more)
    np.testing.assert_array_equal(rates(samples, steps), looked_for(samples, steps))


@pytest.mark.parametrize("apart_ms", [1, 20, 500, 7_000])
def test_two_series_in_one_are_no_reason_for_much_memory(apart_ms: int) -> None:
    """Two who write the same series within a moment look as if samples came a thousand times a second."""
    steps = Steps(0, STEP_MS, 10_080, 150_000)
    each = np.arange(600) * STEP_MS + 20_000
    times = np.sort(np.concatenate((each, each + apart_ms)))
    samples = joined([(times, np.arange(len(times)) * 1.0)])
    tracemalloc.start()
    try:
        found = rates(samples, steps)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * found.nbytes
    np.testing.assert_array_equal(found, looked_for(samples, steps))


def test_what_one_series_loses_is_no_matter_of_its_neighbours() -> None:
    """Resets of large counters beside small ones; to the last bit as if each were alone."""
    chance = np.random.default_rng(11)
    steps, series = Steps(0, STEP_MS, 200, 150_000), []
    for size in (1e11, 0.3, 7e5, 1e-3):
        times = np.arange(-120_000, 200 * STEP_MS, STEP_MS) + chance.integers(-20_000, 20_001, 202)
        values = np.cumsum(chance.random(len(times))) * size
        for place in chance.integers(1, len(times), 9):
            values[place:] -= values[place] * chance.random()
        series.append((times, values))
    samples = joined(series)
    np.testing.assert_array_equal(rates(samples, steps), looked_for(samples, steps))


@pytest.mark.parametrize(("before", "after"), [(0, 500), (500, 0), (300, 300)])
@pytest.mark.parametrize("offset", [0.0, -2e12])
def test_an_even_series_may_begin_before_the_grid_and_end_after_it(
    before: int, after: int, offset: float
) -> None:
    """And one that counts from far below nothing is unknown, however even."""
    steps = Steps(0, STEP_MS, 200, 150_000)
    times = np.arange(-before - 2, 200 + after) * STEP_MS - 30_000
    samples = joined([(times, np.arange(len(times)) * 3.0 + offset)])
    found = rates(samples, steps)
    np.testing.assert_array_equal(found, looked_for(samples, steps))
    assert np.isnan(found).all() == (offset < 0)
