"""One reading of histories: runs jobs in order, several at a time, by a strategy that the server supports.

A batch that is too large is split between namespaces, then between groups of pods. Where one strategy fails,
the next is tried.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from equipoise.adapters.prometheus import errors
from equipoise.adapters.prometheus.client import OnBytes, PrometheusClient
from equipoise.adapters.prometheus.decode import tidy
from equipoise.adapters.prometheus.matrix import Key
from equipoise.adapters.prometheus.promql import selector
from equipoise.adapters.prometheus.remote_read.read import Form, ReadLimits, RemoteRead
from equipoise.adapters.prometheus.settings import LabelNames
from equipoise.adapters.prometheus.strategies import (
    Job,
    QueryBatch,
    ReducedUsage,
    by_promql,
    by_remote_read,
    by_samples,
    parts,
)
from equipoise.ports.cluster import Grouping, Reduction, UsageHistory

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

_Doing = Future["UsageHistory | list[Job]"]


@dataclass(frozen=True, slots=True)
class HistoryReading:
    """The settings and the state of one reading."""

    client: PrometheusClient
    names: LabelNames
    offered: Form | str
    """The form of remote read, or why there is none."""
    must_offer: bool
    """Whether remote read is the only strategy for samples."""
    read_limits: ReadLimits
    is_closed: bool
    reads_samples: bool
    """Whether PromQL always reads samples, since the server's `rate` is not that of Prometheus."""
    partial: tuple[str, ...]
    """Why all results may be partial: the answers that the reading was planned from were."""
    bytes_max: int
    """The memory of one batch's results; a single group of pods may take more."""
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
                self._begin(turns, pool, at_once)
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

    def _begin(self, turns: deque[Job | _Doing], pool: ThreadPoolExecutor, at_once: int) -> None:
        """Start jobs in order while not too many are running or not taken."""
        free = at_once - sum(isinstance(turn, Future) for turn in turns)
        for place, turn in enumerate(turns):
            if free and isinstance(turn, Job):
                turns[place] = pool.submit(self._done, turn)
                free -= 1

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
        (within,) = QueryBatch(namespaces).matchers(self.names)
        asked = selector(job.measure.metric, (*job.fixed, *within))
        start_ms = job.grid.start_ms - job.window_ms
        try:
            found = self.client.series(asked, start_ms / 1000, job.grid.end_ms / 1000, (self.names.pod,))
        except errors.PrometheusFailed:
            return []  # whatever the failure is, the reported error is that the namespace is too large
        counts = Counter(pod for (pod,) in found)
        pods = {pod: counts[pod] for pod in sorted(counts)}
        return parts(namespace, pods, self.grouping(namespace, list(pods)), self._rows_max(job))

    def _rows_max(self, job: Job) -> int:
        """Return how many rows memory holds, or a part has, with series that began after the count."""
        held = max(1, self.bytes_max // (NUMBER_BYTES * job.grid.count))
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
        if self.must_offer or isinstance(self.offered, str):
            raise error
        found = self._by_promql(job)
        warned = replace(found, warnings=(*found.warnings, f"PromQL was asked instead: {error}"))
        return self._history(job, warned, "PromQL")

    def _by_promql(self, job: Job) -> ReducedUsage:
        if self.reads_samples and job.measure.reduction is Reduction.RATE:
            return self._by_samples(job)
        if job.has_few_samples and job.measure.reduction is not Reduction.HIGHEST:
            with suppress(*OTHER_STRATEGY_MAY_SUCCEED):
                return self._by_samples(job)
        return by_promql(self.client, self.names, job, rows_max=self._rows_max(job), on_bytes=self.on_bytes)

    def _by_samples(self, job: Job) -> ReducedUsage:
        return by_samples(
            self.client,
            self.names,
            job,
            rows_max=self._rows_max(job),
            is_closed=self.is_closed,
            is_as_stored=self.reads_samples,
            turn=self._turn,
            on_bytes=self.on_bytes,
        )

    def _by_remote_read(self, job: Job) -> ReducedUsage:
        """Return the result by remote read, with one retry after a transient failure."""

        def attempt() -> ReducedUsage:
            return by_remote_read(
                RemoteRead(self.client.transport, self.read_limits),
                self.names,
                job,
                rows_max=self._rows_max(job),
                is_closed=self.is_closed,
                on_bytes=self.on_bytes,
            )

        try:
            return attempt()
        except errors.PrometheusFailed as error:
            if not error.is_transient:
                raise
        return attempt()

    def _history(self, job: Job, found: ReducedUsage, way: str) -> UsageHistory:
        warnings = list(found.warnings)
        if not found.keys and not job.batch.is_part:
            warnings.append(f"no container has {job.measure.metric} here: is it scraped, under this name?")
        return UsageHistory(
            measure=job.measure.name,
            scope=job.batch.namespaces,
            namespaces=_column(found.keys, 0),
            pods=_column(found.keys, 1),
            containers=_column(found.keys, 2),
            timestamps=job.grid.timestamps,
            values=found.values,
            window_seconds=job.window_ms / 1000,
            source=f"{way} of {self.client.address}",
            warnings=tidy(warnings),
            groups=job.batch.groups,
            partial=tidy((*found.partial, *self.partial)),
        )


def _column(keys: Sequence[Key], index: int) -> list[str]:
    return [key[index] for key in keys]
