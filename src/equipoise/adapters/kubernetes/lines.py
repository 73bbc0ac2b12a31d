"""Lines out of bytes as they arrive: bytes in, whole lines out."""

from __future__ import annotations


class LineTooLong(ValueError):  # noqa: N818 - reads as a fact
    """A line beyond what any event needs."""


class Lines:
    """Holds the beginning of a line until its end arrives."""

    def __init__(self, length_max: int = 16 * 1024 * 1024) -> None:
        self._length_max = length_max
        self._begun: list[bytes] = []
        self._begun_length = 0

    def feed(self, part: bytes) -> list[bytes]:
        """Take some bytes; give the lines that are whole now, without the empty ones."""
        *ended, rest = part.split(b"\n")
        if ended:
            ended[0] = b"".join((*self._begun, ended[0]))
            self._begun, self._begun_length = [], 0
        if rest:
            self._begun.append(rest)
            self._begun_length += len(rest)
        if self._begun_length > self._length_max or any(len(line) > self._length_max for line in ended):
            raise LineTooLong(f"a line of more than {self._length_max} bytes")
        return [line for line in ended if line.strip()]
