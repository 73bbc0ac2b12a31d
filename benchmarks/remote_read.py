"""Raw samples from the bytes of a remote read to arrays, beside a plain decoder and the same as JSON."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.history_world import counter, gauge
from benchmarks.measuring import Figures, in_own_process, interleaved, measure
from benchmarks.tables import Section, Table, ratio

SERIES = 48
SAMPLES = 10_080
CHUNK = 120
START_MS = 1_789_000_000_000
SEED = 5
ROUNDS = 8
"""How often ours and JSON read the same bytes; the plain decoder reads a part of them once."""
JITTERS = {"exact": 0, "up to 0.3 s early or late": 300, "up to 5 s early or late": 5000}
Series = list[tuple[Any, Any]]


def make(jitter_ms: int, series: int) -> Series:
    """Make a week of minutes: half counters, half gauges."""
    chance = np.random.default_rng(SEED)
    made = []
    for number in range(series):
        times = START_MS + np.arange(SAMPLES, dtype=np.int64) * 60_000
        times += chance.integers(-jitter_ms, jitter_ms + 1, SAMPLES)
        made.append((times, counter(chance, times) if number % 2 else gauge(chance, SAMPLES)))
    return made


def _chunks(made: Series) -> list[list[bytes]]:
    from tests.support.prometheus.encoding import encode_chunk

    return [
        [
            encode_chunk(
                list(
                    zip(
                        times[i : i + CHUNK].tolist(),
                        values.view(np.uint64)[i : i + CHUNK].tolist(),
                        strict=True,
                    )
                )
            )
            for i in range(0, SAMPLES, CHUNK)
        ]
        for times, values in made
    ]


def ours(jitter_ms: int, series: int, rounds: int) -> Figures:
    """Read frames, check their sums, decode: all that follows the socket."""
    from equipoise.adapters.prometheus.remote_read.batches import decoded
    from equipoise.adapters.prometheus.remote_read.frames import Frames
    from tests.support.prometheus.encoding import chunk, frame, series_message

    chunks = _chunks(make(jitter_ms, series))
    stream = b"".join(
        frame(series_message({"pod": f"web-{i}"}, [chunk(one, START_MS, START_MS) for one in row]))
        for i, row in enumerate(chunks)
    )

    def read() -> Any:
        frames = Frames()
        for batch in decoded(_fed(frames, stream * rounds), 0, 1 << 60):
            last = batch
        return last

    read()
    batch, taken = measure(read)
    span = slice(int(batch.offsets[-2]), None)
    count = float(series * SAMPLES * rounds)
    checks = _checksum(batch.times[span], batch.values[span])
    return taken.figures(samples=count, bytes=float(len(stream) * rounds), **checks)


def _fed(frames: Any, stream: bytes) -> Any:
    for first in range(0, len(stream), 1 << 18):
        yield from frames.feed(stream[first : first + (1 << 18)])
    frames.close()


def plain(jitter_ms: int, series: int) -> Figures:
    """Read chunks one sample at a time, in Python."""
    row = _chunks(make(jitter_ms, series))[-1]
    found, taken = measure(lambda: [plain_chunk(chunk) for chunk in row])
    times = np.array([time for chunk in found for time, _ in chunk], dtype=np.int64)
    values = np.array([bits for chunk in found for _, bits in chunk], dtype=np.uint64).view(np.float64)
    return taken.figures(samples=float(SAMPLES), bytes=float(sum(map(len, row))), **_checksum(times, values))


def plain_chunk(data: bytes) -> list[tuple[int, int]]:
    """Decode a chunk the way one would write it first: a large number of which bits are shifted out."""
    number, left = int.from_bytes(data, "big"), 8 * len(data)

    def bits(count: int) -> int:
        nonlocal left
        left -= count
        return number >> left & (1 << count) - 1

    def varint() -> int:
        found = shift = 0
        while (byte := bits(8)) > 0x7F:
            found |= (byte & 0x7F) << shift
            shift += 7
        return found | byte << shift

    samples: list[tuple[int, int]] = []
    change = time = value = leading = trailing = 0
    for index in range(bits(16)):
        if index == 0:
            zigzag = varint()
            time, value = zigzag >> 1 ^ -(zigzag & 1), bits(64)
        else:
            change = varint() if index == 1 else change + _change(bits)
            time += change
            if bits(1):
                if bits(1):
                    leading, significant = bits(5), bits(6) or 64
                    trailing = 64 - leading - significant
                value ^= bits(64 - leading - trailing) << trailing
        samples.append((time, value))
    return samples


def _change(bits: Callable[[int], int]) -> int:
    size = next((size for size in (0, 14, 17, 20) if not bits(1)), 64)
    found = bits(size) if size else 0
    return found - (1 << size) if size and found > 1 << size - 1 else found


def as_json(jitter_ms: int, series: int, rounds: int) -> Figures:
    """Read the same samples as the query API writes them, with our decoder of range queries."""
    import simdjson

    from equipoise.adapters.prometheus.matrix import Values, points

    texts = [
        (
            "["
            + ",".join(f'[{at / 1000},"{value!r}"]' for at, value in zip(t.tolist(), v.tolist(), strict=True))
            + "]"
        ).encode()
        for t, v in make(jitter_ms, series)
    ]

    def read() -> Any:
        parser = simdjson.Parser()
        for _ in range(rounds):
            for text in texts:
                times, values = points(Values(text, 0, len(text)), parser, "here")
                last = np.rint(times * 1000).astype(np.int64), values
        return last

    read()
    (times, values), taken = measure(read)
    size = float(sum(map(len, texts)) * rounds)
    return taken.figures(samples=float(series * SAMPLES * rounds), bytes=size, **_checksum(times, values))


def _checksum(times: Any, values: Any) -> Figures:
    """Tell two series apart, to the last bit."""
    weights = np.arange(1, len(times) + 1, dtype=np.uint64)
    bits = np.ascontiguousarray(values).view(np.uint64)
    first, second = (int((part * weights).sum()) for part in (times.astype(np.uint64), bits))
    low = struct.unpack("<Q", struct.pack("<Q", (first ^ second) & (1 << 64) - 1))[0]
    return {"check_low": float(low & 0xFFFFFFFF), "check_high": float(low >> 32)}


def run(*, quick: bool) -> Section:
    series, rounds = (SERIES // 2, 2) if quick else (SERIES, ROUNDS)
    table = Table(("timestamps", "read by", "M samples/s", "ns per sample", "bytes per sample", "CPU ratio"))
    speeds: list[tuple[float, float, float]] = []
    for name, jitter in JITTERS.items():
        parts = (
            _part(ours, jitter_ms=jitter, series=series, rounds=rounds),
            _part(as_json, jitter_ms=jitter, series=series, rounds=max(1, rounds // 4)),
            _part(plain, jitter_ms=jitter, series=series),
        )
        found = interleaved(1 if quick else 3, *parts)
        costs = [figures["cpu_seconds"] / figures["samples"] for figures in found]
        for check in ("check_low", "check_high"):
            assert len({figures[check] for figures in found}) == 1, f"{check} of {name}"
        speeds.append((1e-6 / costs[0], costs[1] / costs[0], costs[2] / costs[0]))
        for reader, figures, cost in zip(("Equipoise", "as JSON", "plain Python"), found, costs, strict=True):
            table.add(
                name,
                reader,
                f"{1e-6 / cost:.2f}",
                f"{cost * 1e9:,.0f}",
                f"{figures['bytes'] / figures['samples']:.1f}",
                ratio(cost, costs[0]),
            )
    worst = min(speeds[1:])
    return Section(
        f"Remote read: {series} series x {SAMPLES:,} samples, {rounds} times",
        [table],
        f"With timestamps that come early or late, as real ones do, {worst[0]:.0f} million samples a second "
        f"are decoded on one core: {worst[2]:.0f} times a plain decoder, {worst[1]:.1f} times what "
        "our decoder of JSON does.",
        [
            "From the bytes of frames to arrays: checksums, parsing and decoding, not the socket.",
            "All three give the same checksum, over the bits of every time and value of a series.",
        ],
    )


def _part(part: Callable[..., Figures], **options: Any) -> Callable[[], Figures]:
    return lambda: in_own_process(part, **options)
