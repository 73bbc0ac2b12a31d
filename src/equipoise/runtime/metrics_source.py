"""Where usage comes from: a Prometheus that is named or found in the cluster, or metrics.k8s.io.

A source may go away, and a better one turn up. An operator looks again, but what is measured never moves from
one Prometheus to another by itself: a chosen one stays the choice while its Service is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    from equipoise.adapters.prometheus.settings import LabelNames, PrometheusSettings
    from equipoise.runtime.logs import Log

T = TypeVar("T")
SEARCH_SECONDS = 300.0
"""How often a better source is looked for while the second choice serves."""
GONE_SECONDS = 60.0
"""How long the Service of the chosen Prometheus must be gone before another is looked for."""


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """What the command line says about Prometheus."""

    url: str | None = None
    namespaces: tuple[str, ...] = ()
    """Where one is looked for without a URL; none means the usual."""
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
    """Return the Prometheus of the namespaces that the options name; a URL is not looked at."""
    from equipoise.adapters.prometheus.discover import NAMESPACES, find

    return find(client, options.namespaces or NAMESPACES)


def prometheus_metrics(
    client: Client, options: PrometheusOptions, found: DiscoveredPrometheus | None = None
) -> PrometheusMetrics:
    """Reach Prometheus by its address, or as it was found, or find it in the cluster."""
    from equipoise.adapters.prometheus.metrics import connect as connect_prometheus
    from equipoise.adapters.prometheus.settings import QueryLimits

    try:
        limits = QueryLimits(timeout_seconds=parse_seconds(options.timeout))
    except ValueError as error:
        raise BadInput(f"--prometheus-timeout: {error}") from error
    matchers, names = _pairs("--prometheus-matcher", options.matchers), _names(options)
    where: PrometheusSettings | ServiceProxy
    if options.url is None:
        where = (found or find_prometheus(client, options)).transport
    else:
        where = _prometheus_settings(options, options.url)
    return connect_prometheus(where, limits=limits, names=names, extra_matchers=matchers)


def _names(options: PrometheusOptions) -> LabelNames:
    """Return the labels that tell one container from another, as they are called there."""
    from equipoise.adapters.prometheus.settings import LabelNames

    labels = _pairs("--prometheus-label", options.labels)
    if unknown := labels.keys() - {"namespace", "pod", "container"}:
        raise BadInput(f"--prometheus-label: expected namespace, pod or container, got {min(unknown)!r}")
    return LabelNames(**labels)


def _prometheus_settings(options: PrometheusOptions, url: str) -> PrometheusSettings:
    from equipoise.adapters.prometheus.settings import PrometheusSettings

    return PrometheusSettings(
        url=url,
        bearer_token_file=options.token_file,
        username=options.user,
        password=_secret(options.password_file),
        ca_file=options.ca_file,
        headers=_pairs("--prometheus-header", options.headers),
    )


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            # A header may be a token: what was typed is not repeated.
            got = "something else" if option == "--prometheus-header" else repr(text)
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


class MultiNamespaceCluster:
    """Answers for the namespaces that are watched, and raises for any other: nothing is known of it."""

    def __init__(self, clusters: Mapping[str, Cluster]) -> None:
        self._clusters = clusters

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        return [pod for cluster in self._of(namespace) for pod in cluster.pods()]

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        """Ask the server, not a cache."""
        return self._of(workload.ref.namespace)[0].pods_now(workload)

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, which every view has."""
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
        """Return whose autoscaling is paused, and by what."""
        return {
            ref: why for cluster in self._of(namespace) for ref, why in cluster.autoscaler_pauses().items()
        }

    def _of(self, namespace: str | None) -> list[Cluster]:
        if namespace is None:
            return list(self._clusters.values())
        if namespace not in self._clusters:
            watched = ", ".join(self._clusters)
            raise WorldFailed(f"namespace {namespace}: not watched; the setting namespaces has {watched}")
        return [self._clusters[namespace]]


def cached_clusters(client: Client, namespaces: Sequence[str]) -> tuple[Cluster, list[CachedCluster]]:
    """Return the view that loops ask, and the caches behind it."""
    if not namespaces:
        everything = CachedCluster(client)
        return everything, [everything]
    parts = {namespace: CachedCluster(client, namespace=namespace) for namespace in dict.fromkeys(namespaces)}
    return MultiNamespaceCluster(parts), list(parts.values())


class Source(NamedTuple):
    """Where usage comes from, and whether something better may be found."""

    metrics: Metrics
    is_second_choice: bool = False


class ChosenPrometheus:
    """The Prometheus that all loops ask. One that was found stays the choice while its Service is there.

    It stays so when it does not answer: what is measured never moves to another server by itself.
    """

    def __init__(
        self,
        client: Client,
        options: PrometheusOptions,
        log: Log,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._options = options
        self._log = log
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._chosen: tuple[DiscoveredPrometheus, PrometheusMetrics] | None = None
        self._gone_since: float | None = None

    def metrics(self) -> PrometheusMetrics:
        """Return the Prometheus at the address that was given, or the chosen one; without any, find one."""
        if self._options.url is not None:
            return prometheus_metrics(self._client, self._options)
        with self._lock:
            if self._chosen is not None:
                before = self._chosen[0].candidate
                if self._stays(self._chosen[0]):
                    return self._chosen[1]
                self._chosen = None
                self._log.warning(f"the Prometheus {before} has gone from the cluster: another is looked for")
            return self._choose(find_prometheus(self._client, self._options))

    def _choose(self, found: DiscoveredPrometheus) -> PrometheusMetrics:
        assert self._lock.locked(), "two threads may choose at once"
        metrics = prometheus_metrics(self._client, self._options, found)
        self._chosen, self._gone_since = (found, metrics), None
        self._log.info(f"the Prometheus {found.candidate} is used: {found.how}", others=list(found.others))
        return metrics

    def _stays(self, found: DiscoveredPrometheus) -> bool:
        """Return whether the chosen one is still there; where its port or its path changed, follow it."""
        try:
            now = still(self._client, found.candidate)
        except WorldFailed:
            return True  # not known, so nothing changes
        if now is None:
            self._gone_since = self._monotonic() if self._gone_since is None else self._gone_since
            return self._monotonic() - self._gone_since < GONE_SECONDS
        self._gone_since = None
        if now != found.candidate:
            self._choose(replace(found, transport=ServiceProxy(self._client, *now)))
        return True


class DiscoveredMetrics:
    """Usage from wherever it comes now. A source that fails is dropped, and looked for again next time."""

    def __init__(self, find: Callable[[], Source], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._source: Source | None = None
        self._found_at = 0.0

    @classmethod
    def of(
        cls,
        client: Client,
        metrics_from: str,
        prometheus: Callable[[], Metrics],
        tell: Callable[[str], object],
    ) -> DiscoveredMetrics:
        """Look as the one-shot commands do: Prometheus first, metrics.k8s.io where there is none."""

        def find() -> Source:
            if metrics_from == "metrics-server":
                return Source(resource_metrics(client))
            try:
                return Source(prometheus())
            except NotFound as error:
                if metrics_from == "prometheus":
                    raise
                tell(f"no Prometheus was found, so usage is read from metrics.k8s.io ({error})")
                return Source(resource_metrics(client), is_second_choice=True)

        return cls(find)

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        return self._ask(lambda metrics: metrics.cpu_usage(pods_by_namespace, at, window_seconds))

    def scalar(self, query: str, at: float) -> float | None:
        """Ask for one number; a query that cannot be read is of one policy, and is nothing but no answer."""
        try:
            return self._ask(lambda metrics: metrics.scalar(query, at))
        except BadInput as error:
            raise WorldFailed(str(error)) from error

    def _ask(self, question: Callable[[Metrics], T]) -> T:
        source = self._current()
        try:
            return question(source.metrics)
        except WorldFailed:
            with self._lock:
                if self._source is source:
                    self._source = None
            raise

    def _current(self) -> Source:
        with self._lock:
            now = self._monotonic()
            source = self._source
            is_stale = (
                source is not None and source.is_second_choice and now - self._found_at > SEARCH_SECONDS
            )
            if source is None or is_stale:
                source = self._source = self._find()
                self._found_at = now
            return source
