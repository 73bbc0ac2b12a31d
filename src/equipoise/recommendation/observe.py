"""The workloads that a command names, and the observation that advice is computed from.

Each row of an observation's arrays is one workload. `summarise` reduces the histories of a batch to the few
numbers that decide, in one pass over arrays.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from equipoise.core.cluster import Container, Workload, WorkloadRef
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.recommendation.forecast import WEEK_SECONDS, HourlyUsages, hourly_usages, short
from equipoise.recommendation.settings import RecommendationPolicy
from equipoise.stats.forecast import Forecast, Model
from equipoise.stats.predict import Algorithm, predict
from equipoise.stats.profile import DAY_SECONDS
from equipoise.stats.ranks import HOUR_SECONDS, Claims, Floats, Whole, hour_medians, hours_of_day, percentiles

SHORT_NAMES = {
    "Deployment": "deploy",
    "StatefulSet": "sts",
    "ReplicaSet": "rs",
    "DaemonSet": "ds",
    "CronJob": "cj",
    "Rollout": "ro",
}
"""kubectl's short names of the kinds."""
EXPECTED = "expected NAME, KIND/NAME or NAMESPACE/NAME, such as web or deploy/web"


def check_names(names: Collection[str]) -> None:
    """Raise BadInput for what cannot name a workload, before any request is sent."""
    for name in names:
        if not re.fullmatch(r"([^/\s]+/)?[^/\s]+", name):
            raise BadInput(f"workload {name!r}: {EXPECTED}")


def choose(listed: Sequence[Workload], namespace: str | None, names: Collection[str]) -> list[Workload]:
    """Return the named workloads, or all, sorted by name."""
    chosen = {workload.ref: workload for workload in ([] if names else listed)}
    for name in names:
        found = [workload for workload in listed if _is_named(workload.ref, name)]
        if not found:
            where = f"namespace {namespace}" if namespace else "any namespace"
            raise WorldFailed(f"workload {name}: not found in {where}{_elsewhere(namespace, name)}")
        chosen |= {workload.ref: workload for workload in found}
    return sorted(chosen.values(), key=lambda workload: (workload.ref.subject, workload.ref.kind))


def without_kind(text: str, kind: str | None, namespaces: Collection[str] = ()) -> str:
    """Return `web` for `deploy/web` where all are of this kind (None means any); refuse other kinds."""
    before, _, name = text.rpartition("/")
    if not name:
        raise BadInput(f"workload {text!r}: {EXPECTED}")
    if not before or before in namespaces:
        return text
    if kind is not None and _is_kind(before, kind):
        return name
    for other in SHORT_NAMES:
        if _is_kind(before, other):
            if kind is None:
                return name
            raise BadInput(f"workload {text}: expected --kind {other} beside it, got {kind}")
    return text


def _elsewhere(namespace: str | None, text: str) -> str:
    before = text.rpartition("/")[0]
    if namespace in {None, before} or not before or any(_is_kind(before, kind) for kind in SHORT_NAMES):
        return ""
    return f"; -n {before} or -A look there"


def _is_named(ref: WorkloadRef, text: str) -> bool:
    """Return whether the text names the workload: `web`, `deploy/web`, `deployments.apps/web`, `shop/web`."""
    before, _, name = text.rpartition("/")
    if ref.name != name:
        return False
    return before in {"", ref.namespace} or _is_kind(before, ref.kind)


def _is_kind(word: str, kind: str) -> bool:
    """Return whether a word such as `deploy`, `Deployment` or `deployments.apps` names this kind."""
    return word.partition(".")[0].lower() in {kind.lower(), f"{kind.lower()}s", SHORT_NAMES.get(kind)}


INTERVAL_SECONDS_MAX = 86400.0
"""Longest sampling interval; a longer one is a gap, or two samples would count as a whole week."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """What the workload's current HPA has beside the target of CPU utilisation."""

    metrics: Sequence[Mapping[str, Any]] = ()
    behavior: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Containers:
    """The containers of all workloads of a batch, for advice about their requests."""

    owner: Whole
    """The row of each container's workload, in ascending order."""
    specs: Sequence[Container]
    """What each asks for now."""
    cpu_cores: Floats
    """At the percentile of the settings."""
    memory_peak_bytes: Floats
    """NaN where memory was not measured; else the week's peak."""
    is_oom_killed: Claims

    def of(self, workloads: range) -> "Containers":
        """Return the containers of consecutive workloads."""
        start, stop = np.searchsorted(self.owner, [workloads.start, workloads.stop]).tolist()
        part = slice(start, stop)
        return Containers(
            owner=self.owner[part] - workloads.start,
            specs=self.specs[part],
            cpu_cores=self.cpu_cores[part],
            memory_peak_bytes=self.memory_peak_bytes[part],
            is_oom_killed=self.is_oom_killed[part],
        )


OPTIONAL_COLUMNS = frozenset(
    {"pod_p99_cores", "samples", "inherited", "measurable", "unmeasured", "unknown", "partial"}
)
COLUMNS = OPTIONAL_COLUMNS | {
    "subjects", "kinds", "replicas", "pods", "available", "request_cores", "history",
}  # fmt: skip
"""The fields of an observation that have a row for each workload."""


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
    inherited: Sequence[Inherited | None] | None = None
    containers: Containers | None = None
    measurable: Whole | None = None
    """Pods that have been ready long enough to have samples. None means unknown, as for files."""
    unmeasured: Whole | None = None
    """Measurable pods that have no samples."""
    unknown: Whole | None = None
    """Running pods of which some container has no sample."""
    partial: Sequence[str] | None = None
    """Why the source's answer was partial, in its words, by workload; empty where it was complete."""

    @property
    def week_samples(self) -> int:
        """Number of samples in seven whole days."""
        return max(1, round(WEEK_SECONDS / self.interval_seconds))

    @property
    def expected_samples(self) -> int:
        """Number of samples that a fully measured week has; the base of the coverage."""
        return max(self.week_samples, round(WEEK_SECONDS / INTERVAL_SECONDS_MAX))

    def __post_init__(self) -> None:
        for name in COLUMNS:
            column = getattr(self, name)
            is_absent = column is None and name in OPTIONAL_COLUMNS
            assert is_absent or len(column) == len(self.subjects), f"every workload has a row in {name}"

    def rows(self, part: slice) -> "Observation":
        """Return the observation of consecutive workloads."""
        columns = {name: column[part] for name in COLUMNS if (column := getattr(self, name)) is not None}
        containers = None if self.containers is None else self.containers.of(range(len(self.subjects))[part])
        return replace(self, containers=containers, **columns)

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
    columns = (future.is_predictable, future.period_days, future.model, future.error, future.baseline_error)
    return [
        PredictionFacts(
            is_predictable,
            days * DAY_SECONDS if is_predictable else None,
            Model(model).text,
            short(error),
            short(baseline),
        )
        for is_predictable, days, model, error, baseline in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
