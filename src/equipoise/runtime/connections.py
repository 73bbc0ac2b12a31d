"""The connections of an HTTP server: how many may be open, what each waits for, and for how long.

A connection costs a client nothing and the server a file descriptor. uvicorn has no deadline for the head of
a request, and asyncio accepts whatever comes until there are no descriptors left; then neither a probe nor
the process itself gets one. Here each connection is in a phase. One that waits for its client has a deadline,
and when all places are taken, the one that has waited longest is closed for a new one, so that a probe always
gets in. Requests that wait for the server, and websockets, never take all places.
"""

import asyncio
import logging
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from enum import Enum, auto
from typing import Any, Protocol

import h11
import msgspec
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

CONNECTIONS_MAX = 512
"""How many connections may be open; never more than half of the descriptors that the process may have."""
CONNECTIONS_MIN = 8
HEAD_BYTES_MAX = 16 * 1024
UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""How much of large answers may wait for slow clients, all together."""
LINE_SECONDS = 60.0
"""How often the log may say that connections were closed or requests refused."""
PROBES = frozenset({"/healthz", "/readyz"})
"""Pages that are answered however much is under way."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_LOG = logging.getLogger("equipoise.http")


class Phase(Enum):
    """What a connection waits for."""

    HEAD = auto()
    """For the rest of the head of a request."""
    IDLE = auto()
    """For the next request, after an answer."""
    BODY = auto()
    """For the rest of the body of a request."""
    ANSWER = auto()
    """For the client to read an answer."""
    SERVER = auto()
    """For the server to answer."""
    WEBSOCKET = auto()
    """For whatever either side says next; uvicorn ends it when the client answers no ping."""


SECONDS_MAX = {Phase.HEAD: 5.0, Phase.IDLE: 5.0, Phase.BODY: 10.0, Phase.SERVER: 120.0}
"""How long a phase may last. `pools serve` itself refuses a body after 5 s and answers within 8 s."""
ANSWER_SECONDS = 30.0
"""How long a client may read nothing of an answer. The kernel shows progress in steps of up to 1 MB."""


def connections_max() -> int:
    """Return how many connections may be open: the rest of the descriptors is for the process itself."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, soft // 2))


def requests_max() -> int:
    """Return how many requests `pools serve` asks its tiers at once, at most: half of the connections."""
    return connections_max() // 2


class Transport(Protocol):
    """What has to be known of the way to a client: asyncio's transport, or a socket that is not one yet."""

    def abort(self) -> None: ...

    def is_closing(self) -> bool:
        """Return whether nothing more is read from it."""
        ...

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait for the client."""
        ...


class Connection:
    """One open connection."""

    __slots__ = ("phase", "progressed_at", "since", "transport", "unsent")

    def __init__(self, transport: Transport, now: float) -> None:
        self.transport = transport
        self.phase = Phase.HEAD
        self.since = now
        """When the phase began."""
        self.unsent = 0
        """How many bytes waited for the client at the last sweep."""
        self.progressed_at = now


class Connections(ServerState):
    """All open connections of one server. It is the state that uvicorn shares with each of its protocols."""

    def __init__(self, limit: int, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.limit = limit
        self._is_stopping = False
        self.now = now
        self._open: dict[Transport, Connection] = {}
        self._waiting: dict[Connection, None] = {}
        """Those that wait for their client, the longest first."""
        self._in_phase: Counter[Phase] = Counter()
        self._events: Counter[str] = Counter()
        self._line_at = -LINE_SECONDS

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, transport: Transport) -> Connection:
        """Count a new connection, which has to send the head of a request."""
        if self._is_stopping:
            transport.abort()
        assert transport not in self._open, "a connection is counted twice"
        made = self._open[transport] = Connection(transport, self.now())
        self._in_phase[made.phase] += 1
        self._waiting[made] = None
        return made

    def closed(self, transport: Transport) -> None:
        """Forget a connection; it may have been forgotten already."""
        gone = self._open.pop(transport, None)
        if gone is not None:
            self._in_phase[gone.phase] -= 1
            assert self._in_phase[gone.phase] >= 0, f"more left {gone.phase.name} than entered"
            self._waiting.pop(gone, None)

    def enter(self, connection: Connection, phase: Phase) -> None:
        """Begin a phase, unless the connection is in it already or closed."""
        if connection.phase is phase or connection.transport not in self._open:
            return
        self._in_phase[connection.phase] -= 1
        assert self._in_phase[connection.phase] >= 0, f"more left {connection.phase.name} than entered"
        self._in_phase[phase] += 1
        self._waiting.pop(connection, None)
        connection.phase, connection.since = phase, self.now()
        if phase not in {Phase.SERVER, Phase.WEBSOCKET}:
            self._waiting[connection] = None

    def make_room(self) -> bool:
        """Close the connection that has waited longest for its client; return whether there was one.

        Not the newest: whoever opens idle connections would keep everybody else out. A client that means to
        ask sends its request at once, so it is not waited for long.
        """
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        self._close(longest, "closed to make room")
        return True

    def limit_unsent(self) -> None:
        """Close those that have read an answer for longest, while too much memory waits for slow clients."""
        slow = [one for one in self._waiting if one.phase is Phase.ANSWER]
        total = sum(one.transport.get_write_buffer_size() for one in slow)
        for one in slow[:-1]:
            if total <= UNSENT_BYTES_MAX:
                return
            total -= one.transport.get_write_buffer_size()
            self._close(one, "closed while they read large answers slowly")

    def is_crowded(self) -> bool:
        """Return whether so many are open that a client should not keep its own for a further request."""
        return len(self) > self.limit * 3 // 4

    def may_serve(self, kind: str) -> bool:
        """Return whether one more request, or one more websocket, leaves enough places for others."""
        websockets = self._in_phase[Phase.WEBSOCKET]
        if kind == "websocket" and websockets > self.limit // 2:
            return False
        return websockets + self._in_phase[Phase.SERVER] <= self.limit * 3 // 4

    def stop(self) -> None:
        """Close what has asked nothing yet, now and from now on; the log tells what is left to tell."""
        self.sweep()
        self._is_stopping = True
        for one in [one for one in self._waiting if one.phase is Phase.HEAD]:
            self.closed(one.transport)
            one.transport.abort()

    def count(self, event: str) -> None:
        """Remember for the log that something had to be done."""
        self._events[event] += 1

    def sweep(self) -> None:
        """Close what has kept the server waiting for too long, and say once in a while what was done."""
        now = self.now()
        for one in list(self._open.values()):
            if self._is_late(one, now):
                self._close(one, "closed after a deadline")
        is_news = self._events.keys() - {"closed after a deadline"}  # browsers open spare ones, and never ask
        if is_news and now - self._line_at >= LINE_SECONDS:
            counts = ", ".join(f"{count} {event}" for event, count in sorted(self._events.items()))
            _LOG.warning("HTTP connections and requests: %s; at most %d may be open", counts, self.limit)
            self._events.clear()
            self._line_at = now

    def _is_late(self, one: Connection, now: float) -> bool:
        """Return whether a connection has made no progress for as long as its phase allows."""
        unsent = one.transport.get_write_buffer_size()
        if unsent:
            if not one.unsent or unsent < one.unsent:
                one.progressed_at = now
            one.unsent = unsent
            if one.transport.is_closing():
                self.enter(one, Phase.ANSWER)
            return one.phase is not Phase.WEBSOCKET and now - one.progressed_at > ANSWER_SECONDS
        one.unsent = 0
        if one.phase is Phase.ANSWER:
            self.enter(one, Phase.IDLE)
        return now - one.since > SECONDS_MAX.get(one.phase, float("inf"))

    def _close(self, one: Connection, why: str) -> None:
        self.count(why)
        self.closed(one.transport)
        one.transport.abort()  # `close` would wait for what the client does not read


class StrictConnection(h11.Connection):
    """h11's state machine, which also refuses a request whose end two servers could see differently."""

    def next_event(self) -> Any:
        """Return the next event; a request that is ambiguous or too long is an error of the client."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("ambiguous length of the body")
            # h11 itself bounds only heads that come in several pieces.
            if len(event.target) + sum(len(n) + len(v) + 4 for n, v in event.headers) > HEAD_BYTES_MAX:
                raise h11.RemoteProtocolError("the head is too long", error_status_hint=431)
        return event


class BoundedHttp(H11Protocol):
    """uvicorn's HTTP/1.1, which keeps the phase of its connection in `Connections`."""

    def __init__(
        self,
        config: Any,
        server_state: Connections,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        received: bytes = b"",
    ) -> None:
        """Prepare; `received` is what has been read from the connection already."""
        super().__init__(config, server_state, app_state, _loop)
        self.conn = StrictConnection(h11.SERVER, HEAD_BYTES_MAX)
        self._received = received
        self._all = server_state
        self._connection: Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read what has been received, which is a whole head: the client is not waited for."""
        super().connection_made(transport)
        self._connection = self._all.opened(transport)
        self._all.enter(self._connection, Phase.SERVER)
        self.loop.call_soon(self.data_received, self._received)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether to keep a connection on which nothing more is asked: until the answer is sent."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self.conn.their_state is h11.SEND_BODY:
            return False
        cycle.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.closed(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; the first byte of a further request begins the time for its head."""
        if self.transport.is_closing():
            return
        if self._connection.phase is Phase.IDLE:
            self._all.enter(self._connection, Phase.HEAD)
        super().data_received(data)
        self._find_phase()

    def on_response_complete(self) -> None:
        """Wait for the next request, or until this answer has been read."""
        super().on_response_complete()
        self._find_phase()

    def pause_writing(self) -> None:
        """Wait for the client, which has much to read."""
        super().pause_writing()
        self._find_phase()
        self._all.limit_unsent()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connection.progressed_at = self._all.now()
        self._find_phase()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the connection to the protocol of websockets."""
        self._all.enter(self._connection, Phase.WEBSOCKET)
        try:
            super().handle_websocket_upgrade(event)
        except Exception:  # noqa: BLE001 - whatever the library raises, it is about what the client sent
            self.connections.difference_update(
                [one for one in self.connections if one.transport is self.transport]
            )
            self.send_400_response("Invalid websocket upgrade received.")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP and close; an answer that has begun already is cut off instead."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def _find_phase(self) -> None:
        phase = self._connection.phase
        if phase is Phase.WEBSOCKET:
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            if self.transport.get_write_buffer_size():
                phase = Phase.ANSWER
            elif phase is not Phase.HEAD:
                phase = Phase.IDLE
        elif self.flow.write_paused:
            phase = Phase.ANSWER
        elif self.conn.their_state is h11.SEND_BODY:
            phase = Phase.BODY
        else:
            phase = Phase.SERVER
        self._all.enter(self._connection, phase)


class Admission:
    """Refuses requests where so many wait for the server that probes would find no place."""

    def __init__(self, app: App, connections: Connections) -> None:
        self.app = app  # under this name, NiceGUI finds itself behind it
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or one attempt to open a websocket."""
        kind = scope["type"]
        if kind == "http" and self._connections.is_crowded():
            scope["headers"].append(CLOSE_HEADER)  # as if the client had asked to close it after the answer
        if kind == "lifespan" or scope["path"] in PROBES or self._connections.may_serve(kind):
            await self.app(scope, receive, send)
            return
        self._connections.count("refused, as too many were under way")
        if kind == "websocket":
            await send({"type": "websocket.close", "code": 1013, "reason": "Too many are open."})
            return
        said = "Too much is asked at once. Nothing was changed; ask again later."
        body = msgspec.json.encode({"outcome": "no", "result": "Overloaded", "sentence": said})
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"retry-after", b"1"),
            CLOSE_HEADER,
        ]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})
