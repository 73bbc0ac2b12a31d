"""XOR chunks, all at once.

A chunk is a string of bits that can only be read from its beginning: a sample's place depends on all
before it. So the chunks of a batch are read in lockstep: step k reads sample k of every chunk, each at
its own place. Chunks are sorted by their number of samples, so that those still running are a prefix.

A sample is the change of the time's change (`0`: none; `10`, `110`, `1110`, `1111` and 14, 17, 20 or 64
bits), then what the value's bits were xored with (`0`: nothing; `10`: bits where the last ones were; `11`:
5 bits with the number of leading zeros, 6 with the number of bits that follow, 0 meaning 64).

Many readers of bits in one buffer: each has its own place, and all are served at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.remote_read.frames import VARINT_MAX_BYTES, DamagedFrame

Words = NDArray[np.uint64]

_PADDING_WORDS = 4
_WORD_BITS = np.uint64(64)
_ONE_BIT, _SIX, _WITHIN = np.uint64(1), np.uint64(6), np.uint64(63)


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
        """Return the 64 bits from each place on, the first one highest."""
        seen = np.empty_like(at)
        self.peek_into(seen, at, (np.empty_like(at), np.empty_like(at)))
        return seen

    def peek_into(self, seen: Words, at: Words, spare: tuple[Words, Words]) -> None:
        """Do the same without a new array; what is in the spare ones is lost."""
        place, beyond = spare
        np.right_shift(at, _SIX, out=place)
        self._words.take(place.view(np.int64), out=seen, mode="clip")
        np.add(place, _ONE_BIT, out=place)
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
        raise DamagedFrame("a number within a chunk does not end")


Times = NDArray[np.int64]
Values = NDArray[np.float64]

CHUNKS_AT_ONCE = 6144
"""As many as keep the arrays of one step in the processor's cache, and its calls few."""
CELLS_AT_ONCE = 256 * CHUNKS_AT_ONCE
_COUNT_BITS = 16
_FIRST_BITS_MIN = 8 + 64
_SECOND_BITS_MIN = 8 + 1
_NEXT_BITS_MIN = 2
_ONE = np.uint64(1)
_BYTE = np.uint64(0xFF)


def _time_tables() -> tuple[Words, Words, Words]:
    """Make, for the four bits that tell the class of a time: what to shift left, shift right, and skip.

    The class of 64 bits is read apart.
    """
    classes = [(64, 0, 1)] * 8 + [(2, 14, 16)] * 4 + [(3, 17, 20)] * 2 + [(4, 20, 24), (4, 64, 4)]
    left = [left for left, _, _ in classes]
    right = [min(64 - bits, 63) for _, bits, _ in classes]
    skipped = [skipped for _, _, skipped in classes]
    return _words(left), _words(right), _words(skipped)


def _value_tables() -> tuple[Words, Words, Words]:
    """Make, for the 13 bits that a value may begin with: what is new, what is kept, what counts.

    New is the number of bits, how far they are shifted, and the length of the header, a byte each; kept is a
    mask for the same of the last value; what counts masks the number of bits, and is 0 where none follow.
    """
    new: list[int] = []
    kept: list[int] = []
    counted: list[int] = []
    for header in range(1 << 13):
        control, leading, bits = header >> 11, header >> 6 & 31, header & 63 or 64
        if control < 2:  # noqa: PLR2004 - `0`, whatever follows
            row = (1 << 16, 0xFFFF, 0)
        elif control == 2:  # noqa: PLR2004 - `10`
            row = (2 << 16, 0xFFFF, 0xFF)
        elif leading + bits <= 64:  # noqa: PLR2004
            row = (bits | 64 - leading - bits << 8 | 13 << 16, 0, 0xFF)
        else:  # more bits than there are: a length that runs past every chunk
            row = (_IMPOSSIBLE << 16, 0, 0xFF)
        for column, entry in zip((new, kept, counted), row, strict=True):
            column.append(entry)
    return _words(new), _words(kept), _words(counted)


def _words(numbers: Sequence[int]) -> Words:
    return np.array(numbers, dtype=np.uint64)


_IMPOSSIBLE = 1 << 40
_LEFT, _RIGHT, _SKIPPED = _time_tables()
_NEW, _KEPT, _COUNTED = _value_tables()
_WIDE_CLASS = 15
_TIMED_CLASS_MIN = 8


def decode(
    parts: Sequence[bytes],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    scratch: Scratch | None = None,
) -> tuple[Times, Values, NDArray[np.int64]]:
    """Decode chunks that lie at these bytes of the joined parts.

    Gives all times and values, chunk after chunk in the given order, and the samples in each.
    """
    scratch = scratch or Scratch()
    bits = Bits(parts, scratch)
    counts = counted(bits, starts, sizes)
    ends = np.concatenate(([0], np.cumsum(counts)))
    times = np.empty(int(ends[-1]), dtype=np.int64)
    values = np.empty(int(ends[-1]), dtype=np.uint64)
    for first, last in _lots(counts):
        begin, end = int(ends[first]), int(ends[last])
        if begin == end:
            continue
        batch = slice(first, last)
        running = _Lockstep(bits, starts[batch], sizes[batch], counts[batch], scratch)
        running.run()
        running.flatten(times[begin:end], values[begin:end])
    return times, values.view(np.float64), counts


def counted(bits: Bits, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many samples each chunk says it has; refuse what its size cannot hold."""
    places = starts.view(np.uint64) << np.uint64(3)
    counts = (bits.peek(places) >> np.uint64(48)).view(np.int64)
    needed = _COUNT_BITS + (counts > 0) * _FIRST_BITS_MIN + (counts > 1) * _SECOND_BITS_MIN
    needed += np.maximum(counts - 2, 0) * _NEXT_BITS_MIN
    if (needed > 8 * sizes).any():
        raise DamagedFrame("a chunk has more samples than its bytes hold")
    return counts


def _lots(counts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Cut chunks into lots that are bounded in chunks, and in chunks times samples."""
    even = -(-len(counts) // max(1, -(-len(counts) // CHUNKS_AT_ONCE)))
    first = 0
    while first < len(counts):
        highest = np.maximum.accumulate(counts[first : first + even])
        fitting = highest * np.arange(1, len(highest) + 1) <= CELLS_AT_ONCE
        last = first + max(1, len(fitting) if fitting.all() else int(np.argmin(fitting)))
        yield first, last
        first = last


class _Lockstep:
    """Chunks of which each step reads one more sample."""

    def __init__(
        self,
        bits: Bits,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        counts: NDArray[np.int64],
        scratch: Scratch,
    ) -> None:
        self._bits, self._scratch = bits, scratch
        self._order = np.argsort(-counts, kind="stable")
        self._counts = counts[self._order]
        chunks, samples = len(counts), int(self._counts[0])
        # A row length that is no power of two keeps a column from falling into one set of the cache.
        self._width = chunks + 8 - chunks % 8 + 8
        shape = (samples, self._width)
        self._times: Times = scratch.words("times", samples * self._width).reshape(shape).view(np.int64)
        self._values: Words = scratch.words("values", samples * self._width).reshape(shape)
        self._at = (starts[self._order].view(np.uint64) << np.uint64(3)) + np.uint64(_COUNT_BITS)
        self._end = (starts + sizes)[self._order].view(np.uint64) << np.uint64(3)
        self._change: Times = np.zeros(chunks, dtype=np.int64)
        # Until a chunk says otherwise, 64 bits, not shifted: a writer that was restarted relies on it.
        self._shape: Words = np.full(chunks, 64, dtype=np.uint64)
        self._spare = tuple(np.empty(chunks, dtype=np.uint64) for _ in range(4))
        self._live = int(np.count_nonzero(counts))

    def run(self) -> None:
        self._first()
        for step in range(1, len(self._times)):
            if self._counts[self._live - 1] <= step:
                self._live = int(np.searchsorted(-self._counts, -step))
            live = self._live
            at, seen, one, two, place = (part[:live] for part in (self._at, *self._spare))
            if step == 1:
                self._second(at)
                self._bits.peek_into(seen, at, (one, place))
            else:
                self._bits.peek_into(seen, at, (one, place))
                self._next_times(at, seen, one, two, place)
            np.add(self._times[step - 1, :live], self._change[:live], out=self._times[step, :live])
            self._next_values(step, at, seen, one, two, place)
        if (self._at > self._end).any():
            raise DamagedFrame("a chunk has more samples than its bytes hold")

    def flatten(self, times: Times, values: Words) -> None:
        """Lay samples that were read side by side one behind the other, chunks in the given order."""
        column = np.empty_like(self._order)
        column[self._order] = np.arange(len(column))
        counts = self._counts[column]
        # The next sample lies a row below; from a chunk's last one, the next chunk's first is far above.
        index = self._scratch.words("index", len(times)).view(np.int64)
        index[:] = self._width
        some = np.flatnonzero(counts)
        firsts, lasts = column[some], column[some] + (counts[some] - 1) * self._width
        index[(np.cumsum(counts) - counts)[some]] = firsts - np.concatenate(([0], lasts[:-1]))
        np.cumsum(index, out=index)
        self._times.reshape(-1).take(index, out=times, mode="clip")
        self._values.reshape(-1).take(index, out=values, mode="clip")

    def _first(self) -> None:
        live = self._live
        zigzag, at = self._bits.varints(self._at[:live])
        self._times[0, :live] = (zigzag >> _ONE).view(np.int64) ^ -(zigzag & _ONE).view(np.int64)
        self._values[0, :live] = self._bits.peek(at)
        self._at[:live] = at + np.uint64(64)

    def _second(self, at: Words) -> None:
        change, at[:] = self._bits.varints(at)
        self._change[: len(at)] = change.view(np.int64)

    def _next_times(self, at: Words, seen: Words, one: Words, two: Words, place: Words) -> None:
        """Read how the time's change changes, and leave what follows in `seen`.

        The sign rule is not two's complement: exactly half of the range is positive. So one is subtracted
        before the sign is spread, and added after.
        """
        np.right_shift(seen, np.uint64(60), out=place)
        highest = int(place.max())
        if highest < _TIMED_CLASS_MIN:
            np.add(at, _ONE, out=at)
            np.left_shift(seen, _ONE, out=seen)
            return
        table = place.view(np.int64)
        _LEFT.take(table, out=one, mode="wrap")
        np.left_shift(seen, one, out=one)
        right = _RIGHT.take(table, mode="wrap")
        np.left_shift(_ONE, right, out=two)
        np.subtract(one, two, out=one)
        signed = one.view(np.int64)
        np.right_shift(signed, right.view(np.int64), out=signed)
        np.add(signed, 1, out=signed)
        _SKIPPED.take(table, out=two, mode="wrap")
        np.add(at, two, out=at)
        np.left_shift(seen, two, out=seen)
        if highest == _WIDE_CLASS:
            self._wide(np.flatnonzero(place == _WIDE_CLASS), at, seen, signed)
        change = self._change[: len(at)]
        np.add(change, signed, out=change)

    def _wide(self, rows: NDArray[np.int64], at: Words, seen: Words, signed: Times) -> None:
        """Read changes of 64 bits, as every gap of more than nine minutes has them."""
        signed[rows] = self._bits.peek(at[rows]).view(np.int64)
        at[rows] += np.uint64(64)
        seen[rows] = self._bits.peek(at[rows])

    def _next_values(self, step: int, at: Words, seen: Words, one: Words, two: Words, place: Words) -> None:
        live = len(at)
        shape = self._shape[:live]
        np.right_shift(seen, np.uint64(51), out=place)
        table = place.view(np.int64)
        _KEPT.take(table, out=one, mode="wrap")
        np.bitwise_and(shape, one, out=shape)
        _NEW.take(table, out=one, mode="wrap")
        np.bitwise_or(shape, one, out=shape)
        np.right_shift(shape, np.uint64(16), out=one)
        np.add(at, one, out=at)
        _COUNTED.take(table, out=two, mode="wrap")
        np.bitwise_and(shape, two, out=two)
        self._bits.peek_into(seen, at, (one, place))
        np.add(at, two, out=at)
        np.subtract(np.uint64(64), two, out=two)
        np.right_shift(seen, two, out=seen)
        np.right_shift(shape, np.uint64(8), out=one)
        np.bitwise_and(one, _BYTE, out=one)
        np.left_shift(seen, one, out=seen)
        np.bitwise_xor(self._values[step - 1, :live], seen, out=self._values[step, :live])
