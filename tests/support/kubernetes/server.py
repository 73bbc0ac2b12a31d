"""A small HTTP(S) server that plays whatever part a test writes for the API server."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from equipoise.adapters.http import Backoff
from equipoise.adapters.kubernetes import Client
from equipoise.adapters.kubernetes.client import Environment, Limits
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    raw_headers: list[tuple[str, str]] = field(default_factory=list)


class Stage(BaseHTTPRequestHandler):
    """One connection; the script answers through the methods below."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    disable_nagle_algorithm = True  # else every answer waits for the client's delayed acknowledgement
    server: Player

    def setup(self) -> None:
        if self.server.tls is not None:
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        if isinstance(self.request, ssl.SSLSocket):
            self.request.close()  # the server only knows the socket that it wrapped

    def play(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(
            self.command, parts.path, query, dict(self.headers.items()), body, list(self.headers.items())
        )
        self.server.asked.append(asked)
        self.server.script(asked, self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_CONNECT = play  # noqa: N815

    def answer(self, body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole answer: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def refuse(self, status: int, reason: str = "", message: str = "", **headers: str) -> None:
        """Send a Status object."""
        body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
        self.answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()})

    def begin(self, *, chunked: bool = True) -> None:
        """Begin an answer that goes on."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked") if chunked else self.send_header(
            "Connection", "close"
        )
        self.end_headers()
        self.wfile.flush()

    def chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()

    def end(self) -> None:
        """End it as a well-behaved server does."""
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def cut(self) -> None:
        """Drop the connection in the middle of things."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def hang(self) -> None:
        """Say nothing more until the test is over or the client has gone."""
        self.close_connection = True
        self.server.closing.wait(SILENCE_SECONDS)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


Script = Callable[[Asked, Stage], None]
SILENCE_SECONDS = 240.0
"""Longer than anybody waits here, on the busiest machine."""


class Player(ThreadingHTTPServer):
    """The server: what was asked, and the part that it plays."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Stage)
        self.script = script
        self.tls = tls
        self.asked: list[Asked] = []
        self.closing = threading.Event()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is part of the play."""


@contextmanager
def playing(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[Player]:
    """Run a server for the length of a block."""
    player = Player(script, tls)
    thread = threading.Thread(target=player.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield player
    finally:
        player.closing.set()
        player.shutdown()
        player.server_close()
        thread.join(60)


@contextmanager
def deaf_port() -> Iterator[int]:
    """Give a port on which nobody listens, and which nobody else can get meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


@dataclass
class Time:
    """A clock that only moves when someone sleeps."""

    now: float = 1_700_000_000.0
    slept: list[float] = field(default_factory=list)

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def world(self, chance: float = 0.5) -> Environment:
        return Environment(self.read, self.read, self.sleep, lambda: chance)


LIMITS = Limits(connect_seconds=60.0, read_seconds=120.0)
"""A machine may stand still for many seconds amid a request; no answer is late here by that."""


def target_of(url: str, **identity: Any) -> Target:
    return Target(Endpoint(url), Identity(**identity), "default", "the test")


@contextmanager
def session(
    url: str, *, world: Environment | None = None, backoff: Backoff | None = None, **identity: Any
) -> Iterator[Client]:
    """Open a session with a player, and close it in the end."""
    client = Client(target_of(url, **identity), limits=LIMITS, world=world or Time().world(), backoff=backoff)
    try:
        yield client
    finally:
        client.close()
