"""A Prometheus in the cluster is found through the API server, in named namespaces, and never guessed."""

from __future__ import annotations

from typing import Any

import pytest

from equipoise.adapters.http import NO_RETRIES
from equipoise.adapters.kubernetes.client import Client as ApiClient
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target
from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.discover import find
from equipoise.adapters.prometheus.errors import (
    Ambiguous,
    Malformed,
    NotFound,
    PrometheusTooLarge,
    Unauthorized,
    Undecided,
)
from equipoise.adapters.prometheus.metrics import connect
from equipoise.adapters.prometheus.settings import PrometheusSettings, QueryLimits
from equipoise.adapters.prometheus.transport import ServiceProxy
from tests.support.prometheus.server import Request, Response, serving
from tests.support.prometheus.worlds import (
    ABSENT,
    FORBIDDEN,
    ONE,
    cluster,
    listed,
    operated,
    prometheus,
    service,
)


def test_a_prometheus_object_leads_to_its_service() -> None:
    """Through the service proxy, with its prefix and port, by GET and with our own credential."""
    objects = [prometheus("monitoring", "k8s", routePrefix="/prom", portName="http-web")]
    behind = {"monitoring/prometheus-operated:http-web": ONE}
    with cluster([operated()], objects, behind) as (api, server):
        found = find(api)
        assert found.transport.address == (
            f"{server.url}/api/v1/namespaces/monitoring/services/prometheus-operated:http-web/proxy/prom"
        )
        assert server.requests[-1].method == "GET"
        assert server.requests[-1].fields["query"] == "1"
        assert server.requests[-1].headers["authorization"] == "Bearer t"
        assert PrometheusClient(found.transport).instant("1").result_type == "scalar"


def test_an_object_with_tls_is_asked_over_tls() -> None:
    """The scheme is part of the proxy's path."""
    objects = [prometheus("monitoring", "k8s", web={"tlsConfig": {"cert": {}}})]
    with cluster([operated()], objects, {"monitoring/https:prometheus-operated:web": ONE}) as (api, _):
        assert find(api).transport.scheme == "https"


@pytest.mark.parametrize(
    ("made", "behind"),
    [
        (
            service("monitoring", "prometheus-server", ports=[{"name": "http", "port": 80}]),
            "monitoring/prometheus-server:http",
        ),
        (service("monitoring", "x", {"app.kubernetes.io/name": "prometheus"}), "monitoring/x:web"),
        (service("monitoring", "x", {"app": "kube-prometheus-stack-prometheus"}), "monitoring/x:web"),
        (
            service("monitoring", "x", {"app": "prometheus", "component": "server"}, [{"port": 9090}]),
            "monitoring/x:9090",
        ),
        (
            service(
                "monitoring",
                "a-thanos-query",
                ports=[{"name": "grpc", "port": 10901}, {"name": "http", "port": 90}],
            ),
            "monitoring/a-thanos-query:http",
        ),
        (
            service("monitoring", "vmsingle-main", ports=[{"name": "", "port": 8429}]),
            "monitoring/vmsingle-main:8429",
        ),
        (
            service(
                "monitoring", "x", {"app.kubernetes.io/name": "victoria-metrics-single", "app": "server"}
            ),
            "monitoring/x:web",
        ),
        (
            service(
                "monitoring", "x", {"app.kubernetes.io/name": "victoria-metrics-cluster", "app": "vmselect"}
            ),
            "monitoring/x:web",
        ),
        (
            service("monitoring", "v", {"app.kubernetes.io/component": "vmselect"}, [{"port": 8481}]),
            "monitoring/v:8481",
        ),
        (
            service("monitoring", "mimir-gateway", ports=[{"name": "http-metrics", "port": 80}]),
            "monitoring/mimir-gateway:http-metrics",
        ),
    ],
)
def test_well_known_services_are_found(made: dict[str, Any], behind: str) -> None:
    """By label or name, with the right port."""
    with cluster([made, service("monitoring", "web")], behind={behind: ONE}) as (api, _):
        transport = find(api).transport
        assert f"{transport.namespace}/{transport.service}:{transport.port}" == behind


@pytest.mark.parametrize(
    ("name", "prefix"), [("vmselect-a", "/select/0/prometheus"), ("mimir-gateway", "/prometheus")]
)
def test_flavours_have_their_prefix(name: str, prefix: str) -> None:
    """Their API does not begin at the root."""
    with cluster([service("monitoring", name)], behind={f"monitoring/{name}:web": ONE}) as (api, _):
        assert find(api).transport.path_prefix == prefix


def test_neighbours_of_a_prometheus_are_not_taken_for_it() -> None:
    """Its chart labels its Alertmanager and Pushgateway much like itself."""
    others = [
        service("monitoring", "a", {"app": "prometheus", "component": "alertmanager"}),
        service(
            "monitoring",
            "b",
            {"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/component": "exporter"},
        ),
        service("monitoring", "c", {"app.kubernetes.io/name": "prometheus-node-exporter"}),
    ]
    with cluster(others) as (api, server):
        with pytest.raises(NotFound):
            find(api)
        assert not any("proxy" in request.path for request in server.requests)


@pytest.mark.parametrize(
    ("silent", "others"),
    [
        ("prometheus", ["thanos-query"]),
        ("thanos-query-frontend", ["thanos-query"]),
        ("thanos-query", ["vmselect-main", "mimir-gateway"]),
        ("prometheus-server", ["prometheus", "thanos-query"]),
    ],
)
def test_a_service_that_does_not_answer_is_not_passed_over(silent: str, others: list[str]) -> None:
    """A restart is no reason to believe another server: which one to use is unknown, by name."""
    made = [service("monitoring", name) for name in (silent, *others)]
    behind = {f"monitoring/{name}:web": ONE for name in others}
    with cluster(made, behind=behind) as (api, _), pytest.raises(Undecided) as caught:
        find(api)
    message = str(caught.value)
    said = f"it is unknown which Prometheus to use: monitoring/{silent}:web does not answer ("
    assert message.startswith(said)
    assert "no endpoints available" in message
    assert f"; monitoring/{others[0]}:web" in message
    assert "--prometheus-url" in message


def test_what_comes_after_the_chosen_one_may_be_silent() -> None:
    """It would not have been chosen anyway; it is told beside the choice."""
    made = [service("monitoring", name) for name in ("prometheus", "thanos-query", "mimir-gateway")]
    behind = {"monitoring/prometheus:web": ONE, "monitoring/mimir-gateway:web": ONE}
    with cluster(made, behind=behind) as (api, _):
        found = find(api)
    assert (found.transport.service, found.how) == (
        "prometheus",
        "its name or its labels are those of a Prometheus",
    )
    thanos, mimir = found.others
    assert thanos.startswith("monitoring/thanos-query:web does not answer (")
    assert mimir == "monitoring/mimir-gateway:web (Grafana Mimir gateway) answers too"


def test_a_service_that_refuses_is_not_passed_over() -> None:
    """Nobody knows what is behind it, so the right or the choice is a person's matter."""
    made = [service("monitoring", "prometheus"), service("monitoring", "thanos-query")]
    behind = {"monitoring/prometheus:web": FORBIDDEN, "monitoring/thanos-query:web": ONE}
    with (
        cluster(made, behind=behind) as (api, _),
        pytest.raises(Undecided, match=r"monitoring/prometheus:web refuses to answer .*403.*is forbidden"),
    ):
        find(api)


def test_a_service_without_endpoints_is_silent_and_no_other_server() -> None:
    """The API server says so in two ways: by a 503, and by a 404 of its own where none was ever made."""
    missing = (
        b'{"kind":"Status","message":"services \\"prometheus\\" not found","reason":"NotFound","code":404}'
    )
    made = [service("monitoring", "prometheus"), service("monitoring", "thanos-query")]
    behind = {"monitoring/prometheus:web": Response(404, missing), "monitoring/thanos-query:web": ONE}
    with (
        cluster(made, behind=behind) as (api, _),
        pytest.raises(Undecided, match=r"monitoring/prometheus:web does not answer .* has no endpoints"),
    ):
        find(api)


def test_a_service_that_answers_something_else_is_passed_over() -> None:
    """Not everything named prometheus is one."""
    made = [service("monitoring", "prometheus"), service("monitoring", "thanos-query")]
    for answer in (Response(200, b"<html>"), Response(404, b"404 page not found")):
        behind = {"monitoring/prometheus:web": answer, "monitoring/thanos-query:web": ONE}
        with cluster(made, behind=behind) as (api, _):
            found = find(api)
            assert found.transport.service == "thanos-query"
            (other,) = found.others
            assert other.startswith("monitoring/prometheus:web is not a Prometheus (")


def test_two_services_before_the_same_pods_are_one() -> None:
    """The one that is not headless is taken."""
    made = [
        service("monitoring", "a-headless", {"app": "prometheus"}, clusterIP="None", selector={"x": "y"}),
        service("monitoring", "b", {"app": "prometheus"}, selector={"x": "y"}),
    ]
    with cluster(made, behind={"monitoring/a-headless:web": ONE, "monitoring/b:web": ONE}) as (api, _):
        assert find(api).transport.service == "b"


def test_a_service_that_selects_more_pods_gives_way_to_a_narrower_one() -> None:
    """Where the Prometheus objects can't be listed, the operator's two Services are one server."""
    narrow = {"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": "stack"}
    made = [
        operated(),
        service("monitoring", "stack", {"app": "kube-prometheus-stack-prometheus"}, selector=narrow),
    ]
    behind = {"monitoring/stack:web": ONE, "monitoring/prometheus-operated:web": ONE}
    with cluster(made, FORBIDDEN, behind) as (api, _):
        assert find(api).transport.service == "stack"


def test_a_prometheus_object_and_the_services_before_its_pods_are_one() -> None:
    """As kube-prometheus-stack installs them; one of them that is idle or slow can't make a second server."""
    labels = {"app": "kube-prometheus-stack-prometheus"}
    pod = {"statefulset.kubernetes.io/pod-name": "prometheus-k8s-0", "app.kubernetes.io/name": "prometheus"}
    made = [
        operated(),
        service("monitoring", "stack", labels, selector={"operator.prometheus.io/name": "k8s"}),
        service("monitoring", "stack-0", labels, selector=pod),
        service("monitoring", "by-labels", labels, selector={"part-of": "kube-prometheus"}),
    ]
    objects = [prometheus("monitoring", "k8s", podMetadata={"labels": {"part-of": "kube-prometheus"}})]
    with cluster(made, objects, {"monitoring/prometheus-operated:web": ONE}) as (api, server):
        found = find(api)
        assert (found.transport.service, list(found.others)) == ("prometheus-operated", [])
        assert found.how == "it is the Service of the Prometheus object k8s"
        assert sum("proxy" in request.path for request in server.requests) == 1
    with cluster(made[1:2], objects, {"monitoring/stack:web": ONE}) as (api, _):
        assert find(api).transport.service == "stack"
    with (
        cluster(objects=objects) as (api, _),
        pytest.raises(Undecided, match="the Prometheus object k8s has no Service prometheus-operated"),
    ):
        find(api)


def test_several_prometheus_are_a_question_for_a_person() -> None:
    """They may be shards or teams': the message lists them and names the options."""
    made = [service("a", "prometheus"), service("b", "prometheus")]
    behind = {"a/prometheus:web": ONE, "b/prometheus:web": ONE}
    with cluster(made, behind=behind) as (api, _):
        with pytest.raises(Ambiguous) as caught:
            find(api, ["a", "b"])
        assert str(caught.value) == (
            "several Prometheus services answer: a/prometheus:web, b/prometheus:web: "
            "name one with --prometheus-url, or one namespace with --prometheus-namespace"
        )
        assert find(api, ["b"]).transport.namespace == "b"


def test_an_alias_is_not_followed() -> None:
    """The proxy of the API server reaches no name outside; that is said where nothing else is found."""
    alias = service("monitoring", "prometheus", type="ExternalName", externalName="prometheus.example")
    with cluster([alias]) as (api, server):
        with pytest.raises(NotFound, match="monitoring/prometheus is of type ExternalName"):
            find(api)
        assert not any("proxy" in request.path for request in server.requests)
    made = [alias, service("monitoring", "thanos-query")]
    with cluster(made, behind={"monitoring/thanos-query:web": ONE}) as (api, _):
        assert find(api).transport.service == "thanos-query"


@pytest.mark.parametrize(
    "objects",
    [
        [prometheus("monitoring", "one"), prometheus("monitoring", "two")],
        [prometheus("monitoring", "one", shards=3)],
    ],
)
def test_shards_and_shared_services_are_refused(objects: list[dict[str, Any]]) -> None:
    """One service before different data would answer differently each time."""
    with (
        cluster([operated()], objects, {"monitoring/prometheus-operated:web": ONE}) as (api, _),
        pytest.raises(Ambiguous, match="--prometheus-url"),
    ):
        find(api)


def test_objects_that_we_may_not_see_do_not_stop_the_search() -> None:
    """Services may still tell."""
    made = [service("monitoring", "prometheus")]
    with cluster(made, objects=FORBIDDEN, behind={"monitoring/prometheus:web": ONE}) as (api, _):
        assert find(api).transport.service == "prometheus"


def test_other_failures_of_the_api_server_are_its_own() -> None:
    """They are not taken for an empty cluster."""
    with cluster(objects=Response(500, b"boom")) as (api, _), pytest.raises(ApiError):
        find(api)
    with cluster(objects=Response(200, b"[]")) as (api, _), pytest.raises(Malformed):
        find(api)


def test_long_lists_are_read_to_the_end() -> None:
    """Page by page."""
    pages = {
        "": listed([service("monitoring", "web")], "next"),
        "next": listed([service("monitoring", "prometheus")]),
    }

    def answer(request: Request) -> Response:
        if request.path.endswith("/services"):
            return pages[request.fields.get("continue", "")]
        return ONE if "proxy" in request.path else ABSENT

    with serving(answer) as server:
        target = Target(Endpoint(server.url), Identity(), "default", "test")
        assert find(ApiClient(target, backoff=NO_RETRIES)).transport.service == "prometheus"


def test_connecting_takes_an_address_or_what_was_found() -> None:
    """Nothing is looked for where an address is given."""
    with cluster([service("monitoring", "prometheus")], behind={"monitoring/prometheus:web": ONE}) as (
        api,
        server,
    ):
        assert connect(find(api).transport).scalar("1", 5.0) == 1.0
        assert (
            connect(PrometheusSettings(server.url), limits=QueryLimits(timeout_seconds=60)).client.address
            == server.url
        )


def test_the_proxy_has_the_same_bounds_and_errors() -> None:
    """A refusal by the API server and an answer that is too large are told as such."""
    with (
        cluster(behind={"monitoring/p:web": FORBIDDEN}) as (api, _),
        pytest.raises(Unauthorized, match="services is forbidden"),
    ):
        PrometheusClient(ServiceProxy(api, "monitoring", "p", "web")).instant("1")
    with cluster(behind={"monitoring/p:web": Response(200, b" " * 5000)}) as (api, _):
        limits = QueryLimits(memory_max_bytes=1000, concurrency_max=1)
        with pytest.raises(PrometheusTooLarge):
            PrometheusClient(ServiceProxy(api, "monitoring", "p", "web"), limits).instant("1")
