"""VictoriaMetrics is asked for raw samples, which we reduce as Prometheus does: its own `rate` is another."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from equipoise.ports.cluster import MEMORY
from tests.support.prometheus.histories import END, REFUSED, START, history_of, read_all
from tests.support.prometheus.server import BUILD_INFO, Request, Response, ok, serving, vector
from tests.support.prometheus.usage import container, metrics, rows

AT = 1_795_037_779.0
BUILD = {"version": "2.24.0"}
"""What a VictoriaMetrics of version 1.150 says of itself."""
Samples = list[tuple[float, str]]


def _series(pod: str, samples: Samples, **more: str) -> dict[str, Any]:
    return {"metric": container("shop", pod, **more), "values": [list(sample) for sample in samples]}


def _steady(cores: float, every: float = 15.0, end: float = AT - 4.0, first: float = 0.0) -> Samples:
    """Return the samples of a window of 300 seconds; the last is as fresh as it is there: seconds old."""
    times = [end - every * i for i in range(int((300.0 - (AT - end)) // every) + 1)][::-1]
    return [(at, repr(first + cores * (at - times[0]))) for at in times]


def _answering(series: list[dict[str, Any]]) -> Any:
    def answer(request: Request) -> Response:
        if request.path == BUILD_INFO:
            return ok(BUILD)
        assert request.fields["query"].endswith("[5m]"), "nothing but samples is asked for"
        return ok({"resultType": "matrix", "result": series})

    return answer


def test_usage_now_is_one_question_for_samples() -> None:
    """Rates, when the last sample was taken, and whether the window is covered, all from them."""
    series = [_series("web-1", _steady(0.5, first=100.0)), _series("web-2", _steady(0.7)[-6:])]
    with serving(_answering(series)) as server:
        usage = metrics(server.url).cpu_usage({"shop": ["web-1", "web-2"]}, AT, 300.0)
        assert len(server.asked) == 1
    assert usage.is_covered is not None
    assert dict(zip(usage.pods, usage.is_covered.tolist(), strict=True)) == {"web-1": True, "web-2": False}
    assert rows(usage)["shop", "web-1", "app"] == pytest.approx(0.5)
    assert usage.sampled_at.tolist() == [AT - 4.0] * 2
    assert usage.warnings == ()


@pytest.mark.parametrize("status", [400, 403, 404])
def test_it_is_known_behind_a_proxy_that_lets_only_queries_pass(status: int) -> None:
    """By its answers: they alone tell how many series were fetched. By rates, usage would be another."""
    samples = _answering([_series("web-1", _steady(0.5, first=100.0))])

    def answer(request: Request) -> Response:
        if request.path == BUILD_INFO:
            return Response(status, b"missing route for /api/v1/status/buildinfo", {})
        if request.fields["query"] == "1":
            one = {"resultType": "vector", "result": [{"metric": {}, "value": [AT, "1"]}]}
            return ok(one, stats={"seriesFetched": "0", "executionTimeMsec": 0})
        answered: Response = samples(request)
        return answered

    with serving(answer) as server:
        source = metrics(server.url)
        for _ in range(2):
            found = rows(source.cpu_usage({"shop": ["web-1"]}, AT, 300.0))
            assert found == {("shop", "web-1", "app"): pytest.approx(0.5)}
        assert [r.fields["query"][:1] for r in server.asked] == ["1", "c", "c"], "what it is is asked once"
        assert source.client.build_info().flavour == "VictoriaMetrics"


def test_samples_that_were_written_twice_count_once() -> None:
    """As VictoriaMetrics gives them: both, at one time."""
    once = _steady(0.5)
    twice = [sample for sample in once for _ in range(2)]
    found = []
    for samples in (once, twice):
        with serving(_answering([_series("web-1", samples)])) as server:
            found.append(rows(metrics(server.url).cpu_usage({"shop": ["web-1"]}, AT, 300.0)))
    assert found[0] == found[1] != {}


def test_a_series_that_ended_is_gone_and_one_that_goes_on_counts() -> None:
    """A stale marker comes as NaN; a container without a current sample is no row."""
    ended = [*_steady(0.5)[:-1], (AT - 4.0, "NaN")]
    again = _steady(0.2, first=3.0)
    with serving(
        _answering([_series("web-1", ended), _series("web-2", ended), _series("web-2", again, id="b")])
    ) as server:
        usage = metrics(server.url).cpu_usage({"shop": ["web-1", "web-2"]}, AT, 300.0)
    assert usage.pods == ["web-2"]
    assert usage.sampled_at.tolist() == [AT - 4.0]


def test_a_single_sample_is_no_usage() -> None:
    """A rate takes two."""
    with serving(_answering([_series("web-1", _steady(0.5)[-1:])])) as server:
        assert metrics(server.url).cpu_usage({"shop": ["web-1"]}, AT, 300.0).pods == []


def test_histories_are_made_of_samples_however_many_they_are() -> None:
    """Six for each step: Prometheus would be asked for rates. The peak of memory is the same everywhere."""
    asked: list[str] = []

    def answer(request: Request) -> Response:
        query = request.fields.get("query", "")
        asked.append(query)
        if request.path == BUILD_INFO:
            return ok(BUILD)
        if request.path == "/api/v1/read":
            return REFUSED
        if query.startswith("quantile"):
            return vector([({}, 360)])
        if query.startswith("count by"):
            return vector([({"namespace": "shop"}, 1)])
        if query.startswith("max_over_time"):
            return ok({"resultType": "matrix", "result": [_series("web-1", [(END, "5")])]})
        times = np.arange(START - 600, END + 1, 10).tolist()
        return ok({"resultType": "matrix", "result": [_series("web-1", [(t, str(0.25 * t)) for t in times])]})

    with serving(answer) as server, closing(history_of(server).client):
        cpu, memory = read_all(history_of(server)), read_all(history_of(server), MEMORY)
    np.testing.assert_allclose(cpu[0].values, 0.25)
    assert memory[0].values.tolist() == [[5.0]]
    assert not any("rate(" in query for query in asked)
