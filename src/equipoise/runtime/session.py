"""Wiring for a live cluster: which adapters stand behind the ports."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from equipoise.adapters.kubernetes import Client
from equipoise.core.errors import BadInput
from equipoise.core.quantity import parse_seconds
from equipoise.ports import Metrics

if TYPE_CHECKING:
    from equipoise.adapters.prometheus.discover import DiscoveredPrometheus
    from equipoise.adapters.prometheus.metrics import PrometheusMetrics
    from equipoise.adapters.prometheus.settings import LabelNames, PrometheusSettings
    from equipoise.adapters.prometheus.transport import ServiceProxy


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


def find_prometheus(client: Client, options: PrometheusOptions) -> "DiscoveredPrometheus":
    """Return the Prometheus of the namespaces that the options name; a URL is not looked at."""
    from equipoise.adapters.prometheus.discover import NAMESPACES, find

    return find(client, options.namespaces or NAMESPACES)


def prometheus_metrics(
    client: Client, options: PrometheusOptions, found: "DiscoveredPrometheus | None" = None
) -> "PrometheusMetrics":
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


def _names(options: PrometheusOptions) -> "LabelNames":
    """Return the labels that tell one container from another, as they are called there."""
    from equipoise.adapters.prometheus.settings import LabelNames

    labels = _pairs("--prometheus-label", options.labels)
    if unknown := labels.keys() - {"namespace", "pod", "container"}:
        raise BadInput(f"--prometheus-label: expected namespace, pod or container, got {min(unknown)!r}")
    return LabelNames(**labels)


def _prometheus_settings(options: PrometheusOptions, url: str) -> "PrometheusSettings":
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
