"""The server of all four processes against clients that hold connections, and against ambiguous requests."""

import http.client
import itertools
import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from equipoise.app.operator.http import Door, make_app
from tests.operator.worlds import WAIT_SECONDS, eventually

PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from prometheus_client import CollectorRegistry
from equipoise.app.operator.http import Door, make_app
door = Door("127.0.0.1:0", make_app(list, list, CollectorRegistry()))
door.start()
print(door.port, flush=True)
taken = []
for line in sys.stdin:
    try:
        while True:
            taken.append(open("/dev/null"))
    except OSError:
        print(len(taken), flush=True)
"""
HALF = b"GET / HTTP/1.1\r\nHost: x\r\nA: "
WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE_BYTES = 12 * 1024 * 1024


class Bounded:
    """A server in a process of its own that may have 128 descriptors."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    def is_well(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=30) as answer:
            return bool(answer.status == 200)

    def use_all_descriptors(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("now\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[Bounded]:
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    with process:
        try:
            assert process.stdout is not None
            yield Bounded(process, int(process.stdout.readline()), log)
        finally:
            process.kill()


def _connect(stack: ExitStack, port: int) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS))


def _closed(sockets: list[socket.socket]) -> list[socket.socket]:
    """Return those that the server has closed."""
    found = []
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    ready = {number for number, _ in poll.poll(50)}
    for one in sockets:
        if one.fileno() in ready:
            try:
                if not one.recv(65536):
                    found.append(one)
            except ConnectionError:
                found.append(one)
    return found


def test_connections_that_ask_nothing_keep_no_probe_out(bounded: Bounded) -> None:
    """Silent ones and ones with half a head, more than there are descriptors; 5 s later they are all gone."""
    with ExitStack() as stack:
        held = [_connect(stack, bounded.port) for _ in range(200)]
        assert bounded.is_well()
        for one in held[::2]:
            try:
                one.sendall(HALF)
            except ConnectionError:
                continue  # closed already, for another
        until = time.monotonic() + WAIT_SECONDS
        while held:
            assert bounded.is_well()
            assert time.monotonic() < until, f"{len(held)} are still open"
            gone = _closed(held)
            held = [one for one in held if one not in gone]
    said = bounded.log.read_text()
    assert said.count("\n") <= 2, said
    assert "closed to make room; at most 64 may be open" in said


def test_a_server_without_descriptors_closes_who_waits_longest(bounded: Bounded) -> None:
    """The process itself has used up the rest of them, and still a probe gets in."""
    with ExitStack() as stack:
        held = [_connect(stack, bounded.port) for _ in range(10)]
        assert bounded.is_well()
        assert bounded.use_all_descriptors() > 50
        assert bounded.is_well()
        assert bounded.is_well()
        eventually(lambda: bool(_closed(held)))
        eventually(lambda: "not accepted for want of descriptors" in bounded.log.read_text())
    assert bounded.log.read_text().count("\n") <= 2


class Pages:
    """Pages of the test's own."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.open: Callable[[], int]
        """How many connections the server has; a client learns of the end only when it reads."""

    def routes(self) -> list[Route]:
        def wait(_: Request) -> Response:
            self.entered.release()
            self.gate.wait(WAIT_SECONDS)
            return PlainTextResponse("done")

        async def read(request: Request) -> Response:
            return PlainTextResponse(str(len(await request.body())))

        async def large(_: Request) -> Response:
            return Response(b"x" * LARGE_BYTES)

        async def hang(request: Request) -> Response:
            while (await request.receive())["type"] != "http.disconnect":
                continue
            return PlainTextResponse("")

        return [
            Route("/wait", wait),
            Route("/read", read, methods=["POST"]),
            Route("/large", large),
            Route("/hang", hang),
        ]


@contextmanager
def _served() -> Iterator[tuple[int, Pages]]:
    """Serve in this process."""
    pages = Pages()
    door = Door("127.0.0.1:0", make_app(list, list, CollectorRegistry(), more=pages.routes()))
    pages.open = lambda: len(door._server.server_state)  # type: ignore[arg-type]
    door.start()
    try:
        yield door.port, pages
    finally:
        pages.gate.set()
        assert door.stop(WAIT_SECONDS)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[int, Pages]]:
    """A server that all may ask."""
    with _served() as found:
        yield found


@pytest.fixture
def impatient(served: tuple[int, Pages], monkeypatch: pytest.MonkeyPatch) -> tuple[int, Pages]:
    """A server whose deadlines are short."""
    from equipoise.app import connections

    monkeypatch.setattr(connections, "SECONDS_MAX", dict.fromkeys(connections.SECONDS_MAX, 0.2))
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.2)
    return served


def _send(one: socket.socket, data: bytes) -> None:
    one.sendall(data)


def _wait_after_an_answer(one: socket.socket, data: bytes) -> None:
    one.sendall(data)
    assert one.recv(65536).startswith(b"HTTP/1.1 200")


def _trickle(one: socket.socket, data: bytes) -> None:
    """Send the beginning, then a byte at a time, until the server has had enough."""
    one.sendall(data)
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        time.sleep(0.05)
        one.sendall(b"a")
    raise AssertionError("the server reads for ever")


POST = b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
CHUNKED = POST.replace(b"Content-Length: 1000000", b"Transfer-Encoding: chunked")
SLOW: dict[str, tuple[Callable[[socket.socket, bytes], None], bytes]] = {
    "says nothing": (_send, b""),
    "half a head": (_send, HALF),
    "a head byte by byte": (_trickle, HALF),
    "nothing after an answer": (_wait_after_an_answer, WHOLE),
    "half a head after an answer": (_wait_after_an_answer, WHOLE + HALF),
    "no body": (_send, POST),
    "a body byte by byte": (_trickle, POST),
    "no chunk": (_send, CHUNKED),
    "a body that nobody asked for": (_trickle, POST.replace(b"/read", b"/no")),
    "a request that the server never answers": (_send, WHOLE.replace(b"/ ", b"/hang ")),
    "an answer that is not read": (_send, WHOLE.replace(b"/ ", b"/large ")),
}


@pytest.mark.parametrize(("act", "data"), SLOW.values(), ids=SLOW)
def test_a_client_that_keeps_the_server_waiting_is_cut_off(
    impatient: tuple[int, Pages], act: Callable[[socket.socket, bytes], None], data: bytes
) -> None:
    """Whatever it is that does not come, and also where something comes now and then."""
    port, pages = impatient
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as one:
        eventually(pages.open)
        with suppress(ConnectionError):
            act(one, data)
        eventually(lambda: pages.open() == 0)
        read = 0
        with suppress(ConnectionError):
            while part := one.recv(1 << 20):
                read += len(part)
        assert read < LARGE_BYTES


def test_a_client_that_reads_slowly_gets_its_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is not idle while it reads, even where that takes longer than it may be idle."""
    from equipoise.app import connections

    monkeypatch.setattr(connections, "SECONDS_MAX", dict.fromkeys(connections.SECONDS_MAX, 0.3))
    with _served() as (port, _), socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as one:
        one.sendall(WHOLE.replace(b"/ ", b"/large "))
        read = 0
        began = time.monotonic()
        while part := one.recv(256 * 1024):
            read += len(part)
            time.sleep(0.02)
        assert read > LARGE_BYTES
        assert time.monotonic() - began > 0.3


def test_requests_on_one_connection_are_answered_one_after_another() -> None:
    """A connection that is used again, and requests that are sent before the answer."""
    with _served() as (port, _), socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as one:
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        for _ in range(3):
            asking.request("POST", "/read", b"abc")
            assert asking.getresponse().read() == b"3"
        asking.close()
        one.sendall(WHOLE.replace(b"/ ", b"/healthz ") * 20)
        read = b""
        while read.count(b"\r\n\r\nok\n") < 20:
            read += one.recv(65536)


def test_requests_that_wait_for_the_server_leave_places_for_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve of 16 places; the next is refused in the form of `pools serve`, and nobody else is closed."""
    from equipoise.app import connections

    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 16)
    with _served() as (port, pages), ExitStack() as stack:
        asked = [_connect(stack, port) for _ in range(12)]
        for one in asked:
            one.sendall(WHOLE.replace(b"/ ", b"/wait "))
        for _ in asked:
            assert pages.entered.acquire(timeout=WAIT_SECONDS)
        idle = [_connect(stack, port) for _ in range(20)]
        for path, status in (("/", 503), ("/healthz", 200), ("/readyz", 200), ("/metrics", 503)):
            asking = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
            asking.request("GET", path)
            answer = asking.getresponse()
            text = answer.read()
            asking.close()
            assert answer.status == status, path
            if status == 503:
                assert json.loads(text)["result"] == "Overloaded"
                assert answer.headers["retry-after"] == "1"
        pages.gate.set()
        assert [one.recv(12) for one in asked] == [b"HTTP/1.1 200"] * 12
        del idle


class Transport:
    """As much of a transport as the bookkeeping asks for."""

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5), st.sampled_from(["HEAD", "IDLE", "BODY", "ANSWER", "SERVER", "WEBSOCKET"])
        )
    )
)
def test_room_is_made_by_who_waits_longest_for_its_client(steps: list[tuple[int, str]]) -> None:
    """Never by a request that waits for the server, nor by a websocket."""
    from equipoise.app.connections import Connections, Phase

    clock = itertools.count()
    connections = Connections(10, lambda: float(next(clock)))
    transports = [Transport() for _ in range(6)]
    opened = [connections.opened(each) for each in transports]  # type: ignore[arg-type]
    for number, phase in steps:
        connections.enter(opened[number], Phase[phase])
    waiting = [one for one in opened if one.phase not in {Phase.SERVER, Phase.WEBSOCKET}]
    for one in sorted(waiting, key=lambda one: one.since):
        left = len(connections)
        assert connections.make_room()
        assert transports[opened.index(one)].is_aborted
        assert len(connections) == left - 1
    assert not connections.make_room()


def test_answers_that_nobody_reads_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads nothing for longest is closed, so that memory does not grow with every client."""
    from equipoise.app import connections

    monkeypatch.setattr(connections, "UNSENT_BYTES_MAX", 1000)
    with _served() as (port, pages), ExitStack() as stack:
        for _ in range(3):
            last = _connect(stack, port)
            last.sendall(WHOLE.replace(b"/ ", b"/large "))
            assert last.recv(1) == b"H"
        eventually(lambda: pages.open() == 1)
        read = 1
        while read < LARGE_BYTES:
            read += len(last.recv(1 << 20))


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
def port(served: tuple[int, Pages]) -> int:
    """Where that server listens."""
    return served[0]


def _answers(port: int, request: bytes) -> list[bytes]:
    """Return the first line of each answer that comes until the server closes the connection."""
    read = b""
    with ExitStack() as stack:
        one = _connect(stack, port)
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
    with _served() as (port, _), caplog.at_level(logging.WARNING):
        for _ in range(20):
            assert _answers(port, bad_chunk) == [b"HTTP/1.1 400 Bad Request"]
            assert _answers(port, b"nonsense\r\n\r\n") == [b"HTTP/1.1 400 Bad Request"]
            assert len(_answers(port, upgrade)) == 1
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(set(said)) <= 5, said
    assert not any(record.exc_info for record in caplog.records)


def test_a_message_is_logged_again_after_a_minute_with_a_count() -> None:
    """And other messages, or the same with another exception, are not held back by it."""
    from equipoise.app.server import QUIET_SECONDS, Seldom

    now = [0.0]
    seldom = Seldom(lambda: now[0])

    def logged(text: str, error: Exception | None = None) -> str | None:
        info: Any = None if error is None else (type(error), error, None)
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, text, (), info)
        return record.getMessage() if seldom.filter(record) else None

    assert logged("out of descriptors\nsocket 1") == "out of descriptors\nsocket 1"
    assert [logged(f"out of descriptors\nsocket {number}") for number in range(7)] == [None] * 7
    assert logged("something else") == "something else"
    assert logged("out of descriptors", OSError()) == "out of descriptors"
    now[0] = QUIET_SECONDS
    assert (
        logged("out of descriptors\nsocket 8") == "out of descriptors\nsocket 8 (7 more like it in between)"
    )
    assert sum(logged(f"unheard of {number}") is not None for number in range(10_000)) <= 101
