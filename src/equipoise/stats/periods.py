"""Whether a series repeats itself daily or weekly: the spectrum proposes, the autocorrelation decides."""

import numpy as np
import numpy.typing as npt

from equipoise.stats.arrays import Claims, Floats, Whole

SHUFFLES = 100
SHUFFLE_RANK = 99
"""A frequency must be stronger than what 99 of 100 shuffled copies of the series have at most."""
SLOPE_SECONDS_MAX = 4 * 3600
SEED = 20220601


def find_periods(values: Floats, step_seconds: float, seed: int = SEED) -> Whole:
    """Give the period of each row in samples, 0 where there is none.

    The shuffles are the same for every row, so that a series gets the same answer in any company.
    """
    count = values.shape[1]
    spread = values.std(axis=1, keepdims=True)
    is_level = spread[:, 0] <= 1e-6 * np.abs(values.mean(axis=1))
    scaled = (values - values.mean(axis=1, keepdims=True)) / np.where(is_level[:, None], 1, spread)
    strength = np.abs(np.fft.rfft(scaled, axis=1))
    frequencies, lags = _hints(count)
    is_strong = strength[:, frequencies] > _chance(scaled, seed)[:, None]
    alike = np.fft.irfft(strength**2, count, axis=1) / count
    widths = np.minimum(int(SLOPE_SECONDS_MAX / step_seconds), lags // 2)
    is_peak = _slopes(alike, lags - widths, lags) & _slopes(-alike, lags, lags + widths)
    heights = np.where(is_strong & is_peak & (widths > 0), alike[:, lags], -1)
    best = heights.argmax(axis=1)
    is_found = (np.take_along_axis(heights, best[:, None], axis=1)[:, 0] > 0) & ~is_level
    return np.where(is_found, lags[best], 0)


def _hints(count: int) -> tuple[Whole, Whole]:
    """Give the frequencies and the whole lags they stand for, each lag once."""
    frequencies = np.arange(2, max(3, count // 2))
    lags = count // frequencies
    is_new = np.concatenate([[True], lags[1:] < lags[:-1]])
    # Beyond half of the series the right-hand slope would leave it.
    return frequencies[is_new], lags[is_new]


def _chance(scaled: Floats, seed: int) -> Floats:
    """Give the strength that chance reaches: the spectrum's top over seeded shuffles."""
    random = np.random.Generator(np.random.PCG64(seed))
    tops = np.empty((SHUFFLES, len(scaled)), np.float32)
    half = max(2, scaled.shape[1] // 2)
    for top in tops:
        shuffled = scaled[:, random.permutation(scaled.shape[1])]
        top[:] = np.abs(np.fft.rfft(shuffled, axis=1)[:, 1:half]).max(axis=1)
    return np.asarray(np.sort(tops, axis=0)[SHUFFLE_RANK - 1])


def _slopes(values: Floats, first: Whole, last: Whole) -> Claims:
    """Tell whether the least-squares line through [first, last] rises, for every row and span."""
    exact: npt.NDArray[np.float64] = values.astype(np.float64)
    zero = np.zeros((len(values), 1))
    sums = np.concatenate([zero, np.cumsum(exact, axis=1)], axis=1)
    moments = np.concatenate([zero, np.cumsum(exact * np.arange(exact.shape[1]), axis=1)], axis=1)
    middle = (first + last) / 2
    total = sums[:, last + 1] - sums[:, first]
    return np.asarray(moments[:, last + 1] - moments[:, first] - middle * total > 0)
