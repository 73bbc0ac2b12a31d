"""A namespace that is too large to be held at once is read in parts, and no group of pods is torn."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any

import cramjam
import numpy as np
import pytest

from equipoise.adapters.prometheus.errors import TooManySeries
from equipoise.adapters.prometheus.history import HistorySource
from equipoise.ports.cluster import CPU, MEMORY
from tests.support.prometheus.histories import (
    END,
    REFUSED,
    START,
    STEP,
    STREAMED,
    answering,
    frames_of,
    history_of,
    labels_of,
    read_all,
)
from tests.support.prometheus.server import Answer, Model, Request, Response, ok, serving, vector

BIG = [("big", f"{name}-{i}") for name in ("api", "db", "job", "web") for i in range(3)]


def _grouped(namespace: str, pods: Sequence[str]) -> list[str | None]:
    """Give the workload of each pod; nobody needs the job's."""
    assert namespace == "big"
    return [None if pod.startswith("job") else pod.rpartition("-")[0] for pod in pods]


def _big(pods: Sequence[tuple[str, str]] = BIG, *, lists: bool = True) -> Answer:
    """Serve a namespace; which pods there were is told by a list of series."""
    model = Model([(labels_of(*pod), 0.25) for pod in pods])

    def answer(request: Request) -> Response:
        if request.path == "/api/v1/series":
            assert request.fields["match[]"].startswith(CPU.metric)
            assert float(request.fields["start"]) == START - 150
            listed = [labels_of(*pod) for pod in pods]
            return ok(listed) if lists else REFUSED
        return model(request)

    def read(request: Request) -> Response:
        asked = bytes(cramjam.snappy.decompress_raw(request.body))
        wanted = [pod for pod in pods if pod[1].encode() in asked or b"pod" not in asked]
        return Response(200, frames_of(wanted), STREAMED)

    return answering(read, answer)


@pytest.mark.parametrize("source", [HistorySource.REMOTE_READ, HistorySource.PROMQL])
@pytest.mark.parametrize("rows", [3, 5, 6, 8])
def test_a_namespace_that_is_too_large_is_cut_between_groups_of_pods(
    source: HistorySource, rows: int
) -> None:
    """Groups stay whole, also one that is larger than a lot; what nobody needs is not asked for."""
    with serving(_big()) as server:
        at_once = 2 if source is HistorySource.REMOTE_READ else 3
        history = history_of(server, source, lots_max_bytes=at_once * rows * 21 * 8)
        found = read_all(history, CPU, grouping=_grouped)
    assert {one.scope for one in found} == {("big",)}
    groups = [one.groups or frozenset() for one in found]
    assert [sorted(map(str, some)) for some in groups] == (
        [["api", "db"], ["web"]] if rows >= 6 else [["api"], ["db"], ["web"]]
    )
    for one, some in zip(found, groups, strict=True):
        assert sorted(one.pods) == sorted(pod for _, pod in BIG if pod.rpartition("-")[0] in some)
        np.testing.assert_allclose(one.values, 0.25)
        assert one.warnings == ()


def _held(given: Sequence[weakref.ref[Any]]) -> int:
    """Count those that are alive; a thread that has just read one may take a moment to let go of it."""
    end = time.monotonic() + 30
    while (held := sum(lot() is not None for lot in given)) > 1 and time.monotonic() < end:
        time.sleep(0.005)
    return held


def test_a_large_namespace_is_held_a_part_at_a_time() -> None:
    """The one that is looked at, and those that are read ahead."""
    pods = [("big", f"{chr(97 + i)}-{j}") for i in range(20) for j in range(2)]
    given: list[weakref.ref[Any]] = []
    held = 0
    with serving(_big(pods)) as server:
        history = history_of(server, lots_max_bytes=2 * 2 * 21 * 8)
        for one in history.read((CPU,), START, END, STEP, grouping=_grouped):
            given.append(weakref.ref(one.values))
            held = max(held, _held(given))
            del one
        asked = sum(request.path == "/api/v1/read" for request in server.requests)
    assert (len(given), asked, held) == (20, 21, 1)


def test_a_group_that_is_larger_than_a_lot_is_read_whole() -> None:
    """Advice on it needs all of its pods."""
    with serving(_big()) as server:
        found = read_all(history_of(server, lots_max_bytes=2 * 2 * 21 * 8), CPU, grouping=_grouped)
    assert [len(one.pods) for one in found] == [3, 3, 3]


def test_a_week_of_pods_that_are_gone_is_cut_when_it_proves_too_large() -> None:
    """Two live, which would fit."""
    answer = _big()

    def few(request: Request) -> Response:
        if request.fields.get("query", "").startswith("count by"):
            return vector([({"namespace": "big"}, 2.0)])
        return answer(request)

    with serving(few) as server:
        found = read_all(history_of(server, lots_max_bytes=2 * 6 * 21 * 8), CPU, MEMORY, grouping=_grouped)
        names = [request.fields["query"] for request in server.requests if "range" in request.path]
    assert [(one.measure, len(one.pods)) for one in found] == [("cpu", 6), ("cpu", 3), ("memory", 12)]
    assert names == [f'max_over_time({MEMORY.metric}{{container!="",container!="POD"}}[20m])']


def test_a_large_namespace_whose_pods_nobody_tells_is_an_error_that_says_what_to_do() -> None:
    """Never a part of it."""
    small = 2 * 5 * 21 * 8
    with serving(_big(lists=False)) as server, pytest.raises(TooManySeries, match="narrow the namespaces"):
        read_all(history_of(server, lots_max_bytes=small), CPU, grouping=_grouped)
    with serving(_big()) as server, pytest.raises(TooManySeries, match="narrow the namespaces"):
        read_all(history_of(server, lots_max_bytes=small), CPU)
