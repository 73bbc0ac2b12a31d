"""What is sent to a Prometheus, and which settings are refused before anything is sent."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.errors import Malformed, PrometheusTooLarge, TlsFailed
from equipoise.adapters.prometheus.settings import LabelNames, PrometheusSettings, QueryLimits
from equipoise.adapters.prometheus.transport import Direct
from equipoise.core.errors import BadInput
from tests.support.prometheus.server import Request, Response, Server, serving, vector


def ask_once(prefix: str = "", **options: Any) -> Request:
    with serving(lambda _: vector([({}, 1)])) as server:
        PrometheusClient(
            Direct(PrometheusSettings(server.url + prefix, **options)), QueryLimits(timeout_seconds=30)
        ).instant("up", 12.5)
        return server.requests[0]


def test_a_query_is_a_form_with_its_time_and_the_servers_timeout() -> None:
    """Long regular expressions fit in a body; the server stops when we stop waiting."""
    request = ask_once()
    assert request.method == "POST"
    assert request.path == "/api/v1/query"
    assert request.fields["query"] == "up"
    assert request.fields["time"] == "12.500"
    assert 0 < float(request.fields["timeout"]) <= 30
    assert request.fields["limit"] == "20001"
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"


def test_compression_is_never_asked_for() -> None:
    """It costs the server more time than it saves inside a cluster."""
    assert ask_once().headers["accept-encoding"] == "identity"


def test_an_answer_that_is_compressed_all_the_same_is_read() -> None:
    """Some proxies compress whatever was asked for; the bound counts what comes out."""
    plain = vector([({}, 7)])
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with serving(lambda _: Response(200, gzip.compress(plain.body), headers)) as server:
        assert PrometheusClient(Direct(PrometheusSettings(server.url))).vector(
            "up", 1.0, ()
        ).values.tolist() == [7]
    bomb = Response(200, gzip.compress(b" " * 10_000_000), headers)
    with serving(lambda _: bomb) as server, pytest.raises(PrometheusTooLarge):
        PrometheusClient(
            Direct(PrometheusSettings(server.url)), QueryLimits(memory_max_bytes=4_000_000)
        ).instant("up")
    with serving(lambda _: Response(200, plain.body, headers)) as server:
        with pytest.raises(Malformed, match="whose compression differs from its Content-Encoding"):
            PrometheusClient(Direct(PrometheusSettings(server.url))).instant("up")
        assert len(server.requests) == 1, "the same would come again"


def test_a_path_prefix_comes_before_the_api() -> None:
    """Mimir lives under /prometheus, and a slash at the end is no matter."""
    assert ask_once("/prometheus").path == "/prometheus/api/v1/query"
    assert ask_once("/prometheus/").path == "/prometheus/api/v1/query"


def test_credentials_and_headers_are_sent(tmp_path: Path) -> None:
    """Bearer token, token file, user and password (also in the address), tenant."""
    token = tmp_path / "token"
    token.write_text("from-file\n")
    basic = "Basic " + base64.b64encode(b"ann:s3:cret").decode()
    assert ask_once(bearer_token="abc").headers["authorization"] == "Bearer abc"
    assert ask_once(bearer_token_file=str(token)).headers["authorization"] == "Bearer from-file"
    assert ask_once(username="ann", password="s3:cret").headers["authorization"] == basic
    assert ask_once(headers={"X-Scope-OrgID": "team-a"}).headers["x-scope-orgid"] == "team-a"
    with serving(lambda _: vector([({}, 1)])) as server:
        PrometheusClient(Direct(PrometheusSettings(server.url.replace("//", "//ann:s3%3Acret@")))).instant(
            "up"
        )
        assert server.requests[0].headers["authorization"] == basic


def test_a_token_file_is_read_for_every_request(tmp_path: Path) -> None:
    """Projected tokens are rotated under a running process."""
    token = tmp_path / "token"
    token.write_text("one")
    with serving(lambda _: vector([({}, 1)])) as server:
        client = PrometheusClient(Direct(PrometheusSettings(server.url, bearer_token_file=str(token))))
        client.instant("up")
        token.write_text("two")
        client.instant("up")
        assert [r.headers["authorization"] for r in server.requests] == ["Bearer one", "Bearer two"]
    token.unlink()
    with pytest.raises(BadInput, match=r"token file .*: No such file"):
        client.instant("up")


def test_a_server_without_post_is_asked_by_get_from_then_on() -> None:
    """Some proxies allow only GET."""

    def answer(request: Request) -> Response:
        return Response(405) if request.method == "POST" else vector([({}, 1)])

    with serving(answer) as server:
        client = PrometheusClient(Direct(PrometheusSettings(server.url)))
        client.instant('up{a="b c"}')
        client.instant("up")
        assert [r.method for r in server.requests] == ["POST", "GET", "GET"]
        assert server.requests[1].fields["query"] == 'up{a="b c"}'


@pytest.mark.parametrize(
    "options",
    [
        {"url": "prometheus:9090"},
        {"url": "ftp://p"},
        {"url": "http://"},
        {"url": "http://p:99999"},
        {"url": "http://p?x=1"},
        {"url": "http://p/a b"},
        {"url": "http://p", "bearer_token": "a", "username": "b"},
        {"url": "http://a:b@p", "bearer_token": "a"},
        {"url": "http://p", "bearer_token": "a\r\nX-Evil: 1"},
        {"url": "http://p", "password": "x"},
        {"url": "http://p", "headers": {"X Y": "1"}},
        {"url": "http://p", "headers": {"X-Y": "1\n2"}},
    ],
)
def test_wrong_settings_are_bad_input(options: dict[str, Any]) -> None:
    """One line, before anything is sent, and without a secret."""
    with pytest.raises(BadInput) as caught:
        PrometheusSettings(**options)
    assert "\n" not in str(caught.value)
    assert "a:b@" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: QueryLimits(timeout_seconds=0),
        lambda: QueryLimits(concurrency_max=0),
        lambda: QueryLimits(memory_max_bytes=-1),
        lambda: QueryLimits(timeout_seconds=float("nan")),
        lambda: LabelNames(metric="a b"),
        lambda: LabelNames(pod='pod"'),
        lambda: LabelNames(pod="namespace"),
        lambda: Direct(PrometheusSettings("https://p", ca_file="/nonexistent/ca.pem")),
        lambda: Direct(PrometheusSettings("https://p", key_file="/nonexistent/key.pem")),
    ],
)
def test_wrong_limits_names_and_files_are_bad_input(make: Any) -> None:
    """Each is refused where it is given."""
    with pytest.raises(BadInput):
        make()


def test_secrets_are_not_shown() -> None:
    """Neither in `repr`, which lands in logs, nor in the address of messages."""
    settings = PrometheusSettings("http://ann:hidden@p:9090/x", headers={"X-Key": "hidden"})
    assert settings.address == "http://p:9090/x"
    assert "hidden" not in repr(settings)
    assert "hidden" not in repr(PrometheusSettings("http://p", bearer_token="hidden"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One self-signed certificate for 127.0.0.1, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "prometheus")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[Server]:
    server = Server(lambda _: vector([({}, 1)]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.kill()
    thread.join()


def test_tls_with_the_right_ca_works_and_without_it_fails(tls_server: Server, certificate: Path) -> None:
    """A certificate that nobody vouches for is a TLS failure; `insecure` takes it all the same."""
    url = tls_server.url.replace("http:", "https:")
    assert (
        PrometheusClient(Direct(PrometheusSettings(url, ca_file=str(certificate)))).instant("1").result_type
        == "vector"
    )
    assert (
        PrometheusClient(Direct(PrometheusSettings(url, insecure=True))).instant("1").result_type == "vector"
    )
    with pytest.raises(TlsFailed, match="certificate"):
        PrometheusClient(Direct(PrometheusSettings(url))).instant("1")
    other_name = url.replace("127.0.0.1", "localhost")
    with pytest.raises(TlsFailed, match="another host name"):
        PrometheusClient(Direct(PrometheusSettings(other_name, ca_file=str(certificate)))).instant("1")
