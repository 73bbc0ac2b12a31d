"""Half an answer is no advice: servers are asked for whole answers, and what they warn of is told on."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import pytest

from equipoise.adapters.prometheus.history import PrometheusHistory
from equipoise.adapters.prometheus.matrix import Grid
from equipoise.adapters.prometheus.metrics import PrometheusOwners
from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code
from equipoise.recommendation.advisor import AdviceScope, DataSources
from tests.support.prometheus.histories import (
    END,
    MODEL,
    REFUSED,
    START,
    STREAMED,
    answering,
    frames_of,
    history_of,
    probed,
    read_all,
)
from tests.support.prometheus.server import BUILD_INFO, Model, Request, Response, ok, serving, vector
from tests.support.prometheus.usage import container, metrics
from tests.support.recommendation.clusters import AT, WEEK, FixedCluster, pod, workload
from tests.support.recommendation.worlds import plan

DOWN = "receive series from Addr: 10.0.0.7:10901: rpc error: code = Unavailable desc = connection refused"
"""As Thanos 0.42 says it of a store that is down."""
WHOLE: list[dict[str, Any]] = [
    {"infos": ["PromQL info: metric might not be a counter, name does not end in _total/_sum (1:6)"]},
    {"warnings": ["PromQL info: metric might not be a counter, name does not end in _total/_sum (1:6)"]},
    {"warnings": ["PromQL warning: quantile value should be between 0 and 1, got 2 (1:10)"]},
    {"isPartial": False},
]
"""Remarks on a query, of Prometheus 3 and of servers without `infos`."""
PARTS: list[tuple[dict[str, Any], str]] = [
    ({"warnings": [DOWN]}, DOWN),
    ({"warnings": ["PromQL info: metric might not be a counter", DOWN]}, DOWN),
    ({"warnings": ["No StoreAPIs matched for this query"]}, "No StoreAPIs matched for this query"),
    ({"isPartial": True}, "the server marks its answer as partial (isPartial)"),
]
WEB = workload("web")
PODS = [pod(WEB, f"web-7c9f8b6d5-{letters}") for letters in ("bcdfg", "hjklm")]


def test_every_question_asks_for_the_whole_and_for_the_present() -> None:
    """Instant, range and series, in the words of Thanos, of a cluster of VictoriaMetrics and of both."""
    with serving(lambda request: ok([]) if "series" in request.path else vector([])) as server:
        client = metrics(server.url).client
        client.instant("up", 1000.0)
        client.range("up", Grid(0, 60_000, 2))
        client.series("up", 0.0, 60.0, ("pod",))
    assert [request.path for request in server.requests] == [
        f"/api/v1/{kind}" for kind in ("query", "query_range", "series")
    ]
    for request in server.requests:
        sent = {
            name: request.fields.get(name)
            for name in ("partial_response", "deny_partial_response", "nocache")
        }
        assert sent == {"partial_response": "false", "deny_partial_response": "1", "nocache": "1"}


@pytest.mark.parametrize("said", WHOLE)
def test_a_remark_on_the_query_is_no_gap(said: dict[str, Any]) -> None:
    """The data are whole, and a number is a number."""
    with serving(lambda _: vector([(container("shop", "web-1"), 0.5)], **said)) as server:
        source = metrics(server.url)
        assert source.cpu_usage({"shop": ["web-1"]}, 1000.0, 300.0).partial == ()
        assert source.number("sum(lag)", 1000.0).value == 0.5


@pytest.mark.parametrize(("said", "why"), PARTS)
def test_a_warning_of_the_storage_is_told_with_the_usage(said: dict[str, Any], why: str) -> None:
    """Whatever came is given, with what the server says of what did not; a sum over it is none."""
    with serving(lambda _: vector([(container("shop", "web-1"), 0.5)], **said)) as server:
        source = metrics(server.url)
        assert source.cpu_usage({"shop": ["web-1"]}, 1000.0, 300.0).partial == (why,)
        assert source.number("sum(lag)", 1000.0)[:2] == (None, f"the answer is partial: {why}")


def _week(request: Request, **said: Any) -> Response:
    """Answer about a week of two pods, as raw samples."""
    query = request.fields.get("query", "")
    if request.path == BUILD_INFO:
        return ok({"version": "3.15.0", "revision": "abc"})
    if request.path == "/api/v1/read":
        return REFUSED
    if query.startswith("quantile"):
        return vector([({}, 60)])
    if query.startswith("count by"):
        return vector([({"namespace": "shop"}, 2)])
    assert query.endswith("ms]"), query
    end = round(float(request.fields["time"]))
    times = range(end - int(query.rpartition("[")[2][:-3]) // 1000 + 60, end + 1, 60)
    values = [[at, str(4.0 * at - 20_000.0 * math.cos(2 * math.pi * at / 86400))] for at in times]
    result = [{"metric": container("shop", one.name), "values": values} for one in PODS]
    return ok({"resultType": "matrix", "result": result}, **said)


def _advised(**said: Any) -> Any:
    with (
        serving(lambda request: _week(request, **said)) as server,
        closing(history_of(server).client) as client,
    ):
        cluster = FixedCluster([WEB], PODS)
        (decision,) = plan(
            AdviceScope(algorithm=None), DataSources(cluster, PrometheusHistory(client), cluster), AT
        )
    return decision


def test_advice_is_held_where_the_server_warns() -> None:
    """The same week gives advice without the warning."""
    whole = _advised()
    assert whole.reason.code is Code.RECOMMEND
    assert whole.reason.numbers["samples"] == WEEK
    held = _advised(warnings=[DOWN])
    assert (held.reason.code, held.extra["recommended"], held.actions) == (Code.METRICS_INCOMPLETE, None, ())
    assert DOWN in held.reason.sentence


def test_a_plan_of_lots_that_lacks_data_makes_the_reading_partial() -> None:
    """A namespace that is missing from the counts would be in no lot at all."""

    def answer(request: Request) -> Response:
        is_counting = request.fields.get("query", "").startswith("count by")
        return vector([({"namespace": "shop"}, 2)], warnings=[DOWN]) if is_counting else Model([])(request)

    with serving(answering(lambda _: REFUSED, answer)) as server:
        assert [batch.partial for batch in read_all(history_of(server))] == [(DOWN,)]


def test_a_remote_read_is_partial_where_the_server_warns_of_its_begin() -> None:
    """As of a store of older samples that is down: about the present it is not asked."""

    def answer(request: Request) -> Response:
        is_old = float(request.fields.get("time", END)) < START
        return vector([({}, 2)], warnings=[DOWN]) if is_old else MODEL(request)

    read = probed(Response(200, frames_of(), STREAMED))
    with serving(answering(read, answer)) as server, closing(history_of(server).client):
        (batch,) = read_all(history_of(server))
    assert batch.source.startswith("remote read (chunks)")
    assert batch.partial == (DOWN,)


def test_lists_that_lack_data_are_none() -> None:
    """Pods that are not listed would not be asked for; whose owners are not listed would be guessed."""
    said = "returned incomplete data: receive series"
    with serving(lambda _: ok([], warnings=[DOWN])) as server, pytest.raises(WorldFailed, match=said):
        metrics(server.url).client.series("up", 0.0, 60.0, ("pod",))
    with serving(lambda _: vector([], warnings=[DOWN])) as server, pytest.raises(WorldFailed, match=said):
        PrometheusOwners(metrics(server.url).client).replica_sets(["shop"], 1000.0)
