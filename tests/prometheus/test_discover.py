"""A Prometheus in the cluster is found through the API server, and never guessed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from equipoise.adapters.http import NO_RETRIES
from equipoise.adapters.kubernetes.client import Client as ApiClient
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target
from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.connect import connect
from equipoise.adapters.prometheus.discover import find
from equipoise.adapters.prometheus.errors import Ambiguous, Malformed, NotFound, TooLarge, Unauthorized
from equipoise.adapters.prometheus.proxy import ServiceProxy
from equipoise.adapters.prometheus.settings import Limits, Settings
from tests.prometheus.server import Request, Response, Server, ok, serving

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


def listed(items: Sequence[Mapping[str, Any]], token: str = "") -> Response:
    return Response(200, json.dumps({"items": items, "metadata": {"continue": token}}).encode())


@contextmanager
def cluster(
    services: Sequence[Mapping[str, Any]] = (),
    objects: Sequence[Mapping[str, Any]] | Response = ABSENT,
    behind: Mapping[str, Response] | None = None,
) -> Iterator[tuple[ApiClient, Server]]:
    """An API server; `behind` answers by `namespace/service:port`, other services have no endpoints."""

    def answer(request: Request) -> Response:
        parts = request.path.split("/")
        if request.path.endswith("/prometheuses"):
            return objects if isinstance(objects, Response) else listed(objects)
        if request.path == "/api/v1/services":
            return listed(services)
        assert parts[1:4] == ["api", "v1", "namespaces"], request.path
        assert request.path.endswith("/api/v1/query")
        return (behind or {}).get(f"{parts[4]}/{parts[6]}", NO_ENDPOINTS)

    with serving(answer) as server:
        target = Target(Endpoint(server.url), Identity(token="t"), "default", "test")
        yield ApiClient(target, backoff=NO_RETRIES), server


def test_a_prometheus_object_leads_to_its_service() -> None:
    """Through the service proxy, with its prefix and port, by GET and with our own credential."""
    objects = [prometheus("monitoring", "k8s", routePrefix="/prom", portName="http-web")]
    with cluster(objects=objects, behind={"monitoring/prometheus-operated:http-web": ONE}) as (api, server):
        found = find(api)
        assert found.transport.address == (
            f"{server.url}/api/v1/namespaces/monitoring/services/prometheus-operated:http-web/proxy/prom"
        )
        assert server.requests[-1].method == "GET"
        assert server.requests[-1].fields["query"] == "1"
        assert server.requests[-1].headers["authorization"] == "Bearer t"
        assert Client(found.transport).instant("1").result_type == "scalar"


def test_an_object_with_tls_is_asked_over_tls() -> None:
    """The scheme is part of the proxy's path."""
    objects = [prometheus("m", "k8s", web={"tlsConfig": {"cert": {}}})]
    with cluster(objects=objects, behind={"m/https:prometheus-operated:web": ONE}) as (api, _):
        assert find(api).transport.scheme == "https"


@pytest.mark.parametrize(
    ("made", "behind"),
    [
        (service("m", "prometheus-server", ports=[{"name": "http", "port": 80}]), "m/prometheus-server:http"),
        (service("m", "x", {"app.kubernetes.io/name": "prometheus"}), "m/x:web"),
        (service("m", "x", {"app": "kube-prometheus-stack-prometheus"}), "m/x:web"),
        (service("m", "x", {"app": "prometheus", "component": "server"}, [{"port": 9090}]), "m/x:9090"),
        (
            service(
                "m", "a-thanos-query", ports=[{"name": "grpc", "port": 10901}, {"name": "http", "port": 90}]
            ),
            "m/a-thanos-query:http",
        ),
        (service("m", "vmsingle-main", ports=[{"name": "", "port": 8429}]), "m/vmsingle-main:8429"),
        (service("m", "v", {"app.kubernetes.io/component": "vmselect"}, [{"port": 8481}]), "m/v:8481"),
        (
            service("m", "mimir-gateway", ports=[{"name": "http-metrics", "port": 80}]),
            "m/mimir-gateway:http-metrics",
        ),
    ],
)
def test_well_known_services_are_found(made: dict[str, Any], behind: str) -> None:
    """By label or name, with the right port."""
    with cluster([made, service("m", "web")], behind={behind: ONE}) as (api, _):
        transport = find(api).transport
        assert f"{transport.namespace}/{transport.service}:{transport.port}" == behind


@pytest.mark.parametrize(
    ("name", "prefix"), [("vmselect-a", "/select/0/prometheus"), ("mimir-gateway", "/prometheus")]
)
def test_flavours_have_their_prefix(name: str, prefix: str) -> None:
    """Their API does not begin at the root."""
    with cluster([service("m", name)], behind={f"m/{name}:web": ONE}) as (api, _):
        assert find(api).transport.path_prefix == prefix


def test_neighbours_of_a_prometheus_are_not_taken_for_it() -> None:
    """Its chart labels its Alertmanager and Pushgateway much like itself."""
    others = [
        service("m", "a", {"app": "prometheus", "component": "alertmanager"}),
        service(
            "m", "b", {"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/component": "exporter"}
        ),
        service("m", "c", {"app.kubernetes.io/name": "prometheus-node-exporter"}),
    ]
    with cluster(others) as (api, server):
        with pytest.raises(NotFound):
            find(api)
        assert not any("proxy" in request.path for request in server.requests)


def test_a_service_that_does_not_answer_is_passed_over() -> None:
    """The next kind may."""
    made = [service("m", "prometheus"), service("m", "thanos-query", ports=[{"name": "http", "port": 9090}])]
    with cluster(made, behind={"m/thanos-query:http": ONE}) as (api, _):
        assert find(api).transport.service == "thanos-query"


def test_a_service_that_answers_something_else_is_passed_over() -> None:
    """Not everything named prometheus is one."""
    made = [service("a", "prometheus"), service("b", "prometheus")]
    behind = {"a/prometheus:web": Response(200, b"<html>"), "b/prometheus:web": ONE}
    with cluster(made, behind=behind) as (api, _):
        assert find(api).transport.namespace == "b"


def test_two_services_before_the_same_pods_are_one() -> None:
    """The one that is not headless is taken."""
    made = [
        service("m", "a-headless", {"app": "prometheus"}, clusterIP="None", selector={"x": "y"}),
        service("m", "b", {"app": "prometheus"}, selector={"x": "y"}),
    ]
    with cluster(made, behind={"m/a-headless:web": ONE, "m/b:web": ONE}) as (api, _):
        assert find(api).transport.service == "b"


def test_several_prometheus_are_a_question_for_a_person() -> None:
    """They may be shards or teams': the message lists them and names the flag."""
    made = [service("a", "prometheus"), service("b", "prometheus")]
    with (
        cluster(made, behind={"a/prometheus:web": ONE, "b/prometheus:web": ONE}) as (api, _),
        pytest.raises(Ambiguous, match=r"a/prometheus:web, b/prometheus:web: .*--prometheus-url"),
    ):
        find(api)


@pytest.mark.parametrize(
    "objects",
    [
        [prometheus("m", "one"), prometheus("m", "two")],
        [prometheus("m", "one", shards=3)],
    ],
)
def test_shards_and_shared_services_are_refused(objects: list[dict[str, Any]]) -> None:
    """One service before different data would answer differently each time."""
    with (
        cluster(objects=objects, behind={"m/prometheus-operated:web": ONE}) as (api, _),
        pytest.raises(Ambiguous, match="--prometheus-url"),
    ):
        find(api)


def test_nothing_found_says_what_was_looked_for() -> None:
    """And what those that were tried answered."""
    with cluster([service("m", "prometheus")]) as (api, server), pytest.raises(NotFound) as caught:
        find(api)
    message = str(caught.value)
    assert server.url in message
    assert "m/prometheus:web did not answer" in message
    assert "no endpoints available" in message
    assert "Thanos query" in message
    assert "--prometheus-url" in message
    assert "\n" not in message


def test_objects_that_we_may_not_see_do_not_stop_the_search() -> None:
    """Services may still tell."""
    made = [service("m", "prometheus")]
    with cluster(made, objects=FORBIDDEN, behind={"m/prometheus:web": ONE}) as (api, _):
        assert find(api).transport.service == "prometheus"


def test_other_failures_of_the_api_server_are_its_own() -> None:
    """They are not taken for an empty cluster."""
    with cluster(objects=Response(500, b"boom")) as (api, _), pytest.raises(ApiError):
        find(api)
    with cluster(objects=Response(200, b"[]")) as (api, _), pytest.raises(Malformed):
        find(api)


def test_long_lists_are_read_to_the_end() -> None:
    """Page by page."""
    pages = {"": listed([service("m", "web")], "next"), "next": listed([service("m", "prometheus")])}

    def answer(request: Request) -> Response:
        if request.path == "/api/v1/services":
            return pages[request.fields.get("continue", "")]
        return ONE if "proxy" in request.path else ABSENT

    with serving(answer) as server:
        target = Target(Endpoint(server.url), Identity(), "default", "test")
        assert find(ApiClient(target, backoff=NO_RETRIES)).transport.service == "prometheus"


def test_connecting_takes_an_address_or_a_cluster() -> None:
    """Without an address the cluster is searched."""
    with cluster([service("m", "prometheus")], behind={"m/prometheus:web": ONE}) as (api, server):
        assert connect(api).scalar("1", 5.0) == 1.0
        assert connect(Settings(server.url), limits=Limits(timeout_seconds=60)).client.address == server.url


def test_the_proxy_has_the_same_bounds_and_errors() -> None:
    """A refusal by the API server and an answer that is too large are told as such."""
    with (
        cluster(behind={"m/p:web": FORBIDDEN}) as (api, _),
        pytest.raises(Unauthorized, match="services is forbidden"),
    ):
        Client(ServiceProxy(api, "m", "p", "web")).instant("1")
    with cluster(behind={"m/p:web": Response(200, b" " * 5000)}) as (api, _):
        limits = Limits(memory_max_bytes=1000, concurrency_max=1)
        with pytest.raises(TooLarge):
            Client(ServiceProxy(api, "m", "p", "web"), limits).instant("1")
