"""`equipoise pools serve` on a real server: yes, no, nobody knows; who may ask; how it stops."""

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from equipoise.cli.schemas import json_schema
from equipoise.core.errors import BadInput
from equipoise.runtime.allocator import api as serving
from equipoise.runtime.allocator.api import BODY_BYTES_MAX, Api, Readiness
from equipoise.runtime.allocator.operations import openapi
from equipoise.runtime.http import HttpServer
from equipoise.runtime.redis import RemotePools
from equipoise.runtime.tokens import RELOAD_SECONDS, Tokens
from tests.support.pools.servers import server
from tests.support.pools.serving import Answer, Caller, later, service, until
from tests.support.pools.worlds import write

TOKEN = "a-token-of-this-test"
TIERS = {"gold": ["a-0"], "basic": ["a-1"]}


@pytest.fixture
def caller(url: str, client: Any) -> Iterator[Caller]:
    write(client, TIERS)
    with service(url) as (found, _):
        yield found


def test_a_call_is_served_from_allocation_to_release(caller: Caller, client: Any) -> None:
    """Every step may be sent twice: the answer is the same, and nothing happens twice."""
    first, again = (caller.ask("allocate", call="c1") for _ in range(2))
    assert (first.status, first.document["pod"], first.document["tier"]) == (200, "a-0", "gold")
    assert (again.document["pod"], again.document["detail"]) == ("a-0", "again")
    assert caller.ask("heartbeat", call="c1").document["result"] == "Renewed"
    assert caller.ask("release", call="c1").document["result"] == "Released"
    assert caller.ask("release", call="c1").document["result"] == "UnknownCall"
    assert client.smembers("voice:pool:gold:available") == {"a-0"}
    gone = caller.ask("heartbeat", call="c1")
    assert (gone.status, gone.document["outcome"]) == (404, "no")


def test_refusals_are_a_plain_no(caller: Caller) -> None:
    """Each with its status, its code and a sentence."""
    caller.ask("allocate", call="c1", tier="gold")
    full = caller.ask("allocate", call="c2", tier="gold")
    assert (full.status, full.document["result"], full.headers["retry-after"]) == (409, "NoneFree", "1")
    assert full.document["sentence"] == "no pod is free in gold"
    assert caller.ask("release", call="c1", pod="a-1").status == 409
    assert caller.ask("drain", pod="a-9").status == 404
    strange = caller.ask("allocate", call="c3", tier="lead")
    assert (strange.status, strange.document["sentence"]) == (400, "tier: expected a tier of the config")


def test_a_drained_pod_gets_no_calls_until_it_is_undrained(caller: Caller) -> None:
    """And the status shows it."""
    assert caller.ask("drain", pod="a-0").document["result"] == "Drained"
    assert caller.ask("allocate", call="c1", tier="gold").status == 409
    shown = {tier["tier"]: tier for tier in caller.ask("status").document["tiers"]}
    assert (shown["gold"]["draining"], shown["basic"]["draining"]) == (1, 0)
    assert caller.ask("undrain", pod="a-0").document["result"] == "Undrained"
    assert caller.ask("allocate", call="c1", tier="gold").status == 200


BAD = {
    "no JSON": (b"{", "truncated"),
    "a list": (b"[]", "Expected `object`"),
    "no call": (b"{}", "call: expected a text"),
    "a number": (b'{"call": 1}', "Expected `str`"),
    "unknown": (b'{"call": "c", "teir": "gold"}', "teir"),
    "not its own": (b'{"call": "c", "uid": "u"}', "uid: unknown field; allocate takes call, tier"),
    "spaces": (b'{"call": "a b"}', "call: expected 1 to 256 printable characters without spaces"),
    "line break": (b'{"call": "a\\nb"}', "call: expected"),
    "too long a name": (json.dumps({"call": "c" * 257}).encode(), "call: expected"),
    "a tier that is no name": (b'{"call": "c", "tier": "a:b"}', "tier: expected letters"),
}


@pytest.mark.parametrize(("body", "words"), BAD.values(), ids=BAD)
def test_what_makes_no_sense_is_refused_by_its_field(caller: Caller, body: bytes, words: str) -> None:
    """In JSON, and nothing happens."""
    status, text, _ = caller.raw("POST", "/v1/allocate", body)
    document = json.loads(text)
    assert (status, document["outcome"], document["result"]) == (400, "no", "BadRequest")
    assert words in document["sentence"]


def test_other_pages_and_long_bodies_are_refused_in_the_same_form(caller: Caller) -> None:
    """404, 405 and 413; the document, health and metrics are open."""
    for method, path, body, status in (
        ("GET", "/v2/allocate", b"", 404),
        ("GET", "/v1/allocate", b"", 405),
        ("POST", "/v1/allocate", b" " * (BODY_BYTES_MAX + 1), 413),
    ):
        found, text, _ = caller.raw(method, path, body)
        assert (found, json.loads(text)["outcome"]) == (status, "no")
    document = json.loads(json.dumps(openapi()))
    assert json.loads(caller.raw("GET", "/openapi.json")[1]) == document
    assert json.loads(json.dumps(json_schema("pools-openapi"))) == document, "what `equipoise schema` prints"
    assert caller.raw("GET", "/healthz")[0] == 200
    metrics = caller.raw("GET", "/metrics")[1].decode()
    assert 'equipoise_pool_requests_total{operation="allocate",result="413"} 1.0' in metrics


def test_a_body_that_does_not_come_is_not_waited_for(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow caller holds a connection for a moment only."""
    monkeypatch.setattr(serving, "BODY_SECONDS", 0.1)
    connection = http.client.HTTPConnection("127.0.0.1", caller.port, timeout=60)
    connection.putrequest("POST", "/v1/allocate")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "10")
    connection.endheaders(b"{")
    assert connection.getresponse().status == 408
    connection.close()


def test_an_answer_that_is_lost_is_unknown_and_asking_again_is_safe(url: str, client: Any) -> None:
    """The server hangs for longer than we wait, then does what it was asked: the same call, the same pod."""
    write(client, {"gold": ["a-0", "a-1"]})
    with service(url, timeout_seconds=3.0) as (caller, _):
        # A busy machine may be silent for as long as we wait, and to ask again is safe.
        until(lambda: caller.ask("allocate", call="warm").status == 200)
        until(lambda: caller.ask("release", call="warm").status != 503)
        client.execute_command("CLIENT", "PAUSE", "120000", "WRITE")
        lost = caller.ask("allocate", call="c1")
        assert (lost.status, lost.document["outcome"]) == (503, "unknown")
        assert "Repeat the request, which is safe" in lost.document["sentence"]
        client.execute_command("CLIENT", "UNPAUSE")
        until(lambda: caller.ask("allocate", call="c1").status == 200)
        assert client.scard("voice:pool:gold:available") == 1


def test_without_its_server_it_says_no_and_it_resumes_by_itself(tmp_path: Path) -> None:
    """Also when the server was not there at the start."""
    where: list[str] = [f"unix://{tmp_path}/none.sock"]
    registry = CollectorRegistry()
    remote = RemotePools(lambda: where[0], "voice", timeout_seconds=60.0, monotonic=later())
    api = Api(remote, "voice", None, registry)
    readiness = Readiness(remote, None)
    door = HttpServer("127.0.0.1:0", api.app(list, readiness.readiness_errors, registry))
    door.start()
    caller = Caller(door.port)
    try:
        readiness.check()
        away = caller.ask("allocate", call="c1")
        assert (away.status, away.document["outcome"]) == (503, "no")
        assert "directory. Nothing was changed" in away.document["sentence"]
        assert caller.raw("GET", "/readyz")[0] == 503
        with server() as url:
            where[0] = url
            readiness.check()
            assert "voice:tier:config: missing" in caller.raw("GET", "/readyz")[1].decode()
            assert caller.ask("allocate", call="c1").status == 503
            remote.ask(lambda pools: pools.set_config('{"gold": 1}', ""))
            remote.ask(lambda pools: pools.register("a-0", "u", None))
            readiness.check()
            assert caller.raw("GET", "/readyz")[:2] == (200, b"ok\n")
            assert caller.ask("allocate", call="c1").status == 200
    finally:
        assert door.stop(60)
        api.close()


def test_only_who_has_a_token_is_served_and_tokens_can_change(url: str, client: Any, tmp_path: Path) -> None:
    """Old and new hold side by side; a file that vanishes changes nothing."""
    write(client, TIERS)
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}-1\n")
    now = [0.0]
    tokens = Tokens(str(file), lambda: now[0])
    with service(url, tokens) as (caller, _):
        for wrong in ("", "Bearer", "Basic abc", f"Bearer {TOKEN}", f"Bearer {TOKEN}-1x", "Bearer \xe9"):
            status, text, headers = caller.raw("POST", "/v1/allocate", b"{}", {"Authorization": wrong})
            assert (status, json.loads(text)["result"]) == (401, "Unauthorized"), wrong
            assert headers["www-authenticate"] == "Bearer"
        assert caller.ask("status").status == 401
        assert caller.ask("allocate", f"{TOKEN}-1", call="c1").status == 200
        file.write_text(f"{TOKEN}-1\n{TOKEN}-2\n")
        now[0] += RELOAD_SECONDS
        assert caller.ask("status", f"{TOKEN}-2").status == 200
        file.write_text(f"{TOKEN}-2\n")
        now[0] += RELOAD_SECONDS
        assert caller.ask("status", f"{TOKEN}-1").status == 401
        file.unlink()
        now[0] += RELOAD_SECONDS
        assert caller.ask("status", f"{TOKEN}-2").status == 200
        assert "No such file" in tokens.error


@pytest.mark.parametrize("text", ["", "\n", "short", f"{TOKEN}\nx\n"])
def test_a_file_without_a_decent_token_is_refused(tmp_path: Path, text: str) -> None:
    """Nobody could ask, or anybody could guess."""
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(BadInput, match="at least 16 characters"):
        Tokens(str(file))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--address", ":0"], "--address :0: expected --token-file"),
        (["--address", "0.0.0.0:0"], "expected --token-file"),
        (["--address", "[::]:0"], "expected --token-file"),
        (["--address", "8081"], "--address: address: expected HOST:PORT"),
        (["--lease", "0"], "--lease: expected 1s to 7d, got 0"),
        (["--lease", "99999999999w"], "--lease: expected 1s to 7d"),
        (["--record", "99w"], "--record: expected 1s to 7d"),
        (["--redis", "http://x"], "--redis: expected redis://"),
        (["--redis", "redis://x", "--redis-url-file", "f"], "--redis-url-file: expected this, or"),
        (["--redis", "redis://x", "--token-file", "/no/such"], "--token-file /no/such: No such file"),
    ],
)
def test_wrong_arguments_are_refused(
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything listens: exit status 2 and one line."""
    from equipoise.cli.main import main

    monkeypatch.setattr(sys, "argv", ["equipoise", "pools", "serve", *words])
    monkeypatch.setattr("equipoise.runtime.runner.end_on_signals", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_stop_answers_what_was_asked(url: str, client: Any) -> None:
    """SIGTERM amid a request: it is answered, nobody else is let in, and the exit status is 0."""
    write(client, TIERS)
    patience = "from equipoise.runtime.allocator import api; api.REDIS_SECONDS = api.DRAIN_SECONDS = 60"
    program = f"{patience}; from equipoise.cli.main import main; main()"
    words = ["pools", "serve", "--redis", url, "--address", "127.0.0.1:0", "--log-format", "json"]
    run = [sys.executable, "-c", program, *words]
    with subprocess.Popen(run, stderr=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stderr is not None
        try:
            caller = Caller(json.loads(process.stderr.readline())["port"])
            until(lambda: caller.raw("GET", "/readyz")[0] == 200)
            assert caller.ask("allocate", call="c1").status == 200
            client.execute_command("CLIENT", "PAUSE", "120000", "WRITE")
            answers: list[Answer] = []
            asking = threading.Thread(target=lambda: answers.append(caller.ask("release", call="c1")))
            asking.start()
            until(lambda: b"\nequipoise_pool_requests_waiting 1.0" in caller.raw("GET", "/metrics")[1])
            process.send_signal(signal.SIGTERM)
            client.execute_command("CLIENT", "UNPAUSE")
            asking.join(60)
            assert [answer.document["result"] for answer in answers] == ["Released"]
            assert process.wait(60) == 0
            assert json.loads(process.stderr.read().splitlines()[-1])["message"] == "stopped"
        finally:
            process.kill()
