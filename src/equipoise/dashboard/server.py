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
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from fastapi import FastAPI
from nicegui import app as nice
from nicegui import ui
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import Ping

from equipoise.adapters.urls import split_url
from equipoise.core.errors import WorldFailed
from equipoise.dashboard.layout import FAVICON, PAGES, register
from equipoise.dashboard.views import Journals, Live
from equipoise.runtime.connections import Connections
from equipoise.runtime.http import Server
from equipoise.runtime.tokens import Tokens, is_loopback

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

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
_ASK = """<h1>Equipoise</h1><p>This dashboard is open to those who have its token.</p>
<form method="get"><label>Token <input type="password" name="token" autocomplete="off" required></label>
<button>Open</button></form>"""


class Gate:
    """Passes authorised requests to the app, and answers the others itself."""

    def __init__(self, app: App, tokens: Tokens | None, pages: Iterable[str]) -> None:
        self.app = app  # NiceGUI looks for itself under this name
        self._tokens = tokens
        self._pages = frozenset(pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or reject one request or websocket."""
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
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.text[:100]})
        else:
            await _answer(send, refusal)

    def _while_admitted(self, scope: Scope, receive: Receive) -> Receive:
        """Close a websocket whose token was revoked; checked at each message, pongs included."""

        async def heard() -> MutableMapping[str, Any]:
            message = await receive()
            is_over = message["type"] == "websocket.receive" and self._refusal(scope) is not None
            return {"type": "websocket.disconnect", "code": 1008} if is_over else message

        return heard

    def _refusal(self, scope: Scope) -> "HttpAnswer | None":
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["type"] == "http" and scope["method"] not in {"GET", "HEAD"}:
            return HttpAnswer(405, "This dashboard only reads.\n")
        if scope["path"] == HEALTH and scope["type"] == "http":
            return HttpAnswer(200, "ok\n")
        if not _is_same_origin(headers):
            return HttpAnswer(403, "Asked from another site.\n")
        if self._tokens is None:
            return None if is_loopback_host(headers.get("host", "")) else HttpAnswer(403, _NOT_THIS_HOST)
        return self._unknown(scope, headers, self._tokens)

    def _unknown(self, scope: Scope, headers: dict[str, str], tokens: Tokens) -> "HttpAnswer | None":
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(asked).get("token", "").strip()
        if scope["type"] == "http" and given and tokens.admit(f"Bearer {given}"):
            return self._welcome(scope["path"], [part for part in asked if part[0] != "token"], given)
        if tokens.admit(headers.get("authorization", "")) or _has_session(headers, tokens):
            return None
        return HttpAnswer(401, _LOGIN + _ASK, kind="text/html; charset=utf-8")

    def _welcome(self, path: str, rest: list[tuple[str, str]], given: str) -> "HttpAnswer":
        # Not a redirect: after a link from another site, a browser would not send a strict cookie with it.
        where = (path if path in self._pages else "/") + (f"?{urlencode(rest)}" if rest else "")
        target = escape(where)
        page = (
            f'{_LOGIN}<meta http-equiv="refresh" content="0;url={target}"><p><a href="{target}">Open</a></p>'
        )
        cookie = f"{COOKIE}={_session(given.encode())}; Path=/; HttpOnly; SameSite=Strict"
        return HttpAnswer(200, page, ((b"set-cookie", cookie.encode()),), "text/html; charset=utf-8")


class HttpAnswer:
    """Return a page of the access control itself."""

    def __init__(
        self,
        status: int,
        text: str,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        kind: str = "text/plain; charset=utf-8",
    ) -> None:
        self.status = status
        self.text = text
        self.headers = headers
        self.kind = kind


_NOT_THIS_HOST = "Asked under a name that is not this machine's: use 127.0.0.1 or localhost.\n"


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
    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_HEADERS]
        await send(message)

    return guarded


async def _answer(send: Send, answer: HttpAnswer) -> None:
    body = answer.text.encode()
    headers = (
        (b"content-type", answer.kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *answer.headers,
        *_HEADERS,
    )
    await send({"type": "http.response.start", "status": answer.status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


RECONNECT_SECONDS = 20.0
"""How long a disconnected browser's state is kept."""
DRAIN_SECONDS = 2


@dataclass(frozen=True, slots=True)
class Service:
    """The settings of the command."""

    journals: tuple[Path, ...]
    host: str
    port: int
    tokens: Tokens | None
    is_opened: bool


def serve(service: Service) -> None:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    live = Live(Journals(service.journals))
    app = Gate(_app(live), service.tokens, PAGES)
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
    watching: list[asyncio.Task[None]] = []

    def on_started() -> None:
        # Not before: NiceGUI has looked through all objects of the process to find its server, and a thread
        # that is just making a tuple would stumble over that.
        watching.append(asyncio.create_task(live.watch()))
        url = _address(service.host, server.port)
        print(f"dashboard {url}", flush=True)
        if service.is_opened and _has_screen():
            webbrowser.open(url)

    server = Server(
        app, drain_seconds=DRAIN_SECONDS, lifespan="on", websockets=_Websocket, on_started=on_started
    )
    await server.listen(service.host, service.port)
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
        """Remove the connection from `Connections`."""
        self._all.closed(self.transport)
        super().connection_lost(exc)


def _address(host: str, port: int) -> str:
    plain = host.removeprefix("[").removesuffix("]") or "0.0.0.0"  # noqa: S104 - as a person reads it
    return f"http://{f'[{plain}]' if ':' in plain else plain}:{port}/"


def _has_screen(names: Iterable[str] = ("DISPLAY", "WAYLAND_DISPLAY")) -> bool:
    """Return whether a browser would open in a window; a text browser would take over the terminal."""
    return sys.platform == "darwin" or any(map(os.environ.get, names))
