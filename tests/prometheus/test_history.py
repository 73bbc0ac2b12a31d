"""Histories come by the best way that a server offers, lot by lot, and say which way it was."""

from __future__ import annotations

import itertools
from contextlib import closing

import numpy as np
import pytest

from equipoise.adapters.prometheus.errors import (
    Malformed,
    NotOffered,
    PrometheusUnreachable,
    QueryFailed,
    TooManySeries,
)
from equipoise.adapters.prometheus.history import HistorySource, PrometheusHistory
from equipoise.adapters.prometheus.promql import Matcher
from equipoise.adapters.prometheus.settings import LabelNames
from equipoise.core.errors import BadInput
from equipoise.ports.cluster import CPU, MEMORY, Measure, Reduction
from tests.support.prometheus.encoding import chunk_of, frame, samples_answer, series_message, value_of
from tests.support.prometheus.histories import (
    END,
    MODEL,
    PLAIN,
    PODS,
    REFUSED,
    START,
    STEP,
    STREAMED,
    answering,
    frames_of,
    history_of,
    keys_of,
    labels_of,
    probed,
    read_all,
    samples_of,
)
from tests.support.prometheus.server import Model, Request, Response, serving, vector


def test_chunks_are_read_reduced_and_keyed_by_container() -> None:
    """One request for a measure, after one that learns what is offered."""
    read: list[int] = []
    with serving(answering(probed(Response(200, frames_of(), STREAMED)))) as server:
        (found,) = read_all(history_of(server), on_bytes=read.append)
        asked = [request.path for request in server.requests if request.path == "/api/v1/read"]
    assert len(asked) == 2
    assert sum(read) == len(frames_of())
    assert keys_of(found) == [(*pod, "app") for pod in PODS]
    np.testing.assert_allclose(found.values, 0.25)
    assert found.timestamps.tolist() == [START + STEP * i for i in range(21)]
    assert (found.measure, found.scope, found.window_seconds) == ("cpu", None, 150.0)
    assert found.source == f"remote read (chunks) of {server.url}"
    assert found.warnings == ()


def test_plain_samples_are_the_second_way() -> None:
    """The content type tells."""
    plain = Response(200, samples_answer([(labels_of(*pod), samples_of(0.5)) for pod in PODS]), PLAIN)
    with serving(answering(lambda _: plain)) as server:
        (found,) = read_all(history_of(server))
    np.testing.assert_allclose(found.values, 0.5)
    assert found.source.startswith("remote read (samples)")


def test_promql_is_the_third_way_and_what_is_offered_is_asked_once() -> None:
    """The server is not asked for remote read again."""
    with serving(answering(lambda _: REFUSED)) as server:
        history = history_of(server)
        for found in (*read_all(history), *read_all(history, MEMORY)):
            assert sorted(keys_of(found)) == sorted((*pod, "app") for pod in PODS)
            np.testing.assert_allclose(found.values, 0.25)
            assert found.source == f"PromQL of {server.url}"
        paths = [request.path for request in server.requests]
        queries = [request.fields["query"] for request in server.requests if "range" in request.path]
    assert paths.count("/api/v1/read") == 1
    fixed = '{container!="",container!="POD"}'
    assert queries[0] == f"rate({CPU.metric}{fixed}[2m30s])"
    assert queries[-1] == f"max_over_time({MEMORY.metric}{fixed}[20m])"
    assert "remote read" in str(history.offered())


@pytest.mark.parametrize(
    "broken",
    [frames_of()[:-5], frames_of() + b"remote read: out of luck", b"\x05" + frames_of(), frames_of()[:40]],
    ids=["cut", "late error", "misframed", "short"],
)
def test_an_answer_that_breaks_is_thrown_away_whole(broken: bytes) -> None:
    """PromQL is asked instead, and the history says why; nothing of the broken answer is left."""
    with serving(answering(probed(Response(200, broken, STREAMED)))) as server:
        (found,) = read_all(history_of(server))
        assert len(found.pods) == len(PODS)
        assert found.source.startswith("PromQL")
        assert "PromQL was used instead" in found.warnings[0]
        with pytest.raises((QueryFailed, Malformed), match=r"127\.0\.0\.1"):
            read_all(history_of(server, HistorySource.REMOTE_READ))


def test_a_lost_connection_is_tried_once_more() -> None:
    """Nothing was given away, so nothing is counted twice."""
    turns = itertools.chain([Response(200, b"", STREAMED)], [Response(200, frames_of(), STREAMED, 10**6)])
    answers = itertools.chain(turns, itertools.repeat(Response(200, frames_of(), STREAMED)))
    with serving(answering(lambda _: next(answers))) as server:
        (found,) = read_all(history_of(server))
    assert found.source.startswith("remote read")
    assert len(found.pods) == len(PODS)


def test_a_way_that_was_picked_is_the_only_one() -> None:
    """No silent change of ways for who asked for one."""
    with serving(answering(lambda _: REFUSED)) as server, pytest.raises(NotOffered, match="404"):
        read_all(history_of(server, HistorySource.REMOTE_READ))
    with serving(answering(probed(Response(200, frames_of(), STREAMED)))) as server:
        (found,) = read_all(history_of(server, HistorySource.PROMQL))
        assert found.source.startswith("PromQL")
        assert "/api/v1/read" not in {request.path for request in server.requests}


def test_a_container_that_is_scraped_twice_counts_once() -> None:
    """The larger value wins, also where the two come in different batches."""
    both = [labels_of("shop", "web-0", job=job) for job in "ab"]
    stream = b"".join(
        frame(series_message(labels, [chunk_of(samples_of(cores))]))
        for labels, cores in zip(both, (0.5, 0.75), strict=True)
    )
    with serving(answering(probed(Response(200, stream, STREAMED)))) as server:
        (found,) = read_all(history_of(server))
    assert keys_of(found) == [("shop", "web-0", "app")]
    np.testing.assert_allclose(found.values, 0.75)


def test_namespaces_are_read_in_lots_that_fit_into_memory() -> None:
    """Whole namespaces, in the order of their names; each lot with all measures."""
    pods = [(f"ns-{i}", f"pod-{j}") for i in range(6) for j in range(3)]
    model = Model([(labels_of(*pod), 0.25) for pod in pods])

    def read(request: Request) -> Response:
        wanted = [pod for pod in pods if pod[0].encode() in request.body]
        return Response(200, frames_of(wanted), STREAMED)

    with serving(answering(read, model)) as server:
        # Two in flight, 21 numbers in a row: ten rows, eight of which are planned with.
        found = read_all(history_of(server, lots_max_bytes=2 * 10 * 21 * 8), CPU, MEMORY)
        again = read_all(
            history_of(server, lots_max_bytes=2 * 10 * 21 * 8), namespaces=["ns-3", "ns-1", "ns-1"]
        )
    lots = [("ns-0", "ns-1"), ("ns-2", "ns-3"), ("ns-4", "ns-5")]
    assert [(one.scope, one.measure) for one in found] == [
        (lot, m) for lot in lots for m in ("cpu", "memory")
    ]
    assert [key for one in found[::2] for key in keys_of(one)] == [(*pod, "app") for pod in pods]
    assert [one.scope for one in again] == [("ns-1", "ns-3")]


def test_a_lot_that_proves_too_large_is_cut_in_two_and_one_namespace_is_not() -> None:
    """A week has seen more pods than the count at its end tells."""
    pods = [(namespace, f"pod-{j}") for namespace in ("a-ns", "b-ns") for j in range(4)]

    def read(request: Request) -> Response:
        wanted = [pod for pod in pods if pod[0].encode() in request.body]
        return Response(200, frames_of(wanted), STREAMED)

    few = Model([(labels_of("a-ns", "pod-0"), 1.0), (labels_of("b-ns", "pod-0"), 1.0)])
    with serving(answering(read, few)) as server:
        names = ["a-ns", "b-ns"]
        found = read_all(history_of(server, lots_max_bytes=2 * 5 * 21 * 8), namespaces=names)
        assert [one.scope for one in found] == [("a-ns",), ("b-ns",)]
        assert [len(one.pods) for one in found] == [4, 4]
        small = history_of(server, HistorySource.REMOTE_READ, lots_max_bytes=2 * 3 * 21 * 8)
        with pytest.raises(TooManySeries, match="lots_max_bytes"):
            read_all(small, namespaces=names)


def test_bytes_are_told_by_promql_too() -> None:
    """Answer by answer, so that a bar moves."""
    came: list[int] = []
    with serving(answering(lambda _: REFUSED)) as server:
        history = history_of(server)
        read_all(history, on_bytes=came.append)
        asked = [
            request for request in server.requests if "range" in request.path or "ms]" in str(request.fields)
        ]
        bodies = [MODEL(request).body for request in asked]
    assert came == [len(body) for body in bodies]
    assert len(came) == 2, "this model knows no raw samples"


def test_the_window_follows_the_scrape_interval() -> None:
    """Twelve samples in an hour: two of them lie within twelve and a half minutes."""

    def model(request: Request) -> Response:
        if request.fields.get("query", "").startswith("quantile"):
            return vector([({}, 12.0)])
        return MODEL(request)

    with serving(answering(probed(Response(200, b"", STREAMED)), model)) as server:
        (found,) = read_all(history_of(server))
    assert found.window_seconds == 750.0
    assert "no container has container_cpu_usage_seconds_total here" in found.warnings[0]


def test_memory_is_one_number_and_the_server_finds_it_whichever_way_was_picked() -> None:
    """The highest from start to end; the query that fails is made good by remote read."""
    stream = frame(series_message(labels_of(*PODS[0]), [chunk_of(samples_of(1.0))]))
    failing = [Response(422, b'{"status":"error","errorType":"execution","error":"no"}')]

    def model(request: Request) -> Response:
        is_peak = "max_over_time" in request.fields.get("query", "")
        return failing[0] if failing and is_peak else MODEL(request)

    within = [bits for at, bits in samples_of(1.0) if 1000 * START < at <= 1000 * END]
    with serving(answering(probed(Response(200, stream, STREAMED)), model)) as server:
        for source in (HistorySource.AUTO, HistorySource.REMOTE_READ):
            (found,) = read_all(history_of(server, source), MEMORY)
            assert found.source == f"remote read (chunks) of {server.url}"
            assert found.timestamps.tolist() == [END]
            assert found.values.tolist() == [[value_of(max(within))]]
            assert found.window_seconds == END - START
        failing.clear()
        for source in HistorySource:
            (found,) = read_all(history_of(server, source), MEMORY)
            assert found.source == f"PromQL of {server.url}"
            assert found.values.tolist() == [[0.25]] * len(PODS)


def test_matchers_and_measures_of_ones_own_are_asked_for() -> None:
    """In both ways; labels are checked before anything is sent."""
    mine = Measure("heap", "jvm_used", Reduction.LAST)
    with serving(answering(lambda _: REFUSED)) as server, closing(history_of(server).client) as client:
        history = PrometheusHistory(client, extra_matchers={"cluster": "eu"}, source=HistorySource.PROMQL)
        assert not read_all(history, mine, matchers=[Matcher("pod", "=~", "web.*")])[0].pods
        asked = [request.fields["query"] for request in server.requests if "range" in request.path]
    selected = 'jvm_used{container!="",container!="POD",cluster="eu",pod=~"web.*"}'
    assert asked == [f"last_over_time({selected}[2m30s])"]
    with pytest.raises(BadInput, match="label"):
        PrometheusHistory(client, extra_matchers={"a b": "c"})


@pytest.mark.parametrize("source", [HistorySource.REMOTE_READ, HistorySource.PROMQL])
def test_labels_may_have_other_names(source: HistorySource) -> None:
    """In what is asked and in what is answered."""
    names = LabelNames(namespace="ns", pod="pod_name", container="c")
    series = [{"c": "app", "ns": "shop", "pod_name": pod} for pod in ("web-0", "web-1")]
    stream = b"".join(frame(series_message(labels, [chunk_of(samples_of(0.25))])) for labels in series)
    model = Model([(labels, 0.25) for labels in series])
    with serving(answering(probed(Response(200, stream, STREAMED)), model)) as server:
        (found,) = read_all(history_of(server, source, names=names), namespaces=["shop"])
        asked = [request.fields["query"] for request in server.requests if "query" in request.fields]
    assert keys_of(found) == [("shop", "web-0", "app"), ("shop", "web-1", "app")]
    np.testing.assert_allclose(found.values, 0.25)
    assert f'count by (ns) ({CPU.metric}{{c!="",c!="POD",ns="shop"}})' in asked


def test_a_server_that_is_gone_is_told_at_once() -> None:
    """Before lots are planned."""
    with serving(MODEL) as server:
        history = history_of(server)
    with pytest.raises(PrometheusUnreachable):
        next(history.read((CPU,), START, END, STEP))


def test_nothing_is_asked_for_no_namespaces() -> None:
    """An empty list is not all of them."""
    with serving(answering(probed(Response(200, frames_of(), STREAMED)))) as server:
        assert read_all(history_of(server), namespaces=[]) == []
