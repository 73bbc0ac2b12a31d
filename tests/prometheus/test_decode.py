"""Answers become columns and rows, the same as by plain `json`, or a typed error."""

from __future__ import annotations

import itertools
import json
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from equipoise.adapters.prometheus import matrix
from equipoise.adapters.prometheus.decode import (
    HISTOGRAMS_LEFT_OUT,
    decode_number,
    decode_vector,
    open_answer,
    tidy,
)
from equipoise.adapters.prometheus.errors import Malformed, PrometheusFailed, TooManySeries
from equipoise.adapters.prometheus.matrix import Grid, Matrix, decode_matrix
from equipoise.core.errors import BadInput

LABELS = ("namespace", "pod")
GRID = Grid(1_700_000_000_000, 30_000, 60)


def body(result_type: str, result: Any, **more: Any) -> bytes:
    return json.dumps(
        {"status": "success", "data": {"resultType": result_type, "result": result}, **more},
        separators=(",", ":"),
    ).encode()


def go_float(value: float) -> str:
    """Write a number as Prometheus does."""
    if math.isnan(value):
        return "NaN"
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value) or repr(value)


def read_matrix(data: bytes, grid: Grid = GRID, series_max: int = 100) -> Matrix:
    return decode_matrix(open_answer(data, "http://p"), LABELS, grid, series_max)


def plain_matrix(data: bytes, grid: Grid) -> dict[tuple[str, ...], list[float]]:
    """Do the same with nothing but the standard library."""
    rows = {}
    for series in json.loads(data.decode("utf-8", "replace"))["data"]["result"]:
        row = [math.nan] * grid.count
        for time, text in series["values"]:
            index, between = divmod(round(time * 1000) - grid.start_ms, grid.step_ms)
            assert not between
            if 0 <= index < grid.count:
                row[index] = float(text)
        rows[tuple(series["metric"].get(label, "") for label in LABELS)] = row
    return rows


def same(found: Matrix, expected: dict[tuple[str, ...], list[float]]) -> bool:
    return found.keys == list(expected) and np.array_equal(
        found.values,
        np.array(list(expected.values())).reshape(len(expected), found.values.shape[1]),
        equal_nan=True,
    )


VALUES = st.floats(allow_nan=True, allow_infinity=True)
SERIES = st.lists(st.one_of(st.none(), VALUES), min_size=60, max_size=60)
FINITE_SERIES = st.lists(
    st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=60, max_size=60
)


def encode_matrix(rows: list[list[float | None]], grid: Grid) -> bytes:
    times = grid.timestamps.tolist()
    result = []
    for i, row in enumerate(rows):
        values = [
            [int(t) if t == int(t) else t, go_float(v)]
            for t, v in zip(times, row, strict=True)
            if v is not None
        ]
        result.append({"metric": {"namespace": "a", "pod": f"p{i}", "job": "x"}, "values": values})
    return body("matrix", result)


@settings(deadline=None)
@given(st.lists(st.one_of(SERIES, FINITE_SERIES), max_size=4), st.sampled_from([GRID, Grid(500, 1_500, 60)]))
def test_a_matrix_is_what_plain_json_makes_of_it(rows: list[list[float | None]], grid: Grid) -> None:
    """NaN, infinities, gaps and every float: on the fast path and pair by pair."""
    data = encode_matrix(rows, grid)
    assert same(read_matrix(data, grid), plain_matrix(data, grid))


def test_long_series_take_the_fast_path_and_odd_ones_do_not() -> None:
    """Both give the same numbers, which is why the fast one may be used."""
    import simdjson

    long = b"[" + b",".join(b'[%d,"%d.5"]' % (1_700_000_000 + 30 * i, i) for i in range(60)) + b"]"

    def flat(text: bytes) -> NDArray[np.float64] | None:
        return matrix._flat(np.frombuffer(text, np.uint8), simdjson.Parser())

    fast = flat(long)
    assert fast is not None
    assert fast[1::2].tolist() == [i + 0.5 for i in range(60)]
    for damaged in (
        long.replace(b'"],[', b'",', 1),
        long.replace(b'"],[', b'"],[],[', 1),
        long.replace(b',"', b',["', 1).replace(b'"],', b'"]],', 1),
        long.replace(b'"0.5"', b'"0,5"', 1),
        long.replace(b'"0.5"', b'""', 1),
        long.replace(b'[1700000000,"0.5"]', b'["0.5",1700000000]', 1),
        long.replace(b'[1700000000,"0.5"]', b'[1700000000,7,"0.5"]', 1),
        long.replace(b'[1700000000,"0.5"]', b'["0.5"]', 1),
        long.replace(b'"0.5"', b'"0.5","1.5"', 1),
        long[:-1],
        b'"' + long,
    ):
        assert flat(damaged) is None


FUZZED = encode_matrix([[0.25 * i for i in range(60)], [math.nan, *[1e-3] * 59]], GRID)
FUZZED_VECTOR = body(
    "vector", [{"metric": {"namespace": "a", "pod": f"p{i}"}, "value": [1000.5, "0.25"]} for i in range(5)]
)


def damage(data: bytes, seed: int) -> bytes:
    chance = random.Random(seed)
    octets = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(max(1, len(octets)))
        match chance.randrange(4):
            case 0:
                octets[at : at + 1] = b"%c" % chance.choice(b'[]{}",:0123456789.eE-+NaIinf \\\x00\xff')
            case 1:
                del octets[at : at + chance.choice((1, 1, 3, 40))]
            case 2:
                octets[at:at] = bytes(chance.choice(b'[]",0.5 \xff{') for _ in range(chance.choice((1, 2))))
            case _:
                octets = octets[: at + 1]
    return bytes(octets)


@pytest.mark.parametrize("block", range(4))
def test_damaged_bytes_give_the_same_as_plain_json_or_a_typed_error(block: int) -> None:
    """Whatever happens on the way, never another exception and never another number."""
    for seed in range(block * 1000, block * 1000 + 1000):
        data = damage(FUZZED, seed)
        try:
            found = read_matrix(data)
        except PrometheusFailed:
            continue
        assert same(found, plain_matrix(data, GRID)), data


@pytest.mark.parametrize("block", range(2))
def test_damaged_vectors_give_the_same_as_plain_json_or_a_typed_error(block: int) -> None:
    """The same for instant vectors."""
    for seed in range(block * 1000, block * 1000 + 1000):
        data = damage(FUZZED_VECTOR, seed)
        try:
            found = decode_vector(open_answer(data, "http://p"), LABELS, 100)
        except PrometheusFailed:
            continue
        plain = json.loads(data.decode("utf-8", "replace"))["data"]["result"]
        rows = [(s["metric"].get("namespace", ""), s["metric"].get("pod", "")) for s in plain if "value" in s]
        assert list(zip(*found.columns, strict=True)) == rows, data
        expected = [float(s["value"][1]) for s in plain if "value" in s]
        assert np.array_equal(found.values, expected, equal_nan=True), data


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_a_typed_error(data: bytes) -> None:
    """No byte sequence makes the decoder crash in another way."""
    with pytest.raises(PrometheusFailed):
        read_matrix(data)


def one_series(values: list[list[Any]], pod: str = "p") -> dict[str, Any]:
    return {"metric": {"pod": pod}, "values": values}


def test_points_outside_the_grid_are_left_out() -> None:
    """A server may widen a range; what was not asked for is not taken."""
    values = [[1_699_999_970, "9"], [1_700_000_000, "1"], [1_700_001_800, "9"]]
    found = read_matrix(body("matrix", [one_series(values)]))
    assert np.nansum(found.values) == 1.0
    assert found.values[0, 0] == 1.0


def test_points_in_any_order_find_their_place() -> None:
    """The timestamp decides, not the order."""
    values = [[1_700_000_060, "3"], [1_700_000_000, "1"], [1_700_000_030, "2"]]
    assert read_matrix(body("matrix", [one_series(values)])).values[0, :3].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([[1_700_000_001, "1"]], "between the steps"),
        ([[1_700_000_000, "1"], [1_700_000_000, "1"]], "two points at one time"),
        ([[1_700_000_030, "1"], [1_700_000_000, "1"], [1_700_000_030, "2"]], "two points at one time"),
        ([[1e300, "1"]], "invalid timestamp"),
        ([["1700000000", "1"]], "unexpected shape"),
        ([[1_700_000_000, 1]], "unexpected shape"),
        ([[1_700_000_000, "1", "2"]], "unexpected shape"),
        ([[1_700_000_000, "one"]], "not a number"),
        ([[1_700_000_000, "\u0661"]], "not a number"),
        ([[1_700_000_000, None]], "unexpected shape"),
        ({}, "unexpected shape"),
    ],
)
def test_points_that_must_not_be_are_refused(values: Any, said: str) -> None:
    """Off the grid, doubled, of another type: an error, never a wrong number."""
    with pytest.raises(Malformed, match=said):
        read_matrix(body("matrix", [one_series(values)]))


def test_the_larger_of_the_same_series_counts() -> None:
    """Each time on its own; a gap in one is filled by the other."""
    data = body(
        "matrix",
        [
            one_series([[1_700_000_000, "1"], [1_700_000_030, "7"]]),
            one_series([[1_700_000_000, "5"], [1_700_000_060, "2"]]),
        ],
    )
    found = read_matrix(data)
    assert found.keys == [("", "p")]
    assert found.values[0, :3].tolist() == [5, 7, 2]


def test_native_histograms_are_left_out_with_a_warning() -> None:
    """In both kinds of answer; the float samples beside them are kept."""
    histogram = [1_700_000_000, {"count": "1", "sum": "2", "buckets": [[0, "1", "2", "3"]]}]
    found = read_matrix(
        body("matrix", [{"metric": {}, "histograms": [histogram]}, one_series([[1_700_000_000, "1"]])])
    )
    assert found.keys == [("", "p")]
    assert found.warnings == (HISTOGRAMS_LEFT_OUT,)
    data = body("vector", [{"metric": {}, "histogram": histogram}, {"metric": {}, "value": [1, "2"]}])
    instant = decode_vector(open_answer(data, "http://p"), LABELS, 10)
    assert instant.values.tolist() == [2]
    assert instant.warnings == (HISTOGRAMS_LEFT_OUT,)


@pytest.mark.parametrize("order", sorted({"".join(each) for each in itertools.permutations("vvhh")}))
def test_series_are_told_apart_wherever_histograms_stand_between_them(order: str) -> None:
    """Those without values have none of the next one's."""
    histogram = [1_700_000_000, {"count": "1", "sum": "2", "buckets": [[0, "1", "2", "3"]]}]
    written = [
        one_series([[1_700_000_000, str(place)]], f"p{place}")
        if kind == "v"
        else {"metric": {"pod": f"p{place}"}, "histograms": [histogram]}
        for place, kind in enumerate(order)
    ]
    found = read_matrix(body("matrix", written))
    expected = {("", f"p{place}"): place for place, kind in enumerate(order) if kind == "v"}
    assert dict(zip(found.keys, found.values[:, 0].tolist(), strict=True)) == expected


def test_more_series_than_the_limit_are_refused() -> None:
    """The message tells both numbers and the setting."""
    data = body("matrix", [one_series([], f"p{i}") for i in range(3)])
    with pytest.raises(TooManySeries, match=r"3 series, more than the limit of 2: .*series_max"):
        read_matrix(data, series_max=2)


def test_huge_integers_are_numbers() -> None:
    """Go writes 1e25 with all its digits."""
    values = [[1_700_000_000 + 30 * i, "10000000000000000905969664"] for i in range(60)]
    assert read_matrix(body("matrix", [one_series(values)])).values[0].tolist() == [1e25] * 60


@pytest.mark.parametrize(
    ("result_type", "result", "expected"),
    [
        ("scalar", [1000, "4.5"], 4.5),
        ("vector", [{"metric": {"a": "b"}, "value": [1000, "7"]}], 7.0),
        ("vector", [], None),
        ("vector", [{"metric": {}, "value": [1, "1"]}, {"metric": {}, "value": [1, "2"]}], None),
        ("vector", [{"metric": {}, "histogram": [1, {"count": "1"}]}], None),
        ("string", [1000, "4.5"], None),
        ("matrix", [one_series([[1000, "1"]])], None),
    ],
)
def test_one_number_or_none(result_type: str, result: Any, expected: float | None) -> None:
    """A scalar and a vector of one are a number; nothing else is."""
    assert decode_number(open_answer(body(result_type, result), "http://p")) == expected


def test_warnings_are_bounded_and_each_once() -> None:
    """A hundred stores that are down fill no screen."""
    assert tidy(["a\n", "a", "b"]) == ("a", "b")
    many = tidy(f"store {i} is down" for i in range(100))
    assert len(many) == 21
    assert many[-1] == "and 80 more warnings"


def test_a_grid_is_the_multiples_of_its_step() -> None:
    """So that caches in front of a Prometheus do not move it."""
    grid = Grid.over(100.2, 190.9, 30)
    assert grid.timestamps.tolist() == [120.0, 150.0, 180.0]
    assert Grid.over(0, 1, 0.25).timestamps.tolist() == [0, 0.25, 0.5, 0.75, 1.0]
    with pytest.raises(BadInput, match="no multiple"):
        Grid.over(1, 2, 30)
    with pytest.raises(BadInput, match="step"):
        Grid.over(1, 2, 0)
