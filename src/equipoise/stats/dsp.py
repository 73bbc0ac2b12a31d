"""The seed's digital signal processing: find a daily or weekly period, then repeat a filtered period.

Frequencies are folded at the middle of the spectrum, shuffles are seeded, a constant series has no period,
and nothing becomes NaN. The spectrum proposes a daily or weekly period, and the autocorrelation decides.
Estimators compete on the last period; the winner runs again on the whole history.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from equipoise.stats.forecast import CHUNK_SAMPLES, CLEARLY, Forecast, Model, joined
from equipoise.stats.profile import FLAT_BAND, error, flat_lines, rise
from equipoise.stats.ranks import Claims, Floats, Whole, chunks, percentiles

SHUFFLES = 100
SHUFFLE_RANK = 99
"""A frequency must be stronger than any frequency in 99 of 100 shuffled copies of the series."""
SLOPE_SECONDS_MAX = 4 * 3600
SEED = 20220601


def find_periods(values: Floats, step_seconds: float) -> Whole:
    """Return the period of each row in samples, 0 where there is none.

    The shuffles are the same for every row, so that the result does not depend on the other rows.
    """
    count = values.shape[1]
    spread = values.std(axis=1, keepdims=True)
    is_level = spread[:, 0] <= 1e-6 * np.abs(values.mean(axis=1))
    scaled = (values - values.mean(axis=1, keepdims=True)) / np.where(is_level[:, None], 1, spread)
    strength = np.abs(np.fft.rfft(scaled, axis=1))
    frequencies, lags = _hints(count)
    is_strong = strength[:, frequencies] > _chance(scaled)[:, None]
    alike = np.fft.irfft(strength**2, count, axis=1) / count
    widths = np.minimum(int(SLOPE_SECONDS_MAX / step_seconds), lags // 2)
    is_peak = _slopes(alike, lags - widths, lags) & _slopes(-alike, lags, lags + widths)
    heights = np.where(is_strong & is_peak & (widths > 0), alike[:, lags], -1)
    best = heights.argmax(axis=1)
    is_found = (np.take_along_axis(heights, best[:, None], axis=1)[:, 0] > 0) & ~is_level
    return np.where(is_found, lags[best], 0)


def _hints(count: int) -> tuple[Whole, Whole]:
    """Return the frequencies with their lags in whole samples, each lag once."""
    frequencies = np.arange(2, max(3, count // 2))
    lags = count // frequencies
    is_new = np.concatenate([[True], lags[1:] < lags[:-1]])
    # Lags above half of the series have no samples for the slope after them.
    return frequencies[is_new], lags[is_new]


def _chance(scaled: Floats) -> Floats:
    """Return the strength that random data reaches: the spectrum's maximum over seeded shuffles."""
    random = np.random.Generator(np.random.PCG64(SEED))
    tops = np.empty((SHUFFLES, len(scaled)), np.float32)
    half = max(2, scaled.shape[1] // 2)
    for top in tops:
        shuffled = scaled[:, random.permutation(scaled.shape[1])]
        top[:] = np.abs(np.fft.rfft(shuffled, axis=1)[:, 1:half]).max(axis=1)
    return np.asarray(np.sort(tops, axis=0)[SHUFFLE_RANK - 1])


def _slopes(values: Floats, first: Whole, last: Whole) -> Claims:
    """Return whether the least-squares line through [first, last] rises, for every row and span."""
    exact: npt.NDArray[np.float64] = values.astype(np.float64)
    zero = np.zeros((len(values), 1))
    sums = np.concatenate([zero, np.cumsum(exact, axis=1)], axis=1)
    moments = np.concatenate([zero, np.cumsum(exact * np.arange(exact.shape[1]), axis=1)], axis=1)
    middle = (first + last) / 2
    total = sums[:, last + 1] - sums[:, first]
    return np.asarray(moments[:, last + 1] - moments[:, first] - middle * total > 0)


OUTLIER_SAMPLES_MIN = 1000
OUTLIER_LOW, OUTLIER_HIGH = 0.001, 0.999
VALUE_MIN = 0.01
"""Replaces estimates at or below 0."""
WEEK = 7


WAVES_MAX = 100
FREQUENCY_HIGH_HERTZ = 1 / 3600


@dataclass(frozen=True, slots=True)
class FftEstimator:
    """Filters the history by its strong and its slow waves, and estimates the last period of the result."""

    margin: float = 0.0
    items_min: int = 3
    amplitude_min: float = 1.0

    def estimate(self, values: Floats, period: int, step_seconds: float) -> Floats:
        """Return one period for each row."""
        count = values.shape[1]
        spectrum = np.fft.rfft(values, axis=1)
        amplitudes = np.abs(spectrum) / count
        ordered = -np.sort(-amplitudes[:, 1 : max(2, count // 2)], axis=1)
        cut = np.maximum(ordered[:, min(WAVES_MAX, ordered.shape[1]) - 1], self.amplitude_min)
        cut = np.minimum(cut, ordered[:, min(self.items_min, ordered.shape[1]) - 1])
        is_quick = np.fft.rfftfreq(count, step_seconds) > FREQUENCY_HIGH_HERTZ
        spectrum[(amplitudes < cut[:, None]) & is_quick] = 0
        last = np.fft.irfft(spectrum, count, axis=1)[:, -period:]
        return np.where(last <= 0, VALUE_MIN, last) * (1 + self.margin)


ESTIMATORS = tuple(
    FftEstimator(margin, items_min, amplitude_min=amplitude_min)
    for items_min, amplitude_min in ((3, 1.0), (50, 0.05))
    for margin in (0.01, 0.10, 0.15, 0.20)
)
"""The seed's defaults."""


class Waves(NamedTuple):
    """The estimates for a batch; rows without a period have the period 0."""

    period: Whole
    """In samples."""
    cycle: Floats
    """The estimated period, repeated to fill a week."""
    margin: Floats
    error: Floats
    """On the last period, which was held out from the estimators."""
    baseline_error: Floats
    """The flat line's error on the same period; on the last day where there is no period."""
    ratios: Floats
    """Actual / forecast of the held-out period, repeated to fill a week."""


def without_outliers(values: Floats) -> Floats:
    """Return the values with each outlier replaced by the sample before it."""
    if values.shape[1] < OUTLIER_SAMPLES_MIN:
        return values
    bounds = percentiles(values, (OUTLIER_LOW, OUTLIER_HIGH))
    is_kept = (values >= bounds[:, :1]) & (values <= bounds[:, 1:])
    is_kept[:, 0] = True
    place = np.maximum.accumulate(np.where(is_kept, np.arange(values.shape[1]), 0), axis=1)
    return np.take_along_axis(values, place, axis=1)


def periods_of_days(values: Floats, day_samples: int, step_seconds: float) -> Whole:
    """Return daily and weekly periods, found in whole weeks where there are two, else in whole days."""
    days = values.shape[1] // day_samples
    whole = days // WEEK * WEEK if days >= 2 * WEEK else days
    if whole < 2:  # noqa: PLR2004 - a period must occur twice
        return np.zeros(len(values), np.intp)
    found = find_periods(values[:, -whole * day_samples :], step_seconds)
    is_accepted = (found == day_samples) | ((found == WEEK * day_samples) & (days >= 2 * WEEK))
    return np.where(is_accepted, found, 0)


def waves(values: Floats, day_samples: int, step_seconds: float) -> Waves:
    smooth = without_outliers(values)
    period = periods_of_days(smooth, day_samples, step_seconds)
    week = WEEK * day_samples
    shape = (len(values), week)
    result = Waves(
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
            _estimate(smooth[rows], length, step_seconds, result, rows)
    return result


def _estimate(values: Floats, period: int, step_seconds: float, result: Waves, rows: Whole) -> None:
    history, held_out = values[:, :-period], values[:, -period:]
    guesses = np.stack([each.estimate(history, period, step_seconds) for each in ESTIMATORS])
    errors = np.stack([error(held_out, guess) for guess in guesses])
    winner = errors.argmin(axis=0)
    estimates = np.stack([each.estimate(values, period, step_seconds) for each in ESTIMATORS])
    place = np.arange(len(values))
    times = result.cycle.shape[1] // period
    result.cycle[rows] = np.tile(estimates[winner, place], (1, times))
    result.margin[rows] = np.array([1 + each.margin for each in ESTIMATORS], np.float32)[winner]
    result.error[rows] = errors[winner, place]
    result.baseline_error[rows] = _flat_errors(values, period, result.cycle.shape[1])
    result.ratios[rows] = np.tile(held_out / guesses[winner, place], (1, times))


def _flat_errors(values: Floats, held_out: int, history_samples: int) -> Floats:
    """Return the error on the last samples of the best constant of the week before them."""
    lines = flat_lines(values[:, :-held_out][:, -history_samples:])
    return error(values[:, -held_out:], lines[:, None]).astype(np.float32)


def dsp_forecast(days: Floats, horizon_days: int, *, step_seconds: float, has_band: bool = False) -> Forecast:
    """Forecast (series, day, sample); a series without a period gets the flat line."""
    flattened = days.reshape(len(days), -1)
    return joined(
        [
            _forecast(days[part], horizon_days, step_seconds, has_band=has_band)
            for part in chunks(flattened, CHUNK_SAMPLES)
        ]
    )


def _forecast(days: Floats, horizon_days: int, step_seconds: float, *, has_band: bool) -> Forecast:
    series, _, samples = days.shape
    flattened = days.reshape(series, -1)
    estimated = waves(flattened, samples, step_seconds)
    is_wave = estimated.period > 0
    last_week = flattened[:, -WEEK * samples :]
    cycles = np.tile(estimated.cycle, (1, -(-horizon_days // WEEK)))[:, : horizon_days * samples]
    values = np.where(is_wave[:, None], cycles, flat_lines(last_week)[:, None]).astype(np.float32)
    upper = values[:, :0]
    if has_band:
        risen = np.tile(rise(estimated.ratios.reshape(series, WEEK, samples)), (1, horizon_days))
        flat_upper = np.maximum(values, percentiles(last_week, (FLAT_BAND,)))
        upper = np.where(is_wave[:, None], values * risen, flat_upper).astype(np.float32)
    return Forecast(
        values=values,
        upper=upper,
        margin=estimated.margin,
        model=np.where(is_wave, Model.DSP, Model.FLAT).astype(np.intp),
        period_days=estimated.period // samples,
        is_predictable=is_wave & (estimated.error <= CLEARLY * estimated.baseline_error),
        error=np.where(is_wave, estimated.error, estimated.baseline_error),
        baseline_error=estimated.baseline_error,
    )
