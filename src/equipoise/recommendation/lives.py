"""When pods were there: from first to last, but for the hours in which a StatefulSet was smaller.

A StatefulSet is scaled at its upper end, and its pods come back under the same names. So pods that were
missing together from some ordinal upward, and for long, while one below them was seen, had been scaled away.
Missing in any other way they were there and not measured: a lower one alone (its node was lost), all of them
(whoever measures was down), or the upper end for a moment (an update begins there).
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from equipoise.recommendation.belonging import OF_STATEFUL_SET
from equipoise.stats.arrays import Claims, Whole

AWAY_SECONDS_MIN = 900.0
"""From the first missing sample to the last: an update of one pod takes less."""


def lives(
    first: Whole, last: Whole, is_seen: Claims, sets: Iterable[Sequence[Whole]], interval_seconds: float
) -> Claims:
    """Tell when each row was there, from its first to its last column; not while it was scaled away.

    `is_seen` tells where something says that a row was there, whether measured or not. Each of `sets` is a
    StatefulSet: of each of its pods, by ordinal, the rows.
    """
    columns = np.arange(is_seen.shape[1])
    is_alive = np.asarray((columns >= first[:, None]) & (columns <= last[:, None]))
    least = 1 + math.ceil(round(AWAY_SECONDS_MIN / interval_seconds, 6))
    for pods in sets:
        rows = np.concatenate(pods)
        if (is_alive[rows] & ~is_seen[rows]).any():
            are_seen = np.array([is_seen[each].any(axis=0) for each in pods])
            for each, is_away in zip(pods, scaled_away(are_seen, least), strict=True):
                is_alive[each] &= ~is_away
    return is_alive


def by_ordinal(pods: Sequence[str]) -> list[int]:
    """Give the places of a StatefulSet's pods by ordinal; none where there are not two, or names differ."""
    counted = [match for pod in pods if (match := OF_STATEFUL_SET.fullmatch(pod)) is not None]
    if len(counted) < max(2, len(pods)) or len({match["name"] for match in counted}) > 1:
        return []
    ordinals = [match[2] for match in counted]  # digits of any length, without a leading 0
    return sorted(range(len(pods)), key=lambda place: (len(ordinals[place]), ordinals[place]))


def scaled_away(are_seen: Claims, least: int) -> Claims:
    """Tell when pods, by ordinal, were missing with all above for so many columns, and one below was seen."""
    is_missing = np.empty_like(are_seen)
    is_upward_seen = np.zeros(are_seen.shape[1], np.bool_)
    for pod in reversed(range(len(are_seen))):
        is_upward_seen |= are_seen[pod]
        np.logical_not(is_upward_seen, out=is_missing[pod])
    return _long_runs(is_missing & is_upward_seen, least)


def _long_runs(claims: Claims, least: int) -> Claims:
    """Keep the runs within rows that are long enough."""
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
