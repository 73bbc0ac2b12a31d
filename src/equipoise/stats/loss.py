"""What a wrong forecast costs: too little costs about 4.5 times as much as too much.

The loss depends only on r = forecast / actual: C x (-ln r) below 1, r - 1 above, with C = 1 / ln 1.25.
"""

import math

import numpy as np

from equipoise.stats.arrays import Floats, Whole

C = 1 / math.log(1.25)
SAMPLE_MIN = 1e-6
"""What counts as 0: a ratio needs something to stand on."""
RAISED_MAX = 2 * SAMPLE_MIN
"""A forecast of no more is one of nothing, which was raised for the ratio's sake."""
ACTUAL_MIN = 1e-3
"""Below this a ratio says nothing, and the error is taken in cores instead."""


def best_constant(ordered: Floats, counts: Whole | None = None) -> Floats:
    """Give the constant that costs least over sorted positive samples in the last axis, exactly.

    p = min over j of max(a_j, C x (samples above a_j) / (sum of 1/a up to a_j)); no search is needed.
    With counts, only so many samples of a row count, and the rest must be infinite.
    """
    last = np.asarray(ordered.shape[-1] if counts is None else counts[..., None]) - 1
    above = np.maximum(last - np.arange(ordered.shape[-1]), 0).astype(ordered.dtype) * ordered.dtype.type(C)
    inverse = np.cumsum(1 / ordered, axis=-1, dtype=ordered.dtype)
    return np.asarray(np.maximum(ordered, above / inverse).min(axis=-1))


def flat_lines(values: Floats) -> Floats:
    """Give the constant that costs least over the known samples of each row; NaN where none is known."""
    is_known = ~np.isnan(values)
    ordered = np.sort(np.where(is_known, np.maximum(values, SAMPLE_MIN), np.inf), axis=1)
    counts = is_known.sum(axis=1)
    if values.shape[1] == 0:
        return np.full(len(values), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 0, best_constant(ordered, counts), np.nan)


def losses(ratios: Floats, factor: Floats | float = 1.0) -> Floats:
    """Give the loss of each actual / forecast when the forecast is multiplied by the factor."""
    share = np.asarray(factor / ratios)
    return np.asarray(np.where(share < 1, np.log(share) * share.dtype.type(-C), share - 1))


def error(actual: Floats, forecast: Floats) -> Floats:
    """Give the mean loss of each row; in cores where some actual is next to nothing."""
    spare = np.maximum(actual, ACTUAL_MIN)
    relative = losses(spare / np.maximum(forecast, 1e-9)).mean(axis=-1)
    meant = np.where(forecast <= RAISED_MAX, 0, forecast)
    absolute = np.abs(actual - meant).mean(axis=-1)
    return np.asarray(np.where(actual.min(axis=-1) < ACTUAL_MIN, absolute, relative))
