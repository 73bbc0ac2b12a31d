"""The daily profile from past days: for each block of three minutes, the constant of least cost.

A wrong forecast costs by r = forecast / actual only: C x (-ln r) below 1, r - 1 above, with C = 1 / ln 1.25,
so too little costs about 4.5 times as much as too much. Recent days and the same weekday count more; a
weekday is a lag of seven days: no calendar, no time zone. All days are sorted once per block; a day that a
profile must not use has the weight 0, which changes nothing else. The band, which 95 of 100 coming samples
stay below, comes from how far past samples rose above their forecast.
"""

import math
from typing import NamedTuple

import numpy as np

from equipoise.stats.ranks import Floats, Whole

C = 1 / math.log(1.25)
SAMPLE_MIN = 1e-6
"""Lower bound of samples, so that ratios are defined."""
RAISED_MAX = 2 * SAMPLE_MIN
"""A forecast up to this counts as 0: it was raised to `SAMPLE_MIN`."""
ACTUAL_MIN = 1e-3
"""For smaller actual values the error is computed in cores instead of as a ratio."""


def best_constant(ordered: Floats, counts: Whole | None = None) -> Floats:
    """Return the exact constant of least cost for sorted positive samples in the last axis.

    p = min over j of max(a_j, C x (samples above a_j) / (sum of 1/a up to a_j)); no search is needed.
    With counts, only so many samples of a row count, and the rest must be infinite.
    """
    last = np.asarray(ordered.shape[-1] if counts is None else counts[..., None]) - 1
    above = np.maximum(last - np.arange(ordered.shape[-1]), 0).astype(ordered.dtype) * ordered.dtype.type(C)
    inverse = np.cumsum(1 / ordered, axis=-1, dtype=ordered.dtype)
    return np.asarray(np.maximum(ordered, above / inverse).min(axis=-1))


def flat_lines(values: Floats) -> Floats:
    """Return the constant of least cost for the known samples of each row; NaN where none is known."""
    is_known = ~np.isnan(values)
    ordered = np.sort(np.where(is_known, np.maximum(values, SAMPLE_MIN), np.inf), axis=1)
    counts = is_known.sum(axis=1)
    if values.shape[1] == 0:
        return np.full(len(values), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 0, best_constant(ordered, counts), np.nan)


def losses(ratios: Floats, factor: Floats | float = 1.0) -> Floats:
    """Return the loss of each actual / forecast when the forecast is multiplied by the factor."""
    share = np.asarray(factor / ratios)
    return np.asarray(np.where(share < 1, np.log(share) * share.dtype.type(-C), share - 1))


def error(actual: Floats, forecast: Floats) -> Floats:
    """Return the mean loss of each row; in cores where an actual value is close to 0."""
    spare = np.maximum(actual, ACTUAL_MIN)
    relative = losses(spare / np.maximum(forecast, 1e-9)).mean(axis=-1)
    meant = np.where(forecast <= RAISED_MAX, 0, forecast)
    absolute = np.abs(actual - meant).mean(axis=-1)
    return np.asarray(np.where(actual.min(axis=-1) < ACTUAL_MIN, absolute, relative))


DAY_SECONDS = 86400
BLOCK_SECONDS = 180
DAYS_MAX = 14
WEEK = 7
RECENCY = 0.8
SAME_WEEKDAY = (3.0, 1.8)
"""Weight of the same weekday, one and two weeks ago; yesterday has 1."""


class Blocks(NamedTuple):
    """The days of a batch, block by block, sorted: (rank, series, block)."""

    day: Whole
    values: Floats
    inverse: Floats


def block_samples(day_samples: int) -> int:
    """Return the number of samples per block: about three minutes, and a divisor of the day."""
    size_max = max(1, round(BLOCK_SECONDS * day_samples / DAY_SECONDS))
    return next(size for size in range(size_max, 0, -1) if day_samples % size == 0)


def in_blocks(days: Floats) -> Blocks:
    """Return the block means of (series, day, sample), sorted over the days."""
    size = block_samples(days.shape[2])
    means = days[:, :, ::size].copy()
    for offset in range(1, size):
        means += days[:, :, offset::size]
    means /= days.dtype.type(size)
    by_block = np.ascontiguousarray(means.swapaxes(1, 2))
    day = np.argsort(by_block, axis=2)
    values = np.ascontiguousarray(np.moveaxis(np.take_along_axis(by_block, day, axis=2), 2, 0))
    return Blocks(np.ascontiguousarray(np.moveaxis(day, 2, 0)), values, 1 / values)


def day_weights(known_days: int, past_days: int, ahead: int) -> Floats:
    """Return each day's weight when the first `past_days` are known, for a profile `ahead` days on."""
    ages = past_days - np.arange(known_days)
    same = WEEK * -(-ahead // WEEK)
    weights = RECENCY ** (ages - 1.0)
    weights += SAME_WEEKDAY[0] * (ages + ahead - 1 == same)
    weights += SAME_WEEKDAY[1] * (ages + ahead - 1 == same + WEEK)
    return np.where((ages >= 1) & (ages <= DAYS_MAX), weights, 0.0).astype(np.float32)


def profile(blocks: Blocks, weights: Floats) -> Floats:
    """Return the weighted constant of least cost for each series and block."""
    shape = blocks.values.shape[1:]
    assert len(weights) == len(blocks.day), "every day has a weight"
    above = np.full(shape, weights.sum() * C, np.float32)
    below = np.full(shape, np.finfo(np.float32).tiny, np.float32)
    best = np.full(shape, np.inf, np.float32)
    scratch, weight = np.empty(shape, np.float32), np.empty(shape, np.float32)
    for day, value, inverse in zip(blocks.day, blocks.values, blocks.inverse, strict=True):
        weights.take(day, out=weight, mode="clip")
        np.multiply(weight, np.float32(C), out=scratch)
        above -= scratch
        weight *= inverse
        below += weight
        np.divide(above, below, out=scratch)
        np.maximum(scratch, value, out=scratch)
        np.minimum(best, scratch, out=best)
    return best


def spread(blocks: Floats, day_samples: int) -> Floats:
    """Return straight lines between the blocks' centres: (series, blocks) of whole days to samples."""
    size = block_samples(day_samples)
    before = np.concatenate([blocks[:, :1], blocks[:, :-1]], axis=1)
    after = np.concatenate([blocks[:, 1:], blocks[:, -1:]], axis=1)
    samples = np.empty((*blocks.shape, size), blocks.dtype)
    for place in range(size):
        offset = (place + 0.5) / size - 0.5
        beside = after if offset > 0 else before
        samples[..., place] = blocks + np.float32(abs(offset)) * (beside - blocks) if offset else blocks
    return samples.reshape(len(blocks), -1)


QUANTILE = 0.97
"""Quantile for a bound of 0.95; higher, since a few days of backtest have too few of the rare peaks."""
FLAT_BAND = 0.95
"""Quantile of the past that bounds a flat line without a backtest."""
HOURS_BESIDE = 2
"""Neighbouring hours in an hour's quantile: all hours make it too wide, the hour alone too narrow."""


def rise(ratios: Floats) -> Floats:
    """Return the factors from forecast to upper bound, by series and sample of the day: at least 1.

    The ratios are actual / forecast, margin included: (series, day, sample of the day).
    """
    series, days, samples = ratios.shape
    buckets = math.gcd(samples, 24)
    beside = min(max(1, round(HOURS_BESIDE * buckets / 24)), (buckets - 1) // 2)
    windows = 2 * beside + 1
    length = days * (samples // buckets)
    below_top = windows * length - math.ceil(round(QUANTILE * windows * length, 9))
    top_count = min(below_top + 1, length)
    by_hour = ratios.reshape(series, days, buckets, -1).swapaxes(1, 2).reshape(series, buckets, length)
    # At most `top_count` samples of an hour can be among the top of its five hours; the others are left out.
    top = np.sort(by_hour, axis=2)[..., -top_count:]
    neighbours = [np.roll(top, shift, axis=1) for shift in range(-beside, beside + 1)]
    ordered = np.sort(np.concatenate(neighbours, axis=2), axis=2)
    quantile = ordered[..., -1 - below_top]
    found = np.repeat(np.maximum(quantile, ratios.dtype.type(1)), samples // buckets, axis=1)
    assert found.shape == (series, samples), "every sample of the day has its factor"
    return found
