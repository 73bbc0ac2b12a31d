"""Rows of a table added up by group: containers to pods, pods to workloads."""

import numpy as np

from equipoise.stats.arrays import Claims, Floats, Whole


def starts(counts: Whole) -> Whole:
    """Give the first row of each group; a group has so many of the rows, in order."""
    return np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.intp)


def totals(table: Floats, is_alive: Claims, counts: Whole) -> Floats:
    """Add the rows of each group up; unknown where one that was there has no sample. No group is empty."""
    if not len(counts):
        return np.zeros((0, table.shape[1]))
    first = starts(counts)
    is_known = ~np.isnan(table)
    added = np.add.reduceat(np.where(is_known, table, 0), first, axis=0)
    has_any = np.logical_or.reduceat(is_known, first, axis=0)
    has_hole = np.logical_or.reduceat(is_alive & ~is_known, first, axis=0)
    return np.where(has_any & ~has_hole, added, np.nan)
