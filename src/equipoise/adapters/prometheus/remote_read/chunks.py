"""A frame's message: the labels of a series, and where in the message its chunks lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from equipoise.adapters.prometheus.remote_read.damaged import Damaged
from equipoise.adapters.prometheus.remote_read.protobuf import BYTES, VARINT, fields, read_varint

XOR = 1
HISTOGRAMS = frozenset({2, 3})

_LABEL, _CHUNK = 0x0A, 0x12
_MORE = 0x80


def _pattern() -> tuple[int, int, int]:
    """Make the mask and the value that nearly every chunk's first bytes have.

    Two times of six bytes each (1971 to 2109), type XOR, data: 08 tttttt 10 tttttt 18 01 22.
    """
    time = [(0x80, 0x80)] * 5 + [(0x80, 0x00)]
    octets = [(0xFF, 0x08), *time, (0xFF, 0x10), *time, (0xFF, 0x18), (0xFF, XOR), (0xFF, 0x22)]
    mask = int.from_bytes(bytes(mask for mask, _ in octets), "little")
    return mask, int.from_bytes(bytes(value for _, value in octets), "little"), len(octets)


_MASK, _USUAL, _USUAL_BYTES = _pattern()


class Part(NamedTuple):
    """A series, or a part of one: a large series comes in several."""

    labels: bytes
    """As they came; the same in all parts of a series."""
    starts: list[int]
    """Where the data of each XOR chunk begins in the message."""
    sizes: list[int]
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
    part = Part(message[first:at], [], [], 0)
    try:
        while at < end and message[at] == _CHUNK:
            at, part = _chunk(message, at + 1, end, part)
    except IndexError:
        at = -1
    if at != end:
        raise Damaged("a series is cut off, or has fields in an order that is not known")
    return part


def _chunk(message: bytes, at: int, end: int, part: Part) -> tuple[int, Part]:
    """Note where a chunk's data lies; give where the chunk ends.

    There are many chunks, so the lengths that nearly all have, of one byte or two, are read right here.
    """
    size, at = message[at], at + 1
    if size >= _MORE:
        if message[at] >= _MORE:
            size, at = read_varint(message, at - 1, end)
        else:
            size, at = size & 0x7F | message[at] << 7, at + 1
    stop = at + size
    if stop > end:
        raise Damaged("a chunk reaches past its series")
    begin = at + _USUAL_BYTES
    if int.from_bytes(message[at:begin], "little") & _MASK == _USUAL:
        size, begin = message[begin], begin + 1
        if size >= _MORE and message[begin] < _MORE:
            size, begin = size & 0x7F | message[begin] << 7, begin + 1
        if begin + size == stop:
            part.starts.append(begin)
            part.sizes.append(size)
            return stop, part
    return stop, _unusual(message, at, stop, part)


def _unusual(message: bytes, at: int, end: int, part: Part) -> Part:
    kind, begin, finish = 0, end, end
    for number, wire, one, other in fields(message, at, end):
        if number == 3 and wire == VARINT:  # noqa: PLR2004
            kind = one
        elif number == 4 and wire == BYTES:  # noqa: PLR2004
            begin, finish = one, other
    if kind in HISTOGRAMS:
        return part._replace(histograms=part.histograms + 1)
    if kind != XOR:
        raise Damaged(f"a chunk of the unknown type {kind}")
    part.starts.append(begin)
    part.sizes.append(finish - begin)
    return part
