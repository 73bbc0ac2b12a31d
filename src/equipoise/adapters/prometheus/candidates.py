"""Which Services of a cluster may be a Prometheus, and in which order to try them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec


class Meta(msgspec.Struct, frozen=True, gc=False):
    """The name of an object and its labels."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class Port(msgspec.Struct, frozen=True, gc=False):
    """A port of a Service."""

    port: int
    name: str = ""
    appProtocol: str | None = None


class ServiceSpec(msgspec.Struct, frozen=True, gc=False):
    """What is read of a Service."""

    ports: list[Port] | None = None
    selector: dict[str, str] | None = None
    clusterIP: str = ""


class Service(msgspec.Struct, frozen=True, gc=False):
    """A Service, slim."""

    metadata: Meta
    spec: ServiceSpec = ServiceSpec()


class Web(msgspec.Struct, frozen=True, gc=False):
    """The web server of a Prometheus object."""

    tlsConfig: msgspec.Raw = msgspec.Raw(b"")


class PrometheusSpec(msgspec.Struct, frozen=True, gc=False):
    """What is read of a Prometheus object (`monitoring.coreos.com/v1`)."""

    serviceName: str | None = None
    portName: str | None = None
    routePrefix: str | None = None
    shards: int | None = None
    web: Web | None = None


class PrometheusObject(msgspec.Struct, frozen=True, gc=False):
    """A Prometheus object of the operator, slim."""

    metadata: Meta
    spec: PrometheusSpec = PrometheusSpec()


class Candidate(NamedTuple):
    """A Service that may be a Prometheus."""

    namespace: str
    service: str
    port: str
    scheme: str = "http"
    path_prefix: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.service}:{self.port}"


class Family(NamedTuple):
    """One kind of server, how its Services are recognised, and where its API lives."""

    title: str
    recognises: Callable[[str, Mapping[str, str]], bool]
    path_prefix: str = ""


_NAME, _COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
_PORT_NAMES = ("web", "http-web", "http", "http-query", "http-metrics", "prometheus", "https", "https-web")
_PORT_NUMBERS = (9090, 80, 8428, 8429, 8481, 10902, 10904, 8080, 443)


def _app(labels: Mapping[str, str]) -> str:
    return labels.get(_NAME) or labels.get("app") or ""


def _component(labels: Mapping[str, str]) -> str:
    return labels.get(_COMPONENT) or labels.get("component") or ""


def _is_prometheus(name: str, labels: Mapping[str, str]) -> bool:
    is_named = name in {"prometheus", "prometheus-server", "prometheus-k8s", "prometheus-operated"}
    is_labelled = _app(labels) in {"prometheus", "kube-prometheus-stack-prometheus", "prometheus-server"}
    return (is_named or is_labelled) and _component(labels) in {"", "server", "prometheus"}


def _is_thanos_frontend(name: str, labels: Mapping[str, str]) -> bool:
    return name.endswith("thanos-query-frontend") or (
        _app(labels) in {"thanos", "thanos-query-frontend"} and _component(labels) == "query-frontend"
    )


def _is_thanos_query(name: str, labels: Mapping[str, str]) -> bool:
    return name.endswith(("thanos-query", "thanos-querier")) or (
        _app(labels) in {"thanos", "thanos-query"} and _component(labels) in {"query", "query-layer"}
    )


def _is_mimir(name: str, labels: Mapping[str, str]) -> bool:
    return name.endswith(("mimir-gateway", "mimir-nginx")) or (
        _app(labels) == "mimir" and _component(labels) in {"gateway", "nginx"}
    )


FAMILIES = (
    Family("Prometheus", _is_prometheus),
    Family("Thanos query-frontend", _is_thanos_frontend),
    Family("Thanos query", _is_thanos_query),
    Family("VictoriaMetrics vmsingle", lambda name, labels: _is_part(name, labels, "vmsingle")),
    Family(
        "VictoriaMetrics vmselect",
        lambda name, labels: _is_part(name, labels, "vmselect"),
        "/select/0/prometheus",
    ),
    Family("Grafana Mimir gateway", _is_mimir, "/prometheus"),
)
"""Tried in this order. The servers of one cluster come before layers that may stand over several."""


def _is_part(name: str, labels: Mapping[str, str], part: str) -> bool:
    return _app(labels) == part or _component(labels) == part or name == part or name.startswith(f"{part}-")


def from_objects(objects: Iterable[PrometheusObject]) -> list[Candidate]:
    """Give the governing Service of each Prometheus object."""
    found = []
    for one in objects:
        spec = one.spec
        found.append(
            Candidate(
                one.metadata.namespace,
                spec.serviceName or "prometheus-operated",
                spec.portName or "web",
                "https" if spec.web is not None and spec.web.tlsConfig else "http",
                (spec.routePrefix or "/").rstrip("/"),
            )
        )
    return sorted(found)


def from_services(services: Sequence[Service], family: Family) -> list[Candidate]:
    """Give the Services of a family; of several before the same pods the plainest counts."""
    chosen: dict[tuple[str, object], Candidate] = {}
    for service in sorted(services, key=lambda s: (s.spec.clusterIP == "None", s.metadata.name)):
        meta = service.metadata
        port = _port(service.spec.ports or [])
        if port is None or not family.recognises(meta.name, meta.labels or {}):
            continue
        scheme = "https" if port.name.startswith("https") or port.appProtocol == "https" else "http"
        pods = tuple(sorted((service.spec.selector or {"service": meta.name}).items()))
        found = Candidate(meta.namespace, meta.name, port.name or str(port.port), scheme, family.path_prefix)
        chosen.setdefault((meta.namespace, pods), found)
    return sorted(chosen.values())


def _port(ports: Sequence[Port]) -> Port | None:
    """Choose the port that speaks HTTP, by name, then by number, then because it is the only one."""
    for name in _PORT_NAMES:
        for port in ports:
            if port.name == name:
                return port
    for number in _PORT_NUMBERS:
        for port in ports:
            if port.port == number:
                return port
    return ports[0] if len(ports) == 1 else None
