"""Percentiles over the samples of several rows together, such as all pods of a workload."""

import numpy as np

from equipoise.stats.arrays import CHUNK_SAMPLES, Floats, Whole
from equipoise.stats.ranks import percentiles


def pooled_percentiles(rows: Floats, counts: Whole, fraction: float) -> Floats:
    """Give one percentile per group; a group has so many of the rows, in order. NaN without samples."""
    found = np.full(len(counts), np.nan, rows.dtype)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.intp)
    for count in sorted(set(counts[counts > 0].tolist())):  # groups of one size are one table
        groups = np.flatnonzero(counts == count)
        size = max(1, 16 * CHUNK_SAMPLES // max(1, count * rows.shape[1]))
        for start in range(0, len(groups), size):
            part = groups[start : start + size]
            members = first[part][:, None] + np.arange(count)
            found[part] = percentiles(rows[members].reshape(len(part), -1), (fraction,))[:, 0]
    return found
