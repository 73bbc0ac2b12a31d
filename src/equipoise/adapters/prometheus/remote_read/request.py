"""The question: which series, over which time, and which forms of answer are understood."""

from __future__ import annotations

from collections.abc import Sequence

from equipoise.adapters.prometheus.promql import Matcher
from equipoise.adapters.prometheus.remote_read.protobuf import write_bytes, write_number

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
