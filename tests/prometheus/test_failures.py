"""Each way in which a Prometheus fails has its own type and one line that names the address."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.errors import (
    BadQuery,
    Malformed,
    NotPrometheus,
    PrometheusFailed,
    PrometheusTooLarge,
    PrometheusUnreachable,
    QueryFailed,
    TimedOut,
    TlsFailed,
    TooHeavy,
    Unauthorized,
    Unavailable,
    clean,
)
from equipoise.adapters.prometheus.settings import PrometheusSettings, QueryLimits
from equipoise.adapters.prometheus.transport import Direct
from equipoise.core.errors import WorldFailed
from tests.support.kubernetes.server import deaf_port
from tests.support.prometheus.raw_server import raw_server, say
from tests.support.prometheus.server import Request, Response, failed, ok, serving, vector
from tests.testbed import free_port

HTML = Response(200, b"<html><title>Login</title></html>", {"Content-Type": "text/html"})
ENVELOPE = b'{"status":"success","data":{"resultType":"vector","result":'


def client(url: str, **limits: Any) -> PrometheusClient:
    limits = {"timeout_seconds": 60.0, **limits}
    return PrometheusClient(
        Direct(PrometheusSettings(url)), QueryLimits(**limits), sleep=lambda _: None, rng=lambda: 0.0
    )


FAILURES: dict[str, tuple[Response, type[PrometheusFailed], str]] = {
    "no credentials": (Response(401, b"Unauthorized"), Unauthorized, "it requires credentials"),
    "no right": (Response(403, b""), Unauthorized, "right to query"),
    "unreadable query": (failed(400, "bad_data", "1:5: parse error"), BadQuery, "1:5: parse error"),
    "too fine": (
        failed(400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries"),
        TooHeavy,
        "11,000 points",
    ),
    "not computable": (failed(422, "execution", "many-to-many matching"), QueryFailed, "many-to-many"),
    "too many samples": (
        failed(422, "execution", "query processing would load too many samples into memory"),
        TooHeavy,
        "too many samples",
    ),
    "422 without JSON": (Response(422, b"cannot parse"), QueryFailed, "cannot parse"),
    "server's timeout": (
        failed(503, "timeout", "query timed out in expression"),
        TimedOut,
        "query timed out",
    ),
    "a store's timeout": (
        failed(422, "execution", "expanding series: context deadline exceeded"),
        TimedOut,
        "deadline exceeded",
    ),
    "unavailable": (Response(503, b"no endpoints available"), Unavailable, "no endpoints"),
    "too many requests": (Response(429, b"slow down"), Unavailable, "(429)"),
    "gateway": (Response(502, b"<html>bad gateway</html>"), Unavailable, "an HTML page"),
    "not found": (Response(404, b"404 page not found"), NotPrometheus, "path prefix"),
    "page": (HTML, NotPrometheus, "an HTML page"),
    "redirect": (
        Response(302, b"", {"Location": "https://login.example/"}),
        NotPrometheus,
        "redirects to https://login.example/",
    ),
    "TLS wanted": (
        Response(400, b"Client sent an HTTP request to an HTTPS server.\n"),
        TlsFailed,
        "expected an https:// address",
    ),
    "query too long": (Response(414, b""), TooHeavy, "length"),
    "other JSON": (Response(200, b'{"kind":"PodList","items":[]}'), NotPrometheus, "other JSON"),
    "other JSON list": (Response(200, b"[1,2]"), NotPrometheus, "other JSON"),
    "other status": (Response(200, b'{"status":"green","data":{}}'), NotPrometheus, "'green'"),
    "empty body": (Response(200, b""), Malformed, "empty body"),
    "truncated JSON": (Response(200, ENVELOPE + b'[{"metric":{},"va'), Malformed, "truncated"),
    "no JSON": (Response(200, b"hello"), Malformed, "damaged"),
    "wrong data": (ok({"resultType": 5}), Malformed, "unexpected shape"),
    "no data": (Response(200, b'{"status":"success"}'), Malformed, "a success without data"),
    "wrong result": (ok({"resultType": "vector", "result": {"a": 1}}), Malformed, "unexpected shape"),
    "wrong result type": (ok({"resultType": "matrix", "result": []}), Malformed, "expected a vector"),
    "value no text": (
        ok({"resultType": "vector", "result": [{"metric": {}, "value": [1, 2]}]}),
        Malformed,
        "unexpected shape",
    ),
    "value no number": (
        ok({"resultType": "vector", "result": [{"metric": {}, "value": [1, "abc"]}]}),
        Malformed,
        "not a number",
    ),
    "value with underscore": (
        ok({"resultType": "vector", "result": [{"metric": {}, "value": [1, "1_0"]}]}),
        Malformed,
        "not a number",
    ),
    "no value": (ok({"resultType": "vector", "result": [{"metric": {}}]}), Malformed, "without a value"),
    "bad UTF-8": (
        Response(200, ENVELOPE + b'[{"metric":{"pod":"\xff"},"value":[1,"2"]}]}}'),
        Malformed,
        "unexpected shape",
    ),
    "deep nesting": (Response(200, b'{"status":"success","data":' + b"[" * 100_000), Malformed, "recursion"),
    "error with 200": (
        Response(200, b'{"status":"error","errorType":"execution","error":"boom"}'),
        QueryFailed,
        "boom",
    ),
    "internal with 200": (
        Response(200, b'{"status":"error","errorType":"internal","error":"x"}'),
        Unavailable,
        "not available",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_every_bad_answer_has_its_type_and_one_line(case: str) -> None:
    """The message names the address, says what came, and fits on one line."""
    response, kind, said = FAILURES[case]
    with serving(lambda _: response) as server:
        with pytest.raises(PrometheusFailed) as caught:
            client(server.url).vector("up", 1.0, ("pod",))
        assert type(caught.value) is kind
        assert isinstance(caught.value, WorldFailed)
        message = str(caught.value)
        assert said in message
        assert server.url in message
        assert "\n" not in message
        assert len(message) < 600


def test_a_refused_connection_is_unreachable() -> None:
    """Nobody listens there."""
    refused = pytest.raises(
        PrometheusUnreachable, match=r"cannot reach http://127\.0\.0\.1:\d+: connection refused"
    )
    with deaf_port() as port, refused:
        client(f"http://127.0.0.1:{port}").instant("1")


def test_an_unknown_host_is_unreachable() -> None:
    """The name does not resolve."""
    with pytest.raises(PrometheusUnreachable, match="DNS"):
        client("http://prometheus.invalid:9090").instant("1")


def test_a_silent_server_times_out() -> None:
    """The connection is taken and nothing is ever said."""
    done = threading.Event()
    with raw_server(lambda _connection: done.wait(60)) as address:
        with pytest.raises(TimedOut, match="no answer in time"):
            client(f"http://{address}", timeout_seconds=0.2).instant("1")
        done.set()


def test_tls_against_plain_http_is_a_tls_failure() -> None:
    """The server answers in clear where TLS was asked for."""
    with (
        raw_server(lambda c: say(c, b"HTTP/1.1 400 Bad Request\r\n\r\n")) as address,
        pytest.raises(TlsFailed, match="does not speak TLS"),
    ):
        client(f"https://{address}").instant("1")


def test_a_server_that_does_not_speak_http_is_no_prometheus() -> None:
    """Some other protocol lives on that port."""
    with (
        raw_server(lambda c: say(c, b"SSH-2.0-OpenSSH_9\r\n")) as address,
        pytest.raises(NotPrometheus, match="not HTTP"),
    ):
        client(f"http://{address}").instant("1")


def test_a_body_shorter_than_declared_is_asked_for_again() -> None:
    """The connection broke off within the answer."""
    answers = iter([Response(200, b'{"status', declared_length=500), vector([({}, 7)])])
    with serving(lambda _: next(answers)) as server:
        assert client(server.url).vector("up", 1.0, ()).values.tolist() == [7]


def test_a_body_that_is_always_cut_off_is_an_error() -> None:
    """A part of an answer is never taken for the whole."""
    with (
        serving(lambda _: Response(200, ENVELOPE + b"[", declared_length=500)) as server,
        pytest.raises(PrometheusUnreachable, match="cut off"),
    ):
        client(server.url).instant("1")


def test_a_large_body_stops_at_the_bound_and_says_how_to_narrow() -> None:
    """Memory is bounded while reading, whatever the server says of the length."""
    with (
        serving(lambda _: Response(200, b" " * 400_000)) as server,
        pytest.raises(PrometheusTooLarge, match=r"100000 bytes, .*memory_max_bytes"),
    ):
        client(server.url, memory_max_bytes=400_000, concurrency_max=4).instant("1")


def test_a_transient_failure_is_asked_again_and_then_works() -> None:
    """429, 503 and a lost connection pass; the caller sees only the answer."""
    answers = iter(
        [
            Response(503, b""),
            Response(429, b"", {"Retry-After": "7"}),
            Response(drops=True),
            vector([({}, 3)]),
        ]
    )
    waits: list[float] = []
    with serving(lambda _: next(answers)) as server:
        asking = PrometheusClient(Direct(PrometheusSettings(server.url)), sleep=waits.append, rng=lambda: 0.0)
        assert asking.vector("up", 1.0, ()).values.tolist() == [3]
    assert len(waits) == 3
    assert waits[1] == 7.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_lasting_refusal_is_asked_once(status: int) -> None:
    """Asking again would only be refused again."""
    with serving(lambda _: Response(status, b"no")) as server:
        with pytest.raises(PrometheusFailed):
            client(server.url).instant("1")
        assert len(server.requests) == 1


def test_retries_end_with_the_callers_deadline() -> None:
    """A server that is always busy is left alone in time, and its own words are reported."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with serving(lambda _: Response(503, b"starting", {"Retry-After": "6"})) as server:
        asking = PrometheusClient(
            Direct(PrometheusSettings(server.url)),
            QueryLimits(timeout_seconds=10),
            sleep=sleep,
            rng=lambda: 0.0,
            monotonic=lambda: now[0],
        )
        with pytest.raises(Unavailable, match="starting"):
            asking.instant("1")
        assert len(server.requests) == 2
    assert now[0] <= 10


def test_a_restarted_prometheus_is_used_again() -> None:
    """While it is away the failure is typed; afterwards the same client works, old connections or not."""
    port = free_port()  # which no outgoing connection gets while nobody listens there
    with serving(lambda _: vector([({}, 1)]), port) as server:
        asking = client(server.url)
        assert asking.vector("up", 1.0, ()).values.tolist() == [1]
    with pytest.raises(PrometheusUnreachable):
        asking.instant("1")
    with serving(lambda _: vector([({}, 2)]), port):
        assert asking.vector("up", 1.0, ()).values.tolist() == [2]


def test_control_characters_of_a_server_never_reach_the_terminal() -> None:
    """Escape sequences and line ends are blanks, and long text is cut."""
    assert clean("\x1b[31mred\x07\nnext\u2028line\u202e!") == "[31mred next line !"
    assert len(clean("x" * 10_000)) == 300
    long = clean(f"cannot search: {'x' * 10_000}: connection refused")
    assert (long[:15], long[-20:]) == ("cannot search: ", ": connection refused")


def test_server_text_is_bounded_in_messages() -> None:
    """A page of error text stays one line."""
    with (
        serving(lambda _: failed(400, "bad_data", "\x1b[2J" + "y" * 50_000)) as server,
        pytest.raises(BadQuery) as caught,
    ):
        client(server.url).instant("1")
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_no_more_queries_at_once_than_allowed() -> None:
    """The bound holds over all threads that share a client."""
    lock, at_once, most = threading.Lock(), [0], [0]
    both = threading.Barrier(2, timeout=60)

    def answer(_: Request) -> Response:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        both.wait()
        with lock:
            at_once[0] -= 1
        return vector([({}, 1)])

    with serving(answer) as server:
        asking = client(server.url, concurrency_max=2)
        asking.each(lambda _: asking.instant("1"), list(range(8)))
    assert most[0] == 2


def test_the_first_failure_stops_queries_that_have_not_begun() -> None:
    """A hundred shards are not asked for after the first was refused."""
    with serving(lambda _: Response(403, b"")) as server:
        asking = client(server.url, concurrency_max=2)
        with pytest.raises(Unauthorized):
            asking.each(lambda _: asking.instant("1"), list(range(100)))
        assert len(server.requests) < 100
