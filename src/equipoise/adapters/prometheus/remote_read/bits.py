"""Many readers of bits in one buffer: each has its own place, and all are served at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.remote_read.damaged import Damaged
from equipoise.adapters.prometheus.remote_read.protobuf import VARINT_MAX_BYTES

Words = NDArray[np.uint64]

_PADDING_WORDS = 4
_WORD_BITS = np.uint64(64)
_ONE, _SIX, _WITHIN = np.uint64(1), np.uint64(6), np.uint64(63)


class Scratch:
    """Arrays that are used again: to get fresh memory from the system costs as much as to fill it."""

    def __init__(self) -> None:
        self._held: dict[str, Words] = {}

    def words(self, name: str, size: int) -> Words:
        """Lend an array of this size, with whatever is in it."""
        held = self._held.get(name)
        if held is None or len(held) < size:
            held = self._held[name] = np.empty(size + size // 8, dtype=np.uint64)
        return held[:size]


class Bits:
    """A buffer in words of 64 bits, of which any two neighbours have what is at a place between them.

    Many readers, each somewhere else, wait for memory more than for anything: so the buffer is not made
    larger, as it would be with all shifts of it laid out. A place beyond the end gives whatever is there; who
    reads checks where it has got to.
    """

    def __init__(self, parts: Sequence[bytes], scratch: Scratch) -> None:
        size = sum(map(len, parts))
        self._words: Words = scratch.words("bits", size // 8 + _PADDING_WORDS)
        octets, at = self._words.view(np.uint8), 0
        for part in parts:
            octets[at : at + len(part)] = np.frombuffer(part, dtype=np.uint8)
            at += len(part)
        octets[at:] = 0
        if sys.byteorder == "little":
            self._words.byteswap(inplace=True)

    def peek(self, at: Words) -> Words:
        """Give the 64 bits from each place on, the first one highest."""
        seen = np.empty_like(at)
        self.peek_into(seen, at, (np.empty_like(at), np.empty_like(at)))
        return seen

    def peek_into(self, seen: Words, at: Words, spare: tuple[Words, Words]) -> None:
        """Do the same without a new array; what is in the spare ones is lost."""
        place, beyond = spare
        np.right_shift(at, _SIX, out=place)
        self._words.take(place.view(np.int64), out=seen, mode="clip")
        np.add(place, _ONE, out=place)
        self._words.take(place.view(np.int64), out=beyond, mode="clip")
        shift = np.bitwise_and(at, _WITHIN, out=place)
        np.left_shift(seen, shift, out=seen)
        np.subtract(_WORD_BITS, shift, out=shift)
        # A shift by 64 gives 0 in numpy, as it should here.
        np.right_shift(beyond, shift, out=beyond)
        np.bitwise_or(seen, beyond, out=seen)

    def varints(self, at: Words) -> tuple[Words, Words]:
        """Read a varint at each place; give them and where they ended."""
        numbers = np.zeros(len(at), dtype=np.uint64)
        goes_on = np.ones(len(at), dtype=np.uint64)
        for index in range(VARINT_MAX_BYTES):
            byte = self.peek(at) >> np.uint64(56)
            numbers |= ((byte & np.uint64(0x7F)) * goes_on) << np.uint64(7 * index)
            at = at + goes_on * np.uint64(8)
            goes_on &= byte >> np.uint64(7)
            if not goes_on.any():
                return numbers, at
        raise Damaged("a number within a chunk does not end")
