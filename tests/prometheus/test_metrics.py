"""CPU usage and single numbers through the port, from a model of a Prometheus over real HTTP."""

from __future__ import annotations

import math

import pytest

from equipoise.adapters.prometheus.client import BuildInfo
from equipoise.adapters.prometheus.errors import (
    BadUserQuery,
    Malformed,
    PrometheusUnreachable,
    TooManySeries,
    Unavailable,
)
from equipoise.adapters.prometheus.settings import LabelNames
from equipoise.ports import Metrics
from tests.support.kubernetes.server import deaf_port
from tests.support.prometheus.server import Model, Request, Response, failed, ok, serving, vector
from tests.support.prometheus.usage import container, metrics, rows


def test_usage_is_one_row_per_container_with_its_time() -> None:
    """Four queries, joined; what nobody asked for is left out."""
    model = Model(
        [
            (container("shop", "web-1"), 0.5),
            (container("shop", "web-1", "sidecar"), 0.1),
            (container("shop", "web-2"), 0.7),
            (container("shop", "foreign"), 9.0),
            (container("shop", "web-1", "POD"), 9.0),
            (container("shop", "web-1", ""), 9.0),
        ]
    )
    with serving(model) as server:
        port: Metrics = metrics(server.url)
        usage = port.cpu_usage({"shop": ["web-1", "web-2", "web-3"]}, 1000.0, 300.0)
        assert len(server.asked) == 4
        assert all(r.fields["time"] == "1000.000" for r in server.asked)
    assert rows(usage) == {
        ("shop", "web-1", "app"): 0.5,
        ("shop", "web-1", "sidecar"): 0.1,
        ("shop", "web-2", "app"): 0.7,
    }
    assert usage.sampled_at.tolist() == [995.0] * 3
    assert usage.window_seconds == 300.0
    assert usage.source == server.url
    assert usage.warnings == ()


def test_a_container_scraped_twice_counts_once() -> None:
    """By two jobs, or by a pair of Prometheus: the larger reading, never the sum."""
    model = Model(
        [(container("shop", "web-1", job="cadvisor"), 0.5), (container("shop", "web-1", job="resource"), 0.6)]
    )
    with serving(model) as server:
        usage = metrics(server.url).cpu_usage({"shop": ["web-1"]}, 1000.0, 300.0)
    assert rows(usage) == {("shop", "web-1", "app"): 0.6}


def test_nan_infinite_and_negative_usage_is_missing_not_zero() -> None:
    """Such a container is unknown, and the answer says how many there were."""
    model = Model(
        [
            (container("shop", f"web-{i}"), value)
            for i, value in enumerate((math.nan, math.inf, -math.inf, -0.1, 0.0))
        ]
    )
    with serving(model) as server:
        usage = metrics(server.url).cpu_usage({"shop": [f"web-{i}" for i in range(5)]}, 1000.0, 300.0)
    assert rows(usage) == {("shop", "web-4", "app"): 0.0}
    assert usage.warnings == ("the usage of 4 containers was ignored: it is NaN, infinite or negative",)


def test_a_container_whose_series_ended_is_not_counted() -> None:
    """Its rate lives on for a window; its sample is stale, so there is no time for it."""

    def answer(request: Request) -> Response:
        pods = ["web-1"] if "timestamp(" in request.fields["query"] else ["web-1", "gone"]
        return vector([(container("shop", pod), 0.5) for pod in pods])

    with serving(answer) as server:
        usage = metrics(server.url).cpu_usage({"shop": ["web-1", "gone"]}, 1000.0, 300.0)
    assert list(usage.pods) == ["web-1"]
    assert usage.warnings == ("the usage of 1 container was ignored: it has no current sample",)


def test_warnings_of_a_partial_answer_come_with_the_usage() -> None:
    """Thanos and Mimir answer 200 with what they could reach."""
    with serving(Model([(container("a", "p"), 1.0)], warnings=["store 10.0.0.1 is \x1b[1mdown"])) as server:
        usage = metrics(server.url).cpu_usage({"a": ["p"]}, 1000.0, 300.0)
    assert usage.warnings == ("store 10.0.0.1 is [1mdown",)


def test_an_answer_without_any_container_says_so() -> None:
    """The metric may have another name here, or is not scraped."""
    with serving(Model([])) as server:
        usage = metrics(server.url).cpu_usage({"a": ["p"]}, 1000.0, 300.0)
    assert len(usage.cores) == 0
    assert "no container has container_cpu_usage_seconds_total" in usage.warnings[0]


def test_no_pods_are_no_queries() -> None:
    """Nothing was asked for."""
    with serving(Model([])) as server:
        usage = metrics(server.url).cpu_usage({"a": []}, 1000.0, 300.0)
        assert server.requests == []
    assert len(usage.cores) == 0


def test_every_query_carries_the_matchers_of_the_installation() -> None:
    """Two clusters in one Mimir are not mixed."""
    series = [
        (container("a", f"p{i}", cluster=cluster), value)
        for i in range(400)
        for cluster, value in (("eu", 1.0), ("us", 5.0))
    ]
    with serving(Model(series)) as server:
        usage = metrics(server.url, extra={"cluster": "eu"}).cpu_usage(
            {"a": [f"p{i}" for i in range(400)]}, 1000.0, 300.0
        )
        assert len(server.asked) == 5
        assert all('cluster="eu"' in r.fields["query"] for r in server.asked)
    assert set(rows(usage).values()) == {1.0}


def test_other_label_names_are_read_too() -> None:
    """As configured, in queries and in answers."""
    series = [({"ns": "a", "pod_name": "p", "container_name": "c"}, 0.25)]
    with serving(Model(series)) as server:
        names = LabelNames("cpu_seconds", "ns", "pod_name", "container_name")
        usage = metrics(server.url, names).cpu_usage({"a": ["p"]}, 1000.0, 300.0)
    assert rows(usage) == {("a", "p", "c"): 0.25}


def large_cluster() -> tuple[Model, dict[str, list[str]]]:
    asked = {f"ns-{i:02}": [f"web-{i}-{j:03}" for j in range(20 + 30 * (i == 7))] for i in range(20)}
    series = [(container(ns, pod), j / 1000) for ns, pods in asked.items() for j, pod in enumerate(pods)]
    series += [(container("ns-07", f"web-7-{j:03}-foreign"), 9.0) for j in range(25)]
    return Model(series), asked


@pytest.mark.parametrize("series_max", [20, 60, 150, 1000])
def test_a_cluster_beyond_the_limit_is_read_in_shards(series_max: int) -> None:
    """Whatever the limit, all containers come back once, and no answer passes it."""
    model, asked = large_cluster()
    with serving(model) as server:
        usage = metrics(server.url, series_max=series_max).cpu_usage(asked, 1000.0, 300.0)
        queries = len(server.requests)
    assert set(rows(usage)) == {(ns, pod, "app") for ns, pods in asked.items() for pod in pods}
    assert max(rows(usage).values()) < 9.0
    assert queries <= 1 + 3 * 4 * math.ceil(455 / series_max)


def test_a_server_with_tighter_limits_is_met_with_smaller_queries() -> None:
    """It refuses with 422, and halves are asked for until they pass."""
    model, asked = large_cluster()
    model.series_max = 30
    with serving(model) as server:
        usage = metrics(server.url).cpu_usage(asked, 1000.0, 300.0)
    assert set(rows(usage)) == {(ns, pod, "app") for ns, pods in asked.items() for pod in pods}


def test_one_pod_with_more_containers_than_the_limit_is_an_error() -> None:
    """There is nothing left to cut."""
    model = Model([(container("a", "p", f"c{i}"), 1.0) for i in range(5)])
    with serving(model) as server, pytest.raises(TooManySeries):
        metrics(server.url, series_max=4).cpu_usage({"a": ["p"]}, 1000.0, 300.0)


def test_any_failing_shard_fails_the_reading() -> None:
    """A part of the pods must not pass for all of them."""
    model, asked = large_cluster()

    def answer(request: Request) -> Response:
        return Response(503, b"") if "ns-03" in request.fields["query"] else model(request)

    with serving(answer) as server, pytest.raises(Unavailable):
        metrics(server.url, series_max=60).cpu_usage(asked, 1000.0, 300.0)


def scalar_answer(value: str) -> Response:
    return ok({"resultType": "scalar", "result": [1000, value]})


@pytest.mark.parametrize(
    ("response", "value", "reason"),
    [
        (scalar_answer("42.5"), 42.5, ""),
        (vector([({"group": "g"}, 7)]), 7.0, ""),
        (vector([({}, 7)], infos=["metric might not be a counter"]), 7.0, ""),
        (vector([]), None, "not one number"),
        (vector([({"a": "1"}, 1), ({"a": "2"}, 2)]), None, "not one number"),
        (scalar_answer("NaN"), None, "the answer is nan"),
        (scalar_answer("+Inf"), None, "the answer is inf"),
        (ok({"resultType": "string", "result": [1000, "7"]}), None, "string"),
        (vector([({}, 7)], warnings=["store down"]), None, "partial: store down"),
    ],
)
def test_a_scalar_is_one_finite_number_or_none_with_a_reason(
    response: Response, value: float | None, reason: str
) -> None:
    """A lag that is partial, empty or not a number is unknown, never zero."""
    with serving(lambda _: response) as server:
        asking = metrics(server.url)
        assert asking.scalar("sum(lag)", 1000.0) == value
        assert reason in asking.number("sum(lag)", 1000.0).reason
        assert server.requests[0].fields["query"] == "sum(lag)"


def test_a_users_wrong_query_is_bad_input() -> None:
    """Exit status 2: the words are the user's."""
    with serving(lambda _: failed(400, "bad_data", "parse error")) as server:
        with pytest.raises(BadUserQuery, match="parse error") as caught:
            metrics(server.url).scalar("sum(", 1000.0)
        assert caught.value.exit_status == 2


def test_a_scalar_from_a_dead_server_raises() -> None:
    """Unknown because unreachable is told apart from unknown because empty."""
    with deaf_port() as port, pytest.raises(PrometheusUnreachable):
        metrics(f"http://127.0.0.1:{port}").scalar("1", 1000.0)


def test_doctor_asks_for_readiness_time_and_build() -> None:
    """By queries that every flavour answers."""

    def answer(request: Request) -> Response:
        if request.path.endswith("buildinfo"):
            return ok({"version": "2.42.0", "revision": "abc"})
        return scalar_answer("1" if request.fields["query"] == "1" else "1234.5")

    with serving(answer) as server:
        asking = metrics(server.url)
        asking.ready()
        assert asking.server_time() == 1234.5
        assert asking.client.build_info() == BuildInfo("Prometheus", "2.42.0")
        assert "time" not in server.requests[0].fields
        assert server.requests[-1].method == "GET"
    with serving(lambda _: scalar_answer("NaN")) as server:
        with pytest.raises(Malformed, match="did not answer the query 1 with 1"):
            metrics(server.url).ready()
        with pytest.raises(Malformed, match="time"):
            metrics(server.url).server_time()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"application": "Grafana Mimir", "version": "2.13.0"}, BuildInfo("Grafana Mimir", "2.13.0")),
        ({"version": "0.36.1", "revision": "x"}, BuildInfo("Thanos", "0.36.1")),
        ({"version": "2.24.0"}, BuildInfo("VictoriaMetrics", "")),
    ],
)
def test_flavours_are_told_apart(data: dict[str, str], expected: BuildInfo) -> None:
    """As far as they say who they are."""
    with serving(lambda _: ok(data)) as server:
        assert metrics(server.url).client.build_info() == expected


def test_a_server_without_build_info_is_unknown() -> None:
    """Not an error: queries work all the same."""

    def answer(request: Request) -> Response:
        return Response(404, b"{}") if request.path.endswith("buildinfo") else scalar_answer("1")

    with serving(answer) as server:
        assert metrics(server.url).client.build_info() == BuildInfo("unknown", "")
