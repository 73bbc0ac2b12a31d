"""A frame's message: the labels of a series, and where in the message its chunks lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.remote_read.damaged import Damaged, TooMuch
from equipoise.adapters.prometheus.remote_read.protobuf import BYTES, VARINT, fields, read_varint

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


class Part(NamedTuple):
    """A series, or a part of one: a large series comes in several."""

    labels: bytes
    """As they came; the same in all parts of a series."""
    starts: NDArray[np.int64]
    """Where the data of each XOR chunk begins in the message."""
    sizes: NDArray[np.int64]
    histograms: int
    """Chunks that were left out since they hold no floats."""


def read_parts(message: bytes) -> Iterator[Part]:
    """Read a `ChunkedReadResponse` that answers the only query."""
    for number, kind, at, end in fields(message, 0, len(message)):
        if number == 1 and kind == BYTES:
            yield _part(message, at, end)
        elif number == 2 and kind == VARINT and at != 0:  # noqa: PLR2004
            raise Damaged("an answer to a query that was not asked")


def _part(message: bytes, at: int, end: int) -> Part:
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
                raise TooMuch(f"a series of more than {CHUNKS_MAX} chunks")
    except IndexError:
        at = -1
    if at > end:
        raise Damaged("a chunk reaches past its series")
    if at < end:
        raise Damaged("a series is cut off, or has fields in an order that is not known")
    return [*places, at]


def _usual(message: bytes, labels: bytes, places: Sequence[int]) -> Part | None:
    """Find the data of chunks that all begin as nearly every one does; None where one does not."""
    place = np.array(places, dtype=np.int64)
    begin, end = place[:-1], place[1:]
    seen = np.frombuffer(message, dtype=np.uint8).take(begin[:, None] + _OCTETS, mode="clip")
    sizes = (seen[:, -2] & 0x7F) + (seen[:, -1].astype(np.int64) << 7)
    starts = begin + len(_OCTETS)
    is_usual = ((seen & _MASKS) == _USUAL).all() and (starts + sizes == end).all()
    return Part(labels, starts, sizes, 0) if is_usual else None


def _unusual(message: bytes, labels: bytes, places: Sequence[int]) -> Part:
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
            raise Damaged(f"a chunk of the unknown type {kind}")
    return Part(labels, np.array(starts, dtype=np.int64), np.array(sizes, dtype=np.int64), histograms)
