"""Every way in which a connection fails is told in one clear clause."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path

import pytest

from equipoise.adapters.http import Backoff, explain, tls_context
from equipoise.adapters.kubernetes import Client, Unreachable
from equipoise.adapters.kubernetes.client import Limits
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target
from equipoise.core.errors import BadInput
from tests.support.kubernetes.certificates import DAY, NOW, Pair, authority, issue, serving
from tests.support.kubernetes.server import Asked, Player, Stage, Time, deaf_port, playing

PATIENT = Limits(connect_seconds=60.0, read_seconds=60.0)
QUICK = Limits(connect_seconds=60.0, read_seconds=0.5)
"""For a server that says nothing."""


@pytest.fixture(scope="module")
def ca() -> Pair:
    return authority()


def greet(asked: Asked, stage: Stage) -> None:
    stage.answer({"gitVersion": "v1.35.8"})


def failure(endpoint: Endpoint, identity: Identity | None = None, limits: Limits = PATIENT) -> str:
    """Ask once, without retries, and give the error's text."""
    target = Target(endpoint, identity or Identity(), "default", "the test")
    client = Client(target, backoff=Backoff(attempts_max=1), limits=limits)
    try:
        with pytest.raises(Unreachable) as caught:
            client.server_version()
    finally:
        client.close()
    return str(caught.value)


def version(endpoint: Endpoint, identity: Identity | None = None) -> str:
    client = Client(Target(endpoint, identity or Identity(), "default", "the test"), limits=PATIENT)
    try:
        return client.server_version()
    finally:
        client.close()


def test_a_refused_connection_names_the_address() -> None:
    """Nothing listens there."""
    with deaf_port() as port:
        url = f"http://127.0.0.1:{port}"
        assert failure(Endpoint(url)) == f"cannot reach {url}: connection refused"


def test_an_unknown_host_is_a_matter_of_dns() -> None:
    """The name does not exist."""
    said = failure(Endpoint("https://nowhere.invalid:6443"))
    assert said == "cannot reach https://nowhere.invalid:6443: the host name is not known (DNS)"


def test_silence_is_no_answer_in_time() -> None:
    """The server takes the request and says nothing."""
    with playing(lambda _, stage: stage.hang()) as player:
        said = failure(Endpoint(player.url), limits=QUICK)
        assert said == f"cannot reach {player.url}: no answer in time"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "the connection was closed without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n12", "the answer was cut off"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "the answer is not HTTP"),
    ],
)
def test_an_answer_that_breaks_is_told(said: bytes, why: str) -> None:
    """Closed, cut off in the middle, or something else than HTTP."""

    def script(asked: Asked, stage: Stage) -> None:
        stage.wfile.write(said)
        stage.cut()

    with playing(script) as player:
        assert failure(Endpoint(player.url)).endswith(why)


def test_a_reset_is_told() -> None:
    """The peer's kernel drops the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reset() -> None:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()

        thread = threading.Thread(target=reset)
        thread.start()
        said = failure(Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        thread.join(60)
    assert said.endswith("the connection was reset")


def test_tls_with_the_right_ca_and_name_works(ca: Pair, tmp_path: Path) -> None:
    """From bytes and from a file, under an IP address and under another name that was asked for."""
    with playing(greet, serving(issue(ca, "api", names=("127.0.0.1", "api.test")), tmp_path)) as player:
        ca_file = ca.files(tmp_path, "ca")[0]
        assert version(Endpoint(player.url, ca_data=ca.cert)) == "v1.35.8"
        assert version(Endpoint(player.url, ca_file=str(ca_file))) == "v1.35.8"
        assert version(Endpoint(player.url, ca_data=ca.cert, tls_server_name="api.test")) == "v1.35.8"
        assert version(Endpoint(player.url, insecure=True)) == "v1.35.8"


def test_tls_failures_say_what_is_wrong(ca: Pair, tmp_path: Path) -> None:
    """Another CA, another name, another address, an expired certificate."""
    good = issue(ca, "api", names=("api.test", "10.0.0.1"))
    with playing(greet, serving(good, tmp_path)) as player:
        assert "for another IP address" in failure(Endpoint(player.url, ca_data=ca.cert))
        wrong = Endpoint(player.url, ca_data=ca.cert, tls_server_name="other.test")
        assert "for another host name" in failure(wrong)
    with playing(greet, serving(issue(ca, "api", names=("127.0.0.1",)), tmp_path)) as player:
        for other in (authority(), authority("another name")):
            assert "(wrong CA)" in failure(Endpoint(player.url, ca_data=other.cert))
    with playing(greet, serving(issue(ca, "old", names=("127.0.0.1",), end=NOW - DAY), tmp_path)) as player:
        assert "has expired" in failure(Endpoint(player.url, ca_data=ca.cert))


def test_plain_http_on_a_tls_port_is_recognised(ca: Pair) -> None:
    """The server answers, but not in TLS."""
    with playing(greet) as player:
        said = failure(Endpoint(player.url.replace("http:", "https:"), ca_data=ca.cert))
    assert "does not speak TLS on this port" in said


def test_a_client_certificate_opens_the_door(
    ca: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From bytes, which never touch the disk, and from files; without one the server refuses."""
    mine = issue(ca, "me")
    cert_file, key_file = mine.files(tmp_path, "me")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    with playing(greet, serving(issue(ca, "api", names=("127.0.0.1",)), tmp_path, client_ca=ca)) as player:
        endpoint = Endpoint(player.url, ca_data=ca.cert)
        assert version(endpoint, Identity(cert_data=mine.cert, key_data=mine.key)) == "v1.35.8"
        assert list(scratch.iterdir()) == []
        assert version(endpoint, Identity(cert_file=str(cert_file), key_file=str(key_file))) == "v1.35.8"
        said = failure(endpoint)
        assert "refused our client certificate" in said or "closed" in said or "reset" in said


def test_certificates_that_cannot_be_used_are_bad_input(ca: Pair, tmp_path: Path) -> None:
    """No PEM, a key of another certificate, a file that is not there."""
    mine, other = issue(ca, "me"), issue(ca, "other")
    cases: list[tuple[dict[str, object], str]] = [
        ({"ca_data": b"hello"}, "CA data: not a PEM certificate"),
        ({"ca_file": "/no/ca.crt"}, "/no/ca.crt: no such file"),
        ({"cert_data": mine.cert, "key_data": other.key}, "the key does not belong to it"),
        ({"cert_data": b"x", "key_data": b"y"}, "not PEM"),
        ({"cert_file": "/no/me.crt", "key_file": "/no/me.key"}, "/no/me.crt: no such file"),
        ({"key_data": mine.key}, "without a client certificate"),
    ]
    for arguments, message in cases:
        with pytest.raises(BadInput, match=message):
            tls_context(**arguments)  # type: ignore[arg-type] # from a table


def test_secrets_in_an_address_are_not_printed() -> None:
    """A user, a password and a query stay out of messages."""
    said = explain(TimeoutError(), "https://me:secret@host:9/path?token=secret")
    assert said == "cannot reach https://host:9/path: no answer in time"


def test_a_proxy_is_used_and_named(ca: Pair, tmp_path: Path) -> None:
    """A tunnel for TLS with the password of its URL; a proxy that is away is said to be the proxy."""
    upstream: list[Player] = []

    def tunnel(asked: Asked, stage: Stage) -> None:
        stage.send_response(200)
        stage.end_headers()
        stage.close_connection = True
        with socket.create_connection(("127.0.0.1", upstream[0].port)) as far:
            back = threading.Thread(target=_pump, args=(far, stage.connection))
            back.start()
            _pump(stage.connection, far)
            back.join(60)

    with (
        playing(greet, serving(issue(ca, "api", names=("127.0.0.1",)), tmp_path)) as player,
        playing(tunnel) as proxy,
    ):
        upstream.append(player)
        url = f"http://me:pass@127.0.0.1:{proxy.port}"
        assert version(Endpoint(player.url, ca_data=ca.cert, proxy_url=url)) == "v1.35.8"
        assert proxy.asked[0].method == "CONNECT"
        assert proxy.asked[0].headers["proxy-authorization"] == "Basic bWU6cGFzcw=="
    with deaf_port() as port:
        gone = Endpoint(player.url, ca_data=ca.cert, proxy_url=f"http://127.0.0.1:{port}")
        assert "through its proxy: connection refused" in failure(gone)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while part := source.recv(65536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_wrong_tls_is_not_tried_again(ca: Pair, tmp_path: Path) -> None:
    """A wrong CA stays wrong, so the user hears of it at once."""
    time = Time()
    with playing(greet, serving(issue(ca, "api", names=("127.0.0.1",)), tmp_path)) as player:
        target = Target(Endpoint(player.url, ca_data=authority().cert), Identity(), "default", "the test")
        client = Client(target, limits=PATIENT, world=time.world())
        with pytest.raises(Unreachable):
            client.server_version()
        client.close()
    assert time.slept == []
