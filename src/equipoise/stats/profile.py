"""A day's course from the days before it: per block of three minutes, the constant that costs least.

Recent days and the same weekday count more. A weekday is a lag of seven days: no calendar, no time zone.
All days are sorted once per block; a day that a profile must not see has the weight 0, which changes
nothing else.
"""

from typing import NamedTuple

import numpy as np

from equipoise.stats.arrays import Floats, Whole
from equipoise.stats.loss import C

DAY_SECONDS = 86400
BLOCK_SECONDS = 180
DAYS_MAX = 14
WEEK = 7
RECENCY = 0.8
SAME_WEEKDAY = (3.0, 1.8)
"""What the same weekday, one and two weeks back, weighs beside yesterday's 1."""


class Blocks(NamedTuple):
    """The days of a batch, block by block, sorted: (rank, series, block)."""

    day: Whole
    values: Floats
    inverse: Floats


def block_samples(day_samples: int) -> int:
    """Give how many samples make a block: three minutes, as far as the day can be cut so."""
    wanted = max(1, round(BLOCK_SECONDS * day_samples / DAY_SECONDS))
    return next(size for size in range(wanted, 0, -1) if day_samples % size == 0)


def in_blocks(days: Floats) -> Blocks:
    """Sort the block means of (series, day, sample) over the days."""
    size = block_samples(days.shape[2])
    means = days[:, :, ::size].copy()
    for offset in range(1, size):
        means += days[:, :, offset::size]
    means /= days.dtype.type(size)
    by_block = np.ascontiguousarray(means.swapaxes(1, 2))
    day = np.argsort(by_block, axis=2)
    values = np.ascontiguousarray(np.moveaxis(np.take_along_axis(by_block, day, axis=2), 2, 0))
    return Blocks(np.ascontiguousarray(np.moveaxis(day, 2, 0)), values, 1 / values)


def day_weights(known_days: int, seen_days: int, ahead: int) -> Floats:
    """Give each day's weight when the first `seen_days` are known and the profile is for `ahead` days on."""
    ages = seen_days - np.arange(known_days)
    same = WEEK * -(-ahead // WEEK)
    weights = RECENCY ** (ages - 1.0)
    weights += SAME_WEEKDAY[0] * (ages + ahead - 1 == same)
    weights += SAME_WEEKDAY[1] * (ages + ahead - 1 == same + WEEK)
    return np.where((ages >= 1) & (ages <= DAYS_MAX), weights, 0.0).astype(np.float32)


def profile(blocks: Blocks, weights: Floats) -> Floats:
    """Give the weighted constant that costs least, per series and block."""
    shape = blocks.values.shape[1:]
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
    """Draw straight lines between the blocks' centres: (series, blocks) of whole days to samples."""
    size = block_samples(day_samples)
    before = np.concatenate([blocks[:, :1], blocks[:, :-1]], axis=1)
    after = np.concatenate([blocks[:, 1:], blocks[:, -1:]], axis=1)
    samples = np.empty((*blocks.shape, size), blocks.dtype)
    for place in range(size):
        offset = (place + 0.5) / size - 0.5
        beside = after if offset > 0 else before
        samples[..., place] = blocks + np.float32(abs(offset)) * (beside - blocks) if offset else blocks
    return samples.reshape(len(blocks), -1)
