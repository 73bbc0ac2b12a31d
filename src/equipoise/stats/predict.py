"""Forecasts of histories with holes, of any length and step, at the same step."""

from collections.abc import Sequence
from enum import StrEnum
from functools import partial

import numpy as np

from equipoise.stats.dsp import dsp_forecast
from equipoise.stats.forecast import DAYS_NEEDED, DAYS_USED_MAX, Forecast, Model, forecast, joined
from equipoise.stats.grid import filled, known_days
from equipoise.stats.profile import DAY_SECONDS, FLAT_BAND, RAISED_MAX, WEEK, flat_lines
from equipoise.stats.ranks import Floats, Whole, percentiles

STEP_SECONDS_MIN = 15
CORES_MAX = 1e12
"""Largest plausible usage; its squares can still be summed in single precision."""
DAY_SAMPLES_MIN = 8
"""Fewest samples per day for a daily profile."""


class Algorithm(StrEnum):
    """The algorithm of a forecast: our profile, or the seed's signal processing."""

    PROFILE = "profile"
    DSP = "dsp"


def predict(
    values: Floats,
    step_seconds: float,
    horizon_seconds: float,
    *,
    algorithm: Algorithm = Algorithm.PROFILE,
    has_band: bool = False,
) -> Forecast:
    """Return the forecast of rows of evenly spaced samples, NaN where unknown; the last column is now."""
    model_step = model_step_seconds(step_seconds)
    day_samples = max(1, round(DAY_SECONDS / model_step))
    history = np.minimum(_regridded(values, step_seconds, model_step), CORES_MAX)
    history = history.astype(np.float32, copy=False)
    table = _whole_days(history, day_samples)
    days = table.shape[1]
    count = np.zeros(len(values), np.intp)
    if days >= DAYS_NEEDED and day_samples >= DAY_SAMPLES_MIN:
        count = known_days(table)
    count[count < DAYS_NEEDED] = 0
    horizon_days = max(1, -(-round(horizon_seconds) // DAY_SECONDS))
    make = partial(forecast, horizon_days=horizon_days, has_band=has_band)
    if algorithm is Algorithm.DSP:
        make = partial(dsp_forecast, horizon_days=horizon_days, step_seconds=model_step, has_band=has_band)
    samples = horizon_days * day_samples
    parts: list[tuple[Whole, Forecast]] = []
    for day_count in sorted(set(count.tolist())):  # series with the same number of known days are one batch
        rows = np.flatnonzero(count == day_count)
        if day_count:
            part = make(filled(_rows(table, rows)[:, -day_count:], model_step))
        else:
            last_week = history[:, max(0, history.shape[1] - WEEK * day_samples) :]
            part = flat_forecast(_rows(last_week, rows), samples, has_band=has_band)
        assert part.values.shape == (len(rows), samples), "every model forecasts the same samples"
        parts.append((rows, part))
    found = _gathered(parts)
    assert len(found.values) == len(values), "every series has a forecast"
    for curves in (found.values, found.upper):
        curves[curves <= RAISED_MAX] = 0
    return _at_step(found, step_seconds, model_step, max(1, round(horizon_seconds / step_seconds)))


def model_step_seconds(step_seconds: float) -> float:
    """Return the step of the models: the step itself where it divides a day, else the next one that does."""
    if step_seconds >= DAY_SECONDS:
        return float(step_seconds)
    return DAY_SECONDS / int(DAY_SECONDS / max(step_seconds, STEP_SECONDS_MIN) + 1e-9)


def flat_forecast(values: Floats, samples: int, *, has_band: bool) -> Forecast:
    """Return the best constant of the known samples, for histories too short for a backtest."""
    series = len(values)
    lines = flat_lines(values).astype(np.float32)
    unknown = np.full(series, np.nan, np.float32)
    tops = np.fmax(percentiles(values, (FLAT_BAND,)), lines[:, None])
    return Forecast(
        values=np.repeat(lines[:, None], samples, axis=1),
        upper=np.repeat(tops, samples if has_band else 0, axis=1).astype(np.float32),
        margin=np.ones(series, np.float32),
        model=np.where(np.isnan(lines), Model.NONE, Model.FLAT).astype(np.intp),
        period_days=np.zeros(series, np.intp),
        is_predictable=np.zeros(series, np.bool_),
        error=unknown,
        baseline_error=unknown.copy(),
    )


def _whole_days(history: Floats, day_samples: int) -> Floats:
    """Return a history as whole days that end with it; the first one may begin with NaN."""
    days = min(-(-history.shape[1] // day_samples), DAYS_USED_MAX)
    missing = days * day_samples - history.shape[1]
    if missing > 0:
        before = np.full((len(history), missing), np.nan, history.dtype)
        history = np.concatenate([before, history], axis=1)
    return history[:, history.shape[1] - days * day_samples :].reshape(len(history), days, day_samples)


def _rows(values: Floats, rows: Whole) -> Floats:
    return values if len(rows) == len(values) else values[rows]


def _gathered(parts: Sequence[tuple[Whole, Forecast]]) -> Forecast:
    """Return the parts in the order of the series."""
    if len(parts) == 1:
        return parts[0][1]
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    return Forecast._make(array[order] for array in joined([part for _, part in parts]))


def _regridded(values: Floats, step_seconds: float, model_step: float) -> Floats:
    """Return the sample nearest to each time of the model's grid, which ends where the history ends."""
    if model_step == step_seconds:
        return values
    count = max(min(1, values.shape[1]), int(values.shape[1] * step_seconds / model_step))
    back = np.round(np.arange(count)[::-1] * model_step / step_seconds).astype(np.intp)
    return values[:, values.shape[1] - 1 - np.minimum(back, values.shape[1] - 1)]


def _at_step(found: Forecast, step_seconds: float, model_step: float, samples: int) -> Forecast:
    """Return the values at the history's own step."""
    if model_step == step_seconds and samples == found.values.shape[1]:
        return found
    moments = (np.arange(samples) + 1) * (step_seconds / model_step) - 1
    places = np.clip(np.round(moments).astype(np.intp), 0, found.values.shape[1] - 1)
    has_band = found.upper.shape[1] > 0
    return found._replace(
        values=found.values[:, places], upper=found.upper[:, places] if has_band else found.upper
    )
