"""Series as arrays, a batch at a time, so that memory is bounded by the window and not by the answer.

A frame's message: the labels of a series, and where in the message its chunks lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.remote_read.frames import (
    BYTES,
    VARINT,
    DamagedFrame,
    FrameTooLarge,
    fields,
    pick_labels,
    read_varint,
)
from equipoise.adapters.prometheus.remote_read.xor import Scratch, Times, Values, decode

XOR = 1
HISTOGRAMS = frozenset({2, 3})

CHUNKS_MAX = 1 << 18
"""Of a series in one message: no server cuts one into so many, and of a few bytes each they are millions."""
_LABEL, _CHUNK = 0x0A, 0x12
_MORE = 0x80


_SIZE = [(0x80, 0x80), (0x80, 0x00)]
"""The masks and the values of a size of two bytes."""
_TIME = [(0x80, 0x80)] * 5 + [(0x80, 0x00)]
"""Those of a time of six bytes: from 1971 to 2109."""
_HEADER = [(0xFF, _CHUNK), *_SIZE, (0xFF, 0x08), *_TIME, (0xFF, 0x10), *_TIME, (0xFF, 0x18), (0xFF, XOR)]
_MASKS, _USUAL = np.array([*_HEADER, (0xFF, 0x22), *_SIZE], dtype=np.uint8).T
"""What nearly every chunk begins with: its size, two times, type XOR, the size of its data."""
_OCTETS = np.arange(len(_USUAL))


class SeriesPart(NamedTuple):
    """A series, or a part of one: a large series comes in several."""

    labels: bytes
    """As they came; the same in all parts of a series."""
    starts: NDArray[np.int64]
    """Where the data of each XOR chunk begins in the message."""
    sizes: NDArray[np.int64]
    histograms: int
    """Chunks that were left out since they hold no floats."""


def read_parts(message: bytes) -> Iterator[SeriesPart]:
    """Read a `ChunkedReadResponse` that answers the only query."""
    for number, kind, at, end in fields(message, 0, len(message)):
        if number == 1 and kind == BYTES:
            yield _part(message, at, end)
        elif number == 2 and kind == VARINT and at != 0:  # noqa: PLR2004
            raise DamagedFrame("an answer to a query that was not asked")


def _part(message: bytes, at: int, end: int) -> SeriesPart:
    first = at
    while at < end and message[at] == _LABEL:
        size, at = read_varint(message, at + 1, end)
        at += size
    places = _places(message, at, end)
    labels = message[first:at]
    return _usual(message, labels, places) or _unusual(message, labels, places)


def _places(message: bytes, at: int, end: int) -> list[int]:
    """Find where chunks begin, and where the last one ends.

    There are many, so the sizes that nearly all have, of two bytes, are read right here.
    """
    places: list[int] = []
    try:
        while at < end and message[at] == _CHUNK:
            places.append(at)
            size, more = message[at + 1], message[at + 2]
            if size >= _MORE > more:
                at += 3 + (size & 0x7F | more << 7)
            else:
                size, at = read_varint(message, at + 1, end)
                at += size
            if len(places) > CHUNKS_MAX:
                raise FrameTooLarge(f"a series of more than {CHUNKS_MAX} chunks")
    except IndexError:
        at = -1
    if at > end:
        raise DamagedFrame("a chunk reaches past its series")
    if at < end:
        raise DamagedFrame("a series is truncated, or its fields are in an unknown order")
    return [*places, at]


def _usual(message: bytes, labels: bytes, places: Sequence[int]) -> SeriesPart | None:
    """Find the data of chunks that all begin as nearly every one does; None where one does not."""
    place = np.array(places, dtype=np.int64)
    begin, end = place[:-1], place[1:]
    seen = np.frombuffer(message, dtype=np.uint8).take(begin[:, None] + _OCTETS, mode="clip")
    sizes = (seen[:, -2] & 0x7F) + (seen[:, -1].astype(np.int64) << 7)
    starts = begin + len(_OCTETS)
    is_usual = ((seen & _MASKS) == _USUAL).all() and (starts + sizes == end).all()
    return SeriesPart(labels, starts, sizes, 0) if is_usual else None


def _unusual(message: bytes, labels: bytes, places: Sequence[int]) -> SeriesPart:
    starts, sizes = [], []
    histograms = 0
    for at, end in pairwise(places):
        kind, begin, finish = 0, end, end
        for number, wire, one, other in fields(message, read_varint(message, at + 1, end)[1], end):
            if number == 3 and wire == VARINT:  # noqa: PLR2004
                kind = one
            elif number == 4 and wire == BYTES:  # noqa: PLR2004
                begin, finish = one, other
        if kind in HISTOGRAMS:
            histograms += 1
        elif kind == XOR:
            starts.append(begin)
            sizes.append(finish - begin)
        else:
            raise DamagedFrame(f"a chunk of the unknown type {kind}")
    return SeriesPart(labels, np.array(starts, dtype=np.int64), np.array(sizes, dtype=np.int64), histograms)


@dataclass(frozen=True, slots=True, eq=False)
class SeriesBatch:
    """Whole series: times rise within each, and are within the range that was asked for."""

    labels: Sequence[bytes]
    """As they came; `columns` reads them."""
    offsets: NDArray[np.int64]
    """Where each series begins among the samples, and the end of the last."""
    times: Times
    """Unix milliseconds."""
    values: Values
    """Stale markers are in here, as the NaN that they are."""
    histograms: int = 0
    """Chunks or samples that were left out since they are no floats."""

    def __post_init__(self) -> None:
        assert len(self.offsets) == len(self.labels) + 1, "each series begins somewhere"
        assert len(self.times) == len(self.values), "a time for each value"

    def columns(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Read these labels of each series; one that a series does not have is the empty text."""
        wanted = [name.encode() for name in names]
        return [tuple(pick_labels(raw, wanted)) for raw in self.labels]


@dataclass(frozen=True, slots=True)
class BatchWindow:
    """How much is held before it is decoded: a batch is closed by whichever is reached first.

    A series is never cut, so that a batch may be larger by one series, which has bounds of its own.
    """

    batch_samples: int = 600_000
    """From 4 MiB on, arrays are on large pages, which cost the system a fraction of small ones."""
    batch_bytes: int = 8 * 1024 * 1024
    series_samples_max: int = 16 * 1024 * 1024
    series_bytes_max: int = 64 * 1024 * 1024


@dataclass(slots=True)
class _ChunkedSeries:
    """What has come of one series."""

    labels: bytes = b""
    is_begun: bool = False
    messages: list[bytes] = field(default_factory=list)
    starts: list[NDArray[np.int64]] = field(default_factory=list)
    sizes: list[NDArray[np.int64]] = field(default_factory=list)
    bytes_held: int = 0
    samples: int = 0
    histograms: int = 0

    def add(self, part: SeriesPart, message: bytes) -> None:
        self.samples += _samples(message, part.starts, part.sizes)
        self.starts.append(part.starts + self.bytes_held)
        self.sizes.append(part.sizes)
        self.messages.append(message)
        self.bytes_held += len(message)
        self.histograms += part.histograms


def _samples(message: bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> int:
    """Return how many samples the chunks say they have: a few bytes may hold thousands."""
    if (sizes < 2).any():  # noqa: PLR2004
        raise DamagedFrame("a chunk without a number of samples")
    octets = np.frombuffer(message, dtype=np.uint8)
    return int((octets[starts].astype(np.int64) * 256 + octets[starts + 1]).sum())


def decoded(
    messages: Iterable[bytes], start_ms: int, end_ms: int, window: BatchWindow | None = None
) -> Iterator[SeriesBatch]:
    """Decode the messages of a stream, within a range of times whose ends belong to it."""
    window, scratch = window or BatchWindow(), Scratch()
    held: list[_ChunkedSeries] = []
    samples = size = 0
    for series in _series(messages, window):
        held.append(series)
        samples += series.samples
        size += series.bytes_held
        if samples >= window.batch_samples or size >= window.batch_bytes:
            yield _decode(held, start_ms, end_ms, scratch)
            held, samples, size = [], 0, 0
    if held:
        yield _decode(held, start_ms, end_ms, scratch)


def _series(messages: Iterable[bytes], window: BatchWindow) -> Iterator[_ChunkedSeries]:
    """Put the parts of each series together: they follow one another, with equal labels."""
    current = _ChunkedSeries()
    for message in messages:
        for part in read_parts(message):
            if current.is_begun and part.labels != current.labels:
                yield current
                current = _ChunkedSeries()
            current.labels, current.is_begun = part.labels, True
            current.add(part, message)
            if current.samples > window.series_samples_max or current.bytes_held > window.series_bytes_max:
                raise FrameTooLarge(f"a series of {current.samples} samples in {current.bytes_held} bytes")
    if current.is_begun:
        yield current


def _decode(held: Sequence[_ChunkedSeries], start_ms: int, end_ms: int, scratch: Scratch) -> SeriesBatch:
    shifts = np.cumsum([0, *(series.bytes_held for series in held)])
    starts = [part + shift for series, shift in zip(held, shifts, strict=False) for part in series.starts]
    sizes = [part for series in held for part in series.sizes]
    chunks = [sum(map(len, series.starts)) for series in held]
    times, values, counts = decode(
        [message for series in held for message in series.messages],
        np.concatenate(starts),
        np.concatenate(sizes),
        scratch,
    )
    ends = np.concatenate(([0], np.cumsum(counts)))
    offsets = ends[np.cumsum([0, *chunks])]
    histograms = sum(series.histograms for series in held)
    return tidied(
        SeriesBatch([series.labels for series in held], offsets, times, values, histograms), start_ms, end_ms
    )


def tidied(batch: SeriesBatch, start_ms: int, end_ms: int) -> SeriesBatch:
    """Put overlapping chunks in order, cut samples outside the range, and leave out empty series."""
    backwards = _backwards(batch)
    if len(backwards):
        batch = _picked(batch, _in_order(batch, backwards))
    times, lengths = batch.times, np.diff(batch.offsets)
    firsts, lasts = batch.offsets[:-1][lengths > 0], batch.offsets[1:][lengths > 0] - 1
    if (times[firsts] < start_ms).any() or (times[lasts] > end_ms).any():
        batch = _picked(batch, np.flatnonzero((times >= start_ms) & (times <= end_ms)))
    lengths = np.diff(batch.offsets)
    if lengths.all():
        return batch
    kept = np.flatnonzero(lengths)
    labels = [batch.labels[row] for row in kept.tolist()]
    offsets = np.append(batch.offsets[kept], batch.offsets[-1])
    return SeriesBatch(labels, offsets, batch.times, batch.values, batch.histograms)


def _picked(batch: SeriesBatch, index: NDArray[np.int64]) -> SeriesBatch:
    """Keep some samples, given series by series."""
    offsets = np.searchsorted(np.sort(index), batch.offsets)
    return SeriesBatch(batch.labels, offsets, batch.times[index], batch.values[index], batch.histograms)


def _backwards(batch: SeriesBatch) -> NDArray[np.int64]:
    """Find the series whose times do not only rise."""
    stands = np.flatnonzero(batch.times[1:] <= batch.times[:-1]) + 1
    series = np.searchsorted(batch.offsets, stands, side="right") - 1
    return np.unique(series[batch.offsets[series] != stands])


def _in_order(batch: SeriesBatch, backwards: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort these series by time; of two samples of one time the one that came first stays."""
    is_kept = np.ones(len(batch.times), dtype=np.bool_)
    index = np.arange(len(batch.times))
    for row in backwards.tolist():
        span = slice(int(batch.offsets[row]), int(batch.offsets[row + 1]))
        order = np.argsort(batch.times[span], kind="stable")
        index[span] = order + span.start
        ordered = batch.times[span][order]
        is_kept[span][1:] = ordered[1:] != ordered[:-1]
    return index[is_kept]
