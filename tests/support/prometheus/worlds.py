"""Clusters that a Prometheus is looked for in: Services, Prometheus objects, and what is behind them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from equipoise.adapters.http import NO_RETRIES
from equipoise.adapters.kubernetes.client import Client as ApiClient
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target
from tests.support.prometheus.server import Response, Server, ok, serving

ONE = ok({"resultType": "scalar", "result": [1000, "1"]})
NO_ENDPOINTS = Response(
    503, b'{"kind":"Status","status":"Failure","message":"no endpoints available for service","code":503}'
)
FORBIDDEN = Response(
    403, b'{"kind":"Status","message":"services is forbidden","reason":"Forbidden","code":403}'
)
ABSENT = Response(404, b"404 page not found")


def service(
    namespace: str,
    name: str,
    labels: Mapping[str, str] | None = None,
    ports: Sequence[Mapping[str, Any]] = ({"name": "web", "port": 9090},),
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": labels or {}},
        "spec": {"ports": list(ports), "selector": {"app": name}, "clusterIP": "10.0.0.1", **spec},
    }


def prometheus(namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


def operated(selector: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The Service that Prometheus' operator makes for the pods of all its Prometheus objects."""
    pods = selector or {"app.kubernetes.io/name": "prometheus"}
    return service("monitoring", "prometheus-operated", clusterIP="None", selector=pods)


def listed(items: Sequence[Mapping[str, Any]], token: str = "") -> Response:
    return Response(200, json.dumps({"items": items, "metadata": {"continue": token}}).encode())


@contextmanager
def cluster(
    services: Sequence[Mapping[str, Any]] = (),
    objects: Sequence[Mapping[str, Any]] | Response = ABSENT,
    behind: Mapping[str, Response] | None = None,
    everywhere: Response | None = None,
) -> Iterator[tuple[ApiClient, Server]]:
    """An API server; `behind` answers by `namespace/service:port`, other services have no endpoints.

    `everywhere` is its answer where the Services of all namespaces are asked for.
    """
    with serving(lambda request: answered(request.path, services, objects, behind, everywhere)) as server:
        target = Target(Endpoint(server.url), Identity(token="t"), "default", "test")
        yield ApiClient(target, backoff=NO_RETRIES), server


def answered(
    path: str,
    services: Sequence[Mapping[str, Any]] = (),
    objects: Sequence[Mapping[str, Any]] | Response = ABSENT,
    behind: Mapping[str, Response] | None = None,
    everywhere: Response | None = None,
) -> Response:
    """Return what such an API server answers."""
    parts = path.split("/")
    namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else None
    if path.endswith("/prometheuses"):
        return objects if isinstance(objects, Response) else listed(_of(objects, namespace))
    if path.endswith("/services"):
        if namespace is None and everywhere is not None:
            return everywhere
        return listed(_of(services, namespace))
    assert parts[1:4] == ["api", "v1", "namespaces"], path
    assert path.endswith("/api/v1/query")
    return (behind or {}).get(f"{parts[4]}/{parts[6]}", NO_ENDPOINTS)


def _of(items: Sequence[Mapping[str, Any]], namespace: str | None) -> list[Mapping[str, Any]]:
    return [item for item in items if namespace in {None, item["metadata"]["namespace"]}]
