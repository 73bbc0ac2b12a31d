"""Histories come by the best way that a server offers, lot by lot, and say which way it was."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import cramjam
import numpy as np
import pytest

from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.errors import (
    Malformed,
    NotOffered,
    QueryFailed,
    TooManySeries,
    Unreachable,
)
from equipoise.adapters.prometheus.history import PrometheusHistory, Source, UsageHistory
from equipoise.adapters.prometheus.measures import CPU, MEMORY, Measure, Reduction
from equipoise.adapters.prometheus.promql import Matcher
from equipoise.adapters.prometheus.settings import Names, Settings
from equipoise.adapters.prometheus.transport import Direct
from equipoise.model.errors import BadInput
from tests.prometheus.remote_read.encoding import (
    bits_of,
    chunk_of,
    frame,
    samples_answer,
    series_message,
    value_of,
)
from tests.prometheus.server import Answer, Model, Request, Response, Server, ok, serving, vector

START, STEP = 1_789_000_020, 60
END = START + 20 * STEP
PODS = [("shop", "web-0"), ("shop", "web-1"), ("batch", "job-0")]
STREAMED = {"Content-Type": "application/x-streamed-protobuf"}
PLAIN = {"Content-Type": "application/x-protobuf"}
REFUSED = Response(404, b"404 page not found")
MODEL = Model([({"namespace": ns, "pod": pod, "container": "app"}, 0.25) for ns, pod in PODS])


def _labels(namespace: str, pod: str, **more: str) -> dict[str, str]:
    return {"container": "app", "namespace": namespace, "pod": pod, **more}


def _samples(cores: float) -> list[tuple[int, int]]:
    return [(1000 * (START - 600 + 60 * i) + 7, bits_of(60.0 * cores * i)) for i in range(40)]


def _frames(pods: Sequence[tuple[str, str]] = PODS, cores: float = 0.25) -> bytes:
    return b"".join(frame(series_message(_labels(*pod), [chunk_of(_samples(cores))])) for pod in pods)


def _server(read: Callable[[Request], Response], model: Answer = MODEL) -> Answer:
    def answer(request: Request) -> Response:
        if request.path == "/api/v1/read":
            return read(request)
        if request.path == "/api/v1/status/buildinfo":
            return ok({"version": "3.1.0", "revision": "r"})
        return model(request)

    return answer


def _probed(body: Response) -> Callable[[Request], Response]:
    """Answer a probe with nothing, and all else with this."""

    def read(request: Request) -> Response:
        return Response(200, b"", STREAMED) if b"equipoise_probe" in request.body else body

    return read


def _history(server: Server, source: Source = Source.AUTO, **options: Any) -> PrometheusHistory:
    client = Client(Direct(Settings(server.url)), sleep=lambda _: None)
    return PrometheusHistory(client, source=source, **options)


def _read(history: PrometheusHistory, *measures: Measure, **options: Any) -> list[UsageHistory]:
    return list(history.read(measures or (CPU,), START, END, STEP, **options))


def _keys(found: UsageHistory) -> list[tuple[str, str, str]]:
    return list(zip(found.namespaces, found.pods, found.containers, strict=True))


def test_chunks_are_read_reduced_and_keyed_by_container() -> None:
    """One request for a measure, after one that learns what is offered."""
    read: list[int] = []
    with serving(_server(_probed(Response(200, _frames(), STREAMED)))) as server:
        (found,) = _read(_history(server), on_bytes=read.append)
        asked = [request.path for request in server.requests if request.path == "/api/v1/read"]
    assert len(asked) == 2
    assert sum(read) == len(_frames())
    assert _keys(found) == [(*pod, "app") for pod in PODS]
    np.testing.assert_allclose(found.values, 0.25)
    assert found.timestamps.tolist() == [START + STEP * i for i in range(21)]
    assert (found.measure, found.scope, found.window_seconds) == ("cpu", None, 150.0)
    assert found.source == f"remote read (chunks) of {server.url}"
    assert found.warnings == ()


def test_plain_samples_are_the_second_way() -> None:
    """The content type tells."""
    plain = Response(200, samples_answer([(_labels(*pod), _samples(0.5)) for pod in PODS]), PLAIN)
    with serving(_server(lambda _: plain)) as server:
        (found,) = _read(_history(server))
    np.testing.assert_allclose(found.values, 0.5)
    assert found.source.startswith("remote read (samples)")


def test_promql_is_the_third_way_and_what_is_offered_is_asked_once() -> None:
    """The server is not asked for remote read again."""
    with serving(_server(lambda _: REFUSED)) as server:
        history = _history(server)
        for found in (*_read(history), *_read(history, MEMORY)):
            assert sorted(_keys(found)) == sorted((*pod, "app") for pod in PODS)
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
    [_frames()[:-5], _frames() + b"remote read: out of luck", b"\x05" + _frames(), _frames()[:40]],
    ids=["cut", "late error", "misframed", "short"],
)
def test_an_answer_that_breaks_is_thrown_away_whole(broken: bytes) -> None:
    """PromQL is asked instead, and the history says why; nothing of the broken answer is left."""
    with serving(_server(_probed(Response(200, broken, STREAMED)))) as server:
        (found,) = _read(_history(server))
        assert len(found.pods) == len(PODS)
        assert found.source.startswith("PromQL")
        assert "PromQL was asked instead" in found.warnings[0]
        with pytest.raises((QueryFailed, Malformed), match=r"127\.0\.0\.1"):
            _read(_history(server, Source.REMOTE_READ))


def test_a_lost_connection_is_tried_once_more() -> None:
    """Nothing was given away, so nothing is counted twice."""
    turns = itertools.chain([Response(200, b"", STREAMED)], [Response(200, _frames(), STREAMED, 10**6)])
    answers = itertools.chain(turns, itertools.repeat(Response(200, _frames(), STREAMED)))
    with serving(_server(lambda _: next(answers))) as server:
        (found,) = _read(_history(server))
    assert found.source.startswith("remote read")
    assert len(found.pods) == len(PODS)


def test_a_way_that_was_picked_is_the_only_one() -> None:
    """No silent change of ways for who asked for one."""
    with serving(_server(lambda _: REFUSED)) as server, pytest.raises(NotOffered, match="404"):
        _read(_history(server, Source.REMOTE_READ))
    with serving(_server(_probed(Response(200, _frames(), STREAMED)))) as server:
        (found,) = _read(_history(server, Source.PROMQL))
        assert found.source.startswith("PromQL")
        assert "/api/v1/read" not in {request.path for request in server.requests}


def test_a_container_that_is_scraped_twice_counts_once() -> None:
    """The larger value wins, also where the two come in different batches."""
    both = [_labels("shop", "web-0", job=job) for job in "ab"]
    stream = b"".join(
        frame(series_message(labels, [chunk_of(_samples(cores))]))
        for labels, cores in zip(both, (0.5, 0.75), strict=True)
    )
    with serving(_server(_probed(Response(200, stream, STREAMED)))) as server:
        (found,) = _read(_history(server))
    assert _keys(found) == [("shop", "web-0", "app")]
    np.testing.assert_allclose(found.values, 0.75)


def test_namespaces_are_read_in_lots_that_fit_into_memory() -> None:
    """Whole namespaces, in the order of their names; each lot with all measures."""
    pods = [(f"ns-{i}", f"pod-{j}") for i in range(6) for j in range(3)]
    model = Model([(_labels(*pod), 0.25) for pod in pods])

    def read(request: Request) -> Response:
        wanted = [pod for pod in pods if pod[0].encode() in request.body]
        return Response(200, _frames(wanted), STREAMED)

    with serving(_server(read, model)) as server:
        # Two in flight, 21 numbers in a row: ten rows, eight of which are planned with.
        found = _read(_history(server, lots_max_bytes=2 * 10 * 21 * 8), CPU, MEMORY)
        again = _read(_history(server, lots_max_bytes=2 * 10 * 21 * 8), namespaces=["ns-3", "ns-1", "ns-1"])
    lots = [("ns-0", "ns-1"), ("ns-2", "ns-3"), ("ns-4", "ns-5")]
    assert [(one.scope, one.measure) for one in found] == [
        (lot, m) for lot in lots for m in ("cpu", "memory")
    ]
    assert [key for one in found[::2] for key in _keys(one)] == [(*pod, "app") for pod in pods]
    assert [one.scope for one in again] == [("ns-1", "ns-3")]


def test_a_lot_that_proves_too_large_is_cut_in_two_and_one_namespace_is_not() -> None:
    """A week has seen more pods than the count at its end tells."""
    pods = [(namespace, f"pod-{j}") for namespace in ("a-ns", "b-ns") for j in range(4)]

    def read(request: Request) -> Response:
        wanted = [pod for pod in pods if pod[0].encode() in request.body]
        return Response(200, _frames(wanted), STREAMED)

    few = Model([(_labels("a-ns", "pod-0"), 1.0), (_labels("b-ns", "pod-0"), 1.0)])
    with serving(_server(read, few)) as server:
        names = ["a-ns", "b-ns"]
        found = _read(_history(server, lots_max_bytes=2 * 5 * 21 * 8), namespaces=names)
        assert [one.scope for one in found] == [("a-ns",), ("b-ns",)]
        assert [len(one.pods) for one in found] == [4, 4]
        small = _history(server, Source.REMOTE_READ, lots_max_bytes=2 * 3 * 21 * 8)
        with pytest.raises(TooManySeries, match="lots_max_bytes"):
            _read(small, namespaces=names)


BIG = [("big", f"{name}-{i}") for name in ("api", "db", "job", "web") for i in range(3)]


def _grouped(namespace: str, pods: Sequence[str]) -> list[str | None]:
    """Give the workload of each pod; nobody needs the job's."""
    assert namespace == "big"
    return [None if pod.startswith("job") else pod.rpartition("-")[0] for pod in pods]


def _big(pods: Sequence[tuple[str, str]] = BIG, *, lists: bool = True) -> Answer:
    """Serve a namespace; which pods there were is told by a list of series."""
    model = Model([(_labels(*pod), 0.25) for pod in pods])

    def answer(request: Request) -> Response:
        if request.path == "/api/v1/series":
            assert request.fields["match[]"].startswith(CPU.metric)
            assert float(request.fields["start"]) == START - 150
            listed = [_labels(*pod) for pod in pods]
            return ok(listed) if lists else REFUSED
        return model(request)

    def read(request: Request) -> Response:
        asked = bytes(cramjam.snappy.decompress_raw(request.body))
        wanted = [pod for pod in pods if pod[1].encode() in asked or b"pod" not in asked]
        return Response(200, _frames(wanted), STREAMED)

    return _server(read, answer)


@pytest.mark.parametrize("source", [Source.REMOTE_READ, Source.PROMQL])
@pytest.mark.parametrize("rows", [3, 5, 6, 8])
def test_a_namespace_that_is_too_large_is_cut_between_groups_of_pods(source: Source, rows: int) -> None:
    """Groups stay whole, also one that is larger than a lot; what nobody needs is not asked for."""
    with serving(_big()) as server:
        history = _history(server, source, lots_max_bytes=2 * rows * 21 * 8)
        found = _read(history, CPU, grouping=_grouped)
    assert {one.scope for one in found} == {("big",)}
    groups = [one.groups or frozenset() for one in found]
    assert [sorted(map(str, some)) for some in groups] == (
        [["api", "db"], ["web"]] if rows >= 6 else [["api"], ["db"], ["web"]]
    )
    for one, some in zip(found, groups, strict=True):
        assert sorted(one.pods) == sorted(pod for _, pod in BIG if pod.rpartition("-")[0] in some)
        np.testing.assert_allclose(one.values, 0.25)
        assert one.warnings == ()


def test_a_large_namespace_is_held_a_part_at_a_time() -> None:
    """The one that is looked at, and those that are read ahead."""
    pods = [("big", f"{chr(97 + i)}-{j}") for i in range(20) for j in range(2)]
    given: list[weakref.ref[Any]] = []
    held = 0
    with serving(_big(pods)) as server:
        history = _history(server, lots_max_bytes=2 * 2 * 21 * 8)
        for one in history.read((CPU,), START, END, STEP, grouping=_grouped):
            given.append(weakref.ref(one.values))
            held = max(held, sum(lot() is not None for lot in given))
            del one
        asked = sum(request.path == "/api/v1/read" for request in server.requests)
    assert (len(given), asked, held) == (20, 21, 1)


def test_a_group_that_is_larger_than_a_lot_is_read_whole() -> None:
    """Advice on it needs all of its pods."""
    with serving(_big()) as server:
        found = _read(_history(server, lots_max_bytes=2 * 2 * 21 * 8), CPU, grouping=_grouped)
    assert [len(one.pods) for one in found] == [3, 3, 3]


def test_a_week_of_pods_that_are_gone_is_cut_when_it_proves_too_large() -> None:
    """Two live, which would fit."""
    answer = _big()

    def few(request: Request) -> Response:
        if request.fields.get("query", "").startswith("count by"):
            return vector([({"namespace": "big"}, 2.0)])
        return answer(request)

    with serving(few) as server:
        found = _read(_history(server, lots_max_bytes=2 * 6 * 21 * 8), CPU, MEMORY, grouping=_grouped)
        names = [request.fields["query"] for request in server.requests if "range" in request.path]
    assert [(one.measure, len(one.pods)) for one in found] == [("cpu", 6), ("cpu", 3), ("memory", 12)]
    assert names == [f'max_over_time({MEMORY.metric}{{container!="",container!="POD"}}[20m])']


def test_a_large_namespace_whose_pods_nobody_tells_is_an_error_that_says_what_to_do() -> None:
    """Never a part of it."""
    small = 2 * 5 * 21 * 8
    with serving(_big(lists=False)) as server, pytest.raises(TooManySeries, match="narrow the namespaces"):
        _read(_history(server, lots_max_bytes=small), CPU, grouping=_grouped)
    with serving(_big()) as server, pytest.raises(TooManySeries, match="narrow the namespaces"):
        _read(_history(server, lots_max_bytes=small), CPU)


def test_bytes_are_told_by_promql_too() -> None:
    """Answer by answer, so that a bar moves."""
    came: list[int] = []
    with serving(_server(lambda _: REFUSED)) as server:
        history = _history(server)
        _read(history, on_bytes=came.append)
        assert len(came) == len([request for request in server.requests if "range" in request.path]) == 1
        body = MODEL(server.requests[-1]).body
    assert came == [len(body)]


def test_the_window_follows_the_scrape_interval() -> None:
    """Twelve samples in an hour: two of them lie within twelve and a half minutes."""

    def model(request: Request) -> Response:
        if request.fields.get("query", "").startswith("quantile"):
            return vector([({}, 12.0)])
        return MODEL(request)

    with serving(_server(_probed(Response(200, b"", STREAMED)), model)) as server:
        (found,) = _read(_history(server))
    assert found.window_seconds == 750.0
    assert "no container has container_cpu_usage_seconds_total here" in found.warnings[0]


def test_memory_is_one_number_and_the_server_finds_it_unless_another_way_was_picked() -> None:
    """The highest from start to end; the query that fails is made good by remote read."""
    stream = frame(series_message(_labels(*PODS[0]), [chunk_of(_samples(1.0))]))
    failing = [Response(422, b'{"status":"error","errorType":"execution","error":"no"}')]

    def model(request: Request) -> Response:
        is_peak = "max_over_time" in request.fields.get("query", "")
        return failing[0] if failing and is_peak else MODEL(request)

    within = [bits for at, bits in _samples(1.0) if 1000 * START < at <= 1000 * END]
    with serving(_server(_probed(Response(200, stream, STREAMED)), model)) as server:
        for source in (Source.AUTO, Source.REMOTE_READ):
            (found,) = _read(_history(server, source), MEMORY)
            assert found.source == f"remote read (chunks) of {server.url}"
            assert found.timestamps.tolist() == [END]
            assert found.values.tolist() == [[value_of(max(within))]]
            assert found.window_seconds == END - START
        failing.clear()
        (found,) = _read(_history(server), MEMORY)
    assert found.source == f"PromQL of {server.url}"
    assert found.values.tolist() == [[0.25]] * len(PODS)


def test_matchers_and_measures_of_ones_own_are_asked_for() -> None:
    """In both ways; labels are checked before anything is sent."""
    mine = Measure("heap", "jvm_used", Reduction.LAST)
    with serving(_server(lambda _: REFUSED)) as server, closing(_history(server).client) as client:
        history = PrometheusHistory(client, extra_matchers={"cluster": "eu"}, source=Source.PROMQL)
        assert not _read(history, mine, matchers=[Matcher("pod", "=~", "web.*")])[0].pods
        asked = [request.fields["query"] for request in server.requests if "range" in request.path]
    selected = 'jvm_used{container!="",container!="POD",cluster="eu",pod=~"web.*"}'
    assert asked == [f"last_over_time({selected}[2m30s])"]
    with pytest.raises(BadInput, match="label"):
        PrometheusHistory(client, extra_matchers={"a b": "c"})


@pytest.mark.parametrize("source", [Source.REMOTE_READ, Source.PROMQL])
def test_labels_may_have_other_names(source: Source) -> None:
    """In what is asked and in what is answered."""
    names = Names(namespace="ns", pod="pod_name", container="c")
    series = [{"c": "app", "ns": "shop", "pod_name": pod} for pod in ("web-0", "web-1")]
    stream = b"".join(frame(series_message(labels, [chunk_of(_samples(0.25))])) for labels in series)
    model = Model([(labels, 0.25) for labels in series])
    with serving(_server(_probed(Response(200, stream, STREAMED)), model)) as server:
        (found,) = _read(_history(server, source, names=names), namespaces=["shop"])
        asked = [request.fields["query"] for request in server.requests if "query" in request.fields]
    assert _keys(found) == [("shop", "web-0", "app"), ("shop", "web-1", "app")]
    np.testing.assert_allclose(found.values, 0.25)
    assert f'count by (ns) ({CPU.metric}{{c!="",c!="POD",ns="shop"}})' in asked


def test_a_server_that_is_gone_is_told_at_once() -> None:
    """Before lots are planned."""
    with serving(MODEL) as server:
        history = _history(server)
    with pytest.raises(Unreachable):
        next(history.read((CPU,), START, END, STEP))


def test_nothing_is_asked_for_no_namespaces() -> None:
    """An empty list is not all of them."""
    with serving(_server(_probed(Response(200, _frames(), STREAMED)))) as server:
        assert _read(_history(server), namespaces=[]) == []
