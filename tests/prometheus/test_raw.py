"""Where there is no remote read, raw samples come as JSON and are reduced as remote reads are."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.adapters.prometheus import range as scraping
from equipoise.adapters.prometheus import strategies as ways
from equipoise.adapters.prometheus.decode import open_answer
from equipoise.adapters.prometheus.errors import (
    Malformed,
    PrometheusFailed,
    PrometheusTooLarge,
    TooManySeries,
)
from equipoise.adapters.prometheus.history import HistorySource
from equipoise.adapters.prometheus.matrix import Key
from equipoise.adapters.prometheus.range import Raw, spans
from equipoise.adapters.prometheus.remote_read.windows import RawSamples
from equipoise.ports.cluster import CPU, MEMORY
from tests.support.prometheus.encoding import value_of
from tests.support.prometheus.histories import (
    END,
    MODEL,
    PODS,
    REFUSED,
    START,
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
from tests.support.prometheus.server import Request, Response, failed, ok, serving, vector

LABELS = ("namespace", "pod", "container")


def _is_raw(request: Request) -> bool:
    return request.fields.get("query", "").endswith("ms]")


def _series(pod: tuple[str, str], cores: float = 0.25) -> dict[str, Any]:
    values = [[at / 1000, repr(value_of(bits))] for at, bits in samples_of(cores)]
    return {"metric": labels_of(*pod), "values": values}


def _with_samples(request: Request) -> Response:
    if _is_raw(request):
        return ok({"resultType": "matrix", "result": [_series(pod) for pod in PODS]})
    return MODEL(request)


def _read(*bodies: bytes) -> Raw:
    """Read answers about times that follow one another."""
    raw = Raw()
    for body in bodies:
        raw.add(open_answer(body, "it"), LABELS, 10)
    return raw


def _decoded(result: list[Any]) -> Raw:
    return _read(ok({"resultType": "matrix", "result": result}).body)


def _all(raw: Raw) -> tuple[list[Key], RawSamples]:
    """Give what fits into one lot."""
    none = np.zeros(0, np.int64)
    ((keys, samples),) = list(raw.batches()) or [
        ([], RawSamples(np.zeros(1, np.int64), none, none.astype(float)))
    ]
    return keys, samples


def _plain(result: list[Any], between: str = ",") -> bytes:
    """Write an answer with nothing but series in it, as Prometheus does: without a blank."""
    series = between.join(json.dumps(one, separators=(",", ":")) for one in result)
    return f'{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}'.encode()


def test_raw_samples_give_what_a_remote_read_gives() -> None:
    """To the last bit, in one request; the time is the grid's end, the range its length and a window."""
    with serving(answering(lambda _: REFUSED, _with_samples)) as server:
        (found,) = read_all(history_of(server))
        asked = [request.fields for request in server.requests if _is_raw(request)]
        assert not [request for request in server.requests if "range" in request.path]
    with serving(answering(probed(Response(200, frames_of(), STREAMED)))) as server:
        (read,) = read_all(history_of(server, HistorySource.REMOTE_READ))
    (fields,) = asked
    assert fields["query"].endswith(f"[{(END - START) * 1000 + 150_000}ms]")
    assert float(fields["time"]) == END
    assert keys_of(found) == keys_of(read)
    np.testing.assert_array_equal(found.values, read.values)
    assert found.source.startswith("PromQL of ")


def test_a_long_answer_is_asked_for_in_parts_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the oldest to the latest, without a gap; together they give what a remote read gives."""
    monkeypatch.setattr(scraping, "PART_MAX_BYTES", 40 * 22 * len(PODS) // 3)

    def model(request: Request) -> Response:
        if not _is_raw(request):
            return MODEL(request)
        end_ms = round(float(request.fields["time"]) * 1000)
        begin_ms = end_ms - int(request.fields["query"].rpartition("[")[2].removesuffix("ms]"))
        result = [_series(pod) for pod in PODS]
        for one in result:
            one["values"] = [pair for pair in one["values"] if begin_ms < pair[0] * 1000 <= end_ms]
        return ok({"resultType": "matrix", "result": result})

    with serving(answering(lambda _: REFUSED, model)) as server:
        (found,) = read_all(history_of(server))
        asked = [request.fields for request in server.requests if _is_raw(request)]
    with serving(answering(probed(Response(200, frames_of(), STREAMED)))) as server:
        (read,) = read_all(history_of(server, HistorySource.REMOTE_READ))
    ends = [float(fields["time"]) for fields in asked]
    lengths = [int(fields["query"].rpartition("[")[2].removesuffix("ms]")) / 1000 for fields in asked]
    assert len(asked) >= 3
    assert ends[-1] == END
    assert [end - length for end, length in zip(ends, lengths, strict=True)] == pytest.approx(
        [START - 150, *ends[:-1]]
    )
    assert keys_of(found) == keys_of(read)
    np.testing.assert_array_equal(found.values, read.values)


@pytest.mark.parametrize(
    "refused",
    [
        failed(422, "execution", "unknown response type"),
        failed(503, "timeout", "query timed out"),
        vector([]),
        ok({"resultType": "matrix", "result": [{**_series(PODS[0]), "values": [[2, "1"], [1, "2"]]}]}),
    ],
    ids=["refused", "too slow", "no samples", "not in order"],
)
def test_where_raw_samples_are_not_to_be_had_the_server_reduces(refused: Response) -> None:
    """With the numbers of its own rate."""

    def model(request: Request) -> Response:
        return refused if _is_raw(request) else MODEL(request)

    with serving(answering(lambda _: REFUSED, model)) as server:
        (found,) = read_all(history_of(server))
        assert [request for request in server.requests if "range" in request.path]
    assert sorted(keys_of(found)) == sorted((*pod, "app") for pod in PODS)
    np.testing.assert_allclose(found.values, 0.25)


def test_many_samples_and_single_numbers_are_reduced_by_the_server() -> None:
    """Scraped every 15 seconds there are four samples for each minute; a highest value is one for all."""

    def model(request: Request) -> Response:
        if request.fields.get("query", "").startswith("quantile"):
            return vector([({}, 240.0)])
        return _with_samples(request)

    with serving(answering(lambda _: REFUSED, model)) as server:
        read_all(history_of(server), CPU, MEMORY)
        assert not [request for request in server.requests if _is_raw(request)]


def test_a_container_that_is_scraped_twice_is_one_row_with_the_larger_usage() -> None:
    """As by every other way."""

    def model(request: Request) -> Response:
        if _is_raw(request):
            return ok({"resultType": "matrix", "result": [_series(PODS[0]), _series(PODS[0], 0.5)]})
        return MODEL(request)

    with serving(answering(lambda _: REFUSED, model)) as server:
        (found,) = read_all(history_of(server))
    assert keys_of(found) == [(*PODS[0], "app")]
    np.testing.assert_allclose(found.values, 0.5)


def test_far_more_samples_than_were_planned_for_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are too many for the memory of a lot, however few series there are."""
    monkeypatch.setattr(ways, "SAMPLES_SHARE_MAX", 0.0)
    too_large = pytest.raises(PrometheusTooLarge, match="samples, more than the memory of one lot")
    with serving(answering(lambda _: REFUSED, _with_samples)) as server, too_large:
        read_all(history_of(server))


def test_more_series_than_memory_holds_are_too_many() -> None:
    """As by every other way."""
    too_many = pytest.raises(TooManySeries, match="more than 1 series")
    with serving(answering(lambda _: REFUSED, _with_samples)) as server, too_many:
        read_all(history_of(server, lots_max_bytes=3 * 8 * 21))


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 4_000_000_000_000),
                st.floats(allow_nan=True, allow_infinity=True),
            ),
            unique_by=lambda pair: pair[0],
        ).map(sorted),
        max_size=5,
    )
)
def test_times_and_values_come_as_they_were_written(series: list[list[tuple[int, float]]]) -> None:
    """Milliseconds and all bits, odd numbers too; a series without samples is left out."""
    text = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
    result = [
        {
            "metric": {"pod": str(number)},
            "values": [[at / 1000, text.get(repr(value), repr(value))] for at, value in pairs],
        }
        for number, pairs in enumerate(series)
        if pairs
    ]
    keys, samples = _all(_decoded(result))
    pairs = [pair for one in series for pair in one]
    assert [key[1] for key in keys] == [str(number) for number, one in enumerate(series) if one]
    np.testing.assert_array_equal(samples.times_ms, [at for at, _ in pairs])
    np.testing.assert_array_equal(samples.values, [value for _, value in pairs])
    np.testing.assert_array_equal(np.diff(samples.offsets), [len(one) for one in series if one])


def test_what_is_no_time_or_too_many_series_is_refused() -> None:
    """Each with one sentence."""
    for values, said in (
        ([[1e300, "1"]], "invalid timestamp"),
        ([[1, "1"], [1e308, "1"]], "invalid timestamp"),
        ([[-1e300, "1"], [1, "1"]], "invalid timestamp"),
        ([[1, "1"], [1, "1"]], "not in the order of time"),
    ):
        with pytest.raises(Malformed, match=said):
            _decoded([{"metric": {}, "values": values}])
    with pytest.raises(TooManySeries):
        _decoded([{"metric": {"pod": str(number)}, "values": [[1, "1"]]} for number in range(11)])


def test_a_series_without_samples_is_left_out() -> None:
    """Also where there is no other."""
    empty = {"metric": {"pod": "a"}, "values": []}
    assert list(_decoded([empty]).batches()) == []
    keys, samples = _all(_decoded([empty, _series(PODS[0])]))
    assert [key[1] for key in keys] == [PODS[0][1]]
    assert len(samples.times_ms) == len(samples_of(0.25))


def test_histograms_are_left_out_and_told() -> None:
    """Their samples are no usage."""
    raw = _decoded([{"metric": {"pod": "a"}, "histograms": [[1, {"count": "3"}]]}, _series(PODS[0])])
    assert len(raw) == 1
    assert raw.has_histograms


HOSTILE = (
    '"',
    "\\",
    '},{"metric":',
    '"values":[[1,"2"]]}',
    "]]}",
    "metric",
    "values",
)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(("namespace", "pod", *HOSTILE)), st.sampled_from(HOSTILE)),
            st.integers(1, 80),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from((",", ",\n", " , ")),
)
def test_an_answer_is_cut_between_its_series_and_nowhere_else(
    series: list[tuple[dict[str, str], int, bool]], between: str
) -> None:
    """Whatever its labels say, and however it is written: the same as when all of it is read as JSON."""
    result: list[Any] = []
    for metric, count, has_histograms in series:
        values = [[1000 * len(result) + place + 0.5, str(place)] for place in range(count)]
        more = {"histograms": [[1, {"count": "3"}]]} if has_histograms else {}
        result.append({"metric": metric, "values": values, **more})
    raw = _read(_plain(result, between))
    keys, samples = _all(raw)
    assert keys == [tuple(one["metric"].get(label, "") for label in LABELS) for one in result]
    pairs = [pair for one in result for pair in one["values"]]
    np.testing.assert_array_equal(samples.times_ms, [at * 1000 for at, _ in pairs])
    np.testing.assert_array_equal(samples.values, [float(value) for _, value in pairs])
    assert raw.has_histograms == any(histograms for _, _, histograms in series)


def test_many_samples_are_given_some_series_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they are all series, in order."""
    monkeypatch.setattr(scraping, "SAMPLES_AT_ONCE", 2500)
    result = [
        {"metric": {"pod": str(number)}, "values": [[at, str(number + at)] for at in range(1000)]}
        for number in range(8)
    ]
    batches = list(_read(_plain(result)).batches())
    assert [len(keys) for keys, _ in batches] == [3, 3, 2]
    assert [key[1] for keys, _ in batches for key in keys] == [str(number) for number in range(8)]
    values = np.concatenate([samples.values for _, samples in batches])
    np.testing.assert_array_equal(values, np.add.outer(np.arange(8), np.arange(1000)).ravel())


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.sampled_from("12")),
        st.lists(st.integers(0, 60_000), min_size=1, max_size=60, unique=True).map(sorted),
        min_size=1,
    ),
    st.lists(st.integers(0, 60_000), max_size=3, unique=True).map(sorted),
    st.booleans(),
    st.booleans(),
)
def test_parts_of_time_put_together_are_the_whole(
    series: dict[tuple[str, str], list[int]], cuts: list[int], is_closed: bool, is_plain: bool
) -> None:
    """Two series of one pod stay apart; what two parts have, as old servers give it, counts once."""

    def answer(begin: int, end: int) -> bytes:
        found = {
            labels: [[at / 1000, str(at + 0.25)] for at in times if begin - is_closed < at <= end]
            for labels, times in series.items()
        }
        result = [
            {"metric": {"pod": pod, "id": cgroup}, "values": values}
            for (pod, cgroup), values in found.items()
            if values
        ]
        return _plain(result) if is_plain else ok({"resultType": "matrix", "result": result}).body

    bounds = [-1, *cuts, 60_000]
    keys, samples = _all(_read(*(answer(begin, end) for begin, end in pairwise(bounds))))
    found = [samples.part(row, row + 1) for row in range(len(keys))]
    for one in found:
        np.testing.assert_array_equal(one.values, one.times_ms + 0.25)
    told = sorted((key[1], one.times_ms.tolist()) for key, one in zip(keys, found, strict=True))
    assert told == sorted((pod, times) for (pod, _), times in series.items())


def test_labels_are_the_same_in_whatever_order_they_are_written() -> None:
    """One part of time may come from another server behind the same address."""
    first = {"metric": {"pod": "a", "id": "1"}, "values": [[1, "1"]]}
    second = {"metric": {"id": "1", "pod": "a"}, "values": [[2, "2"]]}
    _, samples = _all(_read(_plain([first]), _plain([second])))
    assert samples.times_ms.tolist() == [1000, 2000]


def test_two_series_of_the_same_labels_are_refused_where_parts_must_be_put_together() -> None:
    """A part of one would be taken for the other's; in a single answer each is whole."""
    small, large = ({"metric": {"pod": "a"}, "values": [[1, value]]} for value in ("1", "1000"))
    later = {"metric": {"pod": "a"}, "values": [[2, "1001"]]}
    assert len(_read(_plain([small, large]))) == 2
    with pytest.raises(Malformed, match="the same labels"):
        _read(_plain([small, large]), _plain([later]))


def test_a_time_and_a_value_that_are_swapped_are_refused() -> None:
    """Also in a long series, whose numbers are read at once."""
    pairs = [[at, str(at)] if at != 7 else [str(at), at] for at in range(500)]
    with pytest.raises(Malformed):
        _read(_plain([{"metric": {}, "values": pairs}]))


def test_a_long_text_is_asked_for_in_parts_that_follow_one_another() -> None:
    """Not so many that each is next to nothing."""
    mebibyte = 1024 * 1024
    assert spans(0, 100_000, 5 * mebibyte) == [(100_000, 100_000)]
    assert spans(0, 100_000, 24 * mebibyte) == [(50_000, 50_000), (100_000, 50_000)]
    assert spans(10_500, 110_000, 30 * mebibyte) == [(43_000, 32_500), (76_000, 33_000), (110_000, 34_000)]
    assert len(spans(0, 1_000_000, 1e12)) == scraping.PARTS_MAX
    assert spans(500, 2700, 1e12) == [(1000, 500), (2000, 1000), (2700, 700)]
    assert spans(5, 5, 1e12) == [(5, 0)]


@pytest.mark.parametrize("cut", ['"values":[[1,"2"', '[1,"2"],[2', '"]]},{"metric":{"pod":"b"', "]]}]"])
def test_a_plain_answer_that_is_damaged_is_refused(cut: str) -> None:
    """A byte less anywhere between its ends: never other numbers."""
    whole = _plain([{"metric": {"pod": name}, "values": [[1, "2"], [2, "3"]]} for name in "ab"])
    at = whole.index(cut.encode())
    for missing in range(at, at + len(cut)):
        if chr(whole[missing]).isalnum():
            continue  # another number or another name, which no reader can tell
        with pytest.raises(PrometheusFailed):
            _read(whole[:missing] + whole[missing + 1 :])
