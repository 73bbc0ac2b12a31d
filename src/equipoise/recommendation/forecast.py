"""One workload's forecast as a document, and its error in a backtest."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from equipoise.core.errors import BadInput
from equipoise.recommendation.files import FileDefaults, named_subject, observe, of_workloads
from equipoise.stats.forecast import WEEKDAYS_MIN, Forecast, Model
from equipoise.stats.predict import Algorithm, predict
from equipoise.stats.profile import DAY_SECONDS, WEEK, error, flat_lines
from equipoise.stats.ranks import Floats
from equipoise.stats.samples import Samples

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
        at = self.at - left_out * self.interval_seconds
        return WorkloadSeries(self.source, values, self.interval_seconds, at, self.subject)


def series_of(samples: Samples, workload: str, source: str) -> WorkloadSeries:
    """Return the usage of the one selected workload, on a grid."""
    names = [workload] if workload else []
    observation = observe(
        of_workloads(samples, names, source) if samples.is_of_many else samples,
        FileDefaults(source, takes_pods=False),
        named_subject(names, source),
    )
    subjects = observation.subjects
    if len(subjects) > 1:
        raise BadInput(
            f"{source}: expected one workload, got {len(subjects)}; name one, such as {subjects[0]}"
        )
    values = observation.history[0] if len(subjects) else np.zeros(0)
    known_places = np.flatnonzero(~np.isnan(values))
    if not len(known_places):
        raise BadInput(f"{source}: expected at least one sample that is a number of cores, got none")
    after = len(values) - 1 - int(known_places[-1])
    end = observation.at - after * observation.interval_seconds
    return WorkloadSeries(
        source, values[: known_places[-1] + 1], observation.interval_seconds, end, observation.subjects[0]
    )


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
        "margin": _short(float(predicted.margin[0])),
        "backtest_error": _short(float(predicted.error[0])),
        "backtest_baseline_error": _short(float(predicted.baseline_error[0])),
        "notes": [*_notes(series, model), *_level_notes(series, predicted)],
        "timestamps": [_plain(time) for time in times.tolist()],
        "values": [_short(value) for value in predicted.values[0].tolist()],
        "upper": [_short(value) for value in predicted.upper[0].tolist()],
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
        _short(float(error(actual[None, is_known], forecast[None, is_known])[0])) if is_known.any() else None
    )


def _short(value: float) -> float | None:
    """Return values for JSON, rounded to significant digits."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _plain(number: float) -> float | int:
    return int(number) if float(number).is_integer() else round(number, 3)
