"""Nobody else looks: names, origins, tokens and sockets at the gate, without a browser."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from equipoise.cli.journal import expect_safe
from equipoise.core.errors import BadInput
from equipoise.dashboard.server import COOKIE, Gate
from equipoise.runtime.tokens import RELOAD_SECONDS, Tokens

TOKEN = "a-long-enough-token"
PAGES = ("/", "/journal")


async def _inside(scope: Any, receive: Any, send: Any) -> None:
    del receive
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


def ask(
    gate: Gate, path: str = "/", query: str = "", kind: str = "http", method: str = "GET", **headers: str
) -> list[dict[str, Any]]:
    """Knock once; give what the gate, or the house behind it, sent."""
    headers = {"host": "127.0.0.1:8088"} | headers
    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.receive", "text": "3"}

    asyncio.run(gate(scope, receive, send))
    return sent


def status(sent: list[dict[str, Any]]) -> int:
    return int(sent[0]["status"])


def header(sent: list[dict[str, Any]], name: str) -> str:
    return str(dict(sent[0]["headers"]).get(name.encode(), b""), "ascii")


@pytest.fixture
def open_gate() -> Gate:
    return Gate(_inside, None, PAGES)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\nanother-token-of-ours\n")
    return Gate(_inside, Tokens(str(file)), PAGES)


@pytest.mark.parametrize("host", ["127.0.0.1:8088", "localhost", "localhost:9", "[::1]:8088", "127.9.9.9"])
def test_this_machine_may_look(open_gate: Gate, host: str) -> None:
    """By any of its own names, at any port: a forwarded one too."""
    assert status(ask(open_gate, host=host)) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil", "[::", "10.0.0.7"]
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_another_name_for_this_machine_is_refused(open_gate: Gate, host: str, kind: str) -> None:
    """A name that somebody points at 127.0.0.1 lets their pages read ours, were it not checked."""
    sent = ask(open_gate, host=host, kind=kind)
    assert sent[0]["type"] == "websocket.close" if kind == "websocket" else status(sent) == 403


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_page_of_another_site_gets_nothing(open_gate: Gate, kind: str) -> None:
    """Browsers let any page open a socket to this machine; they say whose page it is."""
    for origin in ("https://evil.example", "null", "http://[", "127.0.0.1:8088", "http://127.0.0.1:8088/"):
        sent = ask(open_gate, kind=kind, origin=origin)
        assert sent[0]["type"] == "websocket.close" if kind == "websocket" else status(sent) == 403
    assert ask(open_gate, kind="websocket", origin="http://127.0.0.1:8088")[0]["type"] == "websocket.accept"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(open_gate: Gate, gate: Gate, method: str) -> None:
    """Only questions pass, with a token too."""
    assert status(ask(open_gate, method=method)) == 405
    assert status(ask(gate, method=method, authorization=f"Bearer {TOKEN}")) == 405


def test_a_token_opens_once_and_then_the_cookie_does(gate: Gate) -> None:
    """The address loses the token, the cookie is not the token, and scripts cannot read it."""
    assert status(ask(gate)) == 401
    sent = ask(gate, "/journal", f"reason=Rotate&token={TOKEN}")
    cookie = header(sent, "set-cookie")
    assert status(sent) == 200
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert 'url=/journal?reason=Rotate"' in sent[1]["body"].decode()
    assert TOKEN not in sent[1]["body"].decode()
    session = cookie.partition(";")[0]
    assert ask(gate, cookie=f"other=1; {session}")[1]["body"] == b"inside"
    assert ask(gate, kind="websocket", cookie=session)[0]["type"] == "websocket.accept"
    assert ask(gate, kind="websocket")[0]["type"] == "websocket.close"


@pytest.mark.parametrize("given", ["", "x", TOKEN[:-1], TOKEN + "x", "\N{SNOWMAN}" * 20])
def test_a_wrong_token_opens_nothing(gate: Gate, given: str) -> None:
    """In the address, as a header and as a cookie."""
    assert status(ask(gate, query=f"token={given.encode().hex()}")) == 401
    assert status(ask(gate, authorization=f"Bearer {given.encode().hex()}")) == 401
    assert status(ask(gate, cookie=f"{COOKIE}={given.encode().hex()}")) == 401
    assert status(ask(gate, cookie=f"{COOKIE}={TOKEN}")) == 401


def test_a_cookie_dies_with_its_token(tmp_path: Path) -> None:
    """Whoever changes the token has everybody come in anew."""
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    first = Gate(_inside, Tokens(str(file)), PAGES)
    session = header(ask(first, query=f"token={TOKEN}"), "set-cookie").partition(";")[0]
    file.write_text("quite-another-token\n")
    second = Gate(_inside, Tokens(str(file)), PAGES)
    assert status(ask(second, cookie=session)) == 401


def test_an_open_page_ends_with_its_token(tmp_path: Path) -> None:
    """A socket that was let in is let go when it is next heard after the token was taken out of the file."""
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    now = [0.0]
    heard: list[Any] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        del scope, send
        heard.append(await receive())
        file.write_text("quite-another-token\n")
        now[0] += RELOAD_SECONDS
        heard.append(await receive())

    gate = Gate(inside, Tokens(str(file), lambda: now[0]), PAGES)
    ask(gate, kind="websocket", authorization=f"Bearer {TOKEN}")
    assert [message["type"] for message in heard] == ["websocket.receive", "websocket.disconnect"]


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", '/x"><script>', "https://evil.example"]
)
def test_coming_in_leads_nowhere_else(gate: Gate, path: str) -> None:
    """The page after the token is one of ours, whatever was asked for."""
    body = ask(gate, path, f"token={TOKEN}")[1]["body"].decode()
    assert 'content="0;url=/"' in body
    assert "evil" not in body
    assert "<script" not in body


def test_health_is_told_to_anybody(gate: Gate) -> None:
    """A probe has no token, and learns nothing."""
    sent = ask(gate, "/healthz", host="10.1.2.3:8088")
    assert (status(sent), sent[1]["body"]) == (200, b"ok\n")


def test_browsers_are_told_to_fetch_from_here_only(open_gate: Gate) -> None:
    """Every answer carries the policy, ours and the house's."""
    for sent in (ask(open_gate), ask(open_gate, host="evil.example")):
        assert "default-src 'none'" in header(sent, "content-security-policy")
        assert header(sent, "referrer-policy") == "no-referrer"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", ""])
def test_other_machines_need_a_token(host: str) -> None:
    """The command refuses before it listens."""
    with pytest.raises(BadInput, match=r"--host .*: expected --token-file"):
        expect_safe(host, None)
    expect_safe(host, "tokens")
    expect_safe("::1", None)


def test_a_head_is_answered_as_a_get_is() -> None:
    """The pages behind the gate know only GET; the server leaves the body out."""
    seen: list[str] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["method"])
        await _inside(scope, receive, send)

    assert status(ask(Gate(inside, None, PAGES), method="HEAD")) == 200
    assert seen == ["GET"]
