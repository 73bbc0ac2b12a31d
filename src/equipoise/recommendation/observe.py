"""The observation of many workloads that advice is computed from: each row of an array is one workload.

`summarise` reduces the histories of a batch to the few numbers that decide, in one pass over arrays. It can
add a week of usage and a day of forecast by the hour, for display only. Records contain these instead of a
week of minutes: at most 168 + 2 x 24 numbers of three digits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from equipoise.recommendation.policy import RecommendationPolicy
from equipoise.stats.forecast import Forecast, Model
from equipoise.stats.predict import Algorithm, predict
from equipoise.stats.profile import DAY_SECONDS
from equipoise.stats.ranks import HOUR_SECONDS, Floats, Whole, hour_medians, hours_of_day, percentiles

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
        """Return the usage of one workload."""
        parts = [self.used[row], self.ahead[row], self.upper[row]]
        peak = max((float(part[np.isfinite(part)].max(initial=0.0)) for part in parts), default=0.0)
        decimals = DIGITS - 1 - int(np.floor(np.log10(peak))) if peak > 0 else 0
        return HourlyUsage(self.until, self.step_seconds, *(_short(part, decimals) for part in parts))


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


def _short(values: Floats, decimals: int) -> list[float | None]:
    """Return values for JSON, rounded to three digits of the peak; null for NaN."""
    return [value if value == value else None for value in np.round(values, decimals).tolist()]  # noqa: PLR0124 - NaN is not itself


WEEK_SECONDS = 7 * 86400
INTERVAL_SECONDS_MAX = 86400.0
"""Longest sampling interval; a longer one is a gap, or two samples would count as a whole week."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """What the workload's current HPA has beside the target of CPU utilisation."""

    metrics: Sequence[Mapping[str, Any]] = ()
    behavior: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Containers:
    """The containers of all workloads of a batch, for advice of the type Resource."""

    owner: Whole
    """The row of each container's workload."""
    names: Sequence[str]
    cpu_p99_cores: Floats
    memory_peak_bytes: Floats
    """NaN where memory was not measured; else the week's peak."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """A batch of workloads whose histories end at the same time."""

    subjects: Sequence[str]
    kinds: Sequence[str]
    replicas: Whole
    pods: Whole
    """Pods in phase Pending or Running that are not terminating."""
    available: Whole
    """Pods that have been Ready for long enough."""
    request_cores: Floats
    """The sum of a pod's CPU requests; NaN where one is missing."""
    history: Floats
    """Cores of the workload at even intervals, NaN where unknown; the last column is of time `at`."""
    interval_seconds: float
    at: float
    pod_p99_cores: Floats | None = None
    """P99 of the week over all samples of all pods. None means that each pod uses an equal share."""
    samples: Floats | None = None
    """The week's samples where they are not evenly spaced; None means that they are in the history."""
    sample_times: Floats | None = None
    inherited: Sequence[Inherited | None] = ()
    containers: Containers | None = None
    measurable: Whole | None = None
    """Pods that have been ready long enough to have samples. None means unknown, as for files."""
    unmeasured: Whole | None = None
    """Measurable pods that have no samples."""
    partial: Sequence[str] = ()
    """Why the source's answer was partial, in its words, by workload; empty where it was complete."""

    @property
    def measured_share(self) -> Floats:
        """The share of the measurable pods that have samples."""
        if self.measurable is None or self.unmeasured is None:
            return np.ones(len(self.subjects))
        return 1.0 - self.unmeasured / np.maximum(self.measurable, 1)

    @property
    def week_samples(self) -> int:
        """Number of samples in seven whole days."""
        return max(1, round(WEEK_SECONDS / self.interval_seconds))

    @property
    def expected_samples(self) -> int:
        """Number of samples that a fully measured week has; the base of the coverage."""
        return max(self.week_samples, round(WEEK_SECONDS / INTERVAL_SECONDS_MAX))

    def __post_init__(self) -> None:
        """Assert that every array has one row per workload."""
        count = len(self.subjects)
        for column in (
            self.kinds,
            self.replicas,
            self.pods,
            self.available,
            self.request_cores,
            self.history,
        ):
            assert len(column) == count, "every workload has a row in every array"
        for optional in (self.pod_p99_cores, self.samples, self.measurable, self.unmeasured):
            assert optional is None or len(optional) == count, "every workload has a row in every array"
        for texts in (self.inherited, self.partial):
            assert len(texts) in {0, count}, "of all workloads, or of none"

    def rows(self, part: slice) -> "Observation":
        """Return the observation of some workloads, without containers: those belong to the whole batch."""
        return Observation(
            subjects=self.subjects[part],
            kinds=self.kinds[part],
            replicas=self.replicas[part],
            pods=self.pods[part],
            available=self.available[part],
            request_cores=self.request_cores[part],
            history=self.history[part],
            interval_seconds=self.interval_seconds,
            at=self.at,
            pod_p99_cores=None if self.pod_p99_cores is None else self.pod_p99_cores[part],
            samples=None if self.samples is None else self.samples[part],
            sample_times=self.sample_times,
            inherited=self.inherited[part],
            measurable=None if self.measurable is None else self.measurable[part],
            unmeasured=None if self.unmeasured is None else self.unmeasured[part],
            partial=self.partial[part],
        )

    def week(self) -> tuple[Floats, Floats]:
        """Return the samples of the past seven days, and their times."""
        if self.samples is not None and self.sample_times is not None:
            return self.samples, self.sample_times
        values = self.history[:, max(0, self.history.shape[1] - self.week_samples) :]
        ages = np.arange(values.shape[1])[::-1] * self.interval_seconds
        return values, self.at - ages


class PredictionFacts(msgspec.Struct, frozen=True):
    """Whether the next week is predictable, and the forecast's error in a backtest."""

    is_predictable: bool = msgspec.field(name="predictable", default=False)
    period_seconds: int | None = None
    model: str = "none"
    error: float | None = None
    baseline_error: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """All inputs of the advice, by workload: enough to decide again without the history."""

    pod_p99_cores: Floats
    lowest_median_cores: Floats
    highest_median_cores: Floats
    p95_cores: Floats
    """Over the past week, and the next one too where it is predictable."""
    p95_past_cores: Floats
    peak_cores: Floats
    known_samples: Whole
    expected_samples: int
    predictions: Sequence[PredictionFacts]
    hourly_usage: HourlyUsages | None = None
    """Usage and forecast for display; None where they were not requested."""

    @property
    def coverage(self) -> Floats:
        """The known share of a week's samples."""
        return np.minimum(self.known_samples / self.expected_samples, 1.0)


Shared = dict[tuple[object, ...], Statistics]
"""Statistics by `share_key`; valid only while the arrays that the keys identify are alive."""
P95, P99, PEAK = 0.95, 0.99, 1.0


def summarise(
    policy: RecommendationPolicy,
    observation: Observation,
    algorithm: Algorithm | None,
    *,
    has_hours: bool = False,
) -> Statistics:
    """Return the statistics of a batch; without an algorithm nothing is forecast.

    Hourly usage is optional, since its upper bound takes time.
    """
    week, times = observation.week()
    tops = percentiles(week, (P95, P99, PEAK)).astype(np.float64) + 0.0  # -0.0 becomes 0.0
    hourly = hour_medians(week, hours_of_day(times, offsets(times, policy.time_zone)))
    lowest, highest = _bounds(hourly)
    pod_p99 = observation.pod_p99_cores
    if pod_p99 is None:
        pod_p99 = tops[:, 1] / np.maximum(observation.replicas, 1)
    p95, predictions = tops[:, 0], [PredictionFacts()] * len(week)
    future: Forecast | None = None
    if algorithm is not None:
        future = predict(
            observation.history,
            observation.interval_seconds,
            WEEK_SECONDS,
            algorithm=algorithm,
            has_band=has_hours,
        )
        p95 = np.where(future.is_predictable, _with_future(week, future), p95)
        predictions = _predictions(future)
    hours = (
        hourly_usages(observation.history, observation.interval_seconds, observation.at, future)
        if has_hours
        else None
    )
    return Statistics(
        pod_p99_cores=pod_p99.astype(np.float64) + 0.0,
        lowest_median_cores=lowest,
        highest_median_cores=highest,
        p95_cores=p95,
        p95_past_cores=tops[:, 0],
        peak_cores=tops[:, 2],
        known_samples=np.count_nonzero(~np.isnan(week), axis=1),
        expected_samples=observation.expected_samples,
        predictions=predictions,
        hourly_usage=hours,
    )


def share_key(
    policy: RecommendationPolicy, observation: Observation, algorithm: Algorithm | None
) -> tuple[object, ...]:
    """Return all that the statistics depend on; arrays are compared by identity."""
    arrays = (observation.history, observation.pod_p99_cores, observation.samples, observation.sample_times)
    replicas = observation.replicas if observation.pod_p99_cores is None else None
    same = (id(array) for array in (*arrays, replicas))
    return (*same, observation.interval_seconds, observation.at, policy.time_zone, algorithm)


def offsets(times: Floats, zone: str) -> Floats:
    """Return local time minus UTC for each sample; the zone is queried once per hour of history."""
    if zone == "UTC" or not len(times):
        return np.zeros(len(times))
    from datetime import UTC, datetime  # noqa: PLC0415 - loaded only where a zone is set

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
    """Return the past and the forecast week together; the margin is for single samples, and left out."""
    found = np.full(len(week), np.nan)
    rows = np.flatnonzero(future.is_predictable)
    if len(rows):
        past, ahead = week.shape[1], future.values.shape[1]
        pool = np.empty((len(rows), past + ahead), week.dtype)
        pool[:, :past] = week[rows]
        np.divide(future.values[rows], future.margin[rows, None], out=pool[:, past:])
        found[rows] = percentiles(pool, (P95,))[:, 0]
    return found


def _predictions(future: Forecast) -> list[PredictionFacts]:
    rows = zip(
        future.is_predictable.tolist(),
        future.period_days.tolist(),
        future.model.tolist(),
        future.error.tolist(),
        future.baseline_error.tolist(),
        strict=True,
    )
    return [
        PredictionFacts(
            is_predictable,
            days * DAY_SECONDS if is_predictable else None,
            Model(model).text,
            _rounded(error),
            _rounded(baseline),
        )
        for is_predictable, days, model, error, baseline in rows
    ]


def _rounded(value: float) -> float | None:
    """Return a number for JSON, rounded to the digits that single precision has."""
    return float(f"{value:.6g}") if np.isfinite(value) else None
