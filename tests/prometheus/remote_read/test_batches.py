"""Messages of a stream become whole series, in bounded batches, within the range that was asked for."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.adapters.prometheus.remote_read import batches as chunks
from equipoise.adapters.prometheus.remote_read import read as samples
from equipoise.adapters.prometheus.remote_read.batches import BatchWindow, SeriesBatch, decoded
from equipoise.adapters.prometheus.remote_read.frames import DamagedFrame, FrameTooLarge
from tests.support.prometheus.encoding import (
    HISTOGRAM,
    Sample,
    bits_of,
    chunk,
    chunk_of,
    encode_chunk,
    field,
    labels,
    samples_answer,
    series_message,
)

NOW = 1_789_000_000_000
EVER = (-(1 << 62), 1 << 62)
POD_A, POD_B = {"__name__": "m", "pod": "a"}, {"__name__": "m", "pod": "b"}


def steady(count: int, first: int = NOW, value: float = 1.5) -> list[Sample]:
    return [(first + 60_000 * i, bits_of(value + i)) for i in range(count)]


def series(found: Iterable[SeriesBatch]) -> list[tuple[str, list[Sample]]]:
    """Read batches back: the pod and the samples of each series."""
    read = []
    for batch in found:
        bits = batch.values.view(np.uint64)
        for row, (pod,) in enumerate(batch.columns(["pod"])):
            span = slice(int(batch.offsets[row]), int(batch.offsets[row + 1]))
            read.append((pod, list(zip(batch.times[span].tolist(), bits[span].tolist(), strict=True))))
    return read


def test_a_series_that_comes_in_several_frames_is_one_series() -> None:
    """Its labels are repeated, byte for byte."""
    whole = steady(30)
    messages = [
        series_message(POD_A, [chunk_of(whole[:10])]),
        series_message(POD_A, [chunk_of(whole[10:20]), chunk_of(whole[20:])]),
        series_message(POD_B, [chunk_of(steady(5))]),
    ]
    assert series(decoded(messages, *EVER)) == [("a", whole), ("b", steady(5))]


def test_samples_outside_the_range_are_cut_and_empty_series_left_out() -> None:
    """Chunks come whole; the ends of the range belong to it."""
    whole = steady(30)
    messages = [
        series_message(POD_A, [chunk_of(whole)]),
        series_message({"pod": "old"}, [chunk_of(steady(3, NOW - 10**9))]),
        series_message(POD_B, [chunk_of(whole)]),
    ]
    found = series(decoded(messages, whole[4][0], whole[20][0]))
    assert found == [("a", whole[4:21]), ("b", whole[4:21])]


def test_chunks_that_overlap_are_put_in_order_and_doubles_dropped() -> None:
    """Only where time does not go forward; the other series stay as they are."""
    late, early = steady(10), steady(6, NOW - 3 * 60_000, 99.0)
    merged = dict(reversed([*late, *early]))
    messages = [
        series_message({"pod": "x"}, [chunk_of(steady(4))]),
        series_message(POD_A, [chunk_of(late), chunk_of(early)]),
        series_message(POD_B, [chunk_of(steady(7))]),
    ]
    expected = [("x", steady(4)), ("a", sorted(merged.items())), ("b", steady(7))]
    assert series(decoded(messages, *EVER)) == expected


def test_histograms_are_left_out_and_counted() -> None:
    """They hold no floats; the rest of the series does."""
    message = series_message(POD_A, [chunk(b"whatever", 1, 2, HISTOGRAM), chunk_of(steady(3))])
    (batch,) = decoded([message], *EVER)
    assert batch.histograms == 1
    assert series([batch]) == [("a", steady(3))]


def test_fields_in_another_order_and_short_times_are_read() -> None:
    """What is usual is only quicker."""
    data = encode_chunk([(5, bits_of(1.0))])
    odd = field(2, field(4, data) + field(3, 1) + field(2, 5))
    early = field(2, field(3, 1) + field(4, encode_chunk([(-7, bits_of(2.0))])) + field(1, -7))
    assert series(decoded([series_message(POD_A, [early, odd])], *EVER)) == [
        ("a", [(-7, bits_of(2.0)), (5, bits_of(1.0))])
    ]


def test_labels_of_any_length_are_read() -> None:
    """Also those whose length takes two bytes, and those that are not there."""
    long = {"__name__": "m", "image": "registry/" + "x" * 300, "pod": "ä" * 100}
    (batch,) = decoded([series_message(long, [chunk_of(steady(1))])], *EVER)
    assert batch.columns(["pod", "image", "none"]) == [("ä" * 100, long["image"], "")]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (series_message(POD_A, [chunk(b"x", 1, 2, 9)]), "unknown type 9"),
        (series_message(POD_A, [chunk(b"x", NOW, NOW)]), "without a number of samples"),
        (series_message(POD_A, [chunk(b"", NOW, NOW)]), "without a number of samples"),
        (field(1, labels(POD_A)) + field(2, 1), "not asked"),
        (field(1, labels(POD_A) + b"\x12"), "truncated"),
        (field(1, labels(POD_A) + b"\x12\x05\x08"), "past its series"),
        (b"\x0a\xff", "does not end"),
        (b"\x0b", "wire type"),
    ],
)
def test_a_message_that_is_no_answer_is_refused(message: bytes, said: str) -> None:
    """Each with what is wrong about it."""
    with pytest.raises(DamagedFrame, match=said):
        list(decoded([message], *EVER))


def test_samples_behind_the_range_are_cut_where_none_is_before_it() -> None:
    """Each end for itself."""
    whole = steady(30)
    messages = [series_message(POD_A, [chunk_of(whole)])]
    assert series(decoded(messages, whole[0][0], whole[20][0])) == [("a", whole[:21])]
    assert series(decoded(messages, whole[5][0], whole[-1][0])) == [("a", whole[5:])]


def test_a_chunk_of_more_than_16_kib_is_read() -> None:
    """Its size takes three bytes."""
    chance = np.random.default_rng(3)
    many = [(NOW + 60_000 * n + n % 7, int(bits)) for n, bits in enumerate(chance.integers(0, 2**62, 3000))]
    data = chunk_of(many)
    assert len(data) > 16384
    assert series(decoded([series_message(POD_A, [data, chunk_of([(NOW * 2, 5)])])], *EVER)) == [
        ("a", [*many, (NOW * 2, 5)])
    ]


@pytest.mark.parametrize("tiny", [b"\x12\x02\x18\x02", b"\x12\x06\x18\x01\x22\x02\x00\x00"])
def test_a_series_of_far_too_many_chunks_is_refused(tiny: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes each: millions of them would fit into one message, and take gigabytes to look at."""
    monkeypatch.setattr(chunks, "CHUNKS_MAX", 1000)
    assert len(list(decoded([field(1, labels(POD_A) + tiny * 1000)], *EVER))) == 1
    with pytest.raises(FrameTooLarge, match="1000 chunks"):
        list(decoded([field(1, labels(POD_A) + tiny * 1001)], *EVER))


def test_batches_are_closed_by_samples_and_by_bytes() -> None:
    """Series are never cut."""
    messages = [series_message({"pod": str(i)}, [chunk_of(steady(50))]) for i in range(10)]
    by_samples = list(decoded(messages, *EVER, BatchWindow(batch_samples=120)))
    assert [len(batch.labels) for batch in by_samples] == [3, 3, 3, 1]
    by_bytes = list(decoded(messages, *EVER, BatchWindow(batch_bytes=2 * len(messages[0]))))
    assert [len(batch.labels) for batch in by_bytes] == [2] * 5
    assert series(by_samples) == series(by_bytes)


def test_a_series_beyond_its_bounds_is_refused_while_it_comes() -> None:
    """A constant series is small on the wire, so samples are bounded too."""
    flat = encode_chunk([(NOW + 1000 * i, bits_of(1.0)) for i in range(1000)])
    messages = (series_message(POD_A, [chunk(flat, NOW, NOW)]) for _ in range(100))
    with pytest.raises(FrameTooLarge, match="a series of 5000 samples"):
        list(decoded(messages, *EVER, BatchWindow(series_samples_max=4500)))
    assert len(list(messages)) == 95, "no more was read than needed"


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255), st.booleans())
def test_a_message_that_lies_with_a_good_checksum_breaks_nothing(place: int, flip: int, cut: bool) -> None:
    """Its numbers cannot be known to be wrong; but it ends in series or in an error."""
    message = bytearray(series_message(POD_A, [chunk_of(steady(40)), chunk_of(steady(9, NOW + 10**7))]))
    message[place % len(message)] ^= flip
    lying = bytes(message[: place % len(message)] if cut else message)
    try:
        found = list(decoded([lying], *EVER, BatchWindow(series_samples_max=100_000)))
    except (DamagedFrame, FrameTooLarge):
        return
    for batch in found:
        assert all(
            (np.diff(batch.times[a:b]) > 0).all()
            for a, b in zip(batch.offsets, batch.offsets[1:], strict=False)
        )


def _answered(
    data: Sequence[tuple[Mapping[str, str], list[Sample]]], **options: int
) -> list[tuple[str, list[Sample]]]:
    message = samples.unpack(samples_answer(data), 1 << 20)
    return series(samples.decoded_samples(message, *EVER, BatchWindow(**options)))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 1 << 45), st.integers(-1000, 200), st.integers(NOW, NOW + 10**9)),
            st.one_of(st.integers(1, (1 << 64) - 1), st.sampled_from([0, bits_of(1.0)])),
        ).filter(lambda sample: sample[1] != bits_of(-0.0)),
        max_size=60,
        unique_by=lambda sample: sample[0],
    )
)
def test_plain_samples_are_read_bit_for_bit(found: list[Sample]) -> None:
    """Zero values and times are left out on the wire, and come back as zero."""
    ordered = sorted(found)
    expected = [("a", ordered)] if ordered else []
    assert _answered([(POD_A, ordered)]) == expected


def test_plain_samples_in_long_runs_of_several_lengths_are_read() -> None:
    """Times of five and six bytes, zeros in between, more than are read at once, several batches."""
    times = [*range(1 << 33, (1 << 33) + 3000), *range(NOW, NOW + 5000)]
    long = [(time, 0 if time % 997 == 0 else bits_of(time / 7)) for time in times]
    data = [(POD_A, long), (POD_B, long[:10])]
    assert _answered(data) == _answered(data, batch_samples=100) == [("a", long), ("b", long[:10])]


def test_a_block_that_is_cut_damaged_or_too_large_is_refused() -> None:
    """Its size stands at its beginning."""
    packed = samples_answer([(POD_A, steady(500))])
    with pytest.raises(FrameTooLarge, match="bytes of samples"):
        samples.unpack(packed, 1000)
    for broken in (packed[:-1], packed[: len(packed) // 2], packed + b"x", b"", b"\xff"):
        with pytest.raises(DamagedFrame):
            samples.unpack(broken, 1 << 20)
