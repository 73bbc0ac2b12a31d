"""Forecasts of the next days for batches of series: profile x margin x the level of the last hours.

The profile competes with a flat line, with yesterday and with last week, in a backtest on the last days of
the history, each forecast from the days before it only. The margin of a model is the constant that costs
least over actual / forecast in that backtest. Only a model that wins clearly replaces the profile, and a
series whose forecast is not clearly better than the flat line is not predictable.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from equipoise.stats.profile import (
    ACTUAL_MIN,
    FLAT_BAND,
    WEEK,
    Blocks,
    best_constant,
    day_weights,
    in_blocks,
    losses,
    profile,
    rise,
    spread,
)
from equipoise.stats.ranks import Claims, Floats, Whole, chunks, percentiles, row_medians

PAST_DAYS_MIN = 2
"""Days of history that a day needs before it to be part of the backtest."""
BACKTEST_DAYS_MAX = 7
MARGIN_MIN, MARGIN_MAX = 0.7, 1.5
SKETCH_DAY = 48
"""Number of samples in the sketch of a day: evenly spaced ranks."""
SKETCH_PIECE = 480
LEVEL_HOURS = 3


class BacktestScore(NamedTuple):
    """The result of a model in the backtest: arrays by series, and by series and day."""

    margin: Floats
    day_errors: Floats
    level: Floats
    """Logarithm of the last hours' usage over what is usual at these hours."""
    ratios: Floats
    """Actual / forecast without margin: (series, day, sample); for the flat line, of sketches."""
    lines: Floats
    """The flat line of each day; 1 for all others."""

    @property
    def error(self) -> Floats:
        """The mean loss over all days."""
        return np.asarray(self.day_errors.mean(axis=1))


def backtest_days(known_days: int) -> range:
    """Return the days of the backtest, each of which is forecast from the days before it."""
    return range(max(PAST_DAYS_MIN, known_days - BACKTEST_DAYS_MAX), known_days)


def judge_profile(days: Floats, blocks: Blocks) -> BacktestScore:
    """Return the score of the profile, one day ahead."""
    samples = days.shape[2]
    ratios = [
        days[:, day] / spread(profile(blocks, day_weights(days.shape[1], day, 1)), samples)
        for day in backtest_days(days.shape[1])
    ]
    return judge(np.stack(ratios, axis=1))


def repeat_ratios(days: Floats, lag: int) -> Floats:
    """Return the days of the backtest divided by the days `lag` before, where those exist."""
    first = max(lag, backtest_days(days.shape[1]).start)
    return days[:, first:] / days[:, first - lag : days.shape[1] - lag]


def judge_flat(days: Floats) -> BacktestScore:
    """Return the score of the best constant of the past week, computed on sketches of the days."""
    sketches = sketch(days)
    hours = _last_hours(days.shape[2])
    tested = backtest_days(days.shape[1])
    lines = np.stack([flat(sketches[:, max(0, day - WEEK) : day]) for day in tested], axis=1)[..., None]
    score = judge(sketches[:, tested.start :] / lines, is_sketch=True)
    return score._replace(level=_level(days[:, tested.start :, -hours:] / lines), lines=lines)


def flat(sketches: Floats) -> Floats:
    """Return the best constant of some days, from their sketches (series, day, sorted sample)."""
    return best_constant(np.sort(sketches.reshape(len(sketches), -1), axis=1))


def sketch(days: Floats) -> Floats:
    """Return evenly spaced ranks of each day; pieces of a day are sorted separately, which is faster."""
    series, count, samples = days.shape
    pieces = samples // SKETCH_PIECE if samples % SKETCH_PIECE == 0 else 1
    count_max = SKETCH_DAY // pieces if SKETCH_DAY % pieces == 0 else SKETCH_DAY
    ordered = np.sort(days.reshape(series, count, pieces, samples // pieces), axis=3)
    length = samples // pieces
    if length > count_max:
        ordered = ordered[..., ((np.arange(count_max) + 0.5) * length / count_max).astype(np.intp)]
    return ordered.reshape(series, count, -1)


def judge(ratios: Floats, *, is_sketch: bool = False) -> BacktestScore:
    """Return the score of a model with the best margin for its actual / forecast."""
    points = ratios if is_sketch else sketch(ratios)
    best = best_constant(np.sort(points.reshape(len(points), -1), axis=1))
    margin = np.clip(best, MARGIN_MIN, MARGIN_MAX)
    day_errors = losses(ratios, margin[:, None, None]).mean(axis=2)
    hours = _last_hours(ratios.shape[2])
    return BacktestScore(margin, day_errors, _level(ratios[..., -hours:]), ratios, np.ones(1, np.float32))


def _last_hours(day_samples: int) -> int:
    return max(1, day_samples * LEVEL_HOURS // 24)


def _level(ratios: Floats) -> Floats:
    """Return the level: the last hours compared with the same hours of all days of the backtest."""
    logs = np.log(ratios)
    return np.asarray(row_medians(logs[:, -1]) - row_medians(logs.reshape(len(logs), -1)))


DAYS_NEEDED = PAST_DAYS_MIN + 1
DAYS_USED_MAX = 21
CHUNK_SAMPLES = 320_000
LEVEL_SHARE = 0.9
LEVEL_MAX, LEVEL_FLAT_MAX = 0.3, 1.0
CLEARLY, CLEARLY_ON_THIN_EVIDENCE = 0.8, 0.5
"""Largest error of a winner, relative to the other model's, with and without enough weekdays."""
WEEKDAYS_ENOUGH, WEEKDAYS_MIN = 5, 2
FLOOR_SHARE = 0.05
"""Lower bound of a sample, as a share of the mean, for a series that is close to 0 at times."""
NOISE = 1e-5


class Model(IntEnum):
    """The model of a forecast."""

    NONE = 0
    FLAT = 1
    PROFILE = 2
    REPEAT_DAY = 3
    REPEAT_WEEK = 4
    DSP = 5

    @property
    def text(self) -> str:
        """The name for users."""
        return self.name.lower().replace("_", "-")


REPEATS = ((Model.REPEAT_DAY, 1), (Model.REPEAT_WEEK, WEEK))


class Forecast(NamedTuple):
    """One row per series. `values` include the margin; divide by it for a percentile."""

    values: Floats
    upper: Floats
    """Upper bound: 95 of 100 future samples should be below it; without columns if not requested."""
    margin: Floats
    model: Whole
    period_days: Whole
    """0 for a model without a period."""
    is_predictable: Claims
    error: Floats
    """The chosen model's error in the backtest."""
    baseline_error: Floats
    """The flat line's error in the same backtest."""


class Chosen(NamedTuple):
    """The winning model of each series, and its score."""

    model: Whole
    margin: Floats
    level: Floats
    error: Floats
    flat: BacktestScore
    profile: BacktestScore


def forecast(days: Floats, horizon_days: int, *, has_band: bool = False) -> Forecast:
    """Return the forecast for (series, day, sample) of at least three known days; the last day ends now."""
    days = days[:, -DAYS_USED_MAX:]
    flattened = days.reshape(len(days), -1)
    parts = [
        _forecast(days[part], horizon_days, has_band=has_band) for part in chunks(flattened, CHUNK_SAMPLES)
    ]
    return joined(parts)


def joined(parts: Sequence[Forecast]) -> Forecast:
    """Return the rows of several batches below each other."""
    return Forecast._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def _forecast(days: Floats, horizon_days: int, *, has_band: bool) -> Forecast:
    """Return the forecast of series that fit into the processor's cache."""
    samples = days.shape[2]
    with np.errstate(over="ignore"):  # the largest float stands for infinity
        raised = above_nothing(days.astype(np.float32, copy=False))
        blocks = in_blocks(raised)
        chosen = choose(raised, blocks)
        values = _course(raised, blocks, chosen.model, horizon_days)
        values *= chosen.margin[:, None] * _fading(chosen.level, values.shape[1], samples)
    is_flat = chosen.model == Model.FLAT
    # After a step both margin and level follow it: their product would exceed every sample so far.
    values[is_flat] = np.minimum(values[is_flat], raised[is_flat].max(axis=(1, 2))[:, None])
    upper = values[:, :0]
    if has_band:
        upper = values * np.tile(_rise(raised, chosen), (1, horizon_days))
        if is_flat.any() and len(backtest_days(days.shape[1])) < WEEK:
            # Days without much usage are no evidence for busy ones.
            past = raised[is_flat].reshape(int(is_flat.sum()), -1)
            upper[is_flat] = np.maximum(upper[is_flat], percentiles(past, (FLAT_BAND,)))
    flat_error = chosen.flat.error
    is_predictable = (chosen.model != Model.FLAT) & (chosen.error <= CLEARLY * flat_error)
    period_days = np.select([chosen.model == Model.FLAT, chosen.model == Model.REPEAT_WEEK], [0, WEEK], 1)
    return Forecast(
        values, upper, chosen.margin, chosen.model, period_days, is_predictable, chosen.error, flat_error
    )


def _rise(days: Floats, chosen: Chosen) -> Floats:
    """Return how far the past exceeded the chosen forecast, by sample of the day."""
    margin = chosen.margin[:, None, None]
    factors = rise(chosen.profile.ratios / margin)
    is_flat = chosen.model == Model.FLAT
    if is_flat.any():
        lines = chosen.flat.lines[is_flat]
        factors[is_flat] = rise(days[is_flat, -lines.shape[1] :] / (lines * margin[is_flat]))
    for repeat, lag in REPEATS:
        is_chosen = chosen.model == repeat
        if is_chosen.any():
            ratios = repeat_ratios(days[is_chosen], lag)
            factors[is_chosen] = rise(ratios / margin[is_chosen])
    return factors


def above_nothing(days: Floats) -> Floats:
    """Return the days with a lower bound: the ratio to a value close to 0 would dominate the error."""
    flattened = days.reshape(len(days), -1)
    share = np.where(flattened.min(axis=1) < ACTUAL_MIN, FLOOR_SHARE * flattened.mean(axis=1), 0)
    return np.maximum(days, np.maximum(share, 1e-6).astype(np.float32)[:, None, None])


def choose(days: Floats, blocks: Blocks) -> Chosen:
    """Return the winner of each series: the profile, unless another model is clearly better."""
    course, level_line = judge_profile(days, blocks), judge_flat(days)
    model = np.full(len(days), Model.PROFILE, np.intp)
    margin, level, error = course.margin.copy(), np.clip(course.level, -LEVEL_MAX, LEVEL_MAX), course.error
    for repeat, lag in REPEATS:
        if lag == WEEK and days.shape[1] - WEEK < WEEKDAYS_MIN:
            continue
        ratios = repeat_ratios(days, lag)
        beaten = course.day_errors[:, -ratios.shape[1] :].mean(axis=1)
        rows = np.flatnonzero(losses(ratios).mean(axis=(1, 2)) < _needed(days.shape[1]) * beaten)
        if len(rows):
            score = judge(ratios[rows])
            is_better = score.error < error[rows]
            rows = rows[is_better]
            model[rows], margin[rows] = repeat, score.margin[is_better]
            error[rows] = score.error[is_better]
            level[rows] = np.clip(score.level[is_better], -LEVEL_MAX, LEVEL_MAX)
    is_flat = level_line.error <= error + NOISE
    model[is_flat] = Model.FLAT
    margin = np.where(is_flat, level_line.margin, margin)
    error = np.where(is_flat, level_line.error, error)
    level = np.where(is_flat, np.clip(level_line.level, -LEVEL_FLAT_MAX, LEVEL_FLAT_MAX), level)
    return Chosen(model, margin, level, error, level_line, course)


def _needed(known_days: int) -> float:
    tested = backtest_days(known_days)
    weekdays = sum(day >= WEEK for day in tested)
    return CLEARLY if weekdays >= WEEKDAYS_ENOUGH else CLEARLY_ON_THIN_EVIDENCE


def _course(days: Floats, blocks: Blocks, model: Whole, horizon_days: int) -> Floats:
    """Return the model's forecast before margin and level: (series, samples ahead)."""
    day_count, samples = days.shape[1:]
    ahead = range(1, horizon_days + 1)
    courses = [profile(blocks, day_weights(day_count, day_count, number)) for number in ahead]
    values = spread(np.concatenate(courses, axis=1), samples)
    is_flat = model == Model.FLAT
    if is_flat.any():
        line = flat(sketch(days[is_flat][:, -WEEK:]))
        values[is_flat] = line[:, None]
    for repeat, lag in REPEATS:
        is_chosen = model == repeat
        if is_chosen.any():
            values[is_chosen] = _repeated(days[is_chosen], lag, ahead)
    return values


def _repeated(days: Floats, lag: int, ahead: Sequence[int]) -> Floats:
    place = [days.shape[1] - lag + (number - 1) % lag for number in ahead]
    return days[:, place].reshape(len(days), -1)


def _fading(level: Floats, samples: int, day_samples: int) -> Floats:
    """Return the factor of the last hours' level, which fades within days."""
    days_ahead = np.arange(1, samples + 1, dtype=np.float32) / np.float32(day_samples)
    return np.asarray(
        np.exp(np.float32(LEVEL_SHARE) * level[:, None].astype(np.float32) * np.exp(-days_ahead))
    )
