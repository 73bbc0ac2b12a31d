"""A bound that 95 of 100 coming samples stay below, from how far past ones rose above their forecast."""

import math

import numpy as np

from equipoise.stats.arrays import Floats

QUANTILE = 0.97
"""Higher than the 0.95 it is for: a few days of backtest see too little of what can happen."""
FLAT_BAND = 0.95
"""Where no backtest says how far a flat line is exceeded, so much of the past stayed below the bound."""
HOURS_BESIDE = 2
"""One quantile for all hours is too wide, the hour alone too narrow."""


def rise(ratios: Floats) -> Floats:
    """Give, by series and sample of the day, what to multiply a forecast with: at least 1.

    The ratios are actual / forecast, margin included: (series, day, sample of the day).
    """
    series, days, samples = ratios.shape
    buckets = math.gcd(samples, 24)
    beside = min(max(1, round(HOURS_BESIDE * buckets / 24)), (buckets - 1) // 2)
    windows = 2 * beside + 1
    length = days * (samples // buckets)
    below_top = windows * length - math.ceil(round(QUANTILE * windows * length, 9))
    keep = min(below_top + 1, length)
    by_hour = ratios.reshape(series, days, buckets, -1).swapaxes(1, 2).reshape(series, buckets, length)
    # No more than `keep` of an hour can be among the top of its five hours, so the rest is left out.
    top = np.sort(by_hour, axis=2)[..., -keep:]
    around = [np.roll(top, shift, axis=1) for shift in range(-beside, beside + 1)]
    ordered = np.sort(np.concatenate(around, axis=2), axis=2)
    quantile = ordered[..., -1 - below_top]
    return np.repeat(np.maximum(quantile, ratios.dtype.type(1)), samples // buckets, axis=1)
