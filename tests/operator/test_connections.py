"""The server of all four processes against clients that hold connections."""

import http.client
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.operator.serving import LARGE_BYTES, WHOLE, Pages, connect, served
from tests.support.operator.worlds import WAIT_SECONDS, eventually

PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from prometheus_client import CollectorRegistry
from equipoise.runtime.http import HttpServer as Door, make_app
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
        held = [connect(stack, bounded.port) for _ in range(200)]
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
    assert "closed to make room for others; at most 64 may be open" in said


def test_a_server_without_descriptors_closes_who_waits_longest(bounded: Bounded) -> None:
    """The process itself has used up the rest of them, and still a probe gets in."""
    with ExitStack() as stack:
        held = [connect(stack, bounded.port) for _ in range(10)]
        assert bounded.is_well()
        assert bounded.use_all_descriptors() > 50
        assert bounded.is_well()
        assert bounded.is_well()
        eventually(lambda: bool(_closed(held)))
        eventually(lambda: "not accepted: no file descriptors" in bounded.log.read_text())
    assert bounded.log.read_text().count("\n") <= 2


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[int, Pages]]:
    """A server that several tests ask."""
    with served() as found:
        yield found


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the deadlines short from then on."""
    from equipoise.runtime import connections

    def hurry() -> None:
        monkeypatch.setattr(connections, "SECONDS_MAX", dict.fromkeys(connections.SECONDS_MAX, 0.2))
        monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.2)

    return hurry


def _send(one: socket.socket, data: bytes) -> None:
    one.sendall(data)


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
SLOW: dict[str, tuple[bytes, Callable[[socket.socket, bytes], None], bytes]] = {
    "says nothing": (b"", _send, b""),
    "half a head": (b"", _send, HALF),
    "a head byte by byte": (b"", _trickle, HALF),
    "nothing after an answer": (WHOLE, _send, b""),
    "half a head after an answer": (WHOLE + HALF, _send, b""),
    "no body": (b"", _send, POST),
    "a body byte by byte": (b"", _trickle, POST),
    "no chunk": (b"", _send, CHUNKED),
    "a body that nobody asked for": (b"", _trickle, POST.replace(b"/read", b"/no")),
    "a request that the server never answers": (b"", _send, WHOLE.replace(b"/ ", b"/hang ")),
    "an answer that is not read": (b"", _send, WHOLE.replace(b"/ ", b"/large ")),
}
"""What is sent and answered first, and what the client does then."""


@pytest.mark.parametrize(("answered", "act", "data"), SLOW.values(), ids=SLOW)
def test_a_client_that_keeps_the_server_waiting_is_cut_off(
    shared: tuple[int, Pages],
    hurry: Callable[[], None],
    answered: bytes,
    act: Callable[[socket.socket, bytes], None],
    data: bytes,
) -> None:
    """Whatever it is that does not come, and also where something comes now and then."""
    port, pages = shared
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as one:
        eventually(pages.open)
        if answered:
            one.sendall(answered)
            assert one.recv(65536).startswith(b"HTTP/1.1 200")
        hurry()
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
    from equipoise.runtime import connections

    short = connections.SECONDS_MAX | {connections.Phase.IDLE: 0.3}
    monkeypatch.setattr(connections, "SECONDS_MAX", short)
    with served() as (port, _), socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as one:
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
    with served() as (port, _), socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as one:
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        for _ in range(3):
            asking.request("POST", "/read", b"abc")
            assert asking.getresponse().read() == b"3"
        asking.close()
        one.sendall(WHOLE.replace(b"/ ", b"/healthz ") * 20)
        read = b""
        while read.count(b"\r\n\r\nok\n") < 20:
            read += one.recv(65536)


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/large"])
def test_a_client_that_closes_its_side_after_the_request_gets_its_answer(path: str) -> None:
    """As `nc -N` does; then the connection is closed."""
    with served() as (port, pages), socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as one:
        one.sendall(WHOLE.replace(b"/ ", b"%s " % path.encode()))
        one.shutdown(socket.SHUT_WR)
        answer = b""
        while part := one.recv(1 << 20):
            answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert f"content-length: {len(body)}".encode() in head.lower()
        eventually(lambda: pages.open() == 0)


def test_requests_without_end_on_every_connection_keep_no_probe_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times as many clients as places send 500 requests each and read nothing; each gets an answer."""
    from equipoise.runtime import connections

    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 32)
    with served() as (port, _), ExitStack() as stack:
        for _ in range(96):
            with suppress(ConnectionError):
                connect(stack, port).sendall(WHOLE.replace(b"/ ", b"/healthz ") * 500)
        for _ in range(10):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=WAIT_SECONDS) as answer:
                assert answer.status == 200


def test_a_connection_is_kept_for_further_requests_only_where_there_are_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thirteen of 16 are taken: the answer says that it is the last one."""
    from equipoise.runtime import connections

    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 16)
    with served() as (port, pages), ExitStack() as stack:

        def answer() -> bytes:
            with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as one:
                one.sendall(WHOLE.replace(b"/ ", b"/healthz "))
                read = one.recv(65536)
            assert read.startswith(b"HTTP/1.1 200")
            return read.lower()

        assert b"connection: close" not in answer()
        eventually(lambda: pages.open() == 0)
        for _ in range(12):
            connect(stack, port)
        eventually(lambda: pages.open() == 12)
        assert b"connection: close" in answer()


def test_requests_that_wait_for_the_server_leave_places_for_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve of 16 places; the next is refused in the form of `pools serve`, and nobody else is closed."""
    from equipoise.runtime import connections

    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 16)
    with served() as (port, pages), ExitStack() as stack:
        asked = [connect(stack, port) for _ in range(12)]
        for one in asked:
            one.sendall(WHOLE.replace(b"/ ", b"/wait "))
        for _ in asked:
            assert pages.entered.acquire(timeout=WAIT_SECONDS)
        idle = [connect(stack, port) for _ in range(20)]
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
    from equipoise.runtime.connections import Connections, Phase

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
    from equipoise.runtime import connections

    monkeypatch.setattr(connections, "UNSENT_BYTES_MAX", 1000)
    with served() as (port, pages), ExitStack() as stack:
        for _ in range(3):
            last = connect(stack, port)
            last.sendall(WHOLE.replace(b"/ ", b"/large "))
            assert last.recv(1) == b"H"
        eventually(lambda: pages.open() == 1)
        read = 1
        while read < LARGE_BYTES:
            read += len(last.recv(1 << 20))
