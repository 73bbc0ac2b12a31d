"""Percentiles and medians, beside an oracle that sorts one row after the other."""

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from equipoise.stats.grid import on_grid, slots, usual_interval
from equipoise.stats.ranks import hour_medians, hours_of_day, percentiles, pooled_percentiles, rank

usage = st.one_of(st.floats(0, 1e6, width=32), st.just(math.nan))
tables = arrays.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 60)), elements=usage)


def _oracle(row: list[float], share: Fraction) -> float:
    """Give the smallest sample with at least that share of samples at or below it."""
    known = sorted(value for value in row if not math.isnan(value))
    return next((value for place, value in enumerate(known, 1) if place >= share * len(known)), math.nan)


@given(tables, st.sampled_from([50, 90, 95, 99, 100, 7]))
def test_a_percentile_is_the_sample_that_a_sort_would_pick(table: np.ndarray, percent: int) -> None:
    """Exact, for any holes and ties."""
    found = percentiles(table, (percent / 100,))[:, 0]
    expected = [_oracle(row, Fraction(percent, 100)) for row in table.tolist()]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


@pytest.mark.parametrize("length", [511, 512, 513, 1025, 10080, 20160])
@pytest.mark.parametrize("holes", [0.0, 0.4])
def test_long_rows_give_the_same_as_a_sort(length: int, holes: float) -> None:
    """Whichever way is taken for the length: one sort, pieces, or a partition."""
    random = np.random.default_rng(length)
    table = random.gamma(2, 1, (20, length)).astype(np.float32)
    table[random.random(table.shape) < holes] = np.nan
    table[3] = np.nan
    table[4] = 7
    found = percentiles(table, (0.95, 0.99, 1.0))
    for row, picked in zip(table, found, strict=True):
        known = np.sort(row[~np.isnan(row)])
        expected = [
            known[math.ceil(round(p * len(known), 9)) - 1] if len(known) else np.nan for p in (0.95, 0.99, 1)
        ]
        np.testing.assert_array_equal(picked, np.array(expected, np.float32))


def test_ranks_do_not_suffer_from_float_noise() -> None:
    """0.07 x 100 is 7.000000000000001, and still the seventh."""
    counts = np.array([100, 20, 1, 3])
    assert rank(0.07, counts).tolist() == [7, 2, 1, 1]
    assert rank(0.95, counts).tolist() == [95, 19, 1, 3]
    assert rank(1.0, counts).tolist() == [100, 20, 1, 3]


@given(tables)
def test_hour_medians_are_the_medians_of_the_hours(table: np.ndarray) -> None:
    """An even count gives the mean of the two middle ones; an hour without samples gives nothing."""
    hours = np.arange(table.shape[1]) * 7 % 24
    found = hour_medians(table, hours)
    for row, medians in zip(table.astype(float), found, strict=True):
        for hour in range(24):
            known = [value for value in row[hours == hour].tolist() if not math.isnan(value)]
            expected = statistics.median(known) if known else math.nan
            np.testing.assert_allclose(medians[hour], expected, rtol=1e-12)


def test_hours_are_of_utc_unless_an_offset_is_given() -> None:
    """Half-hour zones too."""
    times = np.array([0.0, 3599.0, 3600.0, 86399.0])
    assert hours_of_day(times).tolist() == [0, 0, 1, 23]
    assert hours_of_day(times, 5.5 * 3600).tolist() == [5, 6, 6, 5]
    assert hours_of_day(times, -3600).tolist() == [23, 23, 0, 22]


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 30), st.randoms(use_true_random=False)
)
def test_pooled_percentiles_see_all_rows_of_a_group(counts: list[int], columns: int, random: object) -> None:
    """Every sample of every pod counts once."""
    generator = np.random.default_rng(sum(counts) * 31 + columns)
    rows = generator.random((sum(counts), columns))
    rows[generator.random(rows.shape) < 0.2] = np.nan
    found = pooled_percentiles(rows, np.array(counts), 0.99)
    start = 0
    for count, value in zip(counts, found.tolist(), strict=True):
        pool = rows[start : start + count].ravel().tolist()
        np.testing.assert_equal(value, _oracle(pool, Fraction(99, 100)))
        start += count


def test_the_interval_is_the_usual_one_despite_jitter_and_gaps() -> None:
    """Taken within a row, never between two pods that are scraped at different moments."""
    random = np.random.default_rng(3)
    times = np.sort(np.concatenate([np.arange(500) * 60.0, np.arange(600, 900) * 60.0])) + random.normal(
        0, 0.2, 800
    )
    rows = np.zeros(800, np.intp)
    assert usual_interval(times, rows) == 60
    both = np.concatenate([times, times + 13])
    assert usual_interval(both, np.concatenate([rows, rows + 1])) == 60
    assert usual_interval(np.array([5.0]), np.zeros(1, np.intp)) == 0
    twice = np.sort(np.concatenate([np.arange(500) * 60.0, np.arange(500) * 60.0 + 0.004]))
    assert usual_interval(twice, np.zeros(1000, np.intp)) == 60, "two that ask are no short interval"
    assert usual_interval(np.arange(500) * 0.1, np.zeros(500, np.intp)) == pytest.approx(0.1)


def test_samples_go_to_the_nearest_column() -> None:
    """What is older than the table is left out."""
    times = np.array([0.0, 61.0, 119.0, 180.0])
    columns = slots(times, 180.0, 60.0, 3)
    assert columns.tolist() == [-1, 0, 1, 2]
    table = on_grid(np.array([9.0, 1.0, 2.0, 3.0]), np.zeros(4, np.intp), columns, (1, 3))
    assert table.tolist() == [[1.0, 2.0, 3.0]]
