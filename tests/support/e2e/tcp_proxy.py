"""A wire between a client and a server that a test can cut, freeze and mend; TLS passes through it."""

import selectors
import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_TURN_SECONDS = 0.05
_SEND_SECONDS = 5.0
_RESET = struct.pack("ii", 1, 0)


class Wire:
    """Listens on a port of its own and carries bytes to a server. Use it as a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        """Both ends of every link that carries bytes."""
        self._dead: set[socket.socket] = set()
        """Ends whose bytes vanish."""
        self._held: list[socket.socket] = []
        """Callers who were let in while the wire was frozen, and wait."""
        self._is_frozen = self._is_closed = self._is_ending = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="wire", daemon=True)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def links(self) -> int:
        """How many connections it carries now."""
        with self._lock:
            return len(self._peers) // 2

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ending = True
        self._thread.join(60)
        assert not self._thread.is_alive(), "the wire's thread has not ended"
        with self._lock:
            self._reset_all()
            self._listener.close()
            self._selector.close()

    def reset(self) -> None:
        """End every connection with a reset, as a restarted router does; new ones pass."""
        with self._lock:
            self._reset_all()

    def close(self) -> None:
        """End every connection, and refuse new ones until `open`."""
        with self._lock:
            self._is_closed = True
            self._reset_all()

    def freeze(self) -> None:
        """Lose every byte on the present connections, for good; let new ones in, but carry nothing."""
        with self._lock:
            self._is_frozen = True
            self._dead.update(self._peers)

    def open(self) -> None:
        """Carry new connections again, those that wait included; what was lost stays lost."""
        with self._lock:
            self._is_frozen = self._is_closed = False
            waiting, self._held = self._held, []
            for client in waiting:
                self._join(client)

    def _run(self) -> None:
        while not self._is_ending:
            for key, _ in self._selector.select(_TURN_SECONDS):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                        self._carry(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.settimeout(_SEND_SECONDS)
        if self._is_closed:
            client.close()
        elif self._is_frozen:
            self._held.append(client)
        else:
            self._join(client)

    def _join(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._upstream, timeout=_SEND_SECONDS)
        except OSError:
            client.close()
            return
        for mine, other in ((client, server), (server, client)):
            mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[mine] = other
            self._selector.register(mine, selectors.EVENT_READ)

    def _carry(self, source: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
            if data and source not in self._dead:
                self._peers[source].sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in self._forget(source):
                end.close()

    def _forget(self, one: socket.socket) -> tuple[socket.socket, socket.socket]:
        other = self._peers[one]
        for end in (one, other):
            self._selector.unregister(end)
            del self._peers[end]
            self._dead.discard(end)
        return one, other

    def _reset_all(self) -> None:
        while self._peers:
            for end in self._forget(next(iter(self._peers))):
                _reset(end)
        while self._held:
            _reset(self._held.pop())


def _reset(end: socket.socket) -> None:
    """Close so that the peer sees a reset, not an orderly end."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()
