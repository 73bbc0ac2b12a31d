"""Rows of a table added up by group: containers to pods, pods to workloads.

The first rows of all groups are added at once, then the second ones, and so on: several times as quick as
`reduceat`, which goes column by column.
"""

from collections.abc import Iterator

import numpy as np

from equipoise.stats.arrays import Claims, Floats, Whole


def totals(table: Floats, is_alive: Claims, counts: Whole) -> Floats:
    """Add the rows of each group up; unknown where one that was there has no sample. No group is empty."""
    shape = (len(counts), table.shape[1])
    added, has_any, has_hole = np.zeros(shape), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for groups, rows in _turns(counts):
        values = table[rows]
        is_unknown = np.isnan(values)
        values[is_unknown] = 0
        added[groups] += values
        has_any[groups] |= ~is_unknown
        is_unknown &= is_alive[rows]
        has_hole[groups] |= is_unknown
    added[~has_any | has_hole] = np.nan
    return added


def any_alive(is_alive: Claims, counts: Whole) -> Claims:
    """Tell when any row of each group was there."""
    found = np.zeros((len(counts), is_alive.shape[1]), np.bool_)
    for groups, rows in _turns(counts):
        found[groups] |= is_alive[rows]
    return found


def _turns(counts: Whole) -> Iterator[tuple[Whole | slice, Whole]]:
    """Give the groups that have one more row, and that row; a group has so many of the rows, in order."""
    first = np.cumsum(counts) - counts
    for turn in range(int(counts.max(initial=0))):
        groups = np.flatnonzero(counts > turn)
        # All of them need no picking, which costs twice what the adding does.
        yield slice(None) if len(groups) == len(counts) else groups, first[groups] + turn
