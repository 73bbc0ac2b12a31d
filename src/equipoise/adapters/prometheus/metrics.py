"""`ports.Metrics` from a Prometheus, and what `equipoise doctor` asks of it.

From settings to a working source: the address that was given, or the Prometheus that was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar
from urllib.parse import quote_plus

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus import errors, promql
from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.decode import HISTOGRAMS_LEFT_OUT, Vector, decode_number, tidy
from equipoise.adapters.prometheus.range import Raw, at_the_end
from equipoise.adapters.prometheus.settings import (
    CADVISOR,
    LabelNames,
    PrometheusSettings,
    QueryLimits,
    check_label,
)
from equipoise.adapters.prometheus.transport import Direct, PrometheusTransport
from equipoise.core.quantity import print_count, print_seconds
from equipoise.ports import CpuUsage
from equipoise.stats.grid import early_seconds, is_covered

T = TypeVar("T")
_Write = Callable[[Sequence[promql.Matcher]], str]
_Key = tuple[str, str, str]
_Asked = Mapping[str, frozenset[str]]
_Found = tuple[CpuUsage, NDArray[np.bool_], Sequence[Vector]]
"""Usage, whose samples cover the window, and the answers that tell what may be missing."""


class Number(NamedTuple):
    """One number, or why there is none."""

    value: float | None
    reason: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PrometheusMetrics:
    """CPU usage and single numbers from a Prometheus or one of its kin."""

    client: PrometheusClient
    names: LabelNames = CADVISOR
    extra_matchers: Mapping[str, str] = field(default_factory=dict)
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
        shards = self.shards(pods_by_namespace, at)
        asked = {namespace: frozenset(pods) for namespace, pods in pods_by_namespace.items()}
        reads_samples = shards and self.client.known_build_info().is_victoria_metrics
        read = self._by_samples if reads_samples else self._by_promql
        usage, covered, vectors = read(shards, asked, at, window_seconds)
        warnings = [*(warning for vector in vectors for warning in vector.warnings), *usage.warnings]
        partial = tidy(why for vector in vectors for why in vector.partial)
        if shards and not usage.pods:
            warnings.append(f"no container has {self.names.metric}; check that it is scraped under this name")
        return replace(usage, is_covered=covered, warnings=tidy(warnings), partial=partial)

    def _by_promql(
        self, shards: Sequence[promql.Shard], asked: _Asked, at: float, window_seconds: float
    ) -> _Found:
        queries = self.queries
        rates, times, tallies = self._ask(
            shards,
            at,
            lambda matchers: queries.usage(matchers, window_seconds),
            queries.sampled_at,
            lambda matchers: queries.tally(matchers, window_seconds),
        )
        usage = _join(rates, times, asked, window_seconds, self.client.address)
        covered, looks = self._covered(usage, tallies, shards, asked, at)
        return usage, covered, (*rates, *times, *tallies, *looks)

    def _by_samples(
        self, shards: Sequence[promql.Shard], asked: _Asked, at: float, window_seconds: float
    ) -> _Found:
        """Take the samples of the window, and reduce them as Prometheus does.

        VictoriaMetrics' own `rate` takes in the sample before the window, and stretches nothing; and its
        `timestamp` and subqueries look back otherwise.
        """
        queries = self.queries

        def read(shard: promql.Shard) -> list[tuple[Vector, Vector, Vector]]:
            return self._split(
                lambda matchers: queries.samples(matchers, window_seconds),
                shard,
                lambda query: self._reduced(query, at, window_seconds),
            )

        parts = [part for some in self.client.each(read, shards) for part in some]
        rates, times, covered = ([part[column] for part in parts] for column in range(3))
        usage = _join(rates, times, asked, window_seconds, self.client.address)
        keys = zip(usage.namespaces, usage.pods, usage.containers, strict=True)
        return usage, _column(keys, _largest(covered, asked)) == 1, rates

    def _reduced(self, query: str, at: float, window_seconds: float) -> tuple[Vector, Vector, Vector]:
        """Ask for samples; return rates, times of the last samples, and 1 for whom the window is covered."""
        answer, raw = self.client.instant(query, at), Raw(is_as_stored=True)
        raw.add(answer, self.names.labels, self.client.limits.series_max)
        found = at_the_end(raw, round(at * 1000), round(window_seconds * 1000))
        columns = tuple([key[i] for key in found.keys] for i in range(len(self.names.labels)))
        warnings = (*answer.warnings, *(HISTOGRAMS_LEFT_OUT for _ in range(raw.has_histograms)))
        whole = is_covered(window_seconds, found.spans, found.counts, at - found.last)
        rates = Vector(columns, found.rates, warnings, answer.partial)
        return rates.known(), Vector(columns, found.last).known(), Vector(columns, whole.astype(np.float64))

    def _covered(
        self,
        usage: CpuUsage,
        tallies: Sequence[Vector],
        shards: Sequence[promql.Shard],
        asked: _Asked,
        at: float,
    ) -> tuple[NDArray[np.bool_], list[Vector]]:
        """Return whose samples cover the window, and what was asked; who is in doubt is asked for closely.

        The cheap look finds a sample near the window's beginning, perhaps not the first: who is covered by it
        is covered. It tells about one series, and so only of containers that have no other.
        """
        window, ages = usage.window_seconds, at - usage.sampled_at
        keys = list(zip(usage.namespaces, usage.pods, usage.containers, strict=True))
        tally = promql.Tally.unpack(_column(keys, _largest(tallies, asked)))
        is_single, begun, extents = tally.series == 1, list[Vector](), list[Vector]()
        covered: NDArray[np.bool_] = np.zeros(len(keys), dtype=np.bool_)
        if is_single.any():
            within = early_seconds(window, tally.counts[is_single])
            (begun,) = self._ask(shards, at, lambda each: self.queries.begun(each, at, window, within))
            spans = usage.sampled_at - _column(keys, _largest(begun, asked))
            covered = is_single & is_covered(window, spans, tally.counts, ages)
        doubtful = _pods(key for key, is_sure in zip(keys, covered.tolist(), strict=True) if not is_sure)
        if doubtful:
            few = promql.named(doubtful, sum(map(len, asked.values())))
            left = self.shards(doubtful, at) if few is None else few
            (extents,) = self._ask(left, at, lambda each: self.queries.coverage(each, at, window))
            extent = promql.Extent.unpack(_column(keys, _largest(extents, asked)))
            covered |= is_covered(window, extent.spans, extent.counts, ages)
        return covered, [*begun, *extents]

    def _ask(self, shards: Sequence[promql.Shard], at: float, *writes: _Write) -> list[list[Vector]]:
        """Ask each of these about every shard; one list of answers for each."""
        asks = [(write, shard) for shard in shards for write in writes]
        names = self.names.labels
        found = self.client.each(
            lambda ask: self._split(*ask, lambda query: self.client.vector(query, at, names)), asks
        )
        return [[vector for part in found[i :: len(writes)] for vector in part] for i in range(len(writes))]

    @property
    def queries(self) -> promql.CpuQueries:
        """The queries, with the matchers of this installation."""
        return promql.CpuQueries(self.names, self.extra_matchers)

    def shards(self, pods_by_namespace: Mapping[str, Sequence[str]], at: float) -> list[promql.Shard]:
        """Plan the shards of a question about these pods; asks for counts when there are many."""
        pods = sum(map(len, pods_by_namespace.values()))
        return promql.plan(
            pods_by_namespace,
            self._series_by_namespace(at) if pods > promql.EXACT_NAMES_MAX else None,
            series_max=self.client.limits.series_max,
            query_max_bytes=self.client.transport.query_max_bytes,
            containers_per_pod=self.containers_per_pod,
        )

    def _series_by_namespace(self, at: float) -> Mapping[str, int] | None:
        try:
            counted = self.client.vector(self.queries.series_by_namespace(), at, (self.names.namespace,))
        except (errors.QueryFailed, *errors.SPLITTABLE):
            return None
        if not np.isfinite(counted.values).all():
            return None
        return dict(zip(counted.columns[0], counted.values.astype(np.int64).tolist(), strict=True))

    def _split(self, write: _Write, shard: promql.Shard, ask: Callable[[str], T]) -> list[T]:
        """Ask about a shard; about its parts where the question or the answer is too large."""
        query, smaller = write(shard.matchers(self.names)), shard.smaller()
        if not smaller or len(quote_plus(query)) <= self.client.transport.query_max_bytes:
            try:
                return [ask(query)]
            except errors.SPLITTABLE:
                if not smaller:
                    raise
        return [found for one in smaller for found in self._split(write, one, ask)]

    def scalar(self, query: str, at: float) -> float | None:
        """Ask for one number; None when the answer is empty, partial or not one finite number."""
        return self.number(query, at).value

    def number(self, query: str, at: float) -> Number:
        """Ask for one number with a query of the user's, taken as it is, and say why there is none.

        Where the storage warns, the answer is partial: a sum over what is left would be too low.
        """
        try:
            answer = self.client.instant(query, at)
        except errors.BadQuery as error:
            raise errors.BadUserQuery(str(error)) from error
        value = decode_number(answer)
        if value is None:
            return Number(None, f"the answer is not one number ({answer.result_type})", answer.warnings)
        if not math.isfinite(value):
            return Number(None, f"the answer is {value}", answer.warnings)
        if answer.partial:
            return Number(None, f"the answer is partial: {answer.partial[0]}", answer.warnings)
        return Number(value, warnings=answer.warnings)

    def ready(self) -> None:
        if decode_number(self.client.instant("1")) != 1:
            raise errors.Malformed(f"{self.client.address} did not answer the query 1 with 1")

    def server_time(self) -> float:
        """Return the server's clock, as Unix seconds."""
        seconds = decode_number(self.client.instant("time()"))
        if seconds is None or not math.isfinite(seconds):
            raise errors.Malformed(f"{self.client.address} did not answer the query time() with a time")
        return seconds


def _join(
    rates: Sequence[Vector], times: Sequence[Vector], asked: _Asked, window_seconds: float, address: str
) -> CpuUsage:
    usage = _largest(rates, asked)
    cores = np.fromiter(usage.values(), dtype=np.float64, count=len(usage))
    stamps = _column(usage, _largest(times, asked))
    is_number = np.isfinite(cores) & (cores >= 0)
    is_fresh = np.isfinite(stamps)
    kept = is_number & is_fresh
    keys = [key for key, is_kept in zip(usage, kept.tolist(), strict=True) if is_kept]
    return CpuUsage(
        namespaces=[key[0] for key in keys],
        pods=[key[1] for key in keys],
        containers=[key[2] for key in keys],
        cores=cores[kept],
        sampled_at=stamps[kept],
        window_seconds=window_seconds,
        source=address,
        warnings=tuple(_dropped(is_number, is_fresh)),
    )


def _pods(keys: Iterable[_Key]) -> dict[str, list[str]]:
    """Return the pods of these containers, each once, by namespace."""
    found: dict[str, dict[str, None]] = {}
    for namespace, pod, _ in keys:
        found.setdefault(namespace, {})[pod] = None
    return {namespace: list(pods) for namespace, pods in found.items()}


def _column(keys: Iterable[_Key], found: Mapping[_Key, float]) -> NDArray[np.float64]:
    return np.array([found.get(key, math.nan) for key in keys], dtype=np.float64)


def _largest(vectors: Iterable[Vector], asked: _Asked) -> dict[_Key, float]:
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
        warnings.append(
            f"the usage of {print_count(wrong, 'container')} was ignored: it is NaN, infinite or negative"
        )
    if gone := int((is_number & ~is_fresh).sum()):
        warnings.append(
            f"the usage of {print_count(gone, 'container')} was ignored: it has no current sample"
        )
    return warnings


def connect(
    where: PrometheusSettings | PrometheusTransport,
    *,
    limits: QueryLimits | None = None,
    names: LabelNames = CADVISOR,
    extra_matchers: Mapping[str, str] | None = None,
) -> PrometheusMetrics:
    """Return the source of usage for a Prometheus at an address, or behind a transport that was found.

    Nothing is asked before the first question; `ready()` asks.
    """
    limits = limits or QueryLimits()
    transport = Direct(where, limits.concurrency_max) if isinstance(where, PrometheusSettings) else where
    return PrometheusMetrics(PrometheusClient(transport, limits), names, dict(extra_matchers or {}))


TERMINATIONS_METRIC = "kube_pod_container_status_last_terminated_reason"
TERMINATIONS_LABELS = (
    *("exported_namespace", "namespace", "exported_pod", "pod"),
    *("exported_container", "container"),
)
OWNERS_METRIC = "kube_replicaset_owner"
OWNERS_LABELS = ("namespace", "exported_namespace", "replicaset", "owner_kind", "owner_name")
"""A scrape without `honor_labels` renames the object's namespace label."""


@dataclass(frozen=True, slots=True)
class PrometheusOwners:
    """Owners from a Prometheus that scrapes kube-state-metrics; empty where none does.

    An instant selector is enough, since a ReplicaSet outlives its pods by ten revisions; a range of days
    would cost the server fifteen times as much.
    """

    client: PrometheusClient
    extra_matchers: Mapping[str, str] = field(default_factory=dict)

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
        query = promql.selector(
            OWNERS_METRIC, (promql.one_of(label, names), *promql.of_installation(self.extra_matchers))
        )
        try:
            vector = self.client.vector(query, at, OWNERS_LABELS)
        except errors.SPLITTABLE:
            middle = len(names) // 2
            if not middle:
                raise
            self._ask(label, names[:middle], at, found)
            self._ask(label, names[middle:], at, found)
            return
        if vector.partial:
            raise errors.Incomplete(f"{self.client.address} returned incomplete data: {vector.partial[0]}")
        for namespace, exported, replica_set, kind, name in zip(*vector.columns, strict=True):
            found[exported or namespace, replica_set] = (kind, name)

    def oom_killed(self, at: float, span_seconds: float) -> Collection[tuple[str, str, str]]:
        """Return the namespace, pod and container of each container that ran out of memory in the span.

        One query for all namespaces: only a container that was ended so has a series.
        """
        matchers = (promql.Matcher("reason", "=", "OOMKilled"), *promql.of_installation(self.extra_matchers))
        series = promql.selector(TERMINATIONS_METRIC, matchers)
        query = f"max_over_time({series}[{print_seconds(span_seconds)}]) > 0"
        vector = self.client.vector(query, at, TERMINATIONS_LABELS)
        columns = zip(*vector.columns, strict=True)
        # Without honor_labels, a scrape renames the labels that its target has, too.
        return {
            (space or own_space, pod or own_pod, container or own_container)
            for space, own_space, pod, own_pod, container, own_container in columns
        }
