"""The little of protobuf that remote read needs: varints, and fields in the order they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from equipoise.adapters.prometheus.remote_read.damaged import Damaged

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_MAX_BYTES = 10
_MORE = 0x80
_LABEL, _VALUE = 0x0A, 0x12
_FIXED = {FIXED64: 8, FIXED32: 4}


def write_varint(number: int) -> bytes:
    """Write a number, seven bits to a byte, lowest first; negative ones as 64 bits."""
    number &= (1 << 64) - 1
    written = bytearray()
    while number >= _MORE:
        written.append(number & 0x7F | _MORE)
        number >>= 7
    written.append(number)
    return bytes(written)


def write_number(field: int, number: int) -> bytes:
    """Write a field that holds a number."""
    return write_varint(field << 3 | VARINT) + write_varint(number)


def write_bytes(field: int, data: bytes) -> bytes:
    """Write a field that holds bytes, text or a message."""
    return write_varint(field << 3 | BYTES) + write_varint(len(data)) + data


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a number; give it and where it ended."""
    number = shift = 0
    for place in range(at, min(end, at + VARINT_MAX_BYTES)):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        if byte < _MORE:
            return number & (1 << 64) - 1, place + 1
        shift += 7
    raise Damaged("a number does not end")


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Give each field of a message: its number, its wire type, and two numbers.

    The two are a varint and 0, or where the field's bytes begin and end.
    """
    while at < end:
        key, at = read_varint(data, at, end)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = read_varint(data, at, end)
            yield number, kind, value, 0
            continue
        if kind == BYTES:
            size, at = read_varint(data, at, end)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise Damaged(f"a field of the unknown wire type {kind}")
        if number == 0 or size > end - at:
            raise Damaged("a field reaches past its message")
        yield number, kind, at, at + size
        at += size


def read_labels(data: bytes) -> dict[bytes, bytes]:
    """Read `repeated Label` as it stands in a series: field 1, with a name (1) and a value (2)."""
    labels: dict[bytes, bytes] = {}
    at, end = 0, len(data)
    while at < end:
        size, begin = read_varint(data, at + 1, end)
        stop = begin + size
        if data[at] != _LABEL or stop > end:
            raise Damaged("a label reaches past its series")
        name = value = b""
        for number, kind, first, last in fields(data, begin, stop):
            if kind == BYTES:
                name, value = (data[first:last], value) if number == 1 else (name, data[first:last])
        labels[name] = value
        at = stop
    return labels


def pick_labels(data: bytes, names: Sequence[bytes]) -> list[str]:
    """Read some labels; one that is not there is the empty text.

    Labels are many, and short: where each length is one byte, a look at the places where the two fields must
    begin is enough.
    """
    found = dict.fromkeys(names, b"")
    at, end = 0, len(data)
    try:
        while at < end:
            size, named = data[at + 1], data[at + 3]
            valued = at + 5 + named
            is_short = data[at] == data[at + 2] == _LABEL and data[valued - 1] == _VALUE and size < _MORE
            if not is_short or named >= _MORE or valued + 1 + data[valued] != at + 2 + size:
                return _pick_slowly(data, names)
            if (name := data[at + 4 : valued - 1]) in found:
                found[name] = data[valued + 1 : valued + 1 + data[valued]]
            at += 2 + size
    except IndexError:
        return _pick_slowly(data, names)
    return _texts(found[name] for name in names)


def _pick_slowly(data: bytes, names: Sequence[bytes]) -> list[str]:
    labels = read_labels(data)
    return _texts(labels.get(name, b"") for name in names)


def _texts(values: Iterable[bytes]) -> list[str]:
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError as error:
        raise Damaged("a label is not UTF-8") from error
