"""Weeks of usage of all containers, a lot of namespaces at a time.

A lot holds whole namespaces, so that whoever gets it has all pods of their workloads, can reduce them, and
let go of them before the next one comes. Ways of asking, the cheapest first: remote read in chunks,
remote read in samples, PromQL. What a server offers is asked once.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.decode import decode_number, tidy
from equipoise.adapters.prometheus.errors import (
    SPLITTABLE,
    Malformed,
    NotOffered,
    PrometheusFailed,
    QueryFailed,
    TimedOut,
    Unavailable,
    Unreachable,
)
from equipoise.adapters.prometheus.matrix import Grid, Key
from equipoise.adapters.prometheus.metrics import PrometheusMetrics
from equipoise.adapters.prometheus.promql import Matcher, one_of, selector
from equipoise.adapters.prometheus.remote_read.rates import WINDOW_INTERVALS, window_for
from equipoise.adapters.prometheus.remote_read.read import Form, ReadLimits, RemoteRead
from equipoise.adapters.prometheus.settings import CADVISOR, Names, check_label, no_text
from equipoise.adapters.prometheus.ways import Found, by_promql, by_remote_read
from equipoise.model.history import Measure, UsageHistory

READS_MAX = 2
"""Prometheus lets ten remote reads in and queues the others silently; it has other work to do."""
FILL = 0.8
"""How full lots are planned: a week has seen more pods than there are now."""
TEXT_SIZE = 4
"""A number as JSON, beside the eight bytes that it becomes."""
SAMPLE_BYTES = 20
"""A plain sample, unpacked."""
INTERVAL_SECONDS = 60.0
"""Taken where no sample tells."""
_FINE_SECONDS = 15.0
OTHER_WAY_MAY_DO = (NotOffered, Malformed, Unavailable, QueryFailed, Unreachable, TimedOut)
"""Failures of remote read after which PromQL is asked."""

OnBytes = Callable[[int], None]
Lot = tuple[str, ...] | None
"""Namespaces; None are all there are."""


class Source(StrEnum):
    """Where histories come from: the best way, or one that was picked."""

    AUTO = "auto"
    REMOTE_READ = "remote-read"
    PROMQL = "promql"


@dataclass(frozen=True, slots=True)
class _Job:
    """One request, unless it proves too large."""

    measure: Measure
    lot: Lot
    grid: Grid
    window_ms: int
    matchers: tuple[Matcher, ...]
    known: tuple[str, ...]
    """What a lot of all namespaces is cut into."""

    def smaller(self) -> tuple[_Job, ...]:
        """Cut the lot in two; nothing when it is one namespace."""
        namespaces = self.known if self.lot is None else self.lot
        middle = len(namespaces) // 2
        halves = (namespaces[:middle], namespaces[middle:]) if middle else ()
        return tuple(replace(self, lot=half) for half in halves)


@dataclass(slots=True)
class PrometheusHistory:
    """Histories from a Prometheus or one of its kin."""

    client: Client
    names: Names = CADVISOR
    extra_matchers: Mapping[str, str] = field(default_factory=no_text)
    source: Source = Source.AUTO
    reads_max: int = READS_MAX
    lots_max_bytes: int = 256 * 1024 * 1024
    """Numbers of all lots under way; each may have an equal share."""
    read_limits: ReadLimits = field(default_factory=ReadLimits)
    _offered: Form | str | None = None
    """The form of remote read, or why there is none."""
    _is_closed: bool | None = None
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
        on_bytes: OnBytes | None = None,
    ) -> Iterator[UsageHistory]:
        """Give the histories of all containers: lot by lot, in each the measures in the given order.

        An error ends it; what came before is right. A container that is not in its lot is unknown.
        """
        self.offered()  # so that a server that is not there is told before anything else
        fixed = (*self._fixed(), *matchers)
        asked = None if namespaces is None else tuple(sorted(set(namespaces)))
        whole = []
        for measure in measures:
            grid = _grid(measure, start, end, step_seconds)
            window_ms = window_for(self._interval_ms(measure, fixed, end), grid.step_ms)
            whole.append(_Job(measure, asked, grid, window_ms, fixed, ()))
        jobs = self._planned(whole, end) if asked != () else []
        for found in self._ahead(jobs, on_bytes):
            while found:  # what was given is let go of before the next is waited for
                yield found.pop(0)

    def offered(self) -> Form | str:
        """Say which form of remote read this server offers, or why none; asked once."""
        with self._lock:
            if self._offered is None:
                self._offered = self._probed()
        return self._offered

    def _probed(self) -> Form | str:
        if self.source is Source.PROMQL:
            return "PromQL was asked for"
        try:
            return self._reader().probe()
        except (NotOffered, Unavailable, Malformed) as error:
            if self.source is Source.REMOTE_READ:
                raise
            return str(error)

    def _reader(self) -> RemoteRead:
        return RemoteRead(self.client.transport, self.read_limits)

    def _fixed(self) -> tuple[Matcher, ...]:
        container = self.names.container
        extra = (Matcher(label, "=", value) for label, value in sorted(self.extra_matchers.items()))
        return (Matcher(container, "!=", ""), Matcher(container, "!=", "POD"), *extra)

    def _interval_ms(self, measure: Measure, fixed: Sequence[Matcher], at: float) -> float:
        """Ask how often samples come, since a rate takes two of them."""
        counting = f"quantile(0.5, count_over_time({selector(measure.metric, fixed)}[1h]))"
        try:
            counted = decode_number(self.client.instant(counting, at))
        except QueryFailed:
            counted = None
        interval = 3600.0 / counted if counted is not None and counted >= 1 else INTERVAL_SECONDS
        unit = 1.0 if interval < _FINE_SECONDS else 5.0
        return max(unit, round(interval / unit) * unit) * 1000

    def _rows_max(self, grid: Grid) -> int:
        return max(1, self.lots_max_bytes // self.reads_max // (8 * grid.count))

    def _rows_planned(self, grid: Grid, window_ms: int) -> int:
        """Give how many rows a lot is planned with; text and plain samples are larger than their numbers."""
        rows = self._rows_max(grid) * FILL
        offered = self.offered()
        if isinstance(offered, str):
            rows /= TEXT_SIZE
        elif offered is Form.SAMPLES:
            samples = (grid.end_ms - grid.start_ms + window_ms) * WINDOW_INTERVALS / window_ms
            rows = min(rows, FILL * self.read_limits.block_max_bytes / (SAMPLE_BYTES * samples))
        return max(1, int(rows))

    def _planned(self, whole: Sequence[_Job], at: float) -> list[_Job]:
        """Pack namespaces into as few lots as memory allows, the same for all measures."""
        if not whole:
            return []
        label = self.names.namespace
        measure, matchers, _, _ = self._question(whole[0])
        counting = f"count by ({label}) ({selector(measure.metric, matchers)})"
        try:
            vector = self.client.vector(counting, at, (label,))
        except (QueryFailed, *SPLITTABLE):
            return [replace(job, known=job.lot or ()) for job in whole]
        counts = dict(zip(vector.columns[0], vector.values.astype(np.int64).tolist(), strict=True))
        known = whole[0].lot or tuple(sorted(counts))
        rows = min(self._rows_planned(job.grid, job.window_ms) for job in whole)
        lots = [whole[0].lot]
        if sum(counts.values()) > rows:
            lots = _packed({name: counts.get(name, 0) for name in known}, rows)
        return [replace(job, lot=lot, known=known) for lot in lots for job in whole]

    def _ahead(self, jobs: Sequence[_Job], on_bytes: OnBytes | None) -> Iterator[list[UsageHistory]]:
        """Do the jobs in order, some at a time; a result that waits to be taken holds up the next job."""
        if len(jobs) <= 1 or self.reads_max <= 1:
            for job in jobs:
                yield self._done(job, on_bytes)
            return
        pool = ThreadPoolExecutor(self.reads_max)
        running: deque[Future[list[UsageHistory]]] = deque()
        try:
            for job in jobs:
                running.append(pool.submit(self._done, job, on_bytes))
                if len(running) == self.reads_max:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, job: _Job, on_bytes: OnBytes | None) -> list[UsageHistory]:
        """Ask for a lot; where it is too large, for its halves."""
        try:
            return [self._asked(job, on_bytes)]
        except SPLITTABLE:
            smaller = job.smaller()
            if not smaller:
                raise
        return [found for one in smaller for found in self._done(one, on_bytes)]

    def _asked(self, job: _Job, on_bytes: OnBytes | None) -> UsageHistory:
        offered = self.offered()
        if isinstance(offered, str):
            return self._history(job, by_promql(self.client, self.names, *self._question(job)), "PromQL")
        try:
            return self._history(job, self._read(job, on_bytes), f"remote read ({offered.value})")
        except (*OTHER_WAY_MAY_DO, *SPLITTABLE) as error:
            is_cut = isinstance(error, SPLITTABLE) and bool(job.smaller())
            if is_cut or self.source is Source.REMOTE_READ:
                raise
            found = by_promql(self.client, self.names, *self._question(job))
            warned = replace(found, warnings=(*found.warnings, f"PromQL was asked instead: {error}"))
            return self._history(job, warned, "PromQL")

    def _read(self, job: _Job, on_bytes: OnBytes | None) -> Found:
        """Ask by remote read, and once more after what may pass: nothing was given away yet."""

        def attempt() -> Found:
            return by_remote_read(
                self._reader(),
                self.names,
                *self._question(job),
                rows_max=self._rows_max(job.grid),
                is_closed=self._closed(),
                on_bytes=on_bytes,
            )

        try:
            return attempt()
        except PrometheusFailed as error:
            if not error.is_transient:
                raise
        return attempt()

    def _closed(self) -> bool:
        """Ask once by which rule this server counts samples at a window's begin, to count as it does."""
        with self._lock:
            if self._is_closed is None:
                self._is_closed = self._is_version_2()
            return self._is_closed

    def _is_version_2(self) -> bool:
        try:
            flavour, version = PrometheusMetrics(self.client).build_info()
        except PrometheusFailed:
            return False
        return flavour == "Prometheus" and version.startswith("2.")

    def _question(self, job: _Job) -> tuple[Measure, Sequence[Matcher], Grid, int]:
        in_lot = () if job.lot is None else (one_of(self.names.namespace, job.lot),)
        return job.measure, (*job.matchers, *in_lot), job.grid, job.window_ms

    def _history(self, job: _Job, found: Found, way: str) -> UsageHistory:
        warnings = list(found.warnings)
        if not found.keys:
            warnings.append(f"no container has {job.measure.metric} here: is it scraped, under this name?")
        return UsageHistory(
            measure=job.measure.name,
            scope=job.lot,
            namespaces=_column(found.keys, 0),
            pods=_column(found.keys, 1),
            containers=_column(found.keys, 2),
            timestamps=job.grid.timestamps,
            values=found.values,
            window_seconds=job.window_ms / 1000,
            source=f"{way} of {self.client.address}",
            warnings=tidy(warnings),
        )


def _column(keys: Sequence[Key], index: int) -> list[str]:
    return [key[index] for key in keys]


def _grid(measure: Measure, start: float, end: float, step_seconds: float) -> Grid:
    """Give the times of a measure; long steps of its own reach past the end, and so look back over it."""
    if measure.step_seconds is None:
        return Grid.over(start, end, step_seconds)
    return Grid.over(
        start, math.ceil(end / measure.step_seconds) * measure.step_seconds, measure.step_seconds
    )


def _packed(rows_by_namespace: Mapping[str, int], rows_max: int) -> list[Lot]:
    """Fill lots in the order of names, so that a plan is the same every time."""
    lots: list[list[str]] = []
    held = 0
    for namespace, rows in rows_by_namespace.items():
        if not lots or held + rows > rows_max:
            lots.append([])
            held = 0
        lots[-1].append(namespace)
        held += rows
    return [tuple(lot) for lot in lots]


__all__ = ["READS_MAX", "Lot", "PrometheusHistory", "Source", "UsageHistory"]
