"""Weeks of usage of all containers, in batches.

A batch has whole namespaces, or whole groups of pods of a namespace that is too large, so that the caller has
all pods of a workload at once, and can reduce and drop them before the next batch. The strategies, cheapest
first, are remote read in chunks, remote read in samples, and PromQL. The server is probed for them once.

Also the owners of ReplicaSets, from kube-state-metrics, for pods that no longer exist.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from equipoise.adapters.prometheus import errors
from equipoise.adapters.prometheus.client import OnBytes, PrometheusClient
from equipoise.adapters.prometheus.decode import decode_number, tidy
from equipoise.adapters.prometheus.matrix import POINT_BYTES, Grid
from equipoise.adapters.prometheus.promql import Matcher, label_name, one_of, selector
from equipoise.adapters.prometheus.remote_read.rates import window_for
from equipoise.adapters.prometheus.remote_read.read import Form, ReadLimits, RemoteRead
from equipoise.adapters.prometheus.scheduler import HistoryReading
from equipoise.adapters.prometheus.settings import CADVISOR, LabelNames, check_label, no_text
from equipoise.adapters.prometheus.strategies import TEXT_MAX_BYTES, Job, QueryBatch, grid_of, packed
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
    extra_matchers: Mapping[str, str] = field(default_factory=no_text)
    source: HistorySource = HistorySource.AUTO
    reads_max: int = READS_MAX
    lots_max_bytes: int = 128 * 1024 * 1024
    """The memory for all batches in progress; each has an equal share."""
    read_limits: ReadLimits = field(default_factory=ReadLimits)
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
        fixed = (*self._fixed(), *matchers)
        whole = [self._whole(measure, grid, fixed, QueryBatch(asked)) for measure in measures]
        batches, all_namespaces = self._planned(whole, end)
        if not isinstance(offered, str):
            self._hear_of_the_begin(whole[0])
        reading = HistoryReading(
            client=self.client,
            names=self.names,
            offered=offered,
            must_offer=self.source is HistorySource.REMOTE_READ,
            read_limits=self.read_limits,
            # Before version 3, a window included a sample exactly at its beginning.
            is_closed=build.flavour == "Prometheus" and build.version.startswith("2."),
            reads_samples=self._reads_samples,
            partial=tidy(self._partial),
            bytes_max=self._bytes_max,
            all_namespaces=all_namespaces,
            grouping=grouping,
            on_bytes=on_bytes,
        )
        yield from reading.ahead([job.of(batch) for batch in batches for job in whole], self._at_once)

    @property
    def _at_once(self) -> int:
        return QUERIES_MAX if isinstance(self.offered(), str) else self.reads_max

    @property
    def _bytes_max(self) -> int:
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
            return RemoteRead(self.client.transport, self.read_limits).probe()
        except (errors.NotOffered, errors.Unavailable, errors.Malformed) as error:
            if self.source is HistorySource.REMOTE_READ:
                raise
            return str(error)

    def _fixed(self) -> tuple[Matcher, ...]:
        container = self.names.container
        extra = (Matcher(label, "=", value) for label, value in sorted(self.extra_matchers.items()))
        return (Matcher(container, "!=", ""), Matcher(container, "!=", "POD"), *extra)

    def _whole(self, measure: Measure, grid: Grid, fixed: tuple[Matcher, ...], batch: QueryBatch) -> Job:
        """Return the job of a measure of all containers; a single number needs no window."""
        is_one = measure.reduction is Reduction.HIGHEST
        interval_ms = INTERVAL_SECONDS * 1000
        if not is_one or self._offered is Form.SAMPLES:
            interval_ms = self._interval_ms(measure, fixed, grid.end_ms / 1000)
        window_ms = grid.end_ms - grid.start_ms if is_one else window_for(interval_ms, grid.step_ms)
        return Job(measure, batch, grid_of(measure, grid), window_ms, interval_ms, fixed)

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
        planned = float(self._bytes_max // (8 * job.grid.count))
        offered = self.offered()
        if isinstance(offered, str):
            text_max_bytes = min(TEXT_MAX_BYTES, self.client.limits.answer_max_bytes)
            points = max(job.grid.count, job.samples if self._reads_samples else 0)
            planned = min(planned, text_max_bytes / (POINT_BYTES * points))
        elif offered is Form.SAMPLES:
            planned = min(planned, self.read_limits.block_max_bytes / (SAMPLE_BYTES * job.samples))
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
        return packed({name: counts.get(name, 0) for name in all_namespaces}, series_max), all_namespaces


__all__ = ["READS_MAX", "HistorySource", "PrometheusHistory", "UsageHistory"]


METRIC = "kube_replicaset_owner"
LABELS = ("namespace", "exported_namespace", "replicaset", "owner_kind", "owner_name")
"""A scrape without `honor_labels` renames the object's namespace label."""


@dataclass(frozen=True, slots=True)
class PrometheusOwners:
    """Owners from a Prometheus that scrapes kube-state-metrics; empty where none does.

    An instant selector is enough, since a ReplicaSet outlives its pods by ten revisions; a range of days
    would cost the server fifteen times as much.
    """

    client: PrometheusClient
    extra_matchers: Mapping[str, str] = field(default_factory=no_text)

    def __post_init__(self) -> None:
        for label in self.extra_matchers:
            check_label(label)

    def replica_sets(self, namespaces: Sequence[str], at: float) -> Mapping[tuple[str, str], tuple[str, str]]:
        """Return the kind and name of the owner by namespace and ReplicaSet."""
        names = sorted(set(namespaces))
        found: dict[tuple[str, str], tuple[str, str]] = {}
        if names:
            for label in ("namespace", "exported_namespace"):
                self._ask(label, names, at, found)
        return found

    def _ask(
        self, label: str, names: Sequence[str], at: float, found: dict[tuple[str, str], tuple[str, str]]
    ) -> None:
        extra = (Matcher(name, "=", value) for name, value in sorted(self.extra_matchers.items()))
        query = selector(METRIC, (one_of(label, names), *extra))
        try:
            vector = self.client.vector(query, at, LABELS)
        except errors.SPLITTABLE:
            middle = len(names) // 2
            if not middle:
                raise
            self._ask(label, names[:middle], at, found)
            self._ask(label, names[middle:], at, found)
            return
        if vector.partial:
            raise errors.Incomplete(f"{self.client.address} answered in part: {vector.partial[0]}")
        for namespace, exported, replica_set, kind, name in zip(*vector.columns, strict=True):
            found[exported or namespace, replica_set] = (kind, name)
