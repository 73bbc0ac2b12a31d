"""Rounding up to multiples, coarser as a size grows; exact, in whole billionths."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from equipoise.model.quantity import NANO

SLACK_PARTS = 1000
"""An input may be above a multiple by a thousandth of the distance: sums of allocatable are not round."""


class Cut(NamedTuple):
    """From `at` on, round up to a multiple of `every`."""

    at: int
    every: int


class Fall(NamedTuple):
    """Two sizes that are rounded the wrong way round."""

    low: int
    low_result: int
    high: int
    high_result: int


def cut_of(cuts: Sequence[Cut], size: int) -> Cut | None:
    """Give the cut with the largest `at` that the size has reached."""
    return max((cut for cut in cuts if cut.at <= size), default=None)


def rounded_up(size: int, every: int, *, slack: bool) -> int:
    """Round up to the next multiple, counted from 0."""
    if slack:  # ceil(size / every - 1 / SLACK_PARTS), in whole numbers
        return -((every - SLACK_PARTS * size) // (SLACK_PARTS * every)) * every
    return -(-size // every) * every


def fall(cuts: Sequence[Cut], *, slack: bool) -> Fall | None:
    """Find where a larger size would be rounded to less; the cuts are in order.

    Within a cut nothing falls, so only the beginnings are looked at: what comes right before each.
    """
    for before, cut in pairwise((None, *cuts)):
        assert cut is not None
        high = rounded_up(cut.at, cut.every, slack=slack)
        if before is None:
            if high < cut.at:  # below the first cut sizes stay as they are
                low = (high + cut.at) // 2 + 1
                return Fall(low, low, cut.at, high)
            continue
        most = rounded_up(cut.at, before.every, slack=slack)
        if most > high:
            return Fall(_example(before, cut.at, most, slack=slack), most, cut.at, high)
    return None


def _example(before: Cut, end: int, result: int, *, slack: bool) -> int:
    """Give a readable size right below the end that is rounded to this result."""
    for distance in (NANO, NANO // 1000, 1):
        size = end - distance
        if size >= before.at and rounded_up(size, before.every, slack=slack) == result:
            return size
    return end - 1
