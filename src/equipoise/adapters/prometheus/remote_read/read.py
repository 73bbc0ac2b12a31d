"""Asks a server for raw samples, and gives them while they still come.

Whether an answer is whole is always known: each frame has a checksum, and the stream an end that HTTP
vouches for. What is not whole raises; what was given before is right, and is only a part.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

import urllib3

from equipoise.adapters.http import AnswerTooLarge, Backoff, TryAgain, read_bounded, with_retries
from equipoise.adapters.prometheus.errors import (
    Malformed,
    NotOffered,
    PrometheusFailed,
    PrometheusTooLarge,
    QueryFailed,
    TimedOut,
    TooHeavy,
    clean,
    refusal,
)
from equipoise.adapters.prometheus.promql import Matcher
from equipoise.adapters.prometheus.remote_read import batches, samples
from equipoise.adapters.prometheus.remote_read.batches import BatchWindow, SeriesBatch
from equipoise.adapters.prometheus.remote_read.frames import (
    HEADERS,
    PATH,
    DamagedFrame,
    Frames,
    FrameTooLarge,
    by_name,
    encode,
)
from equipoise.adapters.prometheus.transport import (
    FAILURES,
    OK,
    Posts,
    PrometheusTransport,
    read_reply,
    translate,
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
        window: BatchWindow | None = None,
        streamed: bool = True,
        backoff: Backoff = BACKOFF,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._limits = limits or ReadLimits()
        self._window = window or BatchWindow()
        self._streamed = streamed
        self._backoff, self._sleep, self._monotonic = backoff, sleep, monotonic

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
            yield response
        except (DamagedFrame, FrameTooLarge) as error:
            raise _named(error, self.address) from error
        except FAILURES as error:
            raise translate(error, self.address, self._limits.stream_max_bytes) from error
        finally:
            # Closed, not given back: what was not read to its end cannot be used again.
            response.close()

    def _open(self, body: bytes) -> urllib3.BaseHTTPResponse:
        if not isinstance(self._transport, Posts):
            raise NotOffered(f"{self.address} is reached in a way that carries no remote read")
        transport = self._transport

        def attempt() -> urllib3.BaseHTTPResponse:
            response = transport.post(PATH, body, HEADERS, self._limits.silence_seconds)
            if response.status != OK:
                raise self._refused(response)
            return response

        return with_retries(attempt, _judge, self._backoff, sleep=self._sleep, monotonic=self._monotonic)

    def _refused(self, response: urllib3.BaseHTTPResponse) -> PrometheusFailed:
        reply = read_reply(response, 0, self._monotonic() + self._limits.silence_seconds)
        error = refusal(reply, self.address)
        if reply.status in _REFUSING and _LIMIT.search(reply.body.decode("utf-8", "replace")):
            return TooHeavy(str(error))
        is_refused = reply.status in _REFUSING and reply.status != _TOO_MANY_REQUESTS
        if is_refused or reply.status == _NOT_IMPLEMENTED or reply.location:
            return NotOffered(f"no remote read: {error}")
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
        raise NotOffered(f"no remote read: {self.address} answered {clean(kind, 80) or 'no content type'}")

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
            return batches.decoded(messages, start_ms, end_ms, self._window)
        limit = self._limits.block_max_bytes
        deadline = self._monotonic() + self._limits.total_seconds
        body = read_bounded(response, limit, deadline=deadline, monotonic=self._monotonic)
        if on_bytes:
            on_bytes(len(body))
        return samples.decoded(samples.unpack(body, limit), start_ms, end_ms, self._window)

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
                raise TimedOut(f"{self.address} did not end its answer in {self._limits.total_seconds:g} s")
            if on_bytes:
                on_bytes(len(part))
            yield from frames.feed(part)
        frames.close()


def _judge(error: Exception) -> TryAgain | None:
    if isinstance(error, PrometheusFailed) and error.is_transient:
        return TryAgain(error.retry_after_seconds)
    return None


def _named(error: DamagedFrame | FrameTooLarge, address: str) -> PrometheusFailed:
    if isinstance(error, FrameTooLarge):
        return PrometheusTooLarge(
            f"{address} answered {error}, more than the memory for it: narrow the namespaces"
        )
    text = str(error)
    if text.startswith("the server broke off"):
        return QueryFailed(f"{address}: {text}")
    return Malformed(f"{address} answered a remote read that is cut off or damaged: {text}")


__all__ = ["Form", "ReadLimits", "RemoteRead"]
