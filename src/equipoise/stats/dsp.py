"""The seed's digital signal processing: find a daily or weekly period, then repeat a filtered period.

Frequencies are folded at the middle of the spectrum, shuffles are seeded, a constant series has no period,
and nothing becomes NaN. Estimators compete on the last period; the winner is run again on everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from equipoise.stats.arrays import Floats, Whole
from equipoise.stats.loss import error, flat_lines
from equipoise.stats.periods import SEED, find_periods
from equipoise.stats.ranks import percentiles

OUTLIER_SAMPLES_MIN = 1000
OUTLIER_LOW, OUTLIER_HIGH = 0.001, 0.999
VALUE_MIN = 0.01
"""What an estimate at or below 0 becomes."""
WEEK = 7


@dataclass(frozen=True, slots=True)
class FftEstimator:
    """Keep the strong and the slow waves of the history, and take its last period."""

    margin: float = 0.0
    items_min: int = 3
    items_max: int = 100
    amplitude_min: float = 1.0
    frequency_high_hertz: float = 1 / 3600

    def estimate(self, values: Floats, period: int, step_seconds: float) -> Floats:
        """Give one period for each row."""
        count = values.shape[1]
        spectrum = np.fft.rfft(values, axis=1)
        amplitudes = np.abs(spectrum) / count
        ordered = -np.sort(-amplitudes[:, 1 : max(2, count // 2)], axis=1)
        cut = np.maximum(ordered[:, min(self.items_max, ordered.shape[1]) - 1], self.amplitude_min)
        cut = np.minimum(cut, ordered[:, min(self.items_min, ordered.shape[1]) - 1])
        is_quick = np.fft.rfftfreq(count, step_seconds) > self.frequency_high_hertz
        spectrum[(amplitudes < cut[:, None]) & is_quick] = 0
        last = np.fft.irfft(spectrum, count, axis=1)[:, -period:]
        return np.where(last <= 0, VALUE_MIN, last) * (1 + self.margin)


@dataclass(frozen=True, slots=True)
class MaxValueEstimator:
    """Take the highest of all periods, moment by moment."""

    margin: float = 0.0

    def estimate(self, values: Floats, period: int, step_seconds: float) -> Floats:
        """Give one period for each row."""
        del step_seconds
        whole = values.shape[1] // period
        periods = values[:, -whole * period :].reshape(len(values), whole, period)
        return np.asarray(periods.max(axis=1) * (1 + self.margin))


Estimator = FftEstimator | MaxValueEstimator
ESTIMATORS: tuple[Estimator, ...] = tuple(
    FftEstimator(margin, items_min, amplitude_min=amplitude_min)
    for items_min, amplitude_min in ((3, 1.0), (50, 0.05))
    for margin in (0.01, 0.10, 0.15, 0.20)
)
"""The seed's defaults."""


class Waves(NamedTuple):
    """What the estimators make of a batch; rows without a period have a period of 0."""

    period: Whole
    """In samples."""
    cycle: Floats
    """A week long at most, and repeated to fill it."""
    margin: Floats
    error: Floats
    """On the last period, which the estimators had not seen."""
    baseline_error: Floats
    """Of the flat line, on the same period; on the last day where there is no period."""
    ratios: Floats
    """Actual / forecast of the held-out period, repeated to fill a week."""


def without_outliers(values: Floats) -> Floats:
    """Let the sample before an outlier stand in for it."""
    if values.shape[1] < OUTLIER_SAMPLES_MIN:
        return values
    bounds = percentiles(values, (OUTLIER_LOW, OUTLIER_HIGH))
    is_kept = (values >= bounds[:, :1]) & (values <= bounds[:, 1:])
    is_kept[:, 0] = True
    place = np.maximum.accumulate(np.where(is_kept, np.arange(values.shape[1]), 0), axis=1)
    return np.take_along_axis(values, place, axis=1)


def periods_of_days(values: Floats, day_samples: int, step_seconds: float, seed: int = SEED) -> Whole:
    """Find daily and weekly periods: in whole weeks where there are two, else in whole days."""
    days = values.shape[1] // day_samples
    whole = days // WEEK * WEEK if days >= 2 * WEEK else days
    if whole < 2:  # noqa: PLR2004 - a period must be seen twice
        return np.zeros(len(values), np.intp)
    found = find_periods(values[:, -whole * day_samples :], step_seconds, seed)
    is_accepted = (found == day_samples) | ((found == WEEK * day_samples) & (days >= 2 * WEEK))
    return np.where(is_accepted, found, 0)


def waves(
    values: Floats, day_samples: int, step_seconds: float, estimators: Sequence[Estimator] = ESTIMATORS
) -> Waves:
    """Estimate the next period of each row that has one."""
    smooth = without_outliers(values)
    period = periods_of_days(smooth, day_samples, step_seconds)
    week = WEEK * day_samples
    shape = (len(values), week)
    made = Waves(
        period,
        np.zeros(shape, np.float32),
        np.ones(len(values), np.float32),
        np.full(len(values), np.nan, np.float32),
        _flat_errors(smooth, day_samples, week),
        np.ones(shape, np.float32),
    )
    for length in (day_samples, week):
        rows = np.flatnonzero(period == length)
        if len(rows):
            _estimate(smooth[rows], length, step_seconds, estimators, made, rows)
    return made


def _estimate(
    values: Floats,
    period: int,
    step_seconds: float,
    estimators: Sequence[Estimator],
    made: Waves,
    rows: Whole,
) -> None:
    seen, held_out = values[:, :-period], values[:, -period:]
    guesses = np.stack([each.estimate(seen, period, step_seconds) for each in estimators])
    errors = np.stack([error(held_out, guess) for guess in guesses])
    winner = errors.argmin(axis=0)
    again = np.stack([each.estimate(values, period, step_seconds) for each in estimators])
    place = np.arange(len(values))
    times = made.cycle.shape[1] // period
    made.cycle[rows] = np.tile(again[winner, place], (1, times))
    made.margin[rows] = np.array([1 + each.margin for each in estimators], np.float32)[winner]
    made.error[rows] = errors[winner, place]
    made.baseline_error[rows] = _flat_errors(values, period, made.cycle.shape[1])
    made.ratios[rows] = np.tile(held_out / guesses[winner, place], (1, times))


def _flat_errors(values: Floats, held_out: int, seen: int) -> Floats:
    """Give the error of the best constant of the week before, on the last samples."""
    lines = flat_lines(values[:, :-held_out][:, -seen:])
    return error(values[:, -held_out:], lines[:, None]).astype(np.float32)
