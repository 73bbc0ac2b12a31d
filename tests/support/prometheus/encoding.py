"""The other side of remote read, written plainly: chunks, frames, answers; and a decoder to compare with."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

import cramjam
import google_crc32c

Sample = tuple[int, int]
"""A time in milliseconds, and the 64 bits of a value."""
XOR, HISTOGRAM = 1, 2
CLASSES = ((14, 0b10, 2), (17, 0b110, 3), (20, 0b1110, 4))


def bits_of(value: float) -> int:
    return int.from_bytes(struct.pack(">d", value), "big")


def value_of(bits: int) -> float:
    found: float = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    return found


class _Writer:
    def __init__(self) -> None:
        self.number = self.length = 0

    def write(self, number: int, bits: int) -> None:
        self.number = self.number << bits | number & (1 << bits) - 1
        self.length += bits

    def write_bytes(self, data: bytes) -> None:
        self.write(int.from_bytes(data, "big"), 8 * len(data))

    def done(self) -> bytes:
        padding = -self.length % 8
        return (self.number << padding).to_bytes((self.length + padding) // 8, "big")


def uvarint(number: int) -> bytes:
    number &= (1 << 64) - 1
    written = b""
    while number > 0x7F:
        written += bytes([number & 0x7F | 0x80])
        number >>= 7
    return written + bytes([number])


def encode_chunk(samples: Sequence[Sample], *, restarted: bool = False) -> bytes:
    """Write an XOR chunk; a writer that was restarted takes 64 bits, not shifted, for the last shape."""
    writer = _Writer()
    shape = (0, 0) if restarted else None
    change = last_time = last_bits = 0
    for index, (time, bits) in enumerate(samples):
        if index == 0:
            writer.write_bytes(uvarint(time << 1 if time >= 0 else (-time << 1) - 1))
            writer.write(bits, 64)
        else:
            if index == 1:
                writer.write_bytes(uvarint(time - last_time))
            else:
                _write_change(writer, time - last_time - change)
            change = time - last_time
            shape = _write_value(writer, bits ^ last_bits, shape)
        last_time, last_bits = time, bits
    return struct.pack(">H", len(samples)) + writer.done()


def _write_change(writer: _Writer, change: int) -> None:
    if change == 0:
        writer.write(0, 1)
        return
    for bits, prefix, length in CLASSES:
        if -(1 << bits - 1) < change <= 1 << bits - 1:
            writer.write(prefix, length)
            writer.write(change, bits)
            return
    writer.write(0b1111, 4)
    writer.write(change, 64)


def _write_value(writer: _Writer, changed: int, shape: tuple[int, int] | None) -> tuple[int, int] | None:
    if changed == 0:
        writer.write(0, 1)
        return shape
    leading = min(64 - changed.bit_length(), 31)
    trailing = (changed & -changed).bit_length() - 1
    if shape is not None and leading >= shape[0] and trailing >= shape[1]:
        writer.write(0b10, 2)
        writer.write(changed >> shape[1], 64 - sum(shape))
        return shape
    significant = 64 - leading - trailing
    writer.write(0b11, 2)
    writer.write(leading, 5)
    writer.write(significant, 6)
    writer.write(changed >> trailing, significant)
    return leading, trailing


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.bits = "".join(f"{byte:08b}" for byte in data)
        self.at = 0

    def read(self, bits: int) -> int:
        taken = self.bits[self.at : self.at + bits]
        assert len(taken) == bits, "the chunk is too short"
        self.at += bits
        return int(taken, 2) if bits else 0

    def ones(self, most: int) -> int:
        count = 0
        while count < most and self.read(1):
            count += 1
        return count

    def uvarint(self) -> int:
        number = shift = 0
        while True:
            byte = self.read(8)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number


def decode_chunk(data: bytes) -> list[Sample]:
    """Read an XOR chunk sample by sample: the oracle."""
    reader = _Reader(data)
    samples: list[Sample] = []
    change = time = bits = leading = trailing = 0
    for index in range(reader.read(16)):
        if index == 0:
            zigzag = reader.uvarint()
            time = zigzag >> 1 if not zigzag & 1 else -(zigzag >> 1) - 1
            bits = reader.read(64)
        else:
            change = reader.uvarint() if index == 1 else change + _read_change(reader)
            time += change
            control = reader.ones(2)
            if control == 2:
                leading, significant = reader.read(5), reader.read(6) or 64
                trailing = 64 - leading - significant
            if control:
                bits ^= reader.read(64 - leading - trailing) << trailing
        samples.append((time, bits))
    return samples


def _read_change(reader: _Reader) -> int:
    bits = (0, 14, 17, 20, 64)[reader.ones(4)]
    number = reader.read(bits)
    half = 1 << max(bits - 1, 0)
    return number - (1 << bits) if bits and (number > half or (bits == 64 and number == half)) else number


def field(number: int, data: bytes | int) -> bytes:
    if isinstance(data, int):
        return uvarint(number << 3) + uvarint(data)
    return uvarint(number << 3 | 2) + uvarint(len(data)) + data


def labels(pairs: Mapping[str, str]) -> bytes:
    return b"".join(
        field(1, field(1, name.encode()) + field(2, text.encode())) for name, text in pairs.items()
    )


def chunk(data: bytes, first: int = 0, last: int = 0, kind: int = XOR) -> bytes:
    return field(2, field(1, first) + field(2, last) + field(3, kind) + field(4, data))


def series_message(pairs: Mapping[str, str], chunks: Iterable[bytes]) -> bytes:
    """Write a `ChunkedReadResponse` with one series."""
    return field(1, labels(pairs) + b"".join(chunks))


def chunk_of(samples: Sequence[Sample]) -> bytes:
    return chunk(encode_chunk(samples), samples[0][0], samples[-1][0])


def frame(message: bytes) -> bytes:
    checksum: int = google_crc32c.value(message)
    return uvarint(len(message)) + checksum.to_bytes(4, "big") + message


def samples_answer(series: Iterable[tuple[Mapping[str, str], Sequence[Sample]]]) -> bytes:
    """Write a `ReadResponse`, packed; as Go does, a field that is zero is left out."""
    written = b"".join(
        field(1, labels(pairs) + b"".join(field(2, _sample(*sample)) for sample in samples))
        for pairs, samples in series
    )
    return bytes(cramjam.snappy.compress_raw(field(1, written)))


def _sample(time: int, bits: int) -> bytes:
    value = b"" if value_of(bits) == 0 else b"\x09" + bits.to_bytes(8, "little")
    return value + (field(2, time) if time else b"")
