"""Weeks of usage of all containers, in batches.

A batch has whole namespaces, or whole groups of pods of a namespace that is too large, so that the caller has
all pods of a workload at once, and can reduce and drop them before the next batch. The strategies, cheapest
first, are remote read in chunks, remote read in samples, and PromQL. The server is probed for them once.

One reading runs its jobs in order, several at a time. A batch that is too large is split between namespaces,
then between groups of pods. Where one strategy fails, the next is tried.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from equipoise.adapters.prometheus import errors, strategies
from equipoise.adapters.prometheus.client import OnBytes, PrometheusClient
from equipoise.adapters.prometheus.decode import decode_number, tidy
from equipoise.adapters.prometheus.matrix import POINT_BYTES, Grid
from equipoise.adapters.prometheus.promql import Matcher, label_name, of_containers, of_installation, selector
from equipoise.adapters.prometheus.remote_read.rates import window_for
from equipoise.adapters.prometheus.remote_read.read import Form, ReadLimits, RemoteRead
from equipoise.adapters.prometheus.settings import CADVISOR, LabelNames, check_label
from equipoise.adapters.prometheus.strategies import Job, QueryBatch, ReducedUsage
from equipoise.ports.cluster import Grouping, Measure, Reduction, UsageHistory

READS_MAX = 2
"""Prometheus runs ten remote reads at a time and queues the others; it has other clients too."""
QUERIES_MAX = 3
"""While we decode one answer, the server evaluates two."""
FILL = 0.8
"""The planned fill of batches: over a week, there were more pods than there are now."""
SAMPLE_BYTES = 20
"""The size of a sample, uncompressed."""
INTERVAL_SECONDS = 60.0
"""The assumed scrape interval where no sample shows it."""
_FINE_SECONDS = 15.0
READ_LIMITS = ReadLimits()
OTHER_STRATEGY_MAY_SUCCEED = (
    errors.NotOffered,
    errors.Malformed,
    errors.Unavailable,
    errors.QueryFailed,
    errors.PrometheusUnreachable,
    errors.TimedOut,
)
"""Failures of a strategy after which the next one is tried."""
NUMBER_BYTES = 8
BEGUN_MAX = 64
"""How many series may begin between counting and reading those of one part."""


class HistorySource(StrEnum):
    """The source of histories: chosen automatically, or a fixed one."""

    AUTO = "auto"
    REMOTE_READ = "remote-read"
    PROMQL = "promql"


@dataclass(slots=True)
class PrometheusHistory:
    """Histories from a Prometheus or a compatible server."""

    client: PrometheusClient
    names: LabelNames = CADVISOR
    extra_matchers: Mapping[str, str] = field(default_factory=dict)
    source: HistorySource = HistorySource.AUTO
    lots_max_bytes: int = 128 * 1024 * 1024
    """The memory for all batches in progress; each has an equal share."""
    _offered: Form | str | None = None
    """The form of remote read, or why it is not available."""
    _partial: list[str] = field(default_factory=list)
    """Why the answers that the present reading was planned from may be partial."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for label in self.extra_matchers:
            check_label(label)

    def read(
        self,
        measures: Sequence[Measure],
        start: float,
        end: float,
        step_seconds: float,
        *,
        namespaces: Sequence[str] | None = None,
        matchers: Sequence[Matcher] = (),
        grouping: Grouping | None = None,
        on_bytes: OnBytes | None = None,
    ) -> Iterator[UsageHistory]:
        """Yield the histories of all containers in batches, each with the measures in their order.

        An error ends the iteration; earlier batches are valid. Usage without a row in its batch is unknown.
        """
        offered = self.offered()  # first, so that an unreachable server is reported before anything else
        asked = None if namespaces is None else tuple(sorted(set(namespaces)))
        if asked == () or not measures:
            return
        build = self.client.known_build_info()
        self._partial.clear()
        grid = Grid.over(start, end, step_seconds)
        fixed = (*of_containers(self.names), *of_installation(self.extra_matchers), *matchers)
        whole = [self._whole(measure, grid, fixed, QueryBatch(asked)) for measure in measures]
        batches, all_namespaces = self._planned(whole, end)
        if not isinstance(offered, str):
            self._hear_of_the_begin(whole[0])
        # Before version 3, a window included a sample exactly at its beginning.
        is_closed = build.flavour == "Prometheus" and build.version.startswith("2.")
        told = tidy(self._partial)
        reading = HistoryReading(
            self, offered, is_closed, self._reads_samples, told, all_namespaces, grouping, on_bytes
        )
        yield from reading.ahead([job.of(batch) for batch in batches for job in whole], self._at_once)

    @property
    def _at_once(self) -> int:
        return QUERIES_MAX if isinstance(self.offered(), str) else READS_MAX

    @property
    def bytes_max(self) -> int:
        """The memory of one batch's results; a single group of pods may take more."""
        return self.lots_max_bytes // self._at_once

    def offered(self) -> Form | str:
        """Return the form of remote read of this server, or why it has none; probed once."""
        with self._lock:
            if self._offered is None:
                self._offered = self._probed()
        return self._offered

    def _probed(self) -> Form | str:
        if self.source is HistorySource.PROMQL:
            return "PromQL was asked for"
        try:
            return RemoteRead(self.client.transport).probe()
        except (errors.NotOffered, errors.Unavailable, errors.Malformed) as error:
            if self.source is HistorySource.REMOTE_READ:
                raise
            return str(error)

    def _whole(self, measure: Measure, grid: Grid, fixed: tuple[Matcher, ...], batch: QueryBatch) -> Job:
        """Return the job of a measure of all containers; a single number has one window: all the time."""
        is_one = measure.reduction is Reduction.HIGHEST
        interval_ms = INTERVAL_SECONDS * 1000
        if not is_one or self._offered is Form.SAMPLES:
            interval_ms = self._interval_ms(measure, fixed, grid.end_ms / 1000)
        window_ms = grid.end_ms - grid.start_ms if is_one else window_for(interval_ms, grid.step_ms)
        times = grid.part(grid.count - 1, 1) if is_one else grid
        return Job(measure, batch, times, window_ms, interval_ms, fixed)

    def _interval_ms(self, measure: Measure, fixed: Sequence[Matcher], at: float) -> float:
        """Return the scrape interval, since a rate needs two samples."""
        counting = f"quantile(0.5, count_over_time({selector(measure.metric, fixed)}[1h]))"
        try:
            answer = self.client.instant(counting, at)
            self._partial += answer.partial
            counted = decode_number(answer)
        except errors.QueryFailed:
            counted = None
        interval = 3600.0 / counted if counted is not None and counted >= 1 else INTERVAL_SECONDS
        unit = 1.0 if interval < _FINE_SECONDS else 5.0
        return max(unit, round(interval / unit) * unit) * 1000

    @property
    def _reads_samples(self) -> bool:
        return self.client.known_build_info().is_victoria_metrics

    def _series_planned(self, job: Job) -> int:
        """Return how many series a batch may have, by the memory of results and of answers."""
        planned = float(self.bytes_max // (8 * job.grid.count))
        offered = self.offered()
        if isinstance(offered, str):
            text_max_bytes = min(strategies.TEXT_MAX_BYTES, self.client.limits.answer_max_bytes)
            points = max(job.grid.count, job.samples if self._reads_samples else 0)
            planned = min(planned, text_max_bytes / (POINT_BYTES * points))
        elif offered is Form.SAMPLES:
            planned = min(planned, READ_LIMITS.block_max_bytes / (SAMPLE_BYTES * job.samples))
        return max(1, int(FILL * planned))

    def _hear_of_the_begin(self, job: Job) -> None:
        """Query one number at the beginning of the range for its warnings, which remote read does not have.

        A Prometheus with older samples in another store (`remote_read`) queries that store for these times
        only, and answers without it where it is down.
        """
        (within,) = job.batch.matchers(self.names)
        counting = f"count({selector(job.measure.metric, (*job.fixed, *within))})"
        with suppress(errors.QueryFailed, *errors.SPLITTABLE):
            answer = self.client.instant(counting, (job.grid.start_ms - job.window_ms) / 1000)
            self._partial += answer.partial

    def _planned(self, whole: Sequence[Job], at: float) -> tuple[list[QueryBatch], tuple[str, ...]]:
        """Return the fewest batches that memory allows, the same for all measures, and all namespaces."""
        label, job = self.names.namespace, whole[0]
        (within,) = job.batch.matchers(self.names)
        counting = f"count by ({label_name(label)}) ({selector(job.measure.metric, (*job.fixed, *within))})"
        try:
            vector = self.client.vector(counting, at, (label,))
        except (errors.QueryFailed, *errors.SPLITTABLE):
            return [job.batch], job.batch.namespaces or ()
        self._partial += vector.partial
        counts = dict(zip(vector.columns[0], vector.values.astype(np.int64).tolist(), strict=True))
        all_namespaces = job.batch.namespaces or tuple(sorted(counts))
        series_max = min(self._series_planned(job) for job in whole)
        if sum(counts.values()) <= series_max:
            return [replace(job.batch, series=sum(counts.values()))], all_namespaces
        return strategies.packed(
            {name: counts.get(name, 0) for name in all_namespaces}, series_max
        ), all_namespaces


_Doing = Future["UsageHistory | list[Job]"]


@dataclass(frozen=True, slots=True)
class HistoryReading:
    """The settings and the state of one reading."""

    history: PrometheusHistory
    offered: Form | str
    """The form of remote read, or why there is none."""
    is_closed: bool
    """Whether a sample right at a window's begin is in it."""
    reads_samples: bool
    """Whether PromQL always reads samples, since the server's `rate` is not that of Prometheus."""
    partial: tuple[str, ...]
    """Why all results may be partial: the answers that the reading was planned from were."""
    all_namespaces: tuple[str, ...]
    """All namespaces that exist."""
    grouping: Grouping | None
    on_bytes: OnBytes | None
    _turn: threading.Lock = field(default_factory=threading.Lock)
    """Held while a job decodes its answer: two at a time would take longer."""

    def ahead(self, jobs: Sequence[Job], at_once: int) -> Iterator[UsageHistory]:
        """Yield the results in order, several jobs at a time; a result that is not taken delays the next."""
        pool = ThreadPoolExecutor(at_once)
        turns: deque[Job | _Doing] = deque(jobs)
        try:
            while turns:
                free = at_once - sum(isinstance(turn, Future) for turn in turns)
                for place, turn in enumerate(turns):
                    if free and isinstance(turn, Job):
                        turns[place] = pool.submit(self._done, turn)
                        free -= 1
                doing = turns.popleft()
                assert isinstance(doing, Future), "the first is always under way"
                done = doing.result()
                del doing  # it holds the result
                if isinstance(done, UsageHistory):
                    yield done
                else:
                    turns.extendleft(reversed(done))
                del done  # before the next one is waited for
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, job: Job) -> UsageHistory | list[Job]:
        """Return a job's result, or smaller jobs where its batch is too large."""
        is_known_large = (job.batch.series or 0) > self._rows_max(job)
        smaller = self._smaller(job) if is_known_large else []
        if not smaller:
            try:
                return self._asked(job)
            except errors.SPLITTABLE as error:
                smaller = self._smaller(job)
                if not smaller:
                    return self._otherwise(job, error)
        return [job.of(batch) for batch in smaller]

    def _smaller(self, job: Job) -> list[QueryBatch]:
        if job.batch.is_part:
            return []
        return list(job.batch.halves(self.all_namespaces)) or self._parts(job)

    def _parts(self, job: Job) -> list[QueryBatch]:
        """Split a namespace between groups of its pods, including pods that no longer exist."""
        namespaces = self.all_namespaces if job.batch.namespaces is None else job.batch.namespaces
        if self.grouping is None or len(namespaces) != 1:
            return []
        (namespace,) = namespaces
        (within,) = QueryBatch(namespaces).matchers(self.history.names)
        asked = selector(job.measure.metric, (*job.fixed, *within))
        start_ms = job.grid.start_ms - job.window_ms
        try:
            found = self.history.client.series(
                asked, start_ms / 1000, job.grid.end_ms / 1000, (self.history.names.pod,)
            )
        except errors.PrometheusFailed:
            return []  # whatever the failure is, the reported error is that the namespace is too large
        counts = Counter(pod for (pod,) in found)
        pods = {pod: counts[pod] for pod in sorted(counts)}
        return strategies.parts(namespace, pods, self.grouping(namespace, list(pods)), self._rows_max(job))

    def _rows_max(self, job: Job) -> int:
        """Return how many rows memory holds, or a part has, with series that began after the count."""
        held = max(1, self.history.bytes_max // (NUMBER_BYTES * job.grid.count))
        return max(held, (job.batch.series or 0) + BEGUN_MAX) if job.batch.is_part else held

    def _asked(self, job: Job) -> UsageHistory:
        if isinstance(self.offered, str):
            return self._history(job, self._by_promql(job), "PromQL")
        if job.measure.reduction is Reduction.HIGHEST:
            # One number of each series costs the server less than reading the series costs us.
            with suppress(*OTHER_STRATEGY_MAY_SUCCEED):
                return self._history(job, self._by_promql(job), "PromQL")
        try:
            return self._history(job, self._by_remote_read(job), f"remote read ({self.offered.value})")
        except errors.SPLITTABLE:
            raise
        except OTHER_STRATEGY_MAY_SUCCEED as error:
            return self._otherwise(job, error)

    def _otherwise(self, job: Job, error: errors.PrometheusFailed) -> UsageHistory:
        """Return the result by PromQL, where remote read failed."""
        if self.history.source is HistorySource.REMOTE_READ or isinstance(self.offered, str):
            raise error
        found = self._by_promql(job)
        warned = replace(found, warnings=(*found.warnings, f"PromQL was used instead: {error}"))
        return self._history(job, warned, "PromQL")

    def _by_promql(self, job: Job) -> ReducedUsage:
        if self.reads_samples and job.measure.reduction is Reduction.RATE:
            return self._by_samples(job)
        if job.has_few_samples and job.measure.reduction is not Reduction.HIGHEST:
            with suppress(*OTHER_STRATEGY_MAY_SUCCEED):
                return self._by_samples(job)
        return self._reduced(strategies.by_promql, job)

    def _by_samples(self, job: Job) -> ReducedUsage:
        return self._reduced(
            strategies.by_samples,
            job,
            is_closed=self.is_closed,
            is_as_stored=self.reads_samples,
            turn=self._turn,
        )

    def _by_remote_read(self, job: Job) -> ReducedUsage:
        """Return the result by remote read, with one retry after a transient failure."""
        attempt = partial(self._reduced, strategies.by_remote_read, job, is_closed=self.is_closed)
        try:
            return attempt()
        except errors.PrometheusFailed as error:
            if not error.is_transient:
                raise
        return attempt()

    def _reduced(self, strategy: Callable[..., ReducedUsage], job: Job, **options: Any) -> ReducedUsage:
        client, names, rows_max = self.history.client, self.history.names, self._rows_max(job)
        return strategy(client, names, job, rows_max=rows_max, on_bytes=self.on_bytes, **options)

    def _history(self, job: Job, found: ReducedUsage, way: str) -> UsageHistory:
        warnings = list(found.warnings)
        if not found.keys and not job.batch.is_part:
            warnings.append(
                f"no container has {job.measure.metric} here; check that it is scraped under this name"
            )
        namespaces, pods, containers = ([key[index] for key in found.keys] for index in range(3))
        return UsageHistory(
            measure=job.measure.name,
            scope=job.batch.namespaces,
            namespaces=namespaces,
            pods=pods,
            containers=containers,
            timestamps=job.grid.timestamps,
            values=found.values,
            window_seconds=job.window_ms / 1000,
            source=f"{way} of {self.history.client.address}",
            warnings=tidy(warnings),
            groups=job.batch.groups,
            partial=tidy((*found.partial, *self.partial)),
        )
