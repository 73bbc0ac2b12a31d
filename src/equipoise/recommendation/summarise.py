"""Turns histories into the few numbers that advice needs: one pass of arrays for a whole batch."""

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from equipoise.recommendation.observation import WEEK_SECONDS, Observation, Statistics, sketch
from equipoise.recommendation.policy import RecommendationPolicy
from equipoise.stats.forecast import Forecast, Model
from equipoise.stats.predict import Algorithm, predict
from equipoise.stats.profile import DAY_SECONDS
from equipoise.stats.ranks import HOUR_SECONDS, Floats, hour_medians, hours_of_day, percentiles

Shared = dict[tuple[object, ...], Statistics]
"""Statistics by all that they depend on; it holds for as long as their arrays are held."""
P95, P99, PEAK = 0.95, 0.99, 1.0
NO_PREDICTION: Mapping[str, Any] = {
    "predictable": False,
    "period_seconds": None,
    "model": "none",
    "error": None,
    "baseline_error": None,
}


def summarise(
    policy: RecommendationPolicy,
    seen: Observation,
    algorithm: Algorithm | None,
    *,
    is_drawn: bool = False,
) -> Statistics:
    """Take the statistics of a batch; without an algorithm there is no look into the future.

    Only what `is_drawn` has a sketch, whose band costs as much as a part of the forecast.
    """
    week, times = seen.week()
    tops = percentiles(week, (P95, P99, PEAK)).astype(np.float64) + 0.0  # there is no usage of -0
    hourly = hour_medians(week, hours_of_day(times, offsets(times, policy.time_zone)))
    lowest, highest = _bounds(hourly)
    pod_p99 = seen.pod_p99_cores
    if pod_p99 is None:
        pod_p99 = tops[:, 1] / np.maximum(seen.replicas, 1)
    p95, predictions = tops[:, 0], [NO_PREDICTION] * len(week)
    future: Forecast | None = None
    if algorithm is not None:
        future = predict(
            seen.history, seen.interval_seconds, WEEK_SECONDS, algorithm=algorithm, has_band=is_drawn
        )
        p95 = np.where(future.is_predictable, _with_future(week, future), p95)
        predictions = _predictions(future)
    return Statistics(
        pod_p99_cores=pod_p99.astype(np.float64) + 0.0,
        lowest_median_cores=lowest,
        highest_median_cores=highest,
        p95_cores=p95,
        p95_past_cores=tops[:, 0],
        peak_cores=tops[:, 2],
        known_samples=np.count_nonzero(~np.isnan(week), axis=1),
        expected_samples=seen.expected_samples,
        predictions=predictions,
        sketch=sketch(seen.history, seen.interval_seconds, seen.at, future) if is_drawn else None,
    )


def share_key(
    policy: RecommendationPolicy, seen: Observation, algorithm: Algorithm | None
) -> tuple[object, ...]:
    """Name all that the statistics depend on; arrays are the same only where they are one object."""
    arrays = (seen.history, seen.pod_p99_cores, seen.samples, seen.sample_times)
    replicas = seen.replicas if seen.pod_p99_cores is None else None
    same = (id(array) for array in (*arrays, replicas))
    return (*same, seen.interval_seconds, seen.at, policy.time_zone, algorithm)


def offsets(times: Floats, zone: str) -> Floats:
    """Return local time minus UTC for each moment; the zone is asked once an hour, not once a sample."""
    if zone == "UTC" or not len(times):
        return np.zeros(len(times))
    from datetime import UTC, datetime  # noqa: PLC0415 - only where somebody asks for a zone

    hours, place = np.unique(np.floor(times / (HOUR_SECONDS / 4)), return_inverse=True)
    moments = [datetime.fromtimestamp(hour * HOUR_SECONDS / 4, UTC) for hour in hours]
    local = [moment.astimezone(ZoneInfo(zone)).utcoffset() for moment in moments]
    return np.array([offset.total_seconds() if offset else 0.0 for offset in local])[place]


def _bounds(hourly: Floats) -> tuple[Floats, Floats]:
    is_known = ~np.isnan(hourly)
    lowest = np.where(is_known, hourly, np.inf).min(axis=1)
    highest = np.where(is_known, hourly, -np.inf).max(axis=1)
    is_any = is_known.any(axis=1)
    return np.where(is_any, lowest, np.nan) + 0.0, np.where(is_any, highest, np.nan) + 0.0


def _with_future(week: Floats, future: Forecast) -> Floats:
    """Pool the past with the coming week; the margin is for single moments, and left out here."""
    found = np.full(len(week), np.nan)
    rows = np.flatnonzero(future.is_predictable)
    if len(rows):
        past, ahead = week.shape[1], future.values.shape[1]
        pool = np.empty((len(rows), past + ahead), week.dtype)
        pool[:, :past] = week[rows]
        np.divide(future.values[rows], future.margin[rows, None], out=pool[:, past:])
        found[rows] = percentiles(pool, (P95,))[:, 0]
    return found


def _predictions(future: Forecast) -> list[Mapping[str, Any]]:
    rows = zip(
        future.is_predictable.tolist(),
        future.period_days.tolist(),
        future.model.tolist(),
        future.error.tolist(),
        future.baseline_error.tolist(),
        strict=True,
    )
    return [
        {
            "predictable": is_predictable,
            "period_seconds": days * DAY_SECONDS if is_predictable else None,
            "model": Model(model).text,
            "error": _known(error),
            "baseline_error": _known(baseline),
        }
        for is_predictable, days, model, error, baseline in rows
    ]


def _known(value: float) -> float | None:
    """Return what JSON can hold, without the digits that single precision made up."""
    return float(f"{value:.6g}") if np.isfinite(value) else None
