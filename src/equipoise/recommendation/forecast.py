"""Forecasts for display: of a week by the hour, and of one history as a document with a backtest.

Records contain the usage and the forecast by the hour instead of a week of minutes: at most 168 + 2 x 24
numbers of three digits.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from equipoise.core.errors import BadInput
from equipoise.stats.forecast import WEEKDAYS_MIN, Forecast, Model
from equipoise.stats.predict import Algorithm, predict
from equipoise.stats.profile import DAY_SECONDS, WEEK, error, flat_lines
from equipoise.stats.ranks import HOUR_SECONDS, Floats

HOURS_PAST = 168
HOURS_AHEAD = 24
DIGITS = 3


class HourlyUsage(msgspec.Struct, frozen=True):
    """One workload's usage and forecast by the hour; null where unknown."""

    until: float
    """Unix time at which the past ends and the forecast begins."""
    step_seconds: float
    """One hour, or the interval of the samples where that is longer."""
    used_cores: list[float | None]
    """The mean of each step, oldest first; the last step ends at `until`."""
    forecast_cores: list[float | None] = []
    upper_cores: list[float | None] = []
    """Upper bound of the forecast: 95 of 100 future samples should be below it."""


class HourlyUsages(NamedTuple):
    """`HourlyUsage` of a batch as arrays: each row is one workload."""

    until: float
    step_seconds: float
    used: Floats
    ahead: Floats
    upper: Floats

    def of(self, row: int) -> HourlyUsage:
        parts = [self.used[row], self.ahead[row], self.upper[row]]
        peak = max((float(part[np.isfinite(part)].max(initial=0.0)) for part in parts), default=0.0)
        decimals = DIGITS - 1 - int(np.floor(np.log10(peak))) if peak > 0 else 0
        return HourlyUsage(self.until, self.step_seconds, *(_for_json(part, decimals) for part in parts))


def hourly_usages(
    history: Floats, interval_seconds: float, until: float, future: Forecast | None
) -> HourlyUsages:
    """Return the hourly means of the past week and of the next day."""
    count = max(1, round(HOUR_SECONDS / interval_seconds))
    nothing: Floats = np.zeros((len(history), 0))
    used = _means(history[:, max(0, history.shape[1] - HOURS_PAST * count) :], count)
    ahead, upper = nothing, nothing
    if future is not None:
        ahead = _means(future.values[:, : HOURS_AHEAD * count], count)
        upper = _means(future.upper[:, : HOURS_AHEAD * count], count)
    return HourlyUsages(until, count * interval_seconds, used, ahead, upper)


def _means(values: Floats, count: int) -> Floats:
    """Return the mean of the known samples of each step; an incomplete first step is left out."""
    steps = values.shape[1] // count
    table = values[:, values.shape[1] - steps * count :].reshape(len(values), steps, count)
    is_known = ~np.isnan(table)
    known_count = is_known.sum(axis=2)
    total = np.where(is_known, table, 0).sum(axis=2, dtype=np.float64)
    return np.where(known_count > 0, total / np.maximum(known_count, 1), np.nan)


def _for_json(values: Floats, decimals: int) -> list[float | None]:
    """Return values for JSON, rounded to three digits of the peak; null for NaN."""
    return [value if value == value else None for value in np.round(values, decimals).tolist()]  # noqa: PLR0124 - NaN is not itself


WEEK_SECONDS = 7 * DAY_SECONDS
WEEKDAYS_KNOWN_FROM = WEEK + WEEKDAYS_MIN
"""Days of history from which the model `last week` competes, the only one that tells weekdays apart."""
FAR_FACTOR = 2.0
"""Factor from which a day's usage is far from its forecast."""
VALUES_MAX = 2_500_000
"""Largest number of values in a forecast: four weeks of seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadSeries:
    """One history on its grid; the last column has the last valid sample."""

    source: str
    values: Floats
    interval_seconds: float
    at: float
    subject: str = ""

    def before(self, seconds: float) -> "WorkloadSeries":
        """Return the series without its last seconds."""
        left_out = round(seconds / self.interval_seconds)
        values = self.values[: max(0, len(self.values) - left_out)]
        return replace(self, values=values, at=self.at - left_out * self.interval_seconds)


def forecast_document(series: WorkloadSeries, horizon_seconds: float, algorithm: Algorithm) -> dict[str, Any]:
    """Return the forecast, one value per interval, beginning one interval after the last sample."""
    count = round(horizon_seconds / series.interval_seconds)
    if count > VALUES_MAX:
        step = f"one every {series.interval_seconds:g} s"
        raise BadInput(
            f"{series.source}: expected at most {VALUES_MAX:,} values ahead, got {count:,}, {step}"
        )
    predicted = predict(
        series.values[None], series.interval_seconds, horizon_seconds, algorithm=algorithm, has_band=True
    )
    if np.isnan(predicted.values).any():
        raise BadInput(f"{series.source}: expected more samples before the forecast: too few are known")
    is_predictable, model = bool(predicted.is_predictable[0]), Model(int(predicted.model[0]))
    times = series.at + (np.arange(predicted.values.shape[1]) + 1) * series.interval_seconds
    return {
        "predictable": is_predictable,
        "period_seconds": int(predicted.period_days[0]) * DAY_SECONDS if is_predictable else None,
        "model": model.text,
        "algorithm": algorithm.value,
        "interval_seconds": _plain(series.interval_seconds),
        "margin": short(float(predicted.margin[0])),
        "backtest_error": short(float(predicted.error[0])),
        "backtest_baseline_error": short(float(predicted.baseline_error[0])),
        "notes": [*_notes(series, model), *_level_notes(series, predicted)],
        "timestamps": [_plain(time) for time in times.tolist()],
        "values": [short(value) for value in predicted.values[0].tolist()],
        "upper": [short(value) for value in predicted.upper[0].tolist()],
    }


def _notes(series: WorkloadSeries, model: Model) -> list[str]:
    """Return notes that explain unusual forecasts to the reader."""
    first_known = np.argmax(~np.isnan(series.values))
    days = math.ceil((len(series.values) - first_known) * series.interval_seconds / DAY_SECONDS - 0.5)
    if model is not Model.PROFILE or days >= WEEKDAYS_KNOWN_FROM:
        return []
    weekdays = f"The history has {days} days, and weekdays can be told apart from {WEEKDAYS_KNOWN_FROM} on"
    return [f"{weekdays}: quieter days, such as a weekend, may be forecast as high as the others."]


def _level_notes(series: WorkloadSeries, predicted: Forecast) -> list[str]:
    """Return a note if the last day's usage is far from the forecast, which one day does not change much."""
    day = max(1, round(DAY_SECONDS / series.interval_seconds))
    ahead = predicted.values[0, :day] / predicted.margin[0]
    last = series.values[-day:][: len(ahead)]  # only the same hours where the forecast is shorter than a day
    is_known = ~np.isnan(last)
    if not predicted.is_predictable[0] or not is_known.any():
        return []
    was, will_be = float(last[is_known].mean()), float(ahead[is_known].mean())
    if will_be / FAR_FACTOR <= was <= will_be * FAR_FACTOR:
        return []
    both = f"The last day used {was:.4g} cores on average, and the next is forecast to use {will_be:.4g}"
    return [f"{both}: if that day was the first of many, the forecast will follow within days."]


def backtested(series: WorkloadSeries, held_out_seconds: float, algorithm: Algorithm) -> dict[str, Any]:
    """Hold the end out, forecast it from the rest, and return the error beside those of simple models."""
    if round(held_out_seconds / series.interval_seconds) < 1:
        step = f"at least one interval, which is {series.interval_seconds:g} seconds"
        raise BadInput(f"{series.source}: --backtest: expected {step}, got {held_out_seconds:g}")
    past = series.before(held_out_seconds)
    if np.isnan(past.values).all():
        raise BadInput(
            f"{series.source}: --backtest: expected samples before the held-out {held_out_seconds:g} seconds"
        )
    document = forecast_document(past, held_out_seconds, algorithm)
    actual = series.values[len(past.values) :]
    count = min(len(actual), len(document["values"]))
    actual = actual[:count]
    values, upper = np.array(document["values"][:count]), np.array(document["upper"][:count])
    is_known = ~np.isnan(actual)
    week = past.values[max(0, len(past.values) - round(WEEK_SECONDS / past.interval_seconds)) :]
    rivals = {
        "error": values,
        "baseline_error": np.full(count, flat_lines(week[None])[0]),
        "repeat_day_error": _repeated(past, DAY_SECONDS, count),
        "repeat_week_error": _repeated(past, WEEK_SECONDS, count),
    }
    errors = {name: _error(actual, rival) for name, rival in rivals.items()}
    inside = actual[is_known] <= upper[is_known]
    return {
        **errors,
        "coverage": float(inside.mean()),
        "held_out_seconds": _plain(held_out_seconds),
        **document,
    }


def _repeated(past: WorkloadSeries, lag_seconds: float, count: int) -> Floats | None:
    lag = round(lag_seconds / past.interval_seconds)
    if lag < 1 or len(past.values) < lag:
        return None
    return np.resize(past.values[-lag:], count)


def _error(actual: Floats, forecast: Floats | None) -> float | None:
    if forecast is None:
        return None
    is_known = ~np.isnan(actual) & ~np.isnan(forecast)
    return (
        short(float(error(actual[None, is_known], forecast[None, is_known])[0])) if is_known.any() else None
    )


def short(value: float) -> float | None:
    """Return a number for JSON, rounded to the digits that single precision has; None where unknown."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _plain(number: float) -> float | int:
    return int(number) if float(number).is_integer() else round(number, 3)
