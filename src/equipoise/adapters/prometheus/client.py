"""Queries a Prometheus, with bounds on time, number and memory of requests, and with retries."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from equipoise.adapters.http import NO_RETRIES, Backoff, with_retries
from equipoise.adapters.prometheus.decode import (
    QueryAnswer,
    Vector,
    decode_json,
    decode_series,
    decode_vector,
    open_answer,
)
from equipoise.adapters.prometheus.errors import (
    BadQuery,
    NotPrometheus,
    PrometheusFailed,
    TimedOut,
    Unauthorized,
    refusal,
)
from equipoise.adapters.prometheus.matrix import Grid
from equipoise.adapters.prometheus.promql import has_quoted_names
from equipoise.adapters.prometheus.settings import QueryLimits
from equipoise.adapters.prometheus.transport import OK, PrometheusTransport, retry_if_transient

A = TypeVar("A")
B = TypeVar("B")
OnBytes = Callable[[int], None]
"""Called with the size of each part of an answer as it arrives."""

BACKOFF = Backoff(attempts_max=5, first_seconds=0.25, delay_max_seconds=5.0)
WHOLE_AND_PRESENT = MappingProxyType(
    {"partial_response": "false", "deny_partial_response": "1", "nocache": "1"}
)
"""Parameters of every query; a server ignores those that it does not support.

Thanos and a cluster of VictoriaMetrics answer partially when one of their stores is down, unless a parameter
makes them fail. VictoriaMetrics evaluates "now" as 30 seconds ago, unless a parameter disables its cache.
"""
BUILD_INFO_SECONDS = 5.0


class BuildInfo(NamedTuple):
    """The product behind an address: Prometheus, Thanos, Grafana Mimir, VictoriaMetrics, or unknown."""

    flavour: str
    version: str

    @property
    def is_victoria_metrics(self) -> bool:
        """Return whether its `rate` has another definition than that of Prometheus."""
        return self.flavour == "VictoriaMetrics"


class PrometheusClient:
    """Instant and range queries over either transport. Threads may share it."""

    def __init__(
        self,
        transport: PrometheusTransport,
        limits: QueryLimits | None = None,
        *,
        backoff: Backoff = BACKOFF,
        sleep: Callable[[float], None] = time.sleep,
        rng: Callable[[], float] = random.random,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transport = transport
        self.limits = limits or QueryLimits()
        self._backoff = replace(backoff, total_max_seconds=self.limits.timeout_seconds)
        self._slots = threading.BoundedSemaphore(self.limits.concurrency_max)
        self._sleep, self._rng, self._monotonic = sleep, rng, monotonic
        self._build_info: BuildInfo | None = None

    @property
    def address(self) -> str:
        return self.transport.address

    def instant(self, query: str, at: float | None = None, on_bytes: OnBytes | None = None) -> QueryAnswer:
        """Return a query's value at one time; without a time, at the server's present time."""
        fields = {"query": query} if at is None else {"query": query, "time": f"{at:.3f}"}
        return self._answer("/api/v1/query", fields, on_bytes)

    def vector(self, query: str, at: float | None, labels: Sequence[str]) -> Vector:
        """Return an instant vector as columns of these labels."""
        return decode_vector(self.instant(query, at), labels, self.limits.series_max)

    def range(self, query: str, grid: Grid, on_bytes: OnBytes | None = None) -> QueryAnswer:
        """Return a query's values on a grid that is within the server's limit of points."""
        fields = {
            "query": query,
            "start": f"{grid.start_ms / 1000:.3f}",
            "end": f"{grid.end_ms / 1000:.3f}",
            "step": f"{grid.step_ms / 1000:.3f}",
        }
        return self._answer("/api/v1/query_range", fields, on_bytes)

    def _answer(self, path: str, fields: Mapping[str, str], on_bytes: OnBytes | None) -> QueryAnswer:
        body = self.call(path, fields)
        if on_bytes:
            on_bytes(len(body))
        return open_answer(body, self.address)

    def series(self, selected: str, start: float, end: float, labels: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the series of a time range, as tuples of these labels."""
        fields = {"match[]": selected, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        body = self.call("/api/v1/series", fields)
        return decode_series(body, labels, self.limits.series_max, self.address)

    def build_info(self) -> BuildInfo:
        """Return the product and its version, as far as it reports them.

        A proxy may allow only queries; VictoriaMetrics is recognised by its answers to these, too.
        """
        try:
            body = self.call("/api/v1/status/buildinfo", {})
        except (NotPrometheus, Unauthorized):
            # Only VictoriaMetrics reports how many series it has fetched.
            body = self.call("/api/v1/query", {"query": "1"})
            fetched = decode_json(body, _Fetched, self.address).stats.seriesFetched
            return BuildInfo("unknown" if fetched is None else "VictoriaMetrics", "")
        return _build_info(decode_json(body, _BuildAnswer, self.address).data)

    def known_build_info(self) -> BuildInfo:
        """Return the cached build info, or unknown; requested again only after a request without answer."""
        if self._build_info is None:
            limit = min(BUILD_INFO_SECONDS, self.limits.timeout_seconds)
            brief = PrometheusClient(
                self.transport, replace(self.limits, timeout_seconds=limit), backoff=NO_RETRIES
            )
            try:
                self._build_info = brief.build_info()
            except PrometheusFailed:
                return BuildInfo("unknown", "")
        return self._build_info

    def call(self, path: str, fields: Mapping[str, str]) -> bytes:
        """Return the body of a 200, with retries after transient failures until the timeout."""
        deadline = self._monotonic() + self.limits.timeout_seconds

        def attempt() -> bytes:
            return self._ask(path, fields, max(deadline - self._monotonic(), 0.001))

        # The last wait ends before the deadline; then the last failure is raised.
        return with_retries(
            attempt,
            retry_if_transient,
            self._backoff,
            sleep=self._sleep,
            rng=self._rng,
            monotonic=self._monotonic,
        )

    def _ask(self, path: str, fields: Mapping[str, str], left_seconds: float) -> bytes:
        if fields:
            # Newer servers cut an answer at `limit`; one more than our limit shows that there were more.
            fields = {**WHOLE_AND_PRESENT, **fields, "limit": str(self.limits.series_max + 1)}
            # A number without a unit is seconds; with a unit, fractions are refused.
            fields = {**fields, "timeout": f"{left_seconds:.3f}"}
        if not self._slots.acquire(timeout=left_seconds):
            raise TimedOut(
                f"{self.address}: {self.limits.concurrency_max} queries are in progress, "
                f"and none ended within {self.limits.timeout_seconds:g} s"
            )
        try:
            reply = self.transport.send(path, fields, left_seconds, self.limits.answer_max_bytes)
        finally:
            self._slots.release()
        if reply.status != OK:
            error = refusal(reply, self.address)
            asked = fields.get("query") or fields.get("match[]") or ""
            if isinstance(error, BadQuery) and has_quoted_names(asked):
                raise BadQuery(f"{error} (a label name in quotes needs Prometheus 3 or newer)")
            raise error
        return reply.body

    def each(self, ask: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """Query for all items, several at a time; the first failure cancels those that have not begun."""
        if len(items) <= 1:
            return [ask(item) for item in items]
        pool = ThreadPoolExecutor(min(len(items), self.limits.concurrency_max))
        try:
            futures = [pool.submit(ask, item) for item in items]
            done = wait(futures, return_when=FIRST_EXCEPTION).done
            return [future.result() for future in futures if future in done]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        self.transport.close()


class _Build(msgspec.Struct, gc=False):
    version: str = ""
    revision: str = ""
    application: str = ""


class _BuildAnswer(msgspec.Struct, gc=False):
    data: _Build = msgspec.field(default_factory=_Build)


class _Stats(msgspec.Struct, gc=False):
    seriesFetched: str | None = None


class _Fetched(msgspec.Struct, gc=False):
    stats: _Stats = msgspec.field(default_factory=_Stats)


def _build_info(build: _Build) -> BuildInfo:
    if build.application:
        return BuildInfo(build.application, build.version)
    if build.version and not build.revision:
        # VictoriaMetrics reports a version of Prometheus, and no revision.
        return BuildInfo("VictoriaMetrics", "")
    return BuildInfo("Thanos" if build.version.startswith("0.") else "Prometheus", build.version)
