"""Long ranges are many requests, and their answer is that of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.errors import QueryFailed, Reply, TooHeavy, TooManySeries
from equipoise.adapters.prometheus.matrix import Grid, Matrix
from equipoise.adapters.prometheus.range import query_range
from equipoise.adapters.prometheus.settings import QueryLimits
from tests.support.prometheus.server import Model, Request, Response, failed

LABELS = ("namespace", "pod")
PODS = {"a": ("w1", "w2", "w3"), "b": ("w1",), "c": ("w1", "w2")}


class InMemory:
    """The model without a network between."""

    address = "model"
    query_max_bytes = 1000

    def __init__(self, model: Any) -> None:
        self.model = model
        self.fields: list[Mapping[str, str]] = []

    def send(self, path: str, fields: Mapping[str, str], timeout_seconds: float, bytes_max: int) -> Reply:
        self.fields.append(fields)
        answer = self.model(Request("POST", path, fields, {}))
        return Reply(answer.status, answer.body, "application/json")

    def close(self) -> None:
        pass

    @property
    def ranges(self) -> list[Mapping[str, str]]:
        return [f for f in self.fields if "step" in f]


def changing(labels: Mapping[str, str], value: float, at: float) -> float | None:
    """A value of every time and series; a third of all points is missing."""
    mixed = int(at) * 31 + int(value) * 17
    return None if mixed % 3 == 0 else value + at / 1000


def model(**options: Any) -> Model:
    series = [
        ({"namespace": ns, "pod": pod}, float(ord(ns) + i))
        for ns, pods in PODS.items()
        for i, pod in enumerate(pods)
    ]
    return Model(series, value=changing, **options)


def ask(transport: InMemory, *, end: float = 4000, **limits: Any) -> Matrix:
    client = PrometheusClient(transport, QueryLimits(concurrency_max=1, **limits))
    return query_range(client, 'usage{namespace!=""}', Grid.over(1000, end, 10), LABELS)


def by_key(matrix: Matrix) -> dict[tuple[str, ...], list[float]]:
    return {key: matrix.values[i].tolist() for i, key in enumerate(matrix.keys)}


@settings(max_examples=30, deadline=None)
@given(
    points_max=st.integers(1, 400),
    memory_max_bytes=st.integers(200, 200_000),
    end=st.floats(1000, 3000),
)
def test_a_split_range_is_the_same_as_an_unsplit_one(
    points_max: int, memory_max_bytes: int, end: float
) -> None:
    """No point is lost or doubled at a seam, however the query is cut."""
    whole = ask(InMemory(model()), end=end)
    transport = InMemory(model(points_max=points_max))
    split = ask(
        transport,
        end=end,
        points_max=points_max,
        memory_max_bytes=max(memory_max_bytes, 40 * 8),
    )
    assert split.timestamps.tolist() == whole.timestamps.tolist()
    first, second = by_key(whole), by_key(split)
    assert sorted(first) == sorted(second)
    for key, row in first.items():
        np.testing.assert_array_equal(row, second[key])
    asked = [round((float(f["end"]) - float(f["start"])) / 10) + 1 for f in transport.ranges]
    assert max(asked) <= points_max


def test_requests_stay_within_points_and_memory() -> None:
    """301 points of 6 series at 40 bytes each in answers of 12,000 bytes: 50 points a request."""
    transport = InMemory(Model(model().series))
    ask(transport, memory_max_bytes=12_000)
    assert len(transport.ranges) == 7
    starts = [(f["start"], f["end"]) for f in transport.ranges]
    assert starts[0] == ("1000.000", "1490.000")
    assert starts[1] == ("1500.000", "1990.000")


def test_a_range_that_is_too_heavy_is_cut_until_it_is_not() -> None:
    """The server's limit is its own; halves are tried before giving up."""
    inner = model()

    def limited(request: Request) -> Any:
        fields = request.fields
        if "step" in fields and float(fields["end"]) - float(fields["start"]) > 500:
            return failed(422, "execution", "query processing would load too many samples into memory")
        return inner(request)

    found = ask(InMemory(limited))
    whole = ask(InMemory(model()))
    assert sorted(found.keys) == sorted(whole.keys)
    for key, row in by_key(whole).items():
        np.testing.assert_array_equal(row, by_key(found)[key])


def test_what_cannot_be_cut_is_an_error() -> None:
    """A query that fails at one point fails."""

    def heavy(request: Request) -> Any:
        if "step" in request.fields:
            return failed(422, "execution", "too many samples")
        return model()(request)

    with pytest.raises(TooHeavy):
        ask(InMemory(heavy), end=1050)


def test_a_query_that_cannot_be_computed_is_not_cut() -> None:
    """It would fail a thousand times."""
    transport = InMemory(lambda _: failed(422, "execution", "many-to-many matching not allowed"))
    with pytest.raises(QueryFailed):
        ask(transport)
    assert len(transport.ranges) == 1


def test_more_series_than_the_limit_are_an_error() -> None:
    """Less time would not help."""
    with pytest.raises(TooManySeries):
        ask(InMemory(model()), series_max=3)


def test_the_warnings_of_all_parts_come_with_the_result() -> None:
    """Each once."""

    def remarking(request: Request) -> Any:
        answer = json.loads(model()(request).body)
        return Response(200, json.dumps({**answer, "warnings": ["partial"]}).encode())

    found = ask(InMemory(remarking), points_max=100)
    assert found.warnings == ("partial",)


def test_an_empty_answer_is_a_matrix_without_rows() -> None:
    """Nothing there is not an error."""
    found = ask(InMemory(Model([])))
    assert found.keys == []
    assert found.values.shape == (0, 301)
