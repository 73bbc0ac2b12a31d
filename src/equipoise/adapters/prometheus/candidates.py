"""Finds the Services of a namespace that may be a Prometheus, in their order of preference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from equipoise.adapters.prometheus.errors import clean


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Port(msgspec.Struct, frozen=True, gc=False):
    port: int
    name: str = ""
    appProtocol: str | None = None


class _ServiceSpec(msgspec.Struct, frozen=True, gc=False):
    ports: list[_Port] | None = None
    selector: dict[str, str] | None = None
    clusterIP: str = ""
    type: str = ""


class ServiceObject(msgspec.Struct, frozen=True, gc=False):
    """A Service, as far as it is read."""

    metadata: _Meta
    spec: _ServiceSpec = _ServiceSpec()


class _Web(msgspec.Struct, frozen=True, gc=False):
    tlsConfig: msgspec.Raw = msgspec.Raw(b"")


class _PodMeta(msgspec.Struct, frozen=True, gc=False):
    labels: dict[str, str] | None = None


class _PrometheusSpec(msgspec.Struct, frozen=True, gc=False):
    serviceName: str | None = None
    portName: str | None = None
    routePrefix: str | None = None
    shards: int | None = None
    web: _Web | None = None
    podMetadata: _PodMeta | None = None


class PrometheusObject(msgspec.Struct, frozen=True, gc=False):
    """A Prometheus object (`monitoring.coreos.com/v1`) of the Prometheus operator, as far as it is read."""

    metadata: _Meta
    spec: _PrometheusSpec = _PrometheusSpec()


class Candidate(NamedTuple):
    """A Service that may be a Prometheus."""

    namespace: str
    service: str
    port: str
    scheme: str = "http"
    path_prefix: str = ""

    def __str__(self) -> str:
        return clean(f"{self.namespace}/{self.service}:{self.port}")


class RankedCandidate(NamedTuple):
    """A candidate with its preference, before any query."""

    rank: int
    """The place in the order of preference; 0 is the first."""
    candidate: Candidate
    title: str
    """The assumed product."""
    how: str
    """How the Service was recognised."""
    problem: str = ""
    """Why it cannot be queried; it then counts as a server without an answer."""


class Family(NamedTuple):
    """A product, how its Services are recognised, and the path of its API."""

    title: str
    recognises: Callable[[str, Mapping[str, str]], bool]
    path_prefix: str = ""


_NAME, _COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
EXTERNAL_NAME = "ExternalName"
GOVERNING_SERVICE = "prometheus-operated"
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


def _is_part(name: str, labels: Mapping[str, str], part: str) -> bool:
    is_labelled = part in {_app(labels), _component(labels), labels.get("app")}
    return is_labelled or name == part or name.startswith(f"{part}-")


def _is_vmsingle(name: str, labels: Mapping[str, str]) -> bool:
    is_chart = _app(labels) == "victoria-metrics-single" and labels.get("app", "server") in {
        "server",
        "vmsingle",
    }
    return is_chart or _is_part(name, labels, "vmsingle")


FAMILIES = (
    Family("Prometheus", _is_prometheus),
    Family("Thanos query-frontend", _is_thanos_frontend),
    Family("Thanos query", _is_thanos_query),
    Family("VictoriaMetrics vmsingle", _is_vmsingle),
    Family(
        "VictoriaMetrics vmselect",
        lambda name, labels: _is_part(name, labels, "vmselect"),
        "/select/0/prometheus",
    ),
    Family("Grafana Mimir gateway", _is_mimir, "/prometheus"),
)
"""In the order of preference, after Prometheus objects.

A Prometheus has the series of its own cluster. A Thanos or a Mimir may have those of several clusters, and
would mix pods of the same name and namespace, so it comes after a Prometheus.
"""
_OBJECTS_RANK, _FAMILIES_RANK = 0, 1


def recognise(
    objects: Sequence[PrometheusObject], services: Sequence[ServiceObject]
) -> list[RankedCandidate]:
    """Return the candidates among the objects and Services of one namespace, the preferred first.

    Several Services before the same pods are one candidate.
    """
    found = [_of_object(one, services) for one in objects]
    taken = {known.candidate.service for known in found}
    taken |= {service.metadata.name for service in services for one in objects if _is_before(service, one)}
    rest = [service for service in services if service.metadata.name not in taken]
    for rank, family in enumerate(FAMILIES, _FAMILIES_RANK):
        how = f"its name or its labels are those of a {family.title}"
        found += [RankedCandidate(rank, one, family.title, how) for one in _of_family(rest, family)]
    return sorted(found, key=lambda known: (known.rank, known.candidate))


def aliases(services: Iterable[ServiceObject]) -> list[str]:
    """Return the names of Services of type ExternalName that would be candidates otherwise.

    The API server's proxy reaches pods of the Service's own namespace only, so they are never asked.
    """
    return sorted(
        service.metadata.name
        for service in services
        if service.spec.type == EXTERNAL_NAME
        and any(one.recognises(service.metadata.name, service.metadata.labels or {}) for one in FAMILIES)
    )


def _of_object(one: PrometheusObject, services: Sequence[ServiceObject]) -> RankedCandidate:
    """Return the Service of a Prometheus object: the governing one, or another before the same pods."""
    spec, meta = one.spec, one.metadata
    governing, port = spec.serviceName or GOVERNING_SERVICE, spec.portName or "web"
    service, problem = governing, ""
    if all(each.metadata.name != governing for each in services):
        own = [each for each in services if _is_before(each, one) and _port(each.spec.ports or [])]
        if own:
            best = min(own, key=_plainness)
            chosen = _port(best.spec.ports or [])
            service = best.metadata.name
            port = chosen.name or str(chosen.port) if chosen else port
        else:
            problem = f"the Prometheus object {meta.name} has no Service {clean(governing)}"
    scheme = "https" if spec.web is not None and spec.web.tlsConfig else "http"
    candidate = Candidate(meta.namespace, service, port, scheme, (spec.routePrefix or "/").rstrip("/"))
    how = f"it is the Service of the Prometheus object {meta.name}"
    return RankedCandidate(_OBJECTS_RANK, candidate, "Prometheus", how, problem)


def _is_before(service: ServiceObject, one: PrometheusObject) -> bool:
    """Return whether a Service selects the pods that Prometheus' operator makes for this object."""
    name = one.metadata.name
    labels = dict(one.spec.podMetadata.labels or {}) if one.spec.podMetadata else {}
    labels |= {
        "app": "prometheus",
        _NAME: "prometheus",
        "app.kubernetes.io/managed-by": "prometheus-operator",
        "app.kubernetes.io/instance": name,
        "operator.prometheus.io/name": name,
        "operator.prometheus.io/shard": "0",
        "prometheus": name,
    }
    selector = dict(service.spec.selector or {})
    pod = selector.pop("statefulset.kubernetes.io/pod-name", f"prometheus-{name}-")
    return (
        service.metadata.namespace == one.metadata.namespace
        and bool(service.spec.selector)
        and pod.startswith(f"prometheus-{name}-")
        and selector.items() <= labels.items()
    )


def _of_family(services: Sequence[ServiceObject], family: Family) -> list[Candidate]:
    """Return the Services of a family. Of two that select nested sets of pods, the narrower counts."""
    recognised = []
    for service in sorted(services, key=_plainness):
        meta, port = service.metadata, _port(service.spec.ports or [])
        if service.spec.type == EXTERNAL_NAME or port is None:
            continue
        if family.recognises(meta.name, meta.labels or {}):
            scheme = "https" if port.name.startswith("https") or port.appProtocol == "https" else "http"
            candidate = Candidate(
                meta.namespace, meta.name, port.name or str(port.port), scheme, family.path_prefix
            )
            pods = frozenset((service.spec.selector or {"service": meta.name}).items())
            recognised.append((pods, candidate))
    chosen: dict[frozenset[tuple[str, str]], Candidate] = {}
    for pods, candidate in recognised:
        chosen.setdefault(pods, candidate)
    return [one for pods, one in chosen.items() if not any(pods < others for others in chosen)]


def _plainness(service: ServiceObject) -> tuple[bool, str]:
    return (service.spec.clusterIP == "None", service.metadata.name)


def _port(ports: Sequence[_Port]) -> _Port | None:
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
