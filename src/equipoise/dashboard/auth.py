"""Access control of pages and websockets: only this machine, or clients with the token."""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from html import escape
from typing import Any
from urllib.parse import parse_qsl, urlencode

from equipoise.adapters.urls import split_url
from equipoise.core.errors import BadInput
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


def expect_safe(host: str, token_file: str | None) -> None:
    """Raise BadInput for an address that other machines can reach without a token."""
    if token_file is None and not is_loopback(host):
        raise BadInput(
            f"--host {host}: expected --token-file, since others than this machine can look there; "
            "or a loopback address such as 127.0.0.1"
        )


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
