"""The HTTP server of every process: operator, agent, `pools serve` and dashboard.

Clients may be slow, many or hostile, and uvicorn accepts every connection. So the server binds first, so that
an address in use is an error that names it; it accepts a few connections at a time, within the bounds and
deadlines of `connections`; and messages of libraries about clients are logged at most once a minute. Health,
readiness and metrics are served on a thread and an event loop of their own.
"""

import asyncio
import errno
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from equipoise import __version__
from equipoise.core.errors import WorldFailed
from equipoise.runtime.connections import (
    HEAD_BYTES_MAX,
    Admission,
    App,
    BoundedHttp,
    Connections,
    connections_max,
)

if TYPE_CHECKING:
    from socket import socket as Socket  # noqa: N812 - a class


BACKLOG = 2048
"""The length of the kernel's queue of connections that are not accepted yet; the kernel may cap it."""
ACCEPTS_AT_ONCE = 16
"""The maximum number of connections that one iteration of the event loop accepts."""
PAUSE_SECONDS = 0.05
"""How long accepting stops at the connection limit, or without file descriptors."""
SWEEP_TICKS = 5
"""Deadlines are checked every fifth tick of uvicorn, which ticks ten times a second."""
MESSAGE_BYTES_MAX = 64 * 1024
"""The maximum size of a websocket message: a browser sends only what was clicked."""
QUIET_SECONDS = 60.0
"""The minimum interval between two log lines of the same message of a library."""
MESSAGES_MAX = 100
_BLANK_LINE = re.compile(rb"\n\r?\n")
_FIRST_VISIBLE = 0x21
_SHORTAGE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


async def bind(host: str, port: int) -> "list[Socket]":
    """Return sockets that are bound to the address: to every interface if the host is empty.

    uvicorn would end the process when it cannot bind; so it gets sockets that are bound already.
    """
    name = host.removeprefix("[").removesuffix("]") or None
    create = asyncio.get_running_loop().create_server
    try:
        bound = await create(asyncio.Protocol, name, port, start_serving=False)
    except OSError:
        if name is not None:
            raise
        every = "0.0.0.0"  # noqa: S104 - every interface was asked for; IPv6 is off
        bound = await create(asyncio.Protocol, every, port, start_serving=False)
    sockets = [socket.dup() for socket in bound.sockets]
    bound.close()
    return sockets


class Server(uvicorn.Server):
    """uvicorn with bounds. `listen` binds first, so that an address in use raises OSError."""

    def __init__(
        self,
        app: App,
        *,
        drain_seconds: int,
        lifespan: Literal["on", "off"] = "off",
        websockets: type[asyncio.Protocol] | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        """Configure uvicorn; `on_started` is called once connections are accepted."""
        connections = Connections(connections_max())
        config = uvicorn.Config(
            Admission(app, connections),
            loop="asyncio",
            http=BoundedHttp,
            ws=websockets or "none",
            ws_max_size=MESSAGE_BYTES_MAX,
            ws_per_message_deflate=False,  # a few bytes would unpack to many before they are counted
            lifespan=lifespan,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=drain_seconds,
        )
        super().__init__(config)
        self.server_state = connections
        self._connections = connections
        self._on_started = on_started
        self.port = 0
        """The port that it listens on."""

    async def listen(self, host: str, port: int) -> None:
        """Bind to the address, and serve until `should_exit` is set."""
        sockets = await bind(host, port)
        assert sockets, "bound to nothing"
        self.port = sockets[0].getsockname()[1]
        await self.serve(sockets)

    async def startup(self, sockets: "list[Socket] | None" = None) -> None:
        """Start to accept connections; asyncio itself would accept all waiting ones at once."""
        for name in ("asyncio", "uvicorn.error", "nicegui"):
            logging.getLogger(name).addFilter(_RATE_LIMIT)
        await super().startup(sockets=[])
        for listener in sockets or []:
            self.servers.append(_Acceptor(listener, self._protocol, self._connections))  # type: ignore[arg-type]
        self._on_started()

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            self._connections.sweep()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: "list[Socket] | None" = None) -> None:
        """Finish the received requests; close connections without one."""
        self._connections.stop()
        await super().shutdown(sockets)

    def _protocol(self, received: bytes) -> BoundedHttp:
        return BoundedHttp(self.config, self._connections, self.lifespan.state, received=received)


class _IncompleteConnection:
    """A connection whose first request head is not complete yet: a socket and few bytes."""

    __slots__ = ("_acceptor", "_received", "_socket")

    def __init__(self, accepted: "Socket", acceptor: "_Acceptor") -> None:
        self._socket = accepted
        self._acceptor = acceptor
        self._received = b""
        accepted.setblocking(False)
        acceptor.loop.add_reader(accepted, self._read)
        acceptor.connections.opened(self)
        self._read()

    def abort(self) -> None:
        self._acceptor.loop.remove_reader(self._socket)
        self._socket.close()

    def is_closing(self) -> bool:
        """Return False: the socket is read until it is closed."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return 0: nothing is written to the socket."""
        return 0

    def _read(self) -> None:
        try:
            read = self._socket.recv(HEAD_BYTES_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            read = b""
        self._received += read
        # h11 rejects bytes that cannot begin a request, and a head that is too long.
        is_whole = _BLANK_LINE.search(self._received) or len(self._received) > HEAD_BYTES_MAX
        if read and not is_whole and self._received[0] >= _FIRST_VISIBLE:
            return
        self._acceptor.connections.closed(self)
        if read:
            self._acceptor.loop.remove_reader(self._socket)
            self._acceptor.serve(self._socket, self._received)
        else:
            self.abort()


class _Acceptor:
    """Accepts the connections of one socket, a few at a time, and only below the connection limit."""

    def __init__(
        self, listener: "Socket", protocol: Callable[[bytes], asyncio.Protocol], connections: Connections
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.connections = connections
        self._listener = listener
        self._protocol = protocol
        self._starting: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._resume()

    def close(self) -> None:
        """Accept no more connections."""
        self._is_closed = True
        self.loop.remove_reader(self._listener)

    async def wait_closed(self) -> None:
        """Return at once: uvicorn itself waits for the connections."""

    def serve(self, accepted: "Socket", received: bytes) -> None:
        protocol = partial(self._protocol, received)
        task = self.loop.create_task(self.loop.connect_accepted_socket(protocol, accepted))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def _resume(self) -> None:
        if not self._is_closed:
            self.loop.add_reader(self._listener, self._accept)

    def _pause(self) -> None:
        self.loop.remove_reader(self._listener)
        self.loop.call_later(PAUSE_SECONDS, self._resume)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            open_connections = len(self.connections) + len(self._starting)
            if open_connections >= self.connections.limit and not self.connections.make_room():
                self._pause()
                return
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _SHORTAGE:
                    self.connections.count("not accepted: no file descriptors or memory left")
                    self.connections.make_room()
                self._pause()
                return
            _IncompleteConnection(accepted, self)


class RateLimitFilter(logging.Filter):
    """Logs the same message of a library once a minute, with the number of suppressed ones."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._logged: dict[tuple[str, str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record; compares first lines, since asyncio's details follow below."""
        error = type(record.exc_info[1]).__name__ if record.exc_info else ""
        key = (record.name, str(record.msg).partition("\n")[0], error)
        if key not in self._logged and len(self._logged) >= MESSAGES_MAX:
            key = (record.name, "", "")
        now = self._now()
        at, suppressed = self._logged.get(key, (now - QUIET_SECONDS, 0))
        if now - at < QUIET_SECONDS:
            self._logged[key] = (at, suppressed + 1)
            return False
        self._logged[key] = (now, 0)
        if suppressed:
            record.msg = f"{str(record.msg).rstrip()} ({suppressed} similar lines suppressed)"
        return True


_RATE_LIMIT = RateLimitFilter()
START_SECONDS = 30.0
DRAIN_SECONDS = 1
_INDEX = f"""<!doctype html><title>Equipoise</title><h1>Equipoise {__version__}</h1>
<ul><li><a href="/healthz">/healthz</a>: whether every part makes progress
<li><a href="/readyz">/readyz</a>: whether the cluster was read and a first decision made
<li><a href="/metrics">/metrics</a>: for Prometheus</ul>
"""

Problems = Callable[[], list[str]]


def make_app(
    liveness_errors: Problems,
    readiness_errors: Problems,
    registry: CollectorRegistry,
    *,
    index_page: str = _INDEX,
    more: Sequence[Route] = (),
) -> Starlette:
    """Return the app with its probes; a probe answers 200, or 503 with one error per line."""

    async def healthz(_: Request) -> Response:
        return _probe(liveness_errors())

    async def readyz(_: Request) -> Response:
        return _probe(readiness_errors())

    def metrics(request: Request) -> Response:
        # Not a coroutine, so it runs on a thread: encoding many series is slow, and probes must not wait.
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), media_type=content_type)

    async def index(_: Request) -> Response:
        return HTMLResponse(index_page)

    pages: dict[str, Any] = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics, "/": index}
    return Starlette(routes=[*(Route(path, page) for path, page in pages.items()), *more])


def _probe(problems: list[str]) -> Response:
    text = "".join(f"{problem}\n" for problem in problems) or "ok\n"
    return PlainTextResponse(text, 503 if problems else 200, {"Cache-Control": "no-store"})


class HttpServer:
    """An HTTP server on a thread; `start` returns once it accepts connections, or raises."""

    def __init__(
        self, address: str, app: Starlette, *, name: str = "http.address", drain_seconds: int = DRAIN_SECONDS
    ) -> None:
        """Create the server; `name` is the setting or option of the address, for errors."""
        self._name = name
        self._address = address
        self._started = threading.Event()
        self._error: OSError | None = None
        self._server = Server(app, drain_seconds=drain_seconds, on_started=self._started.set)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    def start(self) -> None:
        self._thread.start()
        self._started.wait(START_SECONDS)
        if not self._server.started:
            why = self._error.strerror if self._error else "the server did not start"
            raise WorldFailed(f"{self._name} {self._address}: {why}")

    def stop(self, timeout_seconds: float) -> bool:
        """Finish the received requests, stop, and return whether it ended within the timeout."""
        self._server.should_exit = True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            host, _, port = self._address.rpartition(":")
            asyncio.run(self._server.listen(host, int(port)))
        except OSError as error:
            self._error = error
        finally:
            self._started.set()
