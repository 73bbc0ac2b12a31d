"""Limits the connections of an HTTP server: how many may be open, in which phase each is, and for how long.

A connection costs a client nothing and the server a file descriptor. uvicorn has no deadline for the head of
a request, and asyncio accepts connections until there are no descriptors left; then neither a probe nor the
process itself gets one. So each connection is in a phase. One that waits for its client has a deadline, and
at the limit the one that has waited longest is closed for a new one, so that a probe always gets a
connection. Requests that wait for the server, and websockets, never use all connections.
"""

import asyncio
import logging
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

import h11
import msgspec
from starlette.responses import Response
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

CONNECTIONS_MAX = 512
"""The maximum number of open connections; at most half of the process's file descriptors."""
CONNECTIONS_MIN = 8
HEAD_BYTES_MAX = 16 * 1024
UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""The maximum total size of responses that wait for slow clients."""
LINE_SECONDS = 60.0
"""The minimum interval between two log lines about closed connections or rejected requests."""
PROBES = frozenset({"/healthz", "/readyz"})
"""Paths that are served whatever the load."""

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
    """For the next message of either side; uvicorn closes it if the client answers no ping."""


SECONDS_MAX = {Phase.HEAD: 5.0, Phase.IDLE: 5.0, Phase.BODY: 10.0, Phase.SERVER: 120.0}
"""The deadline of each phase. `pools serve` itself rejects a body after 5 s and answers within 8 s."""
ANSWER_SECONDS = 30.0
"""The deadline for a client that reads nothing of a response. The kernel reports progress per 1 MB."""


def connections_max() -> int:
    """Return the maximum number of connections; the other descriptors are for the process itself."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, soft // 2))


class Transport(Protocol):
    """What is used of a connection to a client: asyncio's transport, or a socket that has none yet."""

    def abort(self) -> None: ...

    def is_closing(self) -> bool:
        """Return whether reading from it has stopped."""
        ...

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the client has not read yet."""
        ...


@dataclass(slots=True, eq=False)
class Connection:
    """One open connection."""

    transport: Transport
    since: float
    """When the phase began."""
    progressed_at: float
    phase: Phase = Phase.HEAD
    unsent: int = 0
    """The number of bytes that the client had not read at the last sweep."""


class Connections(ServerState):
    """All open connections of one server, and the state that uvicorn shares with its protocols."""

    def __init__(self, limit: int, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.limit = limit
        self._is_stopping = False
        self.now = now
        self._open: dict[Transport, Connection] = {}
        self._waiting: dict[Connection, None] = {}
        """The connections that wait for their client, longest first."""
        self._in_phase: Counter[Phase] = Counter()
        self._events: Counter[str] = Counter()
        self._line_at = -LINE_SECONDS

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, transport: Transport) -> Connection:
        """Register a new connection in the HEAD phase; abort it if the server is stopping."""
        if self._is_stopping:
            transport.abort()
        assert transport not in self._open, "a connection is counted twice"
        now = self.now()
        made = self._open[transport] = Connection(transport, now, now)
        self._in_phase[made.phase] += 1
        self._waiting[made] = None
        return made

    def closed(self, transport: Transport) -> None:
        """Remove a connection; does nothing if it was removed already."""
        removed = self._open.pop(transport, None)
        if removed is not None:
            self._in_phase[removed.phase] -= 1
            assert self._in_phase[removed.phase] >= 0, f"more left {removed.phase.name} than entered"
            self._waiting.pop(removed, None)

    def enter(self, connection: Connection, phase: Phase) -> None:
        """Move a connection to a phase; does nothing if it is in it already or closed."""
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
        """Close the connection that has waited longest for its client; return False if none waits.

        Not the newest: a client that opens idle connections would lock all others out. A client with a
        request sends it at once, so the server does not wait for it long.
        """
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        self._close(longest, "connection closed to make room for others")
        return True

    def limit_unsent(self) -> None:
        """Close the connections that read a response longest, until the unsent bytes are within the limit."""
        slow = [one for one in self._waiting if one.phase is Phase.ANSWER]
        total = sum(one.transport.get_write_buffer_size() for one in slow)
        for one in slow[:-1]:
            if total <= UNSENT_BYTES_MAX:
                return
            total -= one.transport.get_write_buffer_size()
            self._close(one, "closed while reading large answers slowly")

    def is_crowded(self) -> bool:
        """Return whether so many connections are open that keep-alive is refused."""
        return len(self) > self.limit * 3 // 4

    def may_serve(self, kind: str) -> bool:
        """Return whether one more request or websocket leaves enough connections for others."""
        websockets = self._in_phase[Phase.WEBSOCKET]
        if kind == "websocket" and websockets > self.limit // 2:
            return False
        return websockets + self._in_phase[Phase.SERVER] <= self.limit * 3 // 4

    def stop(self) -> None:
        """Close connections without a request, now and from now on; log the remaining counts."""
        self.sweep()
        self._is_stopping = True
        for one in [one for one in self._waiting if one.phase is Phase.HEAD]:
            self.closed(one.transport)
            one.transport.abort()

    def count(self, event: str) -> None:
        """Count an event for the next log line."""
        self._events[event] += 1

    def sweep(self) -> None:
        """Close the connections past their deadline, and log the counted events at most once a minute."""
        now = self.now()
        for one in list(self._open.values()):
            if self._is_late(one, now):
                self._close(one, "closed after a deadline")
        # Browsers open spare connections that they never use.
        has_events = self._events.keys() - {"closed after a deadline"}
        if has_events and now - self._line_at >= LINE_SECONDS:
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
    """h11's state machine, which also rejects requests of ambiguous length (request smuggling)."""

    def next_event(self) -> Any:
        """Return the next event; raise for a request that is ambiguous or too long."""
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
    """uvicorn's HTTP/1.1 protocol, which tracks the phase of its connection in `Connections`."""

    def __init__(
        self,
        config: Any,
        server_state: Connections,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        received: bytes = b"",
    ) -> None:
        """Create the protocol; `received` is what has been read from the connection already."""
        super().__init__(config, server_state, app_state, _loop)
        self.conn = StrictConnection(h11.SERVER, HEAD_BYTES_MAX)
        self._received = received
        self._all = server_state
        self._connection: Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Process what has been received already, which is a whole head: the phase is SERVER."""
        super().connection_made(transport)
        self._connection = self._all.opened(transport)
        self._all.enter(self._connection, Phase.SERVER)
        self.loop.call_soon(self.data_received, self._received)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether to keep a half-closed connection: True until its response is sent."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self.conn.their_state is h11.SEND_BODY:
            return False
        cycle.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.closed(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes; the first byte of another request starts the deadline of its head."""
        if self.transport.is_closing():
            return
        if self._connection.phase is Phase.IDLE:
            self._all.enter(self._connection, Phase.HEAD)
        super().data_received(data)
        self._update_phase()

    def on_response_complete(self) -> None:
        """Enter the phase after a response: IDLE, or ANSWER until the client has read it."""
        super().on_response_complete()
        self._update_phase()

    def pause_writing(self) -> None:
        """Stop writing until the client has read more; limit what all clients have not read."""
        super().pause_writing()
        self._update_phase()
        self._all.limit_unsent()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connection.progressed_at = self._all.now()
        self._update_phase()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection to the websocket protocol; answer 400 if the upgrade is invalid."""
        self._all.enter(self._connection, Phase.WEBSOCKET)
        try:
            super().handle_websocket_upgrade(event)
        except Exception:  # noqa: BLE001 - every error of the library is about what the client sent
            self.connections.difference_update(
                [one for one in self.connections if one.transport is self.transport]
            )
            self.send_400_response("Invalid websocket upgrade received.")

    def send_400_response(self, msg: str) -> None:
        """Answer 400 and close; if a response has begun already, abort the connection instead."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def _update_phase(self) -> None:
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
    """Rejects requests when so many are in progress that probes would get no connection."""

    def __init__(self, app: App, connections: Connections) -> None:
        self.app = app  # NiceGUI looks for itself under this name
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http" and self._connections.is_crowded():
            scope["headers"].append(CLOSE_HEADER)  # as if the client had asked to close it after the answer
        if kind == "lifespan" or scope["path"] in PROBES or self._connections.may_serve(kind):
            await self.app(scope, receive, send)
            return
        self._connections.count("refused: too many requests in progress")
        if kind == "websocket":
            await send({"type": "websocket.close", "code": 1013, "reason": "Too many connections are open."})
            return
        sentence = "Too many requests are in progress. Nothing was changed; try again later."
        body = msgspec.json.encode({"outcome": "no", "result": "Overloaded", "sentence": sentence})
        headers = {"retry-after": "1", "connection": "close"}
        await Response(body, 503, headers, "application/json")(scope, receive, send)
