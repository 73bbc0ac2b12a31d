"""Remote read over HTTP: what a server or a proxy may do to an answer, and what comes of it."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import cramjam
import numpy as np
import pytest

from equipoise.adapters.prometheus.errors import (
    Malformed,
    NotOffered,
    PrometheusFailed,
    PrometheusTooLarge,
    PrometheusUnreachable,
    QueryFailed,
    TooHeavy,
    Unavailable,
)
from equipoise.adapters.prometheus.promql import Matcher
from equipoise.adapters.prometheus.remote_read.frames import by_name
from equipoise.adapters.prometheus.remote_read.read import Form, ReadLimits, RemoteRead
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.adapters.prometheus.transport import Direct, ServiceProxy
from tests.support.prometheus.encoding import (
    Sample,
    bits_of,
    chunk_of,
    field,
    frame,
    samples_answer,
    series_message,
    uvarint,
)
from tests.support.prometheus.raw_server import raw_server, say
from tests.support.prometheus.server import Request, Response, serving

NOW = 1_789_000_000_000
STREAMED = {"Content-Type": "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"}
PLAIN = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
SAMPLES: list[Sample] = [(NOW + 60_000 * i, bits_of(i * 1.5)) for i in range(100)]
STREAM = b"".join(frame(series_message({"pod": pod}, [chunk_of(SAMPLES)])) for pod in "abc")
MATCHERS = [by_name("m"), Matcher("pod", "!=", ""), Matcher("ns", "=~", "a|b"), Matcher("x", "!~", "y")]


def reader(url: str, **options: Any) -> RemoteRead:
    return RemoteRead(Direct(PrometheusSettings(url)), sleep=lambda _: None, **options)


def read(one: RemoteRead) -> list[tuple[str, ...]]:
    """Read all; give the pods whose samples were right."""
    pods = []
    for batch in one.series(MATCHERS, NOW, NOW + 10**9):
        bits = batch.values.view(np.uint64).tolist()
        assert list(zip(batch.times.tolist(), bits, strict=True)) == SAMPLES * len(batch.labels)
        pods += batch.columns(["pod"])
    return pods


def answers(body: bytes, headers: dict[str, str] | None = None, status: int = 200, **more: Any) -> Response:
    return Response(status, body, headers or STREAMED, **more)


def test_the_question_is_a_packed_read_request() -> None:
    """With a range in milliseconds, every kind of matcher, and both forms of answer."""
    with serving(lambda _: answers(STREAM)) as server:
        assert read(reader(f"{server.url}/prefix")) == [("a",), ("b",), ("c",)]
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/prefix/api/v1/read")
    assert request.headers["content-type"] == "application/x-protobuf"
    assert request.headers["content-encoding"] == "snappy"
    kinds = {"=": 0, "!=": 1, "=~": 2, "!~": 3}
    matchers = b"".join(
        field(3, field(1, kinds[m.operator]) + field(2, m.label.encode()) + field(3, m.value.encode()))
        for m in MATCHERS
    )
    query = field(1, NOW) + field(2, NOW + 10**9) + matchers
    assert bytes(cramjam.snappy.decompress_raw(request.body)) == field(1, query) + field(2, b"\x01\x00")


def test_both_forms_are_understood_and_told() -> None:
    """The content type says which came."""
    plain = samples_answer([({"pod": "a"}, SAMPLES), ({"pod": "b"}, SAMPLES)])
    with serving(lambda _: answers(plain, PLAIN)) as server:
        assert reader(server.url).probe() is Form.SAMPLES
        assert read(reader(server.url)) == [("a",), ("b",)]
    with serving(lambda _: answers(b"")) as server:
        assert reader(server.url).probe() is Form.CHUNKS


HTML = {"Content-Type": "text/html"}
FAILURES: dict[str, tuple[Response, type[PrometheusFailed], str]] = {
    "no such path": (answers(b"404 page not found", HTML, 404), NotOffered, "404"),
    "no such method": (answers(b"", HTML, 405), NotOffered, "405"),
    "VictoriaMetrics": (answers(b"unsupported path requested", {}, 400), NotOffered, "unsupported path"),
    "a proxy that forbids": (answers(b"no", {}, 403), NotOffered, "403"),
    "not implemented": (answers(b"", {}, 501), NotOffered, "501"),
    "a login page": (answers(b"<html>", HTML), NotOffered, "text/html"),
    "a redirect": (answers(b"", {"Location": "https://sso.example"}, 302), NotOffered, "sso.example"),
    "JSON": (answers(b"{}", {"Content-Type": "application/json"}), NotOffered, "application/json"),
    "the sample limit": (answers(b"exceeded sample limit (5)", {}, 400), TooHeavy, "sample limit"),
    "busy": (answers(b"come back", {}, 503), Unavailable, "503"),
    "late text": (
        answers(STREAM + b"remote read: chunk is gone\n"),
        QueryFailed,
        "aborted: remote read: chunk",
    ),
    "a damaged frame": (answers(STREAM[:-9] + b"X" + STREAM[-8:]), Malformed, "checksum is wrong"),
    "an end within a frame": (answers(STREAM[:-9]), Malformed, "ends within a frame"),
    "a cut stream": (answers(STREAM, declared_length=len(STREAM) + 1), PrometheusUnreachable, "127.0.0.1"),
    "an oversize frame": (
        answers(uvarint(1 << 35) + bytes(4)),
        PrometheusTooLarge,
        "frame of 34359738368 bytes",
    ),
    "a cut block": (answers(samples_answer([({}, SAMPLES)])[:-3], PLAIN), Malformed, "snappy"),
    "a huge block": (answers(uvarint(1 << 31) + b"x", PLAIN), PrometheusTooLarge, "2147483648 bytes"),
    "no message": (answers(frame(b"\x0b")), Malformed, "wire type"),
    "TLS wanted": (answers(b"Client sent an HTTP request to an HTTPS server.", {}, 400), NotOffered, "https"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_each_failure_has_its_type_and_names_the_address(name: str) -> None:
    """Never a wrong number, never a traceback of another kind."""
    response, kind, said = FAILURES[name]
    with serving(lambda _: response) as server, pytest.raises(kind, match=said) as raised:
        read(reader(server.url))
    assert f"127.0.0.1:{server.port}" in str(raised.value)
    with serving(lambda _: response) as server, pytest.raises(kind, match=said):
        reader(server.url).probe()


def test_a_busy_server_is_asked_again() -> None:
    """Nothing had come of it yet."""
    turns = iter([answers(b"", {}, 503), answers(b"", {}, 429), answers(STREAM)])
    with serving(lambda _: next(turns)) as server:
        assert len(read(reader(server.url))) == 3


def _chunked(body: bytes, *, ends: bool) -> Callable[[socket.socket], object]:
    kind = b"Content-Type: application/x-streamed-protobuf"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n%b\r\n\r\n" % kind

    def answer(link: socket.socket) -> None:
        say(link, head + b"%x\r\n%b\r\n" % (len(body), body) + (b"0\r\n\r\n" if ends else b""))

    return answer


def test_a_stream_that_is_cut_between_two_frames_is_known_to_be_cut() -> None:
    """All its frames are whole, but HTTP's end did not come."""
    with raw_server(_chunked(STREAM, ends=True)) as address:
        assert len(read(reader(f"http://{address}"))) == 3
    with raw_server(_chunked(STREAM, ends=False)) as address, pytest.raises(PrometheusUnreachable):
        read(reader(f"http://{address}"))


def test_a_stream_whose_end_cannot_be_known_is_not_taken() -> None:
    """An old proxy ends an answer by hanging up, which a crash does too."""
    head = b"HTTP/1.0 200 OK\r\nContent-Type: application/x-streamed-protobuf\r\n\r\n"

    def answer(link: socket.socket) -> None:
        say(link, head + STREAM)

    with raw_server(answer) as address, pytest.raises(NotOffered, match="end cannot be known"):
        read(reader(f"http://{address}"))


def test_an_endless_stream_and_a_silent_one_end() -> None:
    """By bytes, and by time."""
    with (
        serving(lambda _: answers(STREAM * 50)) as server,
        pytest.raises(PrometheusTooLarge, match="more than 9999 bytes"),
    ):
        read(reader(server.url, limits=ReadLimits(stream_max_bytes=9999)))
    clock = iter(range(0, 10**6, 100))
    limits = ReadLimits(total_seconds=50)
    with (
        serving(lambda _: answers(STREAM)) as server,
        pytest.raises(PrometheusFailed, match="did not finish"),
    ):
        read(reader(server.url, limits=limits, monotonic=lambda: float(next(clock))))


def test_a_reader_that_stops_early_hangs_up() -> None:
    """The rest is not read, and the connection not used again."""
    with serving(lambda _: answers(STREAM * 200)) as server:
        found = reader(server.url).series(MATCHERS, NOW, NOW + 10**9)
        with closing(found):  # type: ignore[type-var]
            next(found)
        assert len(read(reader(server.url))) == 600


class _Api:
    """An API server that passes requests on, or forbids to."""

    address = "https://api"

    def __init__(self, url: str) -> None:
        self._way = Direct(PrometheusSettings(url))
        self.asked: list[tuple[str, str]] = []

    def get(self, path: str, params: object = None, *, bytes_max: int = 0) -> bytes:
        raise AssertionError(path)

    def request_raw(self, method: str, path: str, **options: Any) -> Any:
        self.asked.append((method, path))
        headers = {"Content-Type": options["content_type"]}
        return self._way.post(path, options["body"], headers, options["timeout_seconds"])


def test_the_service_proxy_carries_it_or_says_that_it_is_forbidden() -> None:
    """A POST takes the right to `create` on `services/proxy`, which many do not have."""

    def answer(request: Request) -> Response:
        assert request.path == "/api/v1/namespaces/mon/services/prom:web/proxy/api/v1/read"
        return (
            answers(STREAM) if request.headers["content-type"] == "application/x-protobuf" else answers(b"")
        )

    with serving(answer) as server:
        api: Any = _Api(server.url)
        assert len(read(RemoteRead(ServiceProxy(api, "mon", "prom", "web")))) == 3
        assert api.asked[0][0] == "POST"
    forbidden = answers(b'{"kind":"Status","message":"forbidden"}', {}, 403)
    with serving(lambda _: forbidden) as server:
        api = _Api(server.url)
        with pytest.raises(NotOffered, match="forbidden"):
            RemoteRead(ServiceProxy(api, "mon", "prom", "web")).probe()


class _GetsOnly:
    address = "http://gets"
    query_max_bytes = 1

    def send(self, *args: object) -> Any:
        raise AssertionError

    def close(self) -> None:
        """Nothing to give back."""


def test_a_transport_that_carries_no_bytes_does_not_offer_it() -> None:
    """The caller asks by PromQL then."""
    with pytest.raises(NotOffered, match="does not support remote read"):
        RemoteRead(_GetsOnly()).probe()


@contextmanager
def _resetting() -> Iterator[str]:
    def answer(link: socket.socket) -> None:
        link.recv(1 << 16)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with raw_server(answer) as address:
        yield f"http://{address}"


def test_a_reset_connection_is_unreachable() -> None:
    """After a few attempts."""
    with _resetting() as url, pytest.raises(PrometheusUnreachable):
        read(reader(url))
