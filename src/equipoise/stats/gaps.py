"""Holes in a history: how much is known, from which day on, and what stands in for the rest.

A short hole is bridged by a straight line. A longer one is filled with what the other days have at that time
of day, which leaves a profile as it is.
"""

import numpy as np

from equipoise.stats.arrays import Floats, Whole

BRIDGE_SECONDS_MAX = 3600
DAY_KNOWN_MIN = 0.5
"""The share of a day's samples that must be known for the day to count."""


def known_days(days: Floats) -> Whole:
    """Count the days of (series, day, sample) from the first to the last, if enough is known of them.

    0 where the last day, or the whole from the first good day on, has too many holes.
    """
    shares = 1 - np.isnan(days).mean(axis=2)
    is_good = shares >= DAY_KNOWN_MIN
    count = np.where(is_good.any(axis=1), days.shape[1] - is_good.argmax(axis=1), 0)
    is_counted = np.arange(days.shape[1])[::-1] < count[:, None]
    mean = np.where(is_counted, shares, 0).sum(axis=1) / np.maximum(count, 1)
    return np.where(is_good[:, -1] & (mean >= DAY_KNOWN_MIN), count, 0)


def filled(days: Floats, step_seconds: float) -> Floats:
    """Fill the holes of (series, day, sample); the last resort is the series' mean."""
    if not np.isnan(days).any():
        return days
    is_known = ~np.isnan(days)
    known = np.where(is_known, days, 0)
    slots = is_known.sum(axis=1, keepdims=True)
    means = known.sum(axis=(1, 2), keepdims=True) / np.maximum(is_known.sum(axis=(1, 2), keepdims=True), 1)
    usual = np.where(slots > 0, known.sum(axis=1, keepdims=True) / np.maximum(slots, 1), means)
    long = np.where(is_known, days, usual.astype(days.dtype)).reshape(len(days), -1)
    short = bridged(days.reshape(len(days), -1), int(BRIDGE_SECONDS_MAX / step_seconds))
    return np.where(np.isnan(short), long, short).reshape(days.shape)


def bridged(values: Floats, hole_max: int) -> Floats:
    """Draw a straight line over every hole of at most so many samples."""
    places = np.arange(values.shape[1])
    is_known = ~np.isnan(values)
    before = np.maximum.accumulate(np.where(is_known, places, -1), axis=1)
    after = np.minimum.accumulate(np.where(is_known, places, len(places))[:, ::-1], axis=1)[:, ::-1]
    is_bridge = ~is_known & (before >= 0) & (after < len(places)) & (after - before - 1 <= hole_max)
    row, place = np.nonzero(is_bridge)
    left, right = before[row, place], after[row, place]
    made = values.copy()
    share = (place - left) / (right - left)
    made[row, place] = values[row, left] * (1 - share) + values[row, right] * share
    return made
