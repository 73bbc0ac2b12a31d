"""The seed's signal processing, with its bugs mended."""

import numpy as np

from equipoise.stats.dsp import (
    ESTIMATORS,
    FftEstimator,
    periods_of_days,
    waves,
    without_outliers,
)
from tests.support.stats.usage_profiles import MINUTES, daily


def test_daily_and_weekly_periods_are_found_and_noise_has_none() -> None:
    """A week needs two whole weeks to be seen."""
    angle = np.arange(14 * MINUTES) / MINUTES * 2 * np.pi
    week = 5 + np.sin(angle) + 3 * np.sin(angle / 7)
    noise = np.random.default_rng(1).random(14 * MINUTES)
    table = np.stack([daily(14), week, noise, np.full(14 * MINUTES, 2.0)]).astype(np.float32)
    assert periods_of_days(table, MINUTES, 60.0).tolist() == [MINUTES, 7 * MINUTES, 0, 0]
    assert periods_of_days(table[:1, : 3 * MINUTES], MINUTES, 60.0).tolist() == [MINUTES]
    assert periods_of_days(table[:1, :MINUTES], MINUTES, 60.0).tolist() == [0]


def test_the_same_series_gets_the_same_answer_every_time() -> None:
    """The shuffles are seeded."""
    table = np.random.default_rng(7).random((3, 4 * MINUTES)).astype(np.float32)
    first, again = waves(table, MINUTES, 60.0), waves(table, MINUTES, 60.0)
    np.testing.assert_array_equal(first.cycle, again.cycle)


def test_a_slow_wave_comes_back_at_its_full_height() -> None:
    """Frequencies are folded: the mirror of a slow wave is slow too, and is not cut away."""
    angle = np.arange(4 * MINUTES) / MINUTES * 2 * np.pi
    table = (
        10 + 0.5 * np.sin(angle) + 2 * np.sin(5 * angle) + 3 * np.sin(9 * angle) + 4 * np.sin(20 * angle)
    )[None]
    cycle = FftEstimator(items_min=1).estimate(table, MINUTES, 60.0)
    np.testing.assert_allclose(cycle[0], table[0, -MINUTES:], atol=1e-6)


def test_weak_and_quick_waves_are_cut() -> None:
    """What is below the amplitude and above the frequency is noise."""
    angle = np.arange(2 * MINUTES) / MINUTES * 2 * np.pi
    slow = 10 + 3 * np.sin(angle)
    cycle = FftEstimator(items_min=1).estimate((slow + 0.2 * np.sin(200 * angle))[None], MINUTES, 60.0)
    np.testing.assert_allclose(cycle[0], slow[-MINUTES:], atol=1e-6)


def test_no_estimate_is_below_a_hundredth() -> None:
    """A filtered wave may dip below 0, and usage can't."""
    angle = np.arange(2 * MINUTES) / MINUTES * 2 * np.pi
    cycle = FftEstimator(margin=0.1).estimate((np.sin(angle))[None], MINUTES, 60.0)
    assert cycle.min() > 0
    np.testing.assert_allclose(cycle[0, np.sin(angle[:MINUTES]) < -0.1], 0.011)


def test_the_estimator_that_was_best_on_the_last_period_is_used() -> None:
    """A clean course needs the smallest margin; one that grows needs more."""
    grown = daily(6)
    grown[-MINUTES:] *= 1.15
    table = np.stack([daily(6), grown])
    made = waves(table, MINUTES, 60.0)
    assert made.period.tolist() == [MINUTES, MINUTES]
    assert made.margin[0] < made.margin[1]
    assert np.isfinite(made.error).all()
    assert len(ESTIMATORS) == 8


def test_outliers_are_replaced_by_what_came_before() -> None:
    """One sample far above and one far below, in a series long enough to tell."""
    table = np.tile(np.linspace(1, 2, 3000), (1, 1))
    table[0, 100], table[0, 101], table[0, 200] = 50, 60, -1
    smooth = without_outliers(table)
    assert smooth.max() <= 2
    assert smooth[0, 100] == smooth[0, 101] == table[0, 99]
    assert without_outliers(table[:, :999]) is not None
