"""The ideas that compete for a series: its profile, a flat line, yesterday again, last week again.

Each is judged on days that it has not seen: the last days of the history, each forecast from the days before
it only. The margin of an idea is the constant that costs least over actual / forecast in that backtest.
"""

from typing import NamedTuple

import numpy as np

from equipoise.stats.arrays import Floats
from equipoise.stats.loss import best_constant, losses
from equipoise.stats.profile import WEEK, Blocks, day_weights, profile, spread
from equipoise.stats.ranks import row_medians

SEEN_DAYS_MIN = 2
"""A day is part of the backtest when at least so many days came before it."""
BACKTEST_DAYS_MAX = 7
MARGIN_MIN, MARGIN_MAX = 0.7, 1.5
SKETCH_DAY = 48
"""So many of a day's sorted samples stand for all of them."""
SKETCH_PIECE = 480
LEVEL_HOURS = 3


class Judged(NamedTuple):
    """How an idea did in the backtest: arrays by series, and by series and day."""

    margin: Floats
    day_errors: Floats
    level: Floats
    """By how much, as a logarithm, the last hours were above what those hours usually are."""
    ratios: Floats
    """Actual / forecast without margin: (series, day, sample), of sketches for the flat line."""
    lines: Floats
    """The flat line of each day; 1 for all others."""

    @property
    def error(self) -> Floats:
        """The mean loss over all days."""
        return np.asarray(self.day_errors.mean(axis=1))


def backtest_days(known_days: int) -> range:
    """Give the days that are forecast again from what was before them."""
    return range(max(SEEN_DAYS_MIN, known_days - BACKTEST_DAYS_MAX), known_days)


def judge_profile(days: Floats, blocks: Blocks) -> Judged:
    """Judge the profile, one day ahead."""
    samples = days.shape[2]
    ratios = [
        days[:, day] / spread(profile(blocks, day_weights(days.shape[1], day, 1)), samples)
        for day in backtest_days(days.shape[1])
    ]
    return judge(np.stack(ratios, axis=1))


def repeat_ratios(days: Floats, lag: int) -> Floats:
    """Divide days of the backtest by the days so long before, where there are such."""
    first = max(lag, backtest_days(days.shape[1]).start)
    return days[:, first:] / days[:, first - lag : days.shape[1] - lag]


def judge_flat(days: Floats) -> Judged:
    """Judge the best constant of the past week. Sketches of the sorted days are all that it needs."""
    sketches = sketch(days)
    hours = _last_hours(days.shape[2])
    tested = backtest_days(days.shape[1])
    lines = np.stack([flat(sketches[:, max(0, day - WEEK) : day]) for day in tested], axis=1)[..., None]
    judged = judge(sketches[:, tested.start :] / lines, is_sketch=True)
    return judged._replace(level=_level(days[:, tested.start :, -hours:] / lines), lines=lines)


def flat(sketches: Floats) -> Floats:
    """Give the best constant of some days, from their sketches (series, day, sorted sample)."""
    return best_constant(np.sort(sketches.reshape(len(sketches), -1), axis=1))


def sketch(days: Floats) -> Floats:
    """Pick evenly spaced ranks of each day; pieces of a day are sorted apart, which is far quicker."""
    series, count, samples = days.shape
    pieces = samples // SKETCH_PIECE if samples % SKETCH_PIECE == 0 else 1
    wanted = SKETCH_DAY // pieces if SKETCH_DAY % pieces == 0 else SKETCH_DAY
    ordered = np.sort(days.reshape(series, count, pieces, samples // pieces), axis=3)
    length = samples // pieces
    if length > wanted:
        ordered = ordered[..., ((np.arange(wanted) + 0.5) * length / wanted).astype(np.intp)]
    return ordered.reshape(series, count, -1)


def judge(ratios: Floats, *, is_sketch: bool = False) -> Judged:
    """Find the margin of an idea from its actual / forecast, and judge it with that."""
    points = ratios if is_sketch else sketch(ratios)
    best = best_constant(np.sort(points.reshape(len(points), -1), axis=1))
    margin = np.clip(best, MARGIN_MIN, MARGIN_MAX)
    day_errors = losses(ratios, margin[:, None, None]).mean(axis=2)
    hours = _last_hours(ratios.shape[2])
    return Judged(margin, day_errors, _level(ratios[..., -hours:]), ratios, np.ones(1, np.float32))


def _last_hours(day_samples: int) -> int:
    return max(1, day_samples * LEVEL_HOURS // 24)


def _level(ratios: Floats) -> Floats:
    """Compare the last hours with the same hours of all days of the backtest."""
    logs = np.log(ratios)
    return np.asarray(row_medians(logs[:, -1]) - row_medians(logs.reshape(len(logs), -1)))
