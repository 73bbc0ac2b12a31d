"""Many readers of bits in one buffer: each has its own place, and all are served at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.remote_read.damaged import Damaged
from equipoise.adapters.prometheus.remote_read.protobuf import VARINT_MAX_BYTES

Words = NDArray[np.uint64]

PEEKED_BITS = 49
"""What a look gives for sure: 64 bits from a place that is a multiple of 16."""
_PADDING = bytes(32)
_BLOCK_WORDS = 4096
"""So many are laid out at a time, so that they are still in the cache when the next shift comes."""


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
    """The 64 bits at every second byte, so that one gather and one shift reach any place.

    That is four times the buffer, and half the work of putting each look together from two words. A place
    beyond the end gives whatever is there; who reads checks where it has got to.
    """

    def __init__(self, parts: Sequence[bytes], scratch: Scratch) -> None:
        data = b"".join((*parts, _PADDING))
        octets = np.frombuffer(data, dtype=np.uint8)
        words = (len(data) - 8) // 8
        self.windows: Words = scratch.words("windows", 4 * words)
        shifted = [octets[2 * shift : 2 * shift + 8 * words].view(">u8") for shift in range(4)]
        for first in range(0, words, _BLOCK_WORDS):
            end = min(first + _BLOCK_WORDS, words)
            for shift, source in enumerate(shifted):
                self.windows[4 * first + shift : 4 * end : 4] = source[first:end]

    def peek(self, at: Words) -> Words:
        """Give the bits from each place on, the first one highest; at least `PEEKED_BITS` of them."""
        place = (at >> np.uint64(4)).view(np.int64)
        return self.windows.take(place, mode="clip") << (at & np.uint64(15))

    def peek_whole(self, at: Words) -> Words:
        """Give all 64 bits from each place on."""
        beyond = (at >> np.uint64(4)).view(np.int64) + 4
        # A shift by 64 gives 0 in numpy, as it should here.
        rest = self.windows.take(beyond, mode="clip") >> (np.uint64(64) - (at & np.uint64(15)))
        return self.peek(at) | rest

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
