"""Bytes in, frames out: each is a size, a checksum, and a message that the checksum vouches for."""

from __future__ import annotations

from collections.abc import Iterator

from equipoise.adapters.prometheus.errors import clean
from equipoise.adapters.prometheus.remote_read.damaged import Damaged, TooMuch
from equipoise.adapters.prometheus.remote_read.protobuf import VARINT_MAX_BYTES, read_varint

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
        """Give the frames that are whole now."""
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
            raise Damaged(_late_error(rest) or f"it ends within a frame, {self._held} bytes after the last")

    def _message(self, data: bytes, at: int) -> bytes | None:
        """Find the message of the frame at a place; None while it is not whole."""
        held = len(data) - at
        if not held:
            self._wanted = 1
            return None
        try:
            size, begin = read_varint(data, at, len(data))
        except Damaged:
            if held >= VARINT_MAX_BYTES:
                raise Damaged(_late_error(data[at:]) or "the size of a frame does not end") from None
            self._wanted = held + 1
            return None
        if size > self._frame_max_bytes:
            if said := _late_error(data[at:]):
                raise Damaged(said)
            raise TooMuch(f"a frame of {size} bytes")
        begin += CHECKSUM_BYTES
        self._end = begin + size
        if len(data) < self._end:
            self._wanted = self._end - at
            return None
        message = data[begin : self._end]
        if self._checksum(message) != int.from_bytes(data[begin - CHECKSUM_BYTES : begin], "big"):
            raise Damaged(_late_error(data[at:]) or "a frame's checksum is wrong")
        return message


def _late_error(rest: bytes) -> str:
    """Say what a server wrote after good frames, if it is text: an error too late for a status."""
    beginning = rest[:1200]
    try:
        text = beginning.decode("utf-8", "strict" if len(rest) <= len(beginning) else "ignore")
    except UnicodeDecodeError:
        return ""
    is_text = len(text) >= _LATE_ERROR_MIN and all(c.isprintable() or c.isspace() for c in text)
    return f"the server broke off: {clean(text)}" if is_text else ""
