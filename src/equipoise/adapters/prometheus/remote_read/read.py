"""Asks a server for raw samples, and gives them while they still come.

Whether an answer is whole is always known: each frame has a checksum, and the stream an end that HTTP
vouches for. What is not whole raises; what was given before is right, and is only a part.

A server answers with a stream of chunks, or in the plain form: every sample a small message, all in one block
of snappy.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
import urllib3
from numpy.typing import NDArray

from equipoise.adapters.http import AnswerTooLarge, Backoff, read_bounded, with_retries
from equipoise.adapters.prometheus import errors
from equipoise.adapters.prometheus.errors import clean, refusal
from equipoise.adapters.prometheus.promql import Matcher
from equipoise.adapters.prometheus.remote_read.batches import BatchWindow, SeriesBatch, decoded, tidied
from equipoise.adapters.prometheus.remote_read.frames import (
    BYTES,
    FIXED64,
    HEADERS,
    PATH,
    VARINT,
    DamagedFrame,
    Frames,
    FrameTooLarge,
    by_name,
    encode,
    fields,
    read_varint,
)
from equipoise.adapters.prometheus.remote_read.xor import Times, Values
from equipoise.adapters.prometheus.transport import (
    OK,
    Posts,
    PrometheusTransport,
    read_reply,
    retry_if_transient,
    translated,
)

BACKOFF = Backoff(attempts_max=4, first_seconds=0.25, delay_max_seconds=5.0)
PART_BYTES = 1 << 18
_LIMIT = re.compile(r"exceed|limit", re.IGNORECASE)
_REFUSING = range(400, 500)
_TOO_MANY_REQUESTS, _NOT_IMPLEMENTED = 429, 501


class Form(Enum):
    """The form in which a server gives raw samples."""

    CHUNKS = "chunks"
    SAMPLES = "samples"


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What one read may cost."""

    silence_seconds: float = 60.0
    total_seconds: float = 900.0
    """A stream that is being read; the time that its reader takes is part of it."""
    stream_max_bytes: int = 4 * 1024**3
    block_max_bytes: int = 128 * 1024 * 1024
    """An answer that comes in one block: packed, and as large again when unpacked."""


class RemoteRead:
    """Remote read over either transport. Safe to share between threads."""

    def __init__(
        self,
        transport: PrometheusTransport,
        limits: ReadLimits | None = None,
        *,
        streamed: bool = True,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._limits = limits or ReadLimits()
        self._streamed = streamed
        self._sleep, self._monotonic = sleep, monotonic

    @property
    def address(self) -> str:
        return self._transport.address

    def probe(self) -> Form:
        """Ask for nothing, to learn the form of answers; `NotOffered` where there is none."""
        with self._answer([by_name("equipoise_probe")], 0, 1) as response:
            form = self._form(response)
            for _ in self._batches(response, form, 0, 1, None):
                pass
        return form

    def series(
        self,
        matchers: Sequence[Matcher],
        start_ms: int,
        end_ms: int,
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[SeriesBatch]:
        """Yield all samples from start to end, both included, of the series that all matchers match."""
        with self._answer(matchers, start_ms, end_ms) as response:
            yield from self._batches(response, self._form(response), start_ms, end_ms, on_bytes)

    def columns(self, batch: SeriesBatch, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Return these labels of each series of a batch; labels that make no sense are a `Malformed`."""
        try:
            return batch.columns(names)
        except DamagedFrame as error:
            raise _named(error, self.address) from error

    @contextmanager
    def _answer(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Lend an answer; what is wrong with it gets its name."""
        response = self._open(encode(matchers, start_ms, end_ms, streamed=self._streamed))
        try:
            with translated(self.address, self._limits.stream_max_bytes):
                yield response
        except (DamagedFrame, FrameTooLarge) as error:
            raise _named(error, self.address) from error
        finally:
            # Closed, not given back: what was not read to its end cannot be used again.
            response.close()

    def _open(self, body: bytes) -> urllib3.BaseHTTPResponse:
        if not isinstance(self._transport, Posts):
            raise errors.NotOffered(f"the connection to {self.address} does not support remote read")
        transport = self._transport

        def attempt() -> urllib3.BaseHTTPResponse:
            response = transport.post(PATH, body, HEADERS, self._limits.silence_seconds)
            if response.status != OK:
                raise self._refused(response)
            return response

        return with_retries(
            attempt, retry_if_transient, BACKOFF, sleep=self._sleep, monotonic=self._monotonic
        )

    def _refused(self, response: urllib3.BaseHTTPResponse) -> errors.PrometheusFailed:
        reply = read_reply(response, 0, self._monotonic() + self._limits.silence_seconds)
        error = refusal(reply, self.address)
        if reply.status in _REFUSING and _LIMIT.search(reply.body.decode("utf-8", "replace")):
            return errors.TooHeavy(str(error))
        is_refused = reply.status in _REFUSING and reply.status != _TOO_MANY_REQUESTS
        if is_refused or reply.status == _NOT_IMPLEMENTED or reply.location:
            return errors.NotOffered(f"no remote read: {error}")
        return error

    def _form(self, response: urllib3.BaseHTTPResponse) -> Form:
        headers = response.headers
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        is_chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
        if kind == "application/x-streamed-protobuf":
            if is_chunked or "Content-Length" in headers:
                return Form.CHUNKS
            kind = "a stream whose end cannot be known"
        if kind == "application/x-protobuf":
            return Form.SAMPLES
        answered = clean(kind, 80) or "no content type"
        raise errors.NotOffered(f"no remote read: {self.address} answered {answered}")

    def _batches(
        self,
        response: urllib3.BaseHTTPResponse,
        form: Form,
        start_ms: int,
        end_ms: int,
        on_bytes: Callable[[int], None] | None,
    ) -> Iterator[SeriesBatch]:
        if form is Form.CHUNKS:
            messages = self._messages(response, on_bytes)
            return decoded(messages, start_ms, end_ms)
        limit = self._limits.block_max_bytes
        deadline = self._monotonic() + self._limits.total_seconds
        body = read_bounded(response, limit, deadline=deadline, monotonic=self._monotonic)
        if on_bytes:
            on_bytes(len(body))
        return decoded_samples(unpack(body, limit), start_ms, end_ms)

    def _messages(
        self, response: urllib3.BaseHTTPResponse, on_bytes: Callable[[int], None] | None
    ) -> Iterator[bytes]:
        frames, size = Frames(), 0
        deadline = self._monotonic() + self._limits.total_seconds
        while part := response.read1(PART_BYTES):
            size += len(part)
            if size > self._limits.stream_max_bytes:
                raise AnswerTooLarge
            if self._monotonic() > deadline:
                raise errors.TimedOut(
                    f"{self.address} did not finish its answer in {self._limits.total_seconds:g} s"
                )
            if on_bytes:
                on_bytes(len(part))
            yield from frames.feed(part)
        frames.close()


def _named(error: DamagedFrame | FrameTooLarge, address: str) -> errors.PrometheusFailed:
    if isinstance(error, FrameTooLarge):
        return errors.PrometheusTooLarge(
            f"{address} answered {error}, more than the memory limit: narrow the namespaces"
        )
    text = str(error)
    if text.startswith("the server aborted"):
        return errors.QueryFailed(f"{address}: {text}")
    return errors.Malformed(f"{address} answered a remote read with truncated or damaged data: {text}")


_RUN_MIN, _RUN_MAX = 8, 1024
_SAMPLE_TAG, _VALUE_TAG, _TIME_TAG = 0x12, 0x09, 0x10
_HEAD = 2
_VALUE_END = _HEAD + 9
_TIME_BYTES_MAX = 10
_SHORT_MAX = 0x80


def unpack(body: bytes, bytes_max: int) -> bytes:
    """Unpack a block of snappy that is not too large."""
    import cramjam  # noqa: PLC0415 - only who reads remotely pays for it

    size, _ = read_varint(body, 0, len(body))
    if size > bytes_max:
        raise FrameTooLarge(f"{size} bytes of samples")
    try:
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise DamagedFrame("a block of snappy is truncated or damaged") from error


def decoded_samples(
    message: bytes, start_ms: int, end_ms: int, window: BatchWindow | None = None
) -> Iterator[SeriesBatch]:
    """Decode a `ReadResponse` to the only query."""
    window = window or BatchWindow()
    held: list[_PlainSeries] = []
    size = 0
    for series in _all_series(message):
        held.append(series)
        size += len(series.times)
        if size >= window.batch_samples:
            yield _batch(held, start_ms, end_ms)
            held, size = [], 0
    if held:
        yield _batch(held, start_ms, end_ms)


class _PlainSeries(NamedTuple):
    """One series of the answer."""

    labels: bytes
    times: Times
    values: Values
    histograms: int


def _batch(held: list[_PlainSeries], start_ms: int, end_ms: int) -> SeriesBatch:
    offsets = np.cumsum([0, *(len(series.times) for series in held)])
    times = np.concatenate([series.times for series in held])
    values = np.concatenate([series.values for series in held])
    histograms = sum(series.histograms for series in held)
    whole = SeriesBatch([series.labels for series in held], offsets, times, values, histograms)
    return tidied(whole, start_ms, end_ms)


def _all_series(message: bytes) -> Iterator[_PlainSeries]:
    results = 0
    for number, kind, at, end in fields(message, 0, len(message)):
        if number == 1 and kind == BYTES:
            results += 1
            if results > 1:
                raise DamagedFrame("an answer to a query that was not asked")
            for inner, wire, first, last in fields(message, at, end):
                if inner == 1 and wire == BYTES:
                    yield _one_series(message, first, last)


def _one_series(message: bytes, at: int, end: int) -> _PlainSeries:
    labels: list[bytes] = []
    times: list[Times] = []
    values: list[Values] = []
    histograms = 0
    while at < end:
        if message[at] == _SAMPLE_TAG:
            found, stamps, at = _samples(message, at, end)
            times.append(stamps)
            values.append(found)
            continue
        number, _, _, last = next(fields(message, at, end))
        if not last:
            raise DamagedFrame("a series has a number for a field")
        if number == 1:
            labels.append(message[at:last])
        histograms += number == 4  # noqa: PLR2004
        at = last
    nothing = np.empty(0, dtype=np.int64)
    return _PlainSeries(
        b"".join(labels),
        np.concatenate([nothing, *times]),
        np.concatenate([nothing.view(np.float64), *values]),
        histograms,
    )


def _samples(message: bytes, at: int, end: int) -> tuple[Values, Times, int]:
    """Read samples from here on: a run of equal length at once, or one."""
    size, begin = read_varint(message, at + 1, end)
    if size > end - begin:
        raise DamagedFrame("a sample reaches past its series")
    if begin - at == _HEAD and _VALUE_END + 1 < begin - at + size <= _VALUE_END + 1 + _TIME_BYTES_MAX:
        run = _run(message, at, end, _HEAD + size)
        if run is not None:
            return run
    value, stamp = 0.0, 0
    for number, kind, one, _ in fields(message, begin, begin + size):
        if number == 1 and kind == FIXED64:
            (value,) = struct.unpack_from("<d", message, one)
        elif number == 2 and kind == VARINT:  # noqa: PLR2004
            stamp = one - (1 << 64) if one >> 63 else one
    return np.array([value]), np.array([stamp], dtype=np.int64), begin + size


def _run(message: bytes, at: int, end: int, stride: int) -> tuple[Values, Times, int] | None:
    """Read as many samples as look alike: value, then a time of the same number of bytes."""
    rows = min((end - at) // stride, _RUN_MAX)
    table = np.frombuffer(message, dtype=np.uint8, count=rows * stride, offset=at).reshape(rows, stride)
    if rows < _RUN_MIN or not _alike(table[:_RUN_MIN]).all():
        return None
    alike = _alike(table)
    rows = rows if alike.all() else int(np.argmin(alike))
    table = table[:rows]
    values = np.ascontiguousarray(table[:, _HEAD + 1 : _VALUE_END]).view("<f8")[:, 0].astype(np.float64)
    stamps = np.zeros(rows, dtype=np.uint64)
    for place in range(_VALUE_END + 1, stride):
        seven = (table[:, place] & 0x7F).astype(np.uint64)
        stamps |= seven << np.uint64(7 * (place - _VALUE_END - 1))
    return values, stamps.view(np.int64), at + rows * stride


def _alike(table: NDArray[np.uint8]) -> NDArray[np.bool_]:
    stride = table.shape[1]
    alike: NDArray[np.bool_] = (table[:, 0] == _SAMPLE_TAG) & (table[:, 1] == stride - _HEAD)
    alike &= (table[:, _HEAD] == _VALUE_TAG) & (table[:, _VALUE_END] == _TIME_TAG)
    alike &= table[:, -1] < _SHORT_MAX
    for place in range(_VALUE_END + 1, stride - 1):
        alike &= table[:, place] >= _SHORT_MAX
    return alike
