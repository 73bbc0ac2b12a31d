"""The HTTP server with pages of the tests' own, in this process."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from equipoise.runtime.http import HttpServer, make_app
from tests.support.operator.worlds import WAIT_SECONDS

WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE_BYTES = 12 * 1024 * 1024


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
def served() -> Iterator[tuple[int, Pages]]:
    """Serve in this process."""
    pages = Pages()
    door = HttpServer("127.0.0.1:0", make_app(list, list, CollectorRegistry(), more=pages.routes()))
    pages.open = lambda: len(door._server.server_state)  # type: ignore[arg-type]
    door.start()
    try:
        yield door.port, pages
    finally:
        pages.gate.set()
        assert door.stop(WAIT_SECONDS)


def connect(stack: ExitStack, port: int) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS))
