"""Health, readiness and metrics over HTTP, on a thread and an event loop of their own."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from equipoise import __version__
from equipoise.app.server import Server, bind
from equipoise.model.errors import WorldFailed

START_SECONDS = 30.0
DRAIN_SECONDS = 1
_INDEX = f"""<!doctype html><title>Equipoise</title><h1>Equipoise {__version__}</h1>
<ul><li><a href="/healthz">/healthz</a>: does every part get on?
<li><a href="/readyz">/readyz</a>: has it seen the cluster, and decided once?
<li><a href="/metrics">/metrics</a>: for Prometheus</ul>
"""

Problems = Callable[[], list[str]]


def make_app(
    illnesses: Problems,
    unready: Problems,
    registry: CollectorRegistry,
    *,
    index_page: str = _INDEX,
    more: Sequence[Route] = (),
) -> Starlette:
    """Make the pages. A probe answers 200, or 503 with one problem per line."""

    async def healthz(_: Request) -> Response:
        return _probe(illnesses())

    async def readyz(_: Request) -> Response:
        return _probe(unready())

    def metrics(request: Request) -> Response:
        # Not a coroutine, so it runs on a thread: many series take long, and probes must not wait.
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), media_type=content_type)

    async def index(_: Request) -> Response:
        return HTMLResponse(index_page)

    pages: dict[str, Any] = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics, "/": index}
    return Starlette(routes=[*(Route(path, page) for path, page in pages.items()), *more])


def _probe(problems: list[str]) -> Response:
    text = "".join(f"{problem}\n" for problem in problems) or "ok\n"
    return PlainTextResponse(text, 503 if problems else 200, {"Cache-Control": "no-store"})


class Door:
    """The server. `start` returns when it answers, and raises when it can't."""

    def __init__(
        self, address: str, app: Starlette, *, name: str = "http.address", drain_seconds: int = DRAIN_SECONDS
    ) -> None:
        """Prepare; `name` is what the user called the address."""
        self._name = name
        self._address = address
        self._started = threading.Event()
        self._error: OSError | None = None
        self._server = Server(app, drain_seconds=drain_seconds, on_started=self._started.set)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self.port = 0
        """The one that it listens on."""

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        self._started.wait(START_SECONDS)
        if not self._server.started:
            why = self._error.strerror if self._error else "the server did not start"
            raise WorldFailed(f"{self._name} {self._address}: {why}")

    def stop(self, timeout_seconds: float) -> bool:
        """Answer what was asked, and end; tell whether it has."""
        self._server.should_exit = True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def illness(self) -> str | None:
        """Say that it has died; only a log would show it."""
        return None if self._thread.is_alive() else "the HTTP thread has died"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        host, _, port = self._address.rpartition(":")
        sockets = await bind(host, int(port))
        self.port = sockets[0].getsockname()[1]
        await self._server.serve(sockets)
