"""The plain form of an answer: every sample a small message, all in one block of snappy."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.remote_read.batches import BatchWindow, SeriesBatch, tidied
from equipoise.adapters.prometheus.remote_read.frames import (
    BYTES,
    FIXED64,
    VARINT,
    DamagedFrame,
    FrameTooLarge,
    fields,
    read_varint,
)
from equipoise.adapters.prometheus.remote_read.xor import Times, Values

_RUN_MIN, _RUN_MAX = 8, 1024
_SAMPLE_TAG, _VALUE_TAG, _TIME_TAG = 0x12, 0x09, 0x10
_HEAD = 2
_VALUE_END = _HEAD + 9
_TIME_BYTES_MAX = 10
_SHORT_MAX = 0x80


def unpack(body: bytes, bytes_max: int) -> bytes:
    """Unpack a block of snappy that is not too large."""
    import cramjam  # noqa: PLC0415 - only who reads remotely pays for it

    size, _ = read_varint(body, 0, len(body))
    if size > bytes_max:
        raise FrameTooLarge(f"{size} bytes of samples")
    try:
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise DamagedFrame("a block of snappy is cut off or damaged") from error


def decoded(
    message: bytes, start_ms: int, end_ms: int, window: BatchWindow | None = None
) -> Iterator[SeriesBatch]:
    """Decode a `ReadResponse` to the only query."""
    window = window or BatchWindow()
    held: list[_PlainSeries] = []
    size = 0
    for series in _all_series(message):
        held.append(series)
        size += len(series.times)
        if size >= window.batch_samples:
            yield _batch(held, start_ms, end_ms)
            held, size = [], 0
    if held:
        yield _batch(held, start_ms, end_ms)


class _PlainSeries(NamedTuple):
    """One series of the answer."""

    labels: bytes
    times: Times
    values: Values
    histograms: int


def _batch(held: list[_PlainSeries], start_ms: int, end_ms: int) -> SeriesBatch:
    offsets = np.cumsum([0, *(len(series.times) for series in held)])
    times = np.concatenate([series.times for series in held])
    values = np.concatenate([series.values for series in held])
    histograms = sum(series.histograms for series in held)
    whole = SeriesBatch([series.labels for series in held], offsets, times, values, histograms)
    return tidied(whole, start_ms, end_ms)


def _all_series(message: bytes) -> Iterator[_PlainSeries]:
    results = 0
    for number, kind, at, end in fields(message, 0, len(message)):
        if number == 1 and kind == BYTES:
            results += 1
            if results > 1:
                raise DamagedFrame("an answer to a query that was not asked")
            for inner, wire, first, last in fields(message, at, end):
                if inner == 1 and wire == BYTES:
                    yield _one_series(message, first, last)


def _one_series(message: bytes, at: int, end: int) -> _PlainSeries:
    labels: list[bytes] = []
    times: list[Times] = []
    values: list[Values] = []
    histograms = 0
    while at < end:
        if message[at] == _SAMPLE_TAG:
            found, stamps, at = _samples(message, at, end)
            times.append(stamps)
            values.append(found)
            continue
        number, _, _, last = next(fields(message, at, end))
        if not last:
            raise DamagedFrame("a series has a number for a field")
        if number == 1:
            labels.append(message[at:last])
        histograms += number == 4  # noqa: PLR2004
        at = last
    nothing = np.empty(0, dtype=np.int64)
    return _PlainSeries(
        b"".join(labels),
        np.concatenate([nothing, *times]),
        np.concatenate([nothing.view(np.float64), *values]),
        histograms,
    )


def _samples(message: bytes, at: int, end: int) -> tuple[Values, Times, int]:
    """Read samples from here on: a run of equal length at once, or one."""
    size, begin = read_varint(message, at + 1, end)
    if size > end - begin:
        raise DamagedFrame("a sample reaches past its series")
    if begin - at == _HEAD and _VALUE_END + 1 < begin - at + size <= _VALUE_END + 1 + _TIME_BYTES_MAX:
        run = _run(message, at, end, _HEAD + size)
        if run is not None:
            return run
    value, stamp = 0.0, 0
    for number, kind, one, _ in fields(message, begin, begin + size):
        if number == 1 and kind == FIXED64:
            (value,) = struct.unpack_from("<d", message, one)
        elif number == 2 and kind == VARINT:  # noqa: PLR2004
            stamp = one - (1 << 64) if one >> 63 else one
    return np.array([value]), np.array([stamp], dtype=np.int64), begin + size


def _run(message: bytes, at: int, end: int, stride: int) -> tuple[Values, Times, int] | None:
    """Read as many samples as look alike: value, then a time of the same number of bytes."""
    rows = min((end - at) // stride, _RUN_MAX)
    table = np.frombuffer(message, dtype=np.uint8, count=rows * stride, offset=at).reshape(rows, stride)
    if rows < _RUN_MIN or not _alike(table[:_RUN_MIN]).all():
        return None
    alike = _alike(table)
    rows = rows if alike.all() else int(np.argmin(alike))
    table = table[:rows]
    values = np.ascontiguousarray(table[:, _HEAD + 1 : _VALUE_END]).view("<f8")[:, 0].astype(np.float64)
    stamps = np.zeros(rows, dtype=np.uint64)
    for place in range(_VALUE_END + 1, stride):
        seven = (table[:, place] & 0x7F).astype(np.uint64)
        stamps |= seven << np.uint64(7 * (place - _VALUE_END - 1))
    return values, stamps.view(np.int64), at + rows * stride


def _alike(table: NDArray[np.uint8]) -> NDArray[np.bool_]:
    stride = table.shape[1]
    alike: NDArray[np.bool_] = (table[:, 0] == _SAMPLE_TAG) & (table[:, 1] == stride - _HEAD)
    alike &= (table[:, _HEAD] == _VALUE_TAG) & (table[:, _VALUE_END] == _TIME_TAG)
    alike &= table[:, -1] < _SHORT_MAX
    for place in range(_VALUE_END + 1, stride - 1):
        alike &= table[:, place] >= _SHORT_MAX
    return alike
