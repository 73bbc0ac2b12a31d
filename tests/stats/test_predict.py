"""Histories as they come: constant, gappy, short, all zero, unknown, of another step."""

import numpy as np
import pytest

from equipoise.stats.forecast import Model
from equipoise.stats.grid import bridged, filled, known_days
from equipoise.stats.predict import Algorithm, model_step_seconds, predict
from tests.support.stats.usage_profiles import MINUTES, daily

DAY = 86400.0
BOTH = pytest.mark.parametrize("algorithm", list(Algorithm))


def _worth(made: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(made / expected - 1).mean())


@BOTH
def test_a_daily_course_is_predictable(algorithm: Algorithm) -> None:
    """Both algorithms find it, and the next day looks like it."""
    made = predict(daily(8)[None], 60.0, DAY, algorithm=algorithm, has_band=True)
    assert made.is_predictable[0]
    assert made.period_days[0] == 1
    assert made.error[0] <= 0.8 * made.baseline_error[0]
    assert made.values.shape == made.upper.shape == (1, MINUTES)
    assert (made.upper >= made.values).all()
    assert _worth(made.values[0] / made.margin[0], daily(1, seed=2)) < 0.1


@BOTH
@pytest.mark.parametrize("level", [0.0, 1e-7, 2.0, 1e6])
def test_a_constant_is_flat_and_stays(level: float, algorithm: Algorithm) -> None:
    """Every candidate is right, so the simplest one is chosen; no NaN, no period."""
    made = predict(
        np.full((1, 7 * MINUTES), level, np.float32), 60.0, DAY, algorithm=algorithm, has_band=True
    )
    assert made.model[0] == Model.FLAT
    assert not made.is_predictable[0]
    np.testing.assert_allclose(made.values, level, rtol=1e-5, atol=2e-6)
    assert np.isfinite(made.upper).all()
    if level in {0.0, 2.0}:
        assert made.error[0] == made.baseline_error[0] == 0


@BOTH
@pytest.mark.parametrize("samples", [1, 2, 300, 2 * MINUTES, 3 * MINUTES - 800])
def test_a_short_history_gets_a_flat_line(samples: int, algorithm: Algorithm) -> None:
    """Fewer than three days allow no backtest, and so no promise."""
    made = predict(daily(3)[None, :samples], 60.0, DAY, algorithm=algorithm, has_band=True)
    assert made.model[0] == Model.FLAT
    assert not made.is_predictable[0]
    assert np.isnan(made.error[0])
    assert np.isfinite(made.values).all()
    assert len(set(made.values[0].tolist())) == 1


@BOTH
@pytest.mark.parametrize("samples", [0, 1, 10])
def test_less_than_a_step_of_the_model_is_a_line_too(samples: int, algorithm: Algorithm) -> None:
    """Ten seconds of seconds, where models run at fifteen; without any sample there is nothing."""
    made = predict(np.full((1, samples), 5.0), 1.0, 60, algorithm=algorithm, has_band=True)
    assert made.model[0] == (Model.FLAT if samples else Model.NONE)
    assert set(made.values[0].tolist()) == {5.0} if samples else np.isnan(made.values).all()
    assert made.values.shape == made.upper.shape == (1, 60)


@BOTH
def test_holes_do_not_hide_a_course(algorithm: Algorithm) -> None:
    """A tenth of the samples and a whole day are missing."""
    history = daily(8)
    history[np.random.default_rng(1).random(len(history)) < 0.1] = np.nan
    history[3000:4440] = np.nan
    made = predict(history[None], 60.0, DAY, algorithm=algorithm)
    assert made.is_predictable[0]
    assert _worth(made.values[0], daily(1)) < 0.15


@BOTH
def test_nothing_known_is_nothing_forecast(algorithm: Algorithm) -> None:
    """Unknown stays unknown, also beside a series that is known."""
    history = np.stack([daily(7), np.full(7 * MINUTES, np.nan, np.float32)])
    made = predict(history, 60.0, DAY, algorithm=algorithm)
    assert made.model.tolist()[1] == Model.NONE
    assert np.isnan(made.values[1]).all()
    assert np.isfinite(made.values[0]).all()


def test_a_series_that_ended_is_not_predictable() -> None:
    """Its last day is unknown, whatever came before."""
    history = daily(8)
    history[-1000:] = np.nan
    assert not predict(history[None], 60.0, DAY).is_predictable[0]


@BOTH
@pytest.mark.parametrize("step", [15.0, 30.0, 300.0, 420.0, 900.0, 3600.0])
def test_any_step_works(step: float, algorithm: Algorithm) -> None:
    """One value per step of the history, and the same verdict; seven minutes do not divide a day."""
    samples = int(8 * DAY / step)
    times = np.arange(samples) * step
    history = np.asarray(5 + 3 * np.sin(times / DAY * 2 * np.pi), np.float32)
    made = predict(history[None], step, DAY, algorithm=algorithm, has_band=True)
    assert made.values.shape == (1, round(DAY / step))
    assert made.is_predictable[0]
    ahead = 5 + 3 * np.sin((times[-1] + (np.arange(made.values.shape[1]) + 1) * step) / DAY * 2 * np.pi)
    assert _worth(made.values[0], ahead) < 0.06


@pytest.mark.parametrize("step", [6 * 3600.0, DAY, 3 * DAY])
def test_a_few_samples_a_day_have_no_course(step: float) -> None:
    """Flat, and no crash."""
    made = predict(np.arange(1.0, 41.0)[None], step, 7 * DAY, has_band=True)
    assert made.model[0] == Model.FLAT
    assert made.values.shape[1] == max(1, round(7 * DAY / step))


def test_the_models_step_divides_a_day() -> None:
    """The step itself where it does, else the next larger one."""
    assert model_step_seconds(60.0) == 60
    assert model_step_seconds(1.0) == 15
    assert 420 < model_step_seconds(420.0) < 423
    assert model_step_seconds(2 * DAY) == 2 * DAY


def test_company_changes_nothing() -> None:
    """A series gets the same forecast alone and in a batch, whatever its neighbours are like."""
    short = np.concatenate([np.full(4 * MINUTES, np.nan, np.float32), daily(4, seed=3)])
    batch = np.stack([daily(8), np.full(8 * MINUTES, 3, np.float32), short, daily(8, seed=4)])
    for algorithm in Algorithm:
        together = predict(batch, 60.0, DAY, algorithm=algorithm, has_band=True)
        for row in range(len(batch)):
            alone = predict(batch[row : row + 1], 60.0, DAY, algorithm=algorithm, has_band=True)
            np.testing.assert_allclose(together.values[row], alone.values[0], rtol=1e-5)
            assert together.model[row] == alone.model[0]
            assert together.is_predictable[row] == alone.is_predictable[0]


def test_an_outlier_does_not_become_the_forecast() -> None:
    """One absurd sample in a week."""
    history = daily(8)
    history[9000] = 1e9
    made = predict(history[None], 60.0, DAY)
    assert made.values.max() < 20


@BOTH
def test_absurd_numbers_are_forecast_without_complaint(algorithm: Algorithm) -> None:
    """What single precision cannot add up becomes the most that it can."""
    absurd = daily(5).astype(np.float64)[None] * 1e300
    with np.errstate(over="raise", invalid="raise"):
        made = predict(absurd, 60.0, DAY, algorithm=algorithm, has_band=True)
    assert np.isfinite(made.values).all()
    assert np.isfinite(made.upper).all()


def test_a_first_day_that_is_nearly_whole_counts() -> None:
    """A file of seven days that lacks its first minutes still has seven days."""
    days = np.full((1, 3, 10), 1.0)
    days[0, 0, :4] = np.nan
    assert known_days(days).tolist() == [3]
    days[0, 0, :6] = np.nan
    assert known_days(days).tolist() == [2]
    days[0, -1, :6] = np.nan
    assert known_days(days).tolist() == [0]


def test_a_short_hole_is_bridged_and_a_long_one_borrowed() -> None:
    """A line over what is short; the same time of other days for what is long."""
    row = np.array([[1.0, np.nan, 3.0, np.nan, np.nan, np.nan, 7.0, np.nan]])
    made = bridged(row, 2)
    np.testing.assert_array_equal(made, [[1.0, 2.0, 3.0, np.nan, np.nan, np.nan, 7.0, np.nan]])
    days = np.array([[[1.0, 5.0], [np.nan, np.nan], [3.0, 9.0]]])
    np.testing.assert_allclose(filled(days, 7200.0)[0, 1], [2.0, 7.0])


@pytest.mark.parametrize("days", [1, 2, 3, 4, 5, 6, 7])
def test_after_a_step_nothing_is_forecast_that_was_never_seen(days: int) -> None:
    """Margin and level both follow the step, and once is enough."""
    history = np.concatenate([np.full(7 * 24, 5.0), np.full(days * 24, 15.0)])
    made = predict(history[None], 3600.0, DAY, has_band=True)
    assert made.values.max() <= 15.0
    assert (made.upper >= made.values).all()


@pytest.mark.parametrize("days", [3, 4, 5, 6])
@pytest.mark.parametrize("weekday", range(7))
def test_the_band_of_a_flat_line_covers_what_was_usual_lately(days: int, weekday: int) -> None:
    """A quiet weekend at the end of a few days says nothing of the days before it."""
    hours = np.arange(days * 24)
    is_busy = ((hours // 24 + weekday) % 7 < 5) & (hours % 24 >= 8) & (hours % 24 < 18)
    history = np.where(is_busy, 12.0, 2.0)
    made = predict(history[None], 3600.0, DAY, has_band=True)
    if made.model[0] == Model.FLAT:
        assert made.upper.min() >= np.sort(history)[int(np.ceil(0.95 * len(history))) - 1]
