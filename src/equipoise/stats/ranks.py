"""Percentiles by nearest rank: exact, picked and never interpolated; unknown samples do not count.

Arrays have a row per series, a column per sample, and NaN where nothing is known; a percentile may also be
over the samples of several rows together, such as all pods of a workload. A high percentile needs only the
largest samples of a row: a bound estimated from some samples drops most others, and only the rest is sorted.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Whole = npt.NDArray[np.intp]
Claims = npt.NDArray[np.bool_]

CHUNK_SAMPLES = 160_000
"""Samples per chunk, so that it stays in a core's cache while it is sorted."""


def chunks(values: Floats, samples: int = CHUNK_SAMPLES) -> Iterator[slice]:
    """Return slices of a batch that fit into the cache."""
    count, length = values.shape[:2]
    size = max(1, samples // max(1, length))
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def cleaned(values: Floats) -> Floats:
    """Return the values with infinite and negative samples as NaN."""
    with np.errstate(invalid="ignore"):
        is_usage = (values >= 0) & (values < np.inf)
    return np.where(is_usage, values, values.dtype.type(np.nan))


PIECE = 512
"""Longest row that numpy sorts fast; longer ones take several times as long per sample."""
HOURS = 24
HOUR_SECONDS = 3600
_UNKNOWN = -1.0
"""Stands for NaN, so that rows can be sorted."""


def percentiles(values: Floats, fractions: Sequence[float]) -> Floats:
    """Return the smallest sample with at least that share of samples at or below it; NaN without samples."""
    assert all(0 < fraction <= 1 for fraction in fractions), "percentiles are shares above 0"
    found = np.full((len(values), len(fractions)), np.nan, values.dtype)
    if values.shape[1] == 0:
        return found
    for part in chunks(values):
        rows = values[part]
        counts = np.count_nonzero(~np.isnan(rows), axis=1)
        below_top = np.stack([counts - rank(fraction, counts) for fraction in fractions], axis=1)
        below_top = np.maximum(below_top, 0)
        ordered = _ordered_at(rows, below_top)
        picked = np.take_along_axis(ordered, ordered.shape[1] - 1 - below_top, axis=1)
        found[part] = np.where(counts[:, None] > 0, picked, values.dtype.type(np.nan))
    return found


def rank(fraction: float, counts: Whole) -> Whole:
    """Return the rank, from 1, of a percentile among so many samples; 0.07 of 100 is 7 despite floats."""
    ranks = np.ceil(np.round(fraction * counts, 9)).astype(np.intp)
    return np.minimum(np.maximum(ranks, 1), np.maximum(counts, 1))


def _ordered_at(rows: Floats, below_top: Whole) -> Floats:
    """Return rows, or their upper ends, with the samples at these positions from the end in sorted order."""
    filled = np.fmax(rows, rows.dtype.type(_UNKNOWN))
    if rows.shape[1] > PIECE:
        filled = _upper_end(filled, int(below_top.max()) + 1)
    if filled.shape[1] <= 2 * PIECE:
        return np.sort(filled, axis=1)
    return np.partition(filled, sorted(set((filled.shape[1] - 1 - below_top).ravel().tolist())), axis=1)


def _upper_end(filled: Floats, largest_count: int) -> Floats:
    """Return rows without most samples that are not among their largest `largest_count`.

    The bound is estimated from some samples of the row. If too few reach it, the rows are returned whole.
    """
    stride = -(-filled.shape[1] // PIECE) | 1  # odd, so that it shares little with hours and days
    some = np.sort(filled[:, ::stride], axis=1)
    expected = largest_count / stride
    place = some.shape[1] - 1 - math.ceil(expected + 3 * math.sqrt(expected) + 2)
    if place < 0:
        return filled
    is_kept = filled >= some[:, place, None]
    counts = np.count_nonzero(is_kept, axis=1)
    if counts.min() < largest_count:
        return filled
    table = np.full((len(filled), int(counts.max())), _UNKNOWN, filled.dtype)
    table[np.arange(table.shape[1]) < counts[:, None]] = filled[is_kept]
    return table


def hours_of_day(times: Floats, offset_seconds: Floats | float = 0.0) -> Whole:
    """Return the hour, 0 to 23, of each time; the offset is local time minus UTC."""
    return (np.floor((times + offset_seconds) / HOUR_SECONDS) % HOURS).astype(np.intp)


def hour_medians(values: Floats, hours: Whole) -> Floats:
    """Return the median of each hour of the day over all days, NaN where an hour has no sample."""
    assert len(hours) == values.shape[1], "every column has an hour"
    order = np.argsort(hours, kind="stable")
    counts = np.bincount(hours, minlength=HOURS)
    longest = max(int(counts.max(initial=0)), 1)
    place = np.zeros((HOURS, longest), np.intp)
    is_pad = np.arange(longest) >= counts[:, None]
    place[~is_pad] = order
    found = np.full((len(values), HOURS), np.nan)
    if values.shape[1] == 0:
        return found
    for part in chunks(values):
        table = np.fmax(values[part].take(place, axis=1), values.dtype.type(_UNKNOWN))
        table[:, is_pad] = _UNKNOWN
        found[part] = medians(np.sort(table, axis=2), np.count_nonzero(table >= 0, axis=2))
    return found


def medians(ordered: Floats, counts: Whole) -> Floats:
    """Return the medians of sorted rows whose last `counts` entries count; even counts give a mean."""
    first = ordered.shape[-1] - counts
    middles = [first + (counts - 1) // 2, first + counts // 2]
    limit = ordered.shape[-1] - 1
    picked = [
        np.take_along_axis(ordered, np.minimum(middle, limit)[..., None], axis=-1)[..., 0].astype(np.float64)
        for middle in middles
    ]
    return np.where(counts > 0, (picked[0] + picked[1]) / 2, np.nan)


def row_medians(values: Floats) -> Floats:
    """Return the medians of rows without NaN; unlike numpy's `median`, without loading masked arrays."""
    ordered = np.sort(values, axis=-1)
    count = values.shape[-1]
    return np.asarray((ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2)


def pooled_percentiles(rows: Floats, counts: Whole, fraction: float) -> Floats:
    """Return one percentile per group of consecutive rows, of sizes `counts`; NaN without samples."""
    assert counts.sum() == len(rows), "every row belongs to a group"
    found = np.full(len(counts), np.nan, rows.dtype)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.intp)
    for count in sorted(set(counts[counts > 0].tolist())):  # groups of the same size form one table
        groups = np.flatnonzero(counts == count)
        size = max(1, 16 * CHUNK_SAMPLES // max(1, count * rows.shape[1]))
        for start in range(0, len(groups), size):
            part = groups[start : start + size]
            members = first[part][:, None] + np.arange(count)
            found[part] = percentiles(rows[members].reshape(len(part), -1), (fraction,))[:, 0]
    return found


NEXT_TO_NOTHING = 1e-290
"""Lower bound for values to be rounded; below it floats have no six significant digits."""


def rounded_up(values: Floats) -> Floats:
    """Round to six significant digits, then up: 0.69 x 100 is 69."""
    values = np.where(values > 0, np.maximum(values, NEXT_TO_NOTHING), values)
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 5 - np.floor(np.log10(np.abs(values)))
    digits = np.where(np.isfinite(digits), digits, 0.0)
    up, down = 10.0 ** np.maximum(digits, 0), 10.0 ** np.maximum(-digits, 0)
    return np.asarray(np.ceil(np.rint(values * up / down) / up * down))
