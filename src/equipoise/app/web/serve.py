"""Stands the dashboard up on one socket, until a signal says stop."""

import asyncio
import logging
import os
import sys
import webbrowser
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from nicegui import app as nice
from nicegui import ui
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import Ping

from equipoise.app.connections import Connections
from equipoise.app.pools_serve.tokens import Tokens
from equipoise.app.server import Server, bind
from equipoise.app.web import frame
from equipoise.app.web.gate import Gate
from equipoise.app.web.journals import Journals
from equipoise.app.web.live import Live
from equipoise.app.web.routes import register
from equipoise.app.web.theme import FAVICON
from equipoise.model.errors import WorldFailed

RECONNECT_SECONDS = 20.0
"""How long what a browser saw is kept for it while it is away."""
DRAIN_SECONDS = 2


@dataclass(frozen=True, slots=True)
class Service:
    """All that the command was told."""

    journals: tuple[Path, ...]
    host: str
    port: int
    tokens: Tokens | None
    is_opened: bool


def serve(service: Service) -> None:
    """Answer until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    live = Live(Journals(service.journals))
    app = Gate(_app(live), service.tokens, frame.PAGES)
    try:
        asyncio.run(_run(service, app, live))
    except OSError as error:
        where = f"--host {service.host} --port {service.port}"
        # asyncio's own text names the address once more.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        hint = " (--port 0 takes any free one)" if service.port else ""
        raise WorldFailed(f"{where}: {why}{hint}") from error


def _app(live: Live) -> FastAPI:
    register(live)
    # One way in that can be guarded whole: no polling, which would need POST.
    nice.config.socket_io_js_transports = ["websocket"]
    outer = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    ui.run_with(
        outer,
        title="Equipoise",
        favicon=FAVICON,
        dark=False,
        language="en-US",
        tailwind=False,
        reconnect_timeout=RECONNECT_SECONDS,
        show_welcome_message=False,
        binding_refresh_interval=None,
    )
    return outer


async def _run(service: Service, app: Gate, live: Live) -> None:
    sockets = await bind(service.host, service.port)
    url = _address(service.host, sockets[0].getsockname()[1])
    await _Server(app, live, url, is_opened=service.is_opened).serve(sockets)


class _Websocket(WSProtocol):
    """uvicorn's websocket, which frees its place when it ends, and answers no pings that nobody reads."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: Connections,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = server_state

    def handle_ping(self, event: Ping) -> None:
        """Answer, unless answers wait already; RFC 6455 asks for one to the last ping only."""
        if self.writable.is_set():
            super().handle_ping(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free its place."""
        self._all.closed(self.transport)
        super().connection_lost(exc)


class _Server(Server):
    def __init__(self, app: Gate, live: Live, url: str, *, is_opened: bool) -> None:
        super().__init__(app, drain_seconds=DRAIN_SECONDS, lifespan="on", websockets=_Websocket)
        self._live = live
        self._url = url
        self._is_opened = is_opened

    async def startup(self, sockets: Any = None) -> None:
        """Begin to answer, say where, and watch the journals."""
        await super().startup(sockets)
        # Not before: NiceGUI has looked through all objects of the process to find its server, and a thread
        # that is just making a tuple would stumble over that.
        self._watching = asyncio.create_task(self._live.watch())
        print(f"dashboard {self._url}", flush=True)
        if self._is_opened and _has_screen():
            webbrowser.open(self._url)

    async def shutdown(self, sockets: Any = None) -> None:
        """Let go of everybody."""
        self._watching.cancel()
        await super().shutdown(sockets)


def _address(host: str, port: int) -> str:
    plain = host.removeprefix("[").removesuffix("]") or "0.0.0.0"  # noqa: S104 - as a person reads it
    return f"http://{f'[{plain}]' if ':' in plain else plain}:{port}/"


def _has_screen(names: Iterable[str] = ("DISPLAY", "WAYLAND_DISPLAY")) -> bool:
    """Tell whether a browser would open in a window; one in the terminal would take it over."""
    return sys.platform == "darwin" or any(map(os.environ.get, names))
