"""Serves the dashboard on one socket until a signal; one gate guards it whole.

Pages and websockets are open to this machine only, or to clients with the token.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import sys
import webbrowser
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from fastapi import FastAPI
from nicegui import app as nice
from nicegui import ui
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import Ping

from equipoise.adapters.urls import split_url
from equipoise.core.errors import WorldFailed
from equipoise.dashboard.layout import FAVICON, PAGES, register
from equipoise.dashboard.views import Journals, Live
from equipoise.runtime.connections import Connections
from equipoise.runtime.http import Server
from equipoise.runtime.tokens import Tokens, is_loopback

COOKIE = "equipoise_dashboard"
HEALTH = "/healthz"
_PURPOSE = b"equipoise dashboard session"
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
# With it, the browser loads nothing from other origins.
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_LOGIN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Equipoise</title>
<meta name="viewport" content="width=device-width"><style>:root{color-scheme:light dark}
body{font:15px system-ui,sans-serif;max-width:30rem;margin:4rem auto;padding:0 1rem}
input,button{font:inherit}</style>
"""
_ASK = """<h1>Equipoise</h1><p>Enter the access token of this dashboard.</p>
<form method="get"><label>Token <input type="password" name="token" autocomplete="off" required></label>
<button>Open</button></form>"""


_NOT_THIS_HOST = "Unexpected host name in the request: use 127.0.0.1 or localhost.\n"


class Gate:
    """Passes authorised requests to the app, and answers the others itself."""

    def __init__(self, app: ASGIApp, tokens: Tokens | None, pages: Iterable[str]) -> None:
        self.app = app  # NiceGUI looks for itself under this name
        self._tokens = tokens
        self._pages = frozenset(pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            heard = self._while_admitted(scope, receive) if scope["type"] == "websocket" else receive
            if scope.get("method") == "HEAD":
                scope = {**scope, "method": "GET"}  # the server omits the body
            await self.app(scope, heard, _guarded(send))
        elif scope["type"] == "websocket":
            reason = bytes(refusal.body[:100]).decode()
            await send({"type": "websocket.close", "code": 1008, "reason": reason})
        else:
            refusal.headers["cache-control"] = "no-store"
            await refusal(scope, receive, _guarded(send))

    def _while_admitted(self, scope: Scope, receive: Receive) -> Receive:
        """Close a websocket whose token was revoked; checked at each message, pongs included."""

        async def heard() -> Message:
            message = await receive()
            is_over = message["type"] == "websocket.receive" and self._refusal(scope) is not None
            return {"type": "websocket.disconnect", "code": 1008} if is_over else message

        return heard

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["type"] == "http" and scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("This dashboard is read-only.\n", 405)
        if scope["path"] == HEALTH and scope["type"] == "http":
            return PlainTextResponse("ok\n")
        if not _is_same_origin(headers):
            return PlainTextResponse("Requests of other sites are not allowed.\n", 403)
        if self._tokens is None:
            is_local = is_loopback_host(headers.get("host", ""))
            return None if is_local else PlainTextResponse(_NOT_THIS_HOST, 403)
        return self._unknown(scope, headers, self._tokens)

    def _unknown(self, scope: Scope, headers: dict[str, str], tokens: Tokens) -> Response | None:
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(asked).get("token", "").strip()
        if scope["type"] == "http" and given and tokens.admit(f"Bearer {given}"):
            return self._welcome(scope["path"], [part for part in asked if part[0] != "token"], given)
        if tokens.admit(headers.get("authorization", "")) or _has_session(headers, tokens):
            return None
        return HTMLResponse(_LOGIN + _ASK, 401)

    def _welcome(self, path: str, rest: list[tuple[str, str]], given: str) -> Response:
        # Not a redirect: after a link from another site, a browser would not send a strict cookie with it.
        target = escape((path if path in self._pages else "/") + (f"?{urlencode(rest)}" if rest else ""))
        refresh = f'<meta http-equiv="refresh" content="0;url={target}"><p><a href="{target}">Open</a></p>'
        cookie = f"{COOKIE}={_session(given.encode())}; Path=/; HttpOnly; SameSite=Strict"
        return HTMLResponse(f"{_LOGIN}{refresh}", headers={"set-cookie": cookie})


def is_loopback_host(host: str) -> bool:
    """Return whether a Host header names this machine, with any port."""
    try:
        name = split_url(f"//{host}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name)


def _is_same_origin(headers: dict[str, str]) -> bool:
    origin = headers.get("origin")
    # Not with a URL parser, which raises for a malformed header.
    return origin is None or origin.partition("://")[2] == headers.get("host")


def _session(token: bytes) -> str:
    """Return the cookie's value: derived from the token, does not reveal it, and is void without it."""
    return hmac.new(token, _PURPOSE, hashlib.sha256).hexdigest()


def _has_session(headers: dict[str, str], tokens: Tokens) -> bool:
    parts = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return any(name == COOKIE and tokens.holds(value, _session) for name, _, value in parts)


def _guarded(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_HEADERS]
        await send(message)

    return guarded


RECONNECT_SECONDS = 20.0
"""How long a disconnected browser's state is kept."""
DRAIN_SECONDS = 2


def serve(
    journals: tuple[Path, ...], host: str, port: int, tokens: Tokens | None, *, is_opened: bool
) -> None:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    live = Live(Journals(journals))
    try:
        asyncio.run(_run(Gate(_app(live), tokens, PAGES), live, host, port, is_opened=is_opened))
    except OSError as error:
        # asyncio's own text names the address once more.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        hint = " (--port 0 takes any free one)" if port else ""
        raise WorldFailed(f"--host {host} --port {port}: {why}{hint}") from error


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


async def _run(app: Gate, live: Live, host: str, port: int, *, is_opened: bool) -> None:
    watching: list[asyncio.Task[None]] = []

    def started() -> None:
        # Not before: NiceGUI has looked through all objects of the process to find its server, and a thread
        # that is just making a tuple would stumble over that.
        watching.append(asyncio.create_task(live.watch()))
        url = _address(host, server.port)
        print(f"dashboard {url}", flush=True)
        if is_opened and _has_screen():
            webbrowser.open(url)

    server = Server(
        app, drain_seconds=DRAIN_SECONDS, lifespan="on", websockets=_Websocket, on_started=started
    )
    await server.listen(host, port)
    for task in watching:
        task.cancel()


class _Websocket(WSProtocol):
    """uvicorn's websocket, counted in `Connections`; it queues no pongs for a client that does not read."""

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
        """Answer a ping unless data is unsent: RFC 6455 requires an answer to the last ping only."""
        if self.writable.is_set():
            super().handle_ping(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.closed(self.transport)
        super().connection_lost(exc)


def _address(host: str, port: int) -> str:
    plain = host.removeprefix("[").removesuffix("]") or "0.0.0.0"  # noqa: S104 - as a person reads it
    return f"http://{f'[{plain}]' if ':' in plain else plain}:{port}/"


def _has_screen() -> bool:
    """Return whether a browser would open in a window; a text browser would take over the terminal."""
    return sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
