"""How the operator sees: namespaces that are watched, and a source of usage that is found again."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from equipoise.adapters.prometheus.errors import NotFound, Undecided
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.ports import CpuUsage
from equipoise.runtime.metrics_source import (
    MISSING_SECONDS,
    SEARCH_SECONDS,
    ChosenPrometheus,
    DiscoveredMetrics,
    MultiNamespaceCluster,
    PrometheusOptions,
    Source,
)
from tests.support.operator.worlds import logged
from tests.support.prometheus.server import Response
from tests.support.prometheus.worlds import ONE, cluster, service


class _Metrics:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_lost = False

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        if self.is_lost:
            raise WorldFailed(f"{self.name} does not answer")
        return CpuUsage([], [], [], np.array([]), np.array([]), window_seconds, self.name)

    def scalar(self, query: str, at: float) -> float | None:
        if self.is_lost:
            raise WorldFailed(f"{self.name} does not answer")
        if query == "sum((":
            raise BadInput("parse error: unclosed left parenthesis")
        return 1.0


def _source_of(metrics: DiscoveredMetrics) -> str:
    return metrics.cpu_usage({}, 0.0, 300.0).source


def test_a_source_that_is_lost_is_looked_for_again() -> None:
    """The cycle that loses it fails; the next finds another, and a source that works is kept."""
    first, second = _Metrics("first"), _Metrics("second")
    found = iter([Source(first), Source(second)])
    metrics = DiscoveredMetrics(lambda: next(found))
    assert [_source_of(metrics), _source_of(metrics)] == ["first", "first"]
    first.is_lost = True
    with pytest.raises(WorldFailed):
        metrics.scalar("x", 0.0)
    assert [_source_of(metrics), _source_of(metrics)] == ["second", "second"]


def test_a_query_that_cannot_be_read_is_no_answer_and_no_reason_to_look_elsewhere() -> None:
    """It is a typing error in one policy: its workloads are held, and the cycle goes on for all others."""
    found = iter([Source(_Metrics("only"))])
    metrics = DiscoveredMetrics(lambda: next(found))
    with pytest.raises(WorldFailed, match="unclosed left parenthesis"):
        metrics.scalar("sum((", 0.0)
    assert (metrics.scalar("up", 0.0), _source_of(metrics)) == (1.0, "only")


def test_a_search_that_fails_is_tried_again_with_the_next_question() -> None:
    """Nothing is remembered of it."""
    answers = iter([None, _Metrics("late")])

    def find() -> Source:
        answer = next(answers)
        if answer is None:
            raise WorldFailed("no Prometheus")
        return Source(answer)

    metrics = DiscoveredMetrics(find)
    with pytest.raises(WorldFailed):
        _source_of(metrics)
    assert _source_of(metrics) == "late"


def test_the_second_choice_gives_way_when_the_first_appears() -> None:
    """Looked for every few minutes, not with every question."""
    now = [0.0]
    found = iter([Source(_Metrics("metrics-server"), is_second_choice=True), Source(_Metrics("prometheus"))])
    metrics = DiscoveredMetrics(lambda: next(found), lambda: now[0])
    assert _source_of(metrics) == "metrics-server"
    now[0] = SEARCH_SECONDS - 1
    assert _source_of(metrics) == "metrics-server"
    now[0] = SEARCH_SECONDS + 1
    assert _source_of(metrics) == "prometheus"
    now[0] *= 10
    assert _source_of(metrics) == "prometheus"


def _named(names: Sequence[str]) -> list[dict[str, Any]]:
    return [service("monitoring", name) for name in names]


def test_a_chosen_prometheus_that_is_silent_stays_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loops are told so and hold; a new process does not choose either, for it can't know."""
    monkeypatch.setattr("equipoise.adapters.http.Backoff.next_seconds", lambda *_: None)
    services = _named(["prometheus"])
    behind: dict[str, Response] = {"monitoring/prometheus:web": ONE}
    log, lines = logged("info")
    with cluster(services, behind=behind) as (api, _):
        chosen = ChosenPrometheus(api, PrometheusOptions(), log)
        metrics = DiscoveredMetrics.of(api, "auto", chosen.metrics, log.warning)
        assert metrics.scalar("1", 0.0) == 1.0
        services += _named(["thanos-query"])
        behind["monitoring/thanos-query:web"] = ONE
        del behind["monitoring/prometheus:web"]
        for _ in range(3):
            with pytest.raises(WorldFailed, match=r"services/prometheus:web/proxy is not available"):
                metrics.scalar("1", 0.0)
        with pytest.raises(Undecided, match="use: monitoring/prometheus:web does not answer"):
            ChosenPrometheus(api, PrometheusOptions(), log).metrics()
        behind["monitoring/prometheus:web"] = ONE
        assert metrics.scalar("1", 0.0) == 1.0
    (line,) = lines()
    assert line["message"].startswith("using the Prometheus monitoring/prometheus:web: ")


def test_a_chosen_prometheus_that_is_gone_is_looked_for_again_and_told() -> None:
    """Only after a minute without its Service, which may be made anew; until then nothing else is asked."""
    services = _named(["prometheus", "thanos-query"])
    behind = {"monitoring/prometheus:web": ONE, "monitoring/thanos-query:web": ONE}
    now = [1000.0]
    log, lines = logged("info")
    with cluster(services, behind=behind) as (api, _):
        chosen = ChosenPrometheus(api, PrometheusOptions(), log, lambda: now[0])
        first = chosen.metrics()
        gone = services.pop(0)
        assert chosen.metrics() is first
        now[0] += MISSING_SECONDS - 1
        assert chosen.metrics() is first
        services.insert(0, gone)
        assert chosen.metrics() is first  # it is back, and the minute begins anew
        del services[0]
        now[0] += MISSING_SECONDS + 1
        assert chosen.metrics() is first
        now[0] += MISSING_SECONDS + 1
        assert "thanos-query" in chosen.metrics().client.address
        services.clear()
        assert "thanos-query" in chosen.metrics().client.address
        now[0] += MISSING_SECONDS + 1
        with pytest.raises(NotFound, match="no Prometheus in namespace monitoring"):
            chosen.metrics()
    assert [line["message"].partition(": ")[0] for line in lines()] == [
        "using the Prometheus monitoring/prometheus:web",
        "the Prometheus monitoring/prometheus:web no longer exists; searching for another",
        "using the Prometheus monitoring/thanos-query:web",
        "the Prometheus monitoring/thanos-query:web no longer exists; searching for another",
    ]


def test_a_chosen_prometheus_is_followed_to_another_port_and_kept_while_nothing_can_be_told() -> None:
    """A change of its Service is no other server; an API server that fails says nothing about it."""
    services = _named(["prometheus"])
    behind = {"monitoring/prometheus:web": ONE, "monitoring/prometheus:http": ONE}
    log, _ = logged("info")
    with cluster(services, behind=behind) as (api, _):
        chosen = ChosenPrometheus(api, PrometheusOptions(), log)
        first = chosen.metrics()
        services[0] = service("monitoring", "prometheus", ports=[{"name": "http", "port": 9090}])
        assert "/services/prometheus:http/" in chosen.metrics().client.address
        services[0] = {"metadata": 7}
        assert "/services/prometheus:http/" in chosen.metrics().client.address
        assert "/services/prometheus:web/" in first.client.address


def test_an_address_that_was_given_is_asked_without_a_search() -> None:
    """Whatever else there is."""
    log, lines = logged("info")
    with cluster() as (api, server):
        options = PrometheusOptions(url="http://prometheus.example:9090", namespaces=("monitoring",))
        assert ChosenPrometheus(api, options, log).metrics().client.address == options.url
        assert (server.requests, lines()) == ([], [])


def _cluster(name: str) -> Any:
    """Give a cluster that answers each question with its name and the question."""
    questions = ("pods", "nodes", "workloads", "hpas", "pdbs")
    return SimpleNamespace(**{asked: partial(list, [f"{name} {asked}"]) for asked in questions})


def test_several_namespaces_look_like_one_cluster() -> None:
    """All of them, or one; nodes have no namespace."""
    seen: Any = MultiNamespaceCluster({"shop": _cluster("shop"), "pay": _cluster("pay")})
    assert seen.pods() == ["shop pods", "pay pods"]
    assert seen.hpas("pay") == ["pay hpas"]
    assert seen.pdbs() == ["shop pdbs", "pay pdbs"]
    assert seen.workloads("shop") == ["shop workloads"]
    assert seen.nodes() == ["shop nodes"]


def test_a_namespace_that_is_not_watched_is_unknown_not_empty() -> None:
    """Nothing may be concluded from what nobody looked at."""
    seen = MultiNamespaceCluster({"shop": _cluster("shop")})
    with pytest.raises(WorldFailed, match="namespace pay is not watched"):
        seen.pods("pay")
