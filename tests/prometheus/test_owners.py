"""Owners of ReplicaSets come from kube-state-metrics, by plain instant selectors."""

from contextlib import closing

import pytest

from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.errors import TooHeavy, TooManySeries
from equipoise.adapters.prometheus.metrics import PrometheusOwners
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.adapters.prometheus.transport import Direct
from equipoise.core.errors import BadInput
from tests.support.prometheus.server import Model, Server, serving


def _owned(
    namespace: str, replica_set: str, kind: str, name: str, label: str = "namespace"
) -> dict[str, str]:
    return {
        label: namespace,
        "replicaset": replica_set,
        "owner_kind": kind,
        "owner_name": name,
        "cluster": "eu",
    }


SERIES = [
    (_owned("shop", "web-1", "Deployment", "web"), 1.0),
    (_owned("park", "web-1", "Rollout", "web"), 1.0),
    (_owned("zoo", "web-1", "Deployment", "other"), 1.0),
    (_owned("cave", "bat-1", "Deployment", "bat", "exported_namespace") | {"namespace": "monitoring"}, 1.0),
]


def _client(server: Server) -> PrometheusClient:
    return PrometheusClient(Direct(PrometheusSettings(server.url)), sleep=lambda _: None)


def test_owners_are_told_by_namespace_and_name() -> None:
    """Also where the scrape moved the object's namespace aside; nothing is asked for nobody."""
    with serving(Model(SERIES)) as server, closing(_client(server)) as client:
        owners = PrometheusOwners(client, {"cluster": "eu"})
        assert owners.replica_sets(["shop", "park", "cave"], 1000.0) == {
            ("shop", "web-1"): ("Deployment", "web"),
            ("park", "web-1"): ("Rollout", "web"),
            ("cave", "bat-1"): ("Deployment", "bat"),
        }
        asked = [request.fields["query"] for request in server.requests]
        assert asked[0] == 'kube_replicaset_owner{namespace=~"cave|park|shop",cluster="eu"}'
        assert owners.replica_sets([], 1000.0) == {}
        assert PrometheusOwners(client, {"cluster": "us"}).replica_sets(["shop"], 1000.0) == {}
        with pytest.raises(BadInput, match="label"):
            PrometheusOwners(client, {"a b": "c"})


def test_oom_kills_of_the_week_are_one_query() -> None:
    """Also where the scrape moved the labels of the container aside."""
    killed = {"reason": "OOMKilled", "cluster": "eu"}
    own = killed | {"namespace": "shop", "pod": "web-1", "container": "app"}
    scraper = {"namespace": "monitoring", "pod": "kube-state-metrics-1", "container": "main"}
    moved = {"exported_namespace": "park", "exported_pod": "api-1", "exported_container": "app"}
    with serving(Model([(own, 1.0), (killed | scraper | moved, 1.0)])) as server:
        with closing(_client(server)) as client:
            found = PrometheusOwners(client, {"cluster": "eu"}).oom_killed(1000.0, 604800.0)
        assert found == {("shop", "web-1", "app"), ("park", "api-1", "app")}
        (asked,) = [request.fields["query"] for request in server.requests]
        selector = 'kube_pod_container_status_last_terminated_reason{reason="OOMKilled",cluster="eu"}'
        assert asked == f"max_over_time({selector}[7d]) > 0"


def test_too_many_for_one_answer_are_asked_for_in_parts() -> None:
    """Down to one namespace, which is then an error."""
    many = [(_owned(f"ns-{i}", "web-1", "Deployment", "web"), 1.0) for i in range(8)]
    with serving(Model(many, series_max=2)) as server, closing(_client(server)) as client:
        found = PrometheusOwners(client).replica_sets([f"ns-{i}" for i in range(8)], 1000.0)
        assert len(found) == 8
    with (
        serving(Model(many, series_max=0)) as server,
        closing(_client(server)) as client,
        pytest.raises((TooHeavy, TooManySeries)),
    ):
        PrometheusOwners(client).replica_sets(["ns-1", "ns-2"], 1000.0)
