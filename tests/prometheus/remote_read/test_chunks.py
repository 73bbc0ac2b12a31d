"""Chunks decoded side by side are, bit for bit, what a plain decoder reads one by one."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.adapters.prometheus.remote_read import xor
from equipoise.adapters.prometheus.remote_read.frames import DamagedFrame
from tests.support.prometheus.encoding import Sample, bits_of, decode_chunk, encode_chunk

NOW = 1_789_000_000_000
STALE = 0x7FF0000000000002
ODD_VALUES = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1, 1e9]
EDGES = sorted(
    {side * (1 << bits - 1) + off for bits in (14, 17, 20) for side in (-1, 1) for off in (-1, 0, 1)}
)


def decode(chunks: list[bytes]) -> list[list[Sample]]:
    sizes = np.array([len(chunk) for chunk in chunks], dtype=np.int64)
    times, values, counts = xor.decode(chunks, np.cumsum(sizes) - sizes, sizes)
    flat = list(zip(times.tolist(), values.view(np.uint64).tolist(), strict=True))
    ends = list(itertools.accumulate(counts.tolist(), initial=0))
    return [flat[first:end] for first, end in itertools.pairwise(ends)]


CHANGES = st.one_of(
    st.just(0), st.sampled_from(EDGES), st.integers(-9000, 9000), st.integers(-600_000, 600_000)
)
VALUES = st.one_of(
    st.sampled_from([*map(bits_of, ODD_VALUES), STALE]),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 1000).map(bits_of),
    st.floats(allow_nan=False).map(bits_of),
)


@st.composite
def chunk_samples(draw: st.DrawFn) -> list[Sample]:
    """Times that go forward with every class of change, values of every kind, repeats included."""
    count = draw(st.integers(1, 40))
    time, step = draw(st.integers(-NOW, 2 * NOW)), draw(st.integers(1, 100_000_000))
    values = draw(st.lists(VALUES, min_size=1, max_size=count))
    samples = []
    for index in range(count):
        samples.append((time, values[index % len(values)]))
        step = max(1, step + draw(CHANGES)) if index else step
        time += step
    return samples


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(chunk_samples(), st.booleans()), min_size=1, max_size=12))
def test_chunks_of_any_kind_decode_as_one_by_one(batch: list[tuple[list[Sample], bool]]) -> None:
    """Counts, gaps and values of every kind, in one batch."""
    chunks = [encode_chunk(samples, restarted=restarted) for samples, restarted in batch]
    assert decode(chunks) == [decode_chunk(chunk) for chunk in chunks] == [samples for samples, _ in batch]


@pytest.mark.parametrize("change", [*EDGES, 0, 1, -1, 10**9, -(10**9), (1 << 62)])
def test_a_change_at_the_edge_of_its_class_keeps_its_sign(change: int) -> None:
    """Exactly half of a class's range is positive, which is not two's complement."""
    first, second = NOW, NOW + 2_000_000_000
    third = second + (second - first) + change
    samples = [(first, 1), (second, 2), (third, 3), (third + 7, 3)]
    assert decode([encode_chunk(samples)]) == [samples]


def test_a_writer_that_was_restarted_uses_a_shape_that_was_never_written() -> None:
    """After equal values it goes on with 64 bits, not shifted."""
    samples = [(NOW + 1000 * i, bits_of(5.0)) for i in range(5)] + [(NOW + 9000, bits_of(6.5))]
    chunk = encode_chunk(samples, restarted=True)
    assert chunk != encode_chunk(samples)
    assert decode([chunk]) == [samples]


def test_chunks_of_all_lengths_stay_in_their_order() -> None:
    """One of 65,535 samples among short and empty ones, more chunks than are read at once."""
    long = [(NOW + 10 * i, bits_of(float(i // 100))) for i in range(65_535)]
    short = [[(NOW + i, i), (NOW + i + 5, 2 * i)][: 1 + i % 2] for i in range(xor.CHUNKS_AT_ONCE + 100)]
    batch = [*short[:50], long, [], *short[50:]]
    assert decode([encode_chunk(samples) for samples in batch]) == batch


def test_a_cut_chunk_is_refused_and_never_misread() -> None:
    """Whatever is missing at its end, though other chunks' bytes follow."""
    samples = [(NOW + 60_000 * i + i % 7, bits_of(1.1 * i)) for i in range(30)]
    whole = encode_chunk(samples)
    for length in range(len(whole)):
        sizes = np.array([length, len(whole)], dtype=np.int64)
        with pytest.raises(DamagedFrame, match="more samples than its bytes hold"):
            xor.decode([whole[:length], whole], np.array([0, length]), sizes)


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_memory_is_taken() -> None:
    """65,535 samples take at least 16 KiB."""
    with pytest.raises(DamagedFrame):
        decode([b"\xff\xff" + bytes(100)])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_chunk_are_refused_or_read_as_one_by_one(data: bytes) -> None:
    """A plain decoder that finds too few bytes, or nonsense, is the only other witness."""
    try:
        found = decode([data])
    except DamagedFrame:
        return
    times = [time for time, _ in decode_chunk(data)]
    assert [bits for _, bits in found[0]] == [bits for _, bits in decode_chunk(data)]
    assert [time for time, _ in found[0]] == [(t + (1 << 63)) % (1 << 64) - (1 << 63) for t in times]


def test_numpy_shifts_by_64_to_nothing() -> None:
    """The decoder relies on it; C leaves it open."""
    ones = np.full(1000, (1 << 64) - 1, dtype=np.uint64)
    by = np.full(1000, 64, dtype=np.uint64)
    assert not (ones << by).any()
    assert not (ones >> by).any()
    assert not (ones << np.uint64(68)).any()
