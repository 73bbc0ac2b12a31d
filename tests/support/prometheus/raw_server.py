"""A server that answers each connection with bytes of the test's own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress


@contextmanager
def raw_server(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Serve below HTTP: each connection is handed to `answer`, then closed."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        taken: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                taken.append(connection)
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            for connection in taken:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            thread.join()


def say(connection: socket.socket, words: bytes) -> None:
    """Say this, and read until the client has gone: closing before that would reset its own words."""
    with suppress(OSError):
        connection.sendall(words)
        connection.settimeout(60)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            continue
