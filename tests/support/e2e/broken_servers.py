"""Servers that are not what they should be: each answers every request with the same bytes, or worse."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Behaviour = Callable[[socket.socket, threading.Event], None]
"""Answers one request on a connection; the event is set when the test is over."""

_TURN_SECONDS = 0.1


def answer(
    status: int, body: str, content_type: str = "application/json", length: int | None = None
) -> bytes:
    """Write an HTTP answer; `length` is what it claims, where that is not the truth."""
    head = (
        f"HTTP/1.1 {status} Whatever\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body.encode()) if length is None else length}\r\nConnection: close\r\n\r\n"
    )
    return (head + body).encode()


def says(data: bytes) -> Behaviour:
    """Answer with these bytes."""

    def behave(link: socket.socket, ending: threading.Event) -> None:
        del ending
        link.sendall(data)

    return behave


def never_answers(link: socket.socket, ending: threading.Event) -> None:
    """Take the request, and keep silent."""
    del link
    ending.wait(60)


def never_ends(link: socket.socket, ending: threading.Event) -> None:
    """Begin an answer, and go on for ever."""
    link.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{"data":"')
    while not ending.is_set():
        link.sendall(b"x" * (1 << 18))


def drips(link: socket.socket, ending: threading.Event) -> None:
    """Answer a byte at a time, so that no read ever times out."""
    link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n{")
    while not ending.wait(_TURN_SECONDS):
        link.sendall(b" ")


@contextmanager
def impostor(
    behaviour: Behaviour, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[int]:
    """Serve on a port of its own; give the port."""
    ending = threading.Event()
    threads: list[threading.Thread] = []

    def serve(link: socket.socket) -> None:
        with suppress(OSError), link:
            link.settimeout(30)
            talking = tls.wrap_socket(link, server_side=True) if tls else link
            with talking:
                if _read_request(talking):
                    behaviour(talking, ending)

    def accept() -> None:
        while not ending.is_set():
            with suppress(TimeoutError):
                link, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(link,), daemon=True))
                threads[-1].start()

    with socket.create_server((host, 0)) as listener:
        listener.settimeout(_TURN_SECONDS)
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            ending.set()
            for thread in (accepting, *threads):
                thread.join(90)
                assert not thread.is_alive(), "an impostor's thread has not ended"


def _read_request(link: socket.socket) -> bool:
    """Read until the head's end, and as much of a body as came with it."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = link.recv(1 << 16)
        if not part:
            return False
        data += part
        if not data[:1].isalpha():  # TLS, for one
            link.sendall(answer(400, "Bad Request", "text/plain"))
            return False
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    ]
    missing = int(lengths[0]) - len(body) if lengths else 0
    while missing > 0:
        missing -= len(link.recv(1 << 16)) or missing
    return True
