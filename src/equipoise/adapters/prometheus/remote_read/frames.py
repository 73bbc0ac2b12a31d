"""Bytes in, frames out: each is a size, a checksum, and a message that the checksum vouches for.

What is wrong with an answer's bytes; who read them says where they came from.

The little of protobuf that remote read needs: varints, and fields in the order they come.

The question: which series, over which time, and which forms of answer are understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from equipoise.adapters.prometheus.errors import clean
from equipoise.adapters.prometheus.promql import Matcher


class DamagedFrame(Exception):  # noqa: N818 - reads as a fact
    """Bytes that are not what they must be."""


class FrameTooLarge(Exception):  # noqa: N818 - reads as a fact
    """Bytes that would take more memory than they may."""


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
    return write_varint(field << 3 | VARINT) + write_varint(number)


def write_bytes(field: int, data: bytes) -> bytes:
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
    raise DamagedFrame("a number does not end")


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield each field of a message: its number, its wire type, and two numbers.

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
            raise DamagedFrame(f"a field of the unknown wire type {kind}")
        if number == 0 or size > end - at:
            raise DamagedFrame("a field reaches past its message")
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
            raise DamagedFrame("a label reaches past its series")
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
        raise DamagedFrame("a label is not UTF-8") from error


FRAME_MAX_BYTES = 64 * 1024 * 1024
"""Prometheus writes 1 MiB by default, and more only where one chunk is that large."""
CHECKSUM_BYTES = 4
_LATE_ERROR_MIN = 8


class Frames:
    """Cuts a stream into frames, however it is cut into parts."""

    def __init__(self, frame_max_bytes: int = FRAME_MAX_BYTES) -> None:
        import google_crc32c  # noqa: PLC0415 - only who reads remotely pays for it

        self._checksum = google_crc32c.value
        self._frame_max_bytes = frame_max_bytes
        self._parts: list[bytes] = []
        self._held = 0
        self._wanted = 1
        """Bytes without which looking again is of no use."""
        self._end = 0
        """Where the last frame that was found ended."""

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Yield the frames that are whole now."""
        self._parts.append(part)
        self._held += len(part)
        if self._held < self._wanted:
            return
        data = b"".join(self._parts) if len(self._parts) > 1 else part
        at = 0
        while (message := self._message(data, at)) is not None:
            yield message
            at = self._end
        self._parts = [data[at:]] if at < len(data) else []
        self._held = len(data) - at

    def close(self) -> None:
        """Raise unless the stream ended where a frame did."""
        if self._held:
            rest = b"".join(self._parts)
            raise DamagedFrame(
                _late_error(rest) or f"it ends within a frame, {self._held} bytes after the last"
            )

    def _message(self, data: bytes, at: int) -> bytes | None:
        """Find the message of the frame at a place; None while it is not whole."""
        held = len(data) - at
        if not held:
            self._wanted = 1
            return None
        try:
            size, begin = read_varint(data, at, len(data))
        except DamagedFrame:
            if held >= VARINT_MAX_BYTES:
                raise DamagedFrame(_late_error(data[at:]) or "the size of a frame does not end") from None
            self._wanted = held + 1
            return None
        if size > self._frame_max_bytes:
            if said := _late_error(data[at:]):
                raise DamagedFrame(said)
            raise FrameTooLarge(f"a frame of {size} bytes")
        begin += CHECKSUM_BYTES
        self._end = begin + size
        if len(data) < self._end:
            self._wanted = self._end - at
            return None
        message = data[begin : self._end]
        if self._checksum(message) != int.from_bytes(data[begin - CHECKSUM_BYTES : begin], "big"):
            raise DamagedFrame(_late_error(data[at:]) or "a frame's checksum is wrong")
        return message


def _late_error(rest: bytes) -> str:
    """Return what a server wrote after good frames, if it is text: an error too late for a status."""
    beginning = rest[:1200]
    try:
        text = beginning.decode("utf-8", "strict" if len(rest) <= len(beginning) else "ignore")
    except UnicodeDecodeError:
        return ""
    is_text = len(text) >= _LATE_ERROR_MIN and all(c.isprintable() or c.isspace() for c in text)
    return f"the server aborted: {clean(text)}" if is_text else ""


PATH = "/api/v1/read"
CONTENT_TYPE = "application/x-protobuf"
HEADERS = {
    "Content-Type": CONTENT_TYPE,
    "Content-Encoding": "snappy",
    "Accept-Encoding": "snappy",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}
_OPERATORS = {"=": 0, "!=": 1, "=~": 2, "!~": 3}
_SAMPLES, _STREAMED_XOR_CHUNKS = 0, 1


def encode(matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, streamed: bool = True) -> bytes:
    """Write a `prometheus.ReadRequest` with one query, as a block of snappy."""
    import cramjam  # noqa: PLC0415 - only who reads remotely pays for it

    query = write_number(1, start_ms) + write_number(2, end_ms)
    query += b"".join(write_bytes(3, _matcher(matcher)) for matcher in matchers)
    accepted = bytes([_STREAMED_XOR_CHUNKS, _SAMPLES] if streamed else [_SAMPLES])
    return bytes(cramjam.snappy.compress_raw(write_bytes(1, query) + write_bytes(2, accepted)))


def _matcher(matcher: Matcher) -> bytes:
    kind = write_number(1, _OPERATORS[matcher.operator])
    return kind + write_bytes(2, matcher.label.encode()) + write_bytes(3, matcher.value.encode())


def by_name(metric: str) -> Matcher:
    """Match a metric, which is a label like any other here."""
    return Matcher("__name__", "=", metric)
