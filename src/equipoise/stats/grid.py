"""Samples at the times they were taken, put on an even grid."""

import numpy as np

from equipoise.stats.arrays import Floats, Whole
from equipoise.stats.ranks import row_medians

NEARLY_WHOLE = 0.02
SAMPLES_ENOUGH = 500_000


def usual_interval(times: Floats, rows: Whole) -> float:
    """Give the usual time between two samples of one row, in seconds; 0 when no row has two."""
    some = -(-len(times) // SAMPLES_ENOUGH)
    if some > 1:  # every so manyth row tells as much
        is_looked_at = rows % some == 0
        times, rows = times[is_looked_at], rows[is_looked_at]
    order = np.lexsort((times, rows))
    steps = np.diff(times[order])
    is_within = (np.diff(rows[order]) == 0) & (steps > 0)
    if not is_within.any():
        return 0.0
    usual = float(row_medians(steps[is_within]))
    whole = float(round(usual))
    return whole if abs(whole - usual) <= NEARLY_WHOLE * usual else usual


def slots(times: Floats, at: float, interval_seconds: float, columns: int) -> Whole:
    """Give each sample's column; the last one is of `at`, and what is older than the first is negative."""
    return np.asarray(np.rint((times - at) / interval_seconds) + columns - 1, np.intp)


def on_grid(values: Floats, rows: Whole, columns: Whole, shape: tuple[int, int]) -> Floats:
    """Lay samples out as a table, NaN where there is none; the later row of a file wins a place."""
    table = np.full(shape, np.nan)
    is_inside = (columns >= 0) & (columns < shape[1])
    table[rows[is_inside], columns[is_inside]] = values[is_inside]
    return table
