"""Samples put on an even grid, holes in histories, sums of rows, and whether a rate covers its window.

A short hole of a history is bridged by a straight line. A longer one is filled with the usual values at that
time of day, which leaves the profile unchanged.

A StatefulSet is scaled at its highest ordinals, and its pods return under the same names. So pods that are
missing together from some ordinal upward, for long, while a lower one has samples, were scaled down and not
alive. All other pods without samples were alive and not measured: a lower one alone (its node was lost), all
of them (the metrics source was down), or the highest for a short time (a rolling update begins there).

Rows are summed into groups: first rows of all groups at once, then second rows, and so on, several times as
fast as `reduceat`, which goes column by column.

A rate covers a window only in part where its counter was not sampled to the edges: `rate` reaches from the
first and the last sample to the edges as long as that is hardly more than the usual time between two samples,
and half that time otherwise. The rest of the window counts as no usage at all, so such a rate is too low. A
hole between two samples takes nothing away.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from equipoise.stats.ranks import Claims, Floats, Whole, row_medians

NEARLY_WHOLE = 0.02
SAMPLES_ENOUGH = 500_000
STEP_SECONDS_MIN = 1.0
"""Smallest step: closer samples come from two scrapers, and have no rate between them."""
PAIRS_MIN = 0.1
STEADY_MIN = 0.5
"""Share of a row's samples that must agree on a phase within the step."""
LATE_MAX = 0.25
"""Part of a step from which a sample counts as early for the next column."""


def usual_interval(times: Floats, rows: Whole) -> float:
    """Return the usual time between two samples of one row, in seconds; 0 when no row has two."""
    some = -(-len(times) // SAMPLES_ENOUGH)
    if some > 1:  # a sample of the rows suffices
        is_taken = rows % some == 0
        times, rows = times[is_taken], rows[is_taken]
    order = np.lexsort((times, rows))
    steps = np.diff(times[order])
    is_within = (np.diff(rows[order]) == 0) & (steps > 0)
    steps = steps[is_within]
    if not len(steps):
        return 0.0
    is_long = steps >= STEP_SECONDS_MIN
    usual = float(row_medians(steps[is_long] if is_long.mean() >= PAIRS_MIN else steps))
    whole = float(round(usual))
    return whole if abs(whole - usual) <= NEARLY_WHOLE * usual else usual


def phases(times: Floats, rows: Whole, count: int, at: float, interval_seconds: float) -> Floats:
    """Return the phase of each row: how long after the times of a grid that ends at `at` its samples are.

    A scraper spreads its targets over its interval. A row without a steady step has the phase 0.
    """
    angles = (times - at) % interval_seconds * (2 * np.pi / interval_seconds)
    east = np.bincount(rows, np.cos(angles), minlength=count)
    north = np.bincount(rows, np.sin(angles), minlength=count)
    is_steady = np.hypot(east, north) >= STEADY_MIN * np.bincount(rows, minlength=count)
    found = np.where(is_steady, np.arctan2(north, east) / (2 * np.pi), 0.0)
    return np.where(found > LATE_MAX, found - 1, found) * interval_seconds


def slots(times: Floats, at: float, interval_seconds: float, columns: int) -> Whole:
    """Return each sample's column: the last one is of time `at`; older than the first is negative."""
    return np.asarray(np.rint((times - at) / interval_seconds) + columns - 1, np.intp)


def distinct(times: Floats, rows: Whole) -> Whole:
    """Return the indices of the samples by row and time; of duplicates, the last one in the file."""
    order = np.lexsort((times, rows))
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (np.diff(times[order]) != 0) | (np.diff(rows[order]) != 0)
    return np.asarray(order[is_last])


def on_grid(values: Floats, rows: Whole, columns: Whole, shape: tuple[int, int]) -> Floats:
    """Return the samples as a table, NaN where there are none; of duplicates, the last one in the file."""
    assert len(values) == len(rows) == len(columns), "every sample has a row and a column"
    table = np.full(shape, np.nan)
    is_inside = (columns >= 0) & (columns < shape[1]) & ~np.isnan(values)
    table[rows[is_inside], columns[is_inside]] = values[is_inside]
    return table


BRIDGE_SECONDS_MAX = 3600
DAY_KNOWN_MIN = 0.5
"""The share of a day's samples that must be known for the day to count."""


def known_days(days: Floats) -> Whole:
    """Return the number of days of (series, day, sample) since the first with enough samples.

    0 where the last day, or all days since the first good one together, have too many holes.
    """
    shares = 1 - np.isnan(days).mean(axis=2)
    is_good = shares >= DAY_KNOWN_MIN
    count = np.where(is_good.any(axis=1), days.shape[1] - is_good.argmax(axis=1), 0)
    is_counted = np.arange(days.shape[1])[::-1] < count[:, None]
    mean = np.where(is_counted, shares, 0).sum(axis=1) / np.maximum(count, 1)
    return np.where(is_good[:, -1] & (mean >= DAY_KNOWN_MIN), count, 0)


def filled(days: Floats, step_seconds: float) -> Floats:
    """Return (series, day, sample) with holes filled by that time of day, or else by the series' mean."""
    if not np.isnan(days).any():
        return days
    is_known = ~np.isnan(days)
    known_values = np.where(is_known, days, 0)
    slots = is_known.sum(axis=1, keepdims=True)
    means = known_values.sum(axis=(1, 2), keepdims=True) / np.maximum(
        is_known.sum(axis=(1, 2), keepdims=True), 1
    )
    usual = np.where(slots > 0, known_values.sum(axis=1, keepdims=True) / np.maximum(slots, 1), means)
    long = np.where(is_known, days, usual.astype(days.dtype)).reshape(len(days), -1)
    short = bridged(days.reshape(len(days), -1), int(BRIDGE_SECONDS_MAX / step_seconds))
    whole = np.where(np.isnan(short), long, short).reshape(days.shape)
    assert whole.dtype == days.dtype, "filling changes no precision"
    return whole


def bridged(values: Floats, hole_max: int) -> Floats:
    """Return the rows with a straight line over every hole of at most so many samples."""
    places = np.arange(values.shape[1])
    is_known = ~np.isnan(values)
    before = np.maximum.accumulate(np.where(is_known, places, -1), axis=1)
    after = np.minimum.accumulate(np.where(is_known, places, len(places))[:, ::-1], axis=1)[:, ::-1]
    is_bridge = ~is_known & (before >= 0) & (after < len(places)) & (after - before - 1 <= hole_max)
    row, place = np.nonzero(is_bridge)
    left, right = before[row, place], after[row, place]
    whole = values.copy()
    share = (place - left) / (right - left)
    whole[row, place] = values[row, left] * (1 - share) + values[row, right] * share
    return whole


def sum_groups(table: Floats, is_alive: Claims, counts: Whole) -> Floats:
    """Return the sum of each group's rows; NaN where a live row has no sample. No group is empty."""
    assert counts.sum() == len(table) == len(is_alive), "every row belongs to a group"
    shape = (len(counts), table.shape[1])
    added, has_any, has_hole = np.zeros(shape), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for groups, rows in _group_rows(counts):
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
    """Return when any row of each group was alive."""
    found = np.zeros((len(counts), is_alive.shape[1]), np.bool_)
    for groups, rows in _group_rows(counts):
        found[groups] |= is_alive[rows]
    return found


def _group_rows(counts: Whole) -> Iterator[tuple[Whole | slice, Whole]]:
    """Yield the groups that have an n-th row, and these rows, for each n; `counts` are the rows per group."""
    first = np.cumsum(counts) - counts
    for place in range(int(counts.max(initial=0))):
        groups = np.flatnonzero(counts > place)
        # A slice for all groups: an index would cost twice as much as the sum.
        yield slice(None) if len(groups) == len(counts) else groups, first[groups] + place


AWAY_SECONDS_MIN = 900.0
"""Shortest absence of pods that were scaled down; an update of one pod takes less."""


def alive_mask(
    first: Whole, last: Whole, is_observed: Claims, sets: Iterable[Sequence[Whole]], interval_seconds: float
) -> Claims:
    """Return when each row was alive: from its first to its last column, except while scaled down.

    `is_observed` marks columns with evidence of a row, measured or not. Each of `sets` is a StatefulSet: the
    rows of each of its pods, by ordinal.
    """
    columns = np.arange(is_observed.shape[1])
    is_alive = np.asarray((columns >= first[:, None]) & (columns <= last[:, None]))
    least = 1 + math.ceil(round(AWAY_SECONDS_MIN / interval_seconds, 6))
    for pods in sets:
        rows = np.concatenate(pods)
        if (is_alive[rows] & ~is_observed[rows]).any():
            are_observed = np.array([is_observed[each].any(axis=0) for each in pods])
            for each, is_away in zip(pods, scaled_away(are_observed, least), strict=True):
                is_alive[each] &= ~is_away
    return is_alive


def scaled_away(are_observed: Claims, least: int) -> Claims:
    """Return when pods, by ordinal, were missing with all above for `least` columns, but not all below."""
    is_missing = np.empty_like(are_observed)
    is_any_observed = np.zeros(are_observed.shape[1], np.bool_)
    for pod in reversed(range(len(are_observed))):
        is_any_observed |= are_observed[pod]
        np.logical_not(is_any_observed, out=is_missing[pod])
    return _long_runs(is_missing & is_any_observed, least)


def _long_runs(claims: Claims, least: int) -> Claims:
    """Return the runs within rows that are long enough."""
    steps = np.zeros((claims.shape[0], claims.shape[1] + 1), np.int8)
    steps[:, :-1] = claims.view(np.int8)
    steps[:, 1:] -= claims.view(np.int8)
    flat = steps.ravel()
    starts, ends = np.flatnonzero(flat == 1), np.flatnonzero(flat == -1)
    is_short = ends - starts < least
    if not is_short.any():
        return claims
    flat[starts[is_short]] = 0
    flat[ends[is_short]] = 0
    return np.cumsum(steps[:, :-1], axis=1, dtype=np.int8).view(np.bool_)


REACH = 1.1
"""Largest distance of an edge that `rate` extrapolates to, in usual intervals."""
LATE = 1.5
"""Largest distance at which the next sample is only late, in usual intervals, since scrapes jitter."""
LEFT_OUT_MAX = 0.1
"""The share of the window that a rate may leave out.

In a window of twenty samples, a missed scrape leaves out less.
"""

EARLY = 1.1
"""How long after the window's beginning a first sample is expected, in usual intervals; below `LATE`."""
EARLY_SHARES = (1 / 12, 1 / 2)
"""Bounds of that time, as shares of the window."""


def is_covered(window_seconds: float, spans: Floats, counts: Floats, ages: Floats) -> Claims:
    """Return whether a rate covers its whole window; false where that is unknown.

    `spans` are the seconds from the first to the last sample, `ages` those from the last one to the window's
    end.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        usual = spans / (counts - 1)
        before, after = np.maximum(window_seconds - spans - ages, 0.0), np.maximum(ages, 0.0)
        is_late_only = np.maximum(before, after) <= LATE * usual
        left_out = _left_out(before, usual) + _left_out(after, usual)
        enough: Claims = (counts > 1) & (is_late_only | (left_out <= LEFT_OUT_MAX * window_seconds))
    return enough


def early_seconds(window_seconds: float, counts: Floats) -> float:
    """Return within how many seconds of the window most series have a sample, from their sample counts."""
    seconds_min, seconds_max = (share * window_seconds for share in EARLY_SHARES)
    return float(np.clip(EARLY * window_seconds / np.median(counts), seconds_min, seconds_max))


def _left_out(edge: Floats, usual: Floats) -> Floats:
    """Return how many seconds between a sample and the window's edge a rate leaves out; NaN stays NaN."""
    return np.where(edge <= REACH * usual, 0.0, edge - usual / 2)
