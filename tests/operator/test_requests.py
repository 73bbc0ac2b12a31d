"""Requests that two servers could read differently, and what the log says of such clients."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.support.operator.serving import WHOLE, connect, served

BODY = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
AMBIGUOUS = {
    "both lengths": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "both lengths, the other order": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "both lengths, in other letters": b"tRANSFER-eNCODING: Chunked\r\ncONTENT-lENGTH: 5\r\n",
    "both lengths, one of them folded": b"Content-Length: 5\r\nTransfer-Encoding:\r\n chunked\r\n",
    "two different lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n",
    "two different lengths in one line": b"Content-Length: 5, 6\r\n",
    "a length with a sign": b"Content-Length: +5\r\n",
    "a length of hexadecimal digits": b"Content-Length: 0x5\r\n",
    "a length below 0": b"Content-Length: -1\r\n",
    "a length beyond reason": b"Content-Length: 100000000000000000000000\r\n",
    "a space before the colon": b"Content-Length : 5\r\n",
    "another coding": b"Transfer-Encoding: gzip, chunked\r\n",
    "a coding that looks like one": b"Transfer-Encoding: xchunked\r\n",
    "no coding": b"Transfer-Encoding: identity\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "a NUL": b"A: \0\r\n",
    "a line that begins with a space": b" Content-Length: 5\r\n",
    "two hosts": b"Host: y\r\n",
    "a long head at once": b"A: " + b"a" * 20_000 + b"\r\n",
    "a long head without an end": b"A: " + b"a" * 300_000,
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server that all may ask."""
    with served() as (found, _):
        yield found


def _answers(port: int, request: bytes) -> list[bytes]:
    """Return the first line of each answer that comes until the server closes the connection."""
    read = b""
    with ExitStack() as stack:
        one = connect(stack, port)
        stack.enter_context(suppress(ConnectionError))  # it has not read all that was sent
        one.sendall(request)
        while part := one.recv(65536):
            read += part
    return [line for line in read.split(b"\r\n") if line.startswith(b"HTTP/")]


@pytest.mark.parametrize("lines", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_what_two_servers_could_read_differently_is_refused(port: int, lines: bytes) -> None:
    """With 400, and the connection is closed: what follows is no request."""
    head = b"POST /read HTTP/1.1\r\n" + (b"" if lines[:1] == b" " else b"Host: x\r\n")
    found = _answers(port, head + lines + b"\r\n" + BODY)
    assert found in ([b"HTTP/1.1 400 Bad Request"], []), found
    assert found or len(lines) > 100_000  # a reset may overtake the answer to what was not read


@pytest.mark.parametrize(
    "request_line", [b"POST /read HTTP/1.0", b"POST /read", b"POST  /read HTTP/1.1", b"\x16\x03\x01\x02"]
)
def test_chunks_before_http_1_1_and_other_protocols_are_refused(port: int, request_line: bytes) -> None:
    """The first line decides: HTTP/1.0 knows no chunks, and TLS is not spoken here."""
    found = _answers(port, request_line + b"\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY)
    assert found == [b"HTTP/1.1 400 Bad Request"]


def test_lengths_that_agree_are_one_length(port: int) -> None:
    """RFC 9112, section 6.3: the same number twice may be taken once."""
    lengths = b"Content-Length: 3\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
    assert _answers(port, b"POST /read HTTP/1.1\r\nHost: x\r\n" + lengths) == [b"HTTP/1.1 200 OK"]


def test_clients_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Bad requests, chunks that break off amid an answer, protocols that are not spoken: a line each."""
    bad_chunk = b"POST /no HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    upgrade = WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n")
    with served() as (port, _), caplog.at_level(logging.WARNING):
        for _ in range(20):
            assert _answers(port, bad_chunk) == [b"HTTP/1.1 400 Bad Request"]
            assert _answers(port, b"nonsense\r\n\r\n") == [b"HTTP/1.1 400 Bad Request"]
            assert len(_answers(port, upgrade)) == 1
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(set(said)) <= 5, said
    assert not any(record.exc_info for record in caplog.records)


def test_a_message_is_logged_again_after_a_minute_with_a_count() -> None:
    """And other messages, or the same with another exception, are not held back by it."""
    from equipoise.runtime.http import QUIET_SECONDS, RateLimitFilter

    now = [0.0]
    rate_limit = RateLimitFilter(lambda: now[0])

    def logged(text: str, error: Exception | None = None) -> str | None:
        info: Any = None if error is None else (type(error), error, None)
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, text, (), info)
        return record.getMessage() if rate_limit.filter(record) else None

    assert logged("out of descriptors\nsocket 1") == "out of descriptors\nsocket 1"
    assert [logged(f"out of descriptors\nsocket {number}") for number in range(7)] == [None] * 7
    assert logged("something else") == "something else"
    assert logged("out of descriptors", OSError()) == "out of descriptors"
    now[0] = QUIET_SECONDS
    assert (
        logged("out of descriptors\nsocket 8") == "out of descriptors\nsocket 8 (7 similar lines suppressed)"
    )
    assert sum(logged(f"unheard of {number}") is not None for number in range(10_000)) <= 101
