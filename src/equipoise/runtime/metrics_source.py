"""Where usage comes from: a Prometheus that is named or found in the cluster, or metrics.k8s.io.

A source can disappear, and a better one can appear. An operator searches again, but never switches from one
Prometheus to another by itself: the chosen one is used as long as its Service exists.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from equipoise.adapters.kubernetes import CachedCluster, Client
from equipoise.adapters.prometheus.discover import DiscoveredPrometheus, still
from equipoise.adapters.prometheus.errors import NotFound
from equipoise.adapters.prometheus.transport import ServiceProxy
from equipoise.core.cluster import Hpa, Node, Pdb, Pod, Workload, WorkloadRef
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.quantity import parse_seconds
from equipoise.ports import Cluster, CpuUsage, Metrics

if TYPE_CHECKING:
    from equipoise.adapters.prometheus.metrics import PrometheusMetrics
    from equipoise.runtime.logs import Log

T = TypeVar("T")
SEARCH_SECONDS = 300.0
"""The interval between searches for a better source while the second choice is used."""
MISSING_SECONDS = 60.0
"""How long the Service of the chosen Prometheus must be missing before another is searched for."""


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """The command line's options for Prometheus."""

    url: str | None = None
    namespaces: tuple[str, ...] = ()
    """The namespaces to search without a URL; empty means the default ones."""
    token_file: str | None = None
    user: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    headers: tuple[str, ...] = ()
    matchers: tuple[str, ...] = ()
    timeout: str = "30s"
    labels: tuple[str, ...] = ()


def resource_metrics(client: Client) -> Metrics:
    from equipoise.adapters.metrics_server import ResourceMetrics

    return ResourceMetrics(client)


def find_prometheus(client: Client, options: PrometheusOptions) -> DiscoveredPrometheus:
    """Return the Prometheus found in the options' namespaces; their URL is ignored."""
    from equipoise.adapters.prometheus.discover import NAMESPACES, find

    return find(client, options.namespaces or NAMESPACES)


def prometheus_metrics(
    client: Client, options: PrometheusOptions, found: DiscoveredPrometheus | None = None
) -> PrometheusMetrics:
    """Return the Prometheus at the options' URL, or else the found one, searched for if None."""
    from equipoise.adapters.prometheus.metrics import connect as connect_prometheus
    from equipoise.adapters.prometheus.settings import LabelNames, PrometheusSettings, QueryLimits

    try:
        limits = QueryLimits(timeout_seconds=parse_seconds(options.timeout))
    except ValueError as error:
        raise BadInput(f"--prometheus-timeout: {error}") from error
    matchers = _pairs("--prometheus-matcher", options.matchers)
    labels = _pairs("--prometheus-label", options.labels)
    if unknown := labels.keys() - {"namespace", "pod", "container"}:
        raise BadInput(f"--prometheus-label: expected namespace, pod or container, got {min(unknown)!r}")
    where: PrometheusSettings | ServiceProxy
    if options.url is None:
        where = (found or find_prometheus(client, options)).transport
    else:
        where = PrometheusSettings(
            url=options.url,
            bearer_token_file=options.token_file,
            username=options.user,
            password=_secret(options.password_file),
            ca_file=options.ca_file,
            headers=_pairs("--prometheus-header", options.headers),
        )
    return connect_prometheus(where, limits=limits, names=LabelNames(**labels), extra_matchers=matchers)


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            # A header may be a token, so it is not repeated in the error.
            got = "another text" if option == "--prometheus-header" else repr(text)
            raise BadInput(f"{option}: expected NAME=VALUE, got {got}")
        pairs[name] = value
    return pairs


def _secret(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--prometheus-password-file {path}: {error}") from error


@dataclass(frozen=True, slots=True)
class MultiNamespaceCluster:
    """Returns the objects of the watched namespaces, and raises for any other."""

    _clusters: Mapping[str, Cluster]

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        return [pod for cluster in self._of(namespace) for pod in cluster.pods()]

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        return self._of(workload.ref.namespace)[0].pods_now(workload)

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, which every namespace's cache has."""
        return next(iter(self._clusters.values())).nodes()

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        return [workload for cluster in self._of(namespace) for workload in cluster.workloads()]

    def workload(self, ref: WorkloadRef) -> Workload | None:
        return self._of(ref.namespace)[0].workload(ref)

    def hpas(self, namespace: str | None = None) -> Sequence[Hpa]:
        return [hpa for cluster in self._of(namespace) for hpa in cluster.hpas()]

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]:
        return [pdb for cluster in self._of(namespace) for pdb in cluster.pdbs()]

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        return {
            ref: why for cluster in self._of(namespace) for ref, why in cluster.autoscaler_pauses().items()
        }

    def _of(self, namespace: str | None) -> list[Cluster]:
        if namespace is None:
            return list(self._clusters.values())
        if namespace not in self._clusters:
            watched = ", ".join(self._clusters)
            raise WorldFailed(f"namespace {namespace} is not watched; the setting namespaces is {watched}")
        return [self._clusters[namespace]]


def cached_clusters(client: Client, namespaces: Sequence[str]) -> tuple[Cluster, list[CachedCluster]]:
    """Return the view that loops ask, and the caches behind it."""
    if not namespaces:
        everything = CachedCluster(client)
        return everything, [everything]
    parts = {namespace: CachedCluster(client, namespace=namespace) for namespace in dict.fromkeys(namespaces)}
    return MultiNamespaceCluster(parts), list(parts.values())


class Source(NamedTuple):
    """A source of usage, and whether a better one may be found."""

    metrics: Metrics
    is_second_choice: bool = False


@dataclass(eq=False)
class ChosenPrometheus:
    """The Prometheus that all loops query; one that was found is used as long as its Service exists.

    It is used even while it does not answer: the operator never switches to another server by itself.
    """

    _client: Client
    _options: PrometheusOptions
    _log: Log
    _monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _chosen: tuple[DiscoveredPrometheus, PrometheusMetrics] | None = None
    _missing_since: float | None = None

    def metrics(self) -> PrometheusMetrics:
        """Return the Prometheus at the URL of the options, or the chosen one; search if there is none."""
        if self._options.url is not None:
            return prometheus_metrics(self._client, self._options)
        with self._lock:
            if self._chosen is not None:
                before = self._chosen[0].candidate
                if self._stays(self._chosen[0]):
                    return self._chosen[1]
                self._chosen = None
                gone = f"the Prometheus {before} no longer exists; searching for another"
                self._log.warning(gone)
            return self._choose(find_prometheus(self._client, self._options))

    def _choose(self, found: DiscoveredPrometheus) -> PrometheusMetrics:
        assert self._lock.locked(), "two threads may choose at once"
        metrics = prometheus_metrics(self._client, self._options, found)
        self._chosen, self._missing_since = (found, metrics), None
        self._log.info(f"using the Prometheus {found.candidate}: {found.how}", others=list(found.others))
        return metrics

    def _stays(self, found: DiscoveredPrometheus) -> bool:
        """Return whether the chosen Prometheus still exists; adopt a changed port or path."""
        try:
            now = still(self._client, found.candidate)
        except WorldFailed:
            return True  # unknown, so nothing changes
        if now is None:
            self._missing_since = self._monotonic() if self._missing_since is None else self._missing_since
            return self._monotonic() - self._missing_since < MISSING_SECONDS
        self._missing_since = None
        if now != found.candidate:
            self._choose(replace(found, transport=ServiceProxy(self._client, *now)))
        return True


@dataclass(eq=False)
class DiscoveredMetrics:
    """Reads usage from the current source; after a failure, the next call searches for a source again."""

    _find: Callable[[], Source]
    _monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _source: Source | None = None
    _found_at: float = 0.0

    @classmethod
    def of(
        cls,
        client: Client,
        metrics_from: str,
        prometheus: Callable[[], Metrics],
        on_warning: Callable[[str], object],
    ) -> DiscoveredMetrics:
        """Search like the one-shot commands: Prometheus first, metrics.k8s.io if there is none."""

        def find() -> Source:
            if metrics_from == "metrics-server":
                return Source(resource_metrics(client))
            try:
                return Source(prometheus())
            except NotFound as error:
                if metrics_from == "prometheus":
                    raise
                on_warning(f"no Prometheus was found; usage is read from metrics.k8s.io ({error})")
                return Source(resource_metrics(client), is_second_choice=True)

        return cls(find)

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        return self._query(lambda metrics: metrics.cpu_usage(pods_by_namespace, at, window_seconds))

    def scalar(self, query: str, at: float) -> float | None:
        """Return one number; an invalid query raises WorldFailed, since it concerns one policy only."""
        try:
            return self._query(lambda metrics: metrics.scalar(query, at))
        except BadInput as error:
            raise WorldFailed(str(error)) from error

    def _query(self, query_metrics: Callable[[Metrics], T]) -> T:
        source = self._current()
        try:
            return query_metrics(source.metrics)
        except WorldFailed:
            with self._lock:
                if self._source is source:
                    self._source = None
            raise

    def _current(self) -> Source:
        with self._lock:
            now = self._monotonic()
            source = self._source
            if source is None or (source.is_second_choice and now - self._found_at > SEARCH_SECONDS):
                source = self._source = self._find()
                self._found_at = now
            return source
