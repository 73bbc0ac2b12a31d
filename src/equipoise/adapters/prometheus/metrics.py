"""`ports.Metrics` from a Prometheus, and what `equipoise doctor` asks of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import quote_plus

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.decode import Vector, decode_json, decode_number, tidy
from equipoise.adapters.prometheus.errors import (
    SPLITTABLE,
    BadQuery,
    BadUserQuery,
    Malformed,
    NotPrometheus,
    QueryFailed,
)
from equipoise.adapters.prometheus.promql import CpuQueries, Extent, Matcher
from equipoise.adapters.prometheus.settings import CADVISOR, Names, no_text
from equipoise.adapters.prometheus.shards import EXACT_NAMES_MAX, Shard, plan
from equipoise.ports import CpuUsage
from equipoise.stats.coverage import is_covered

_Write = Callable[[Sequence[Matcher]], str]
_Key = tuple[str, str, str]


class BuildInfo(NamedTuple):
    """What answers: Prometheus, Thanos, Grafana Mimir, VictoriaMetrics, or unknown."""

    flavour: str
    version: str


class Number(NamedTuple):
    """One number, or why there is none."""

    value: float | None
    reason: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PrometheusMetrics:
    """CPU usage and single numbers from a Prometheus or one of its kin."""

    client: Client
    names: Names = CADVISOR
    extra_matchers: Mapping[str, str] = field(default_factory=no_text)
    containers_per_pod: int = 3
    """Taken where the server could not count the series."""

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        """Read the CPU usage of all these pods, in as few queries as the limits allow.

        A container counts when it has both a rate and a sample that is not stale. NaN, infinite and
        negative rates are left out, and so are pods that nobody asked for. A rate over a window of which
        there are samples in a part only is marked as such.
        """
        queries = self.queries
        shards = self.shards(pods_by_namespace, at)

        def cores(matchers: Sequence[Matcher]) -> str:
            return queries.usage(matchers, window_seconds)

        def coverage(matchers: Sequence[Matcher]) -> str:
            return queries.coverage(matchers, at, window_seconds)

        asks = [(write, shard) for shard in shards for write in (cores, queries.sampled_at, coverage)]
        found = self.client.each(lambda ask: self._read(ask[0], ask[1], at), asks)
        answers = _Answers(*([vector for part in found[i::3] for vector in part] for i in range(3)))
        usage = _join(answers, pods_by_namespace, at, window_seconds, self.client.address)
        if shards and not any(len(vector) for vector in answers.rates):
            nothing = f"no container answered for {self.names.metric}: is it scraped, under this name?"
            return replace(usage, warnings=tidy((*usage.warnings, nothing)))
        return usage

    @property
    def queries(self) -> CpuQueries:
        """The queries, with the matchers of this installation."""
        return CpuQueries(self.names, self.extra_matchers)

    def shards(self, pods_by_namespace: Mapping[str, Sequence[str]], at: float) -> list[Shard]:
        """Plan the shards of a question about these pods; asks for counts when there are many."""
        pods = sum(map(len, pods_by_namespace.values()))
        return plan(
            pods_by_namespace,
            self._series_by_namespace(at) if pods > EXACT_NAMES_MAX else None,
            series_max=self.client.limits.series_max,
            query_max_bytes=self.client.transport.query_max_bytes,
            containers_per_pod=self.containers_per_pod,
        )

    def _series_by_namespace(self, at: float) -> Mapping[str, int] | None:
        try:
            counted = self.client.vector(self.queries.series_by_namespace(), at, (self.names.namespace,))
        except (QueryFailed, *SPLITTABLE):
            return None
        if not np.isfinite(counted.values).all():
            return None
        return dict(zip(counted.columns[0], counted.values.astype(np.int64).tolist(), strict=True))

    def _read(self, write: _Write, shard: Shard, at: float) -> list[Vector]:
        query, smaller = write(shard.matchers(self.names)), shard.smaller()
        if not smaller or len(quote_plus(query)) <= self.client.transport.query_max_bytes:
            try:
                return [self.client.vector(query, at, self.names.labels)]
            except SPLITTABLE:
                if not smaller:
                    raise
        return [vector for one in smaller for vector in self._read(write, one, at)]

    def scalar(self, query: str, at: float) -> float | None:
        """Ask for one number; None when the answer is empty, partial or not one finite number."""
        return self.number(query, at).value

    def number(self, query: str, at: float) -> Number:
        """Ask for one number with a query of the user's, taken as it is, and say why there is none.

        An answer with warnings is partial: a sum over what is left would be too low, so it is none.
        """
        try:
            answer = self.client.instant(query, at)
        except BadQuery as error:
            raise BadUserQuery(str(error)) from error
        value = decode_number(answer)
        if value is None:
            return Number(None, f"the answer is not one number ({answer.result_type})", answer.warnings)
        if not math.isfinite(value):
            return Number(None, f"the answer is {value}", answer.warnings)
        if answer.warnings:
            return Number(None, f"the answer is partial: {answer.warnings[0]}", answer.warnings)
        return Number(value)

    def ready(self) -> None:
        """Raise unless queries are answered."""
        if decode_number(self.client.instant("1")) != 1:
            raise Malformed(f"{self.client.address} did not answer 1 when asked for 1")

    def server_time(self) -> float:
        """Give the server's clock, as Unix seconds."""
        seconds = decode_number(self.client.instant("time()"))
        if seconds is None or not math.isfinite(seconds):
            raise Malformed(f"{self.client.address} did not tell its time when asked for time()")
        return seconds

    def build_info(self) -> BuildInfo:
        """Tell what answers and its version, as far as it says."""
        try:
            body = self.client.call("/api/v1/status/buildinfo", {})
        except NotPrometheus:
            return BuildInfo("unknown", "")
        return _build_info(decode_json(body, _BuildAnswer, self.client.address).data)


class _Build(msgspec.Struct, gc=False):
    version: str = ""
    revision: str = ""
    application: str = ""


class _BuildAnswer(msgspec.Struct, gc=False):
    data: _Build = msgspec.field(default_factory=_Build)


def _build_info(build: _Build) -> BuildInfo:
    if build.application:
        return BuildInfo(build.application, build.version)
    if build.version and not build.revision:
        # VictoriaMetrics claims to be some Prometheus, and has no revision.
        return BuildInfo("VictoriaMetrics", "")
    return BuildInfo("Thanos" if build.version.startswith("0.") else "Prometheus", build.version)


class _Answers(NamedTuple):
    """What the queries about usage gave, one vector or more for each shard."""

    rates: Sequence[Vector]
    times: Sequence[Vector]
    extents: Sequence[Vector]


def _join(
    answers: _Answers,
    pods_by_namespace: Mapping[str, Sequence[str]],
    at: float,
    window_seconds: float,
    address: str,
) -> CpuUsage:
    asked = {namespace: frozenset(pods) for namespace, pods in pods_by_namespace.items()}
    usage = _largest(answers.rates, asked)
    cores = np.fromiter(usage.values(), dtype=np.float64, count=len(usage))
    stamps = _column(usage, _largest(answers.times, asked))
    extent = Extent.unpack(_column(usage, _largest(answers.extents, asked)))
    is_number = np.isfinite(cores) & (cores >= 0)
    is_fresh = np.isfinite(stamps)
    kept = is_number & is_fresh
    keys = [key for key, is_kept in zip(usage, kept.tolist(), strict=True) if is_kept]
    warnings = [w for part in answers for vector in part for w in vector.warnings]
    warnings += _dropped(is_number, is_fresh)
    return CpuUsage(
        namespaces=[key[0] for key in keys],
        pods=[key[1] for key in keys],
        containers=[key[2] for key in keys],
        cores=cores[kept],
        sampled_at=stamps[kept],
        window_seconds=window_seconds,
        source=address,
        warnings=tidy(warnings),
        is_covered=is_covered(window_seconds, extent.spans, extent.counts, at - stamps)[kept],
    )


def _column(keys: Iterable[_Key], found: Mapping[_Key, float]) -> NDArray[np.float64]:
    return np.array([found.get(key, math.nan) for key in keys], dtype=np.float64)


def _largest(vectors: Iterable[Vector], asked: Mapping[str, frozenset[str]]) -> dict[_Key, float]:
    """Key the values by container; of several for one container the largest counts."""
    found: dict[_Key, float] = {}
    nothing: frozenset[str] = frozenset()
    for vector in vectors:
        namespaces, pods, containers = vector.columns
        for namespace, pod, container, value in zip(
            namespaces, pods, containers, vector.values.tolist(), strict=True
        ):
            if pod in asked.get(namespace, nothing):
                key = (namespace, pod, container)
                before = found.get(key)
                found[key] = value if before is None or value > before or math.isnan(before) else before
    return found


def _dropped(is_number: NDArray[np.bool_], is_fresh: NDArray[np.bool_]) -> list[str]:
    warnings = []
    if wrong := int((~is_number).sum()):
        warnings.append(f"{wrong} containers have a usage that is NaN, infinite or negative: left out")
    if gone := int((is_number & ~is_fresh).sum()):
        warnings.append(f"{gone} containers have a usage but no current sample: left out")
    return warnings
