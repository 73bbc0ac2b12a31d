"""What a Prometheus, a Thanos or a VictoriaMetrics answers, in each form that is read."""

import io
import json
from collections.abc import Callable, Mapping

import cramjam
import urllib3

from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.decode import decode_number, decode_series, decode_vector, open_answer
from equipoise.adapters.prometheus.errors import Reply, refusal
from equipoise.adapters.prometheus.matrix import Grid, decode_matrix
from equipoise.adapters.prometheus.promql import Matcher
from equipoise.adapters.prometheus.range import Raw, at_the_end
from equipoise.adapters.prometheus.remote_read.read import RemoteRead
from equipoise.adapters.prometheus.settings import PrometheusSettings
from tests.support.fuzz.machine import Input, Reader
from tests.support.prometheus import encoding

ADDRESS = "http://prometheus"
LABELS = {"namespace": "shop", "pod": "web-1", "container": "app"}
WANTED = ("namespace", "pod")
AT = 1_790_000_000
STEPS = 40


def _answer(kind: str, result: object, **more: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}} | more).encode()


def _values(count: int = STEPS) -> list[list[object]]:
    return [[AT + 60 * number, f"{number / 7}"] for number in range(count)]


VECTOR = [
    {"metric": LABELS, "value": [AT, "0.25"]},
    {"metric": LABELS | {"pod": "web-2"}, "value": [AT, "NaN"]},
]
MATRIX = [{"metric": LABELS | {"pod": f"web-{n}"}, "values": _values()} for n in range(3)]
PLAIN = (
    b'{"status":"success","data":{"resultType":"matrix","result":%s}}'
    % json.dumps(MATRIX, separators=(",", ":")).encode()
)
FOUND = json.dumps({"status": "success", "data": [LABELS]}).encode()
WARNED = {"warnings": ["PromQL info: x", "store is down"], "infos": ["y"], "isPartial": True}


def _instant(given: Input) -> None:
    answer = open_answer(given.data, ADDRESS)
    if answer.result_type == "scalar":
        decode_number(answer)
    else:
        decode_vector(answer, WANTED, 1000)


def _number(given: Input) -> None:
    decode_number(open_answer(given.data, ADDRESS))


def _range(given: Input) -> None:
    decode_matrix(open_answer(given.data, ADDRESS), WANTED, Grid(AT * 1000, 60_000, STEPS), 1000)


def _raw(is_as_stored: bool) -> Callable[[Input], None]:
    def read(given: Input) -> None:
        raw = Raw(is_as_stored=is_as_stored)
        raw.add(open_answer(given.data, ADDRESS), WANTED, 1000)
        at_the_end(raw, (AT + 60 * STEPS) * 1000, 600_000)

    return read


def _series(given: Input) -> None:
    decode_series(given.data, WANTED, 1000, ADDRESS)


def _error(given: Input) -> None:
    raise refusal(Reply(422, given.data), ADDRESS)


class _Told:
    """A transport whose answer is given."""

    address = ADDRESS
    query_max_bytes = 1000

    def __init__(self, body: bytes, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        self._body, self._headers, self._status = body, headers or {}, status

    def send(self, path: str, fields: Mapping[str, str], timeout_seconds: float, bytes_max: int) -> Reply:
        return Reply(200, self._body)

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        return urllib3.HTTPResponse(
            io.BytesIO(self._body), status=self._status, headers=self._headers, preload_content=False
        )

    def close(self) -> None:
        """Nothing is open."""


def _build_info(given: Input) -> None:
    PrometheusClient(_Told(given.data)).build_info()


SAMPLES = [(AT * 1000 + 15_000 * number, encoding.bits_of(number * 0.25)) for number in range(60)]
CHUNKED = b"".join(
    encoding.frame(encoding.series_message(LABELS | {"pod": pod}, [encoding.chunk_of(SAMPLES)]))
    for pod in ("web-1", "web-2")
)
MESSAGE = encoding.series_message(LABELS, [encoding.chunk_of(SAMPLES)])
BLOCK = encoding.samples_answer([(LABELS, SAMPLES), (LABELS | {"pod": "web-2"}, SAMPLES[:7])])


def _remote(kind: str, frame: Callable[[bytes], bytes] = bytes, status: int = 200) -> Callable[[Input], None]:
    def read(given: Input) -> None:
        body = frame(given.data)
        headers = {"Content-Type": kind, "Content-Length": str(len(body))}
        matcher = Matcher("__name__", "=", "a")
        reader = RemoteRead(_Told(body, headers, status))
        for batch in reader.series([matcher], 0, (AT + 10**6) * 1000):
            reader.columns(batch, ["pod"])

    return read


def _packed(message: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(message))


def _settings(given: Input) -> None:
    """Addresses, users and labels as people and Secrets have them."""
    text = given.data.decode("utf-8", "surrogateescape")
    url, _, rest = text.partition(" ")
    made = PrometheusSettings(url=url, headers={"X-Scope-OrgID": rest})
    made.request_headers()
    assert made.address, "an address can be shown"


def readers() -> list[Reader]:
    """Return the readers of what is measured."""
    streamed, plain = "application/x-streamed-protobuf", "application/x-protobuf"
    block = bytes(cramjam.snappy.decompress_raw(BLOCK))
    return [
        Reader(
            "Prometheus: instant query",
            (),
            _instant,
            (_answer("vector", VECTOR), _answer("vector", VECTOR, **WARNED), _answer("scalar", [AT, "1"])),
        ),
        Reader(
            "Prometheus: one number",
            (),
            _number,
            (_answer("vector", VECTOR[:1]), _answer("scalar", [AT, "1"])),
        ),
        Reader("Prometheus: range query", (PLAIN,), _range, (PLAIN, _answer("matrix", MATRIX, **WARNED))),
        Reader("Prometheus: samples of a range", (PLAIN,), _raw(is_as_stored=False), (PLAIN,)),
        Reader("VictoriaMetrics: samples of a range", (PLAIN,), _raw(is_as_stored=True), (PLAIN,)),
        Reader("Prometheus: series", (), _series, (FOUND,)),
        Reader(
            "Prometheus: series, in part",
            (),
            _series,
            (json.dumps(json.loads(FOUND) | WARNED).encode(),),
            refuses=True,
        ),
        Reader(
            "remote read: refusals",
            (b"query exceeds limit",),
            _remote("text/plain", status=400),
            refuses=True,
        ),
        Reader(
            "Prometheus: errors",
            (),
            _error,
            (b'{"status":"error","errorType":"execution","error":"x"}',),
            refuses=True,
        ),
        Reader("Prometheus: build info", (), _build_info, (b'{"data":{"version":"3.1","revision":"x"}}',)),
        Reader("remote read: stream of chunks", (CHUNKED,), _remote(streamed)),
        Reader("remote read: chunks in sound frames", (MESSAGE,), _remote(streamed, encoding.frame)),
        Reader("remote read: samples, packed", (BLOCK,), _remote(plain)),
        Reader("remote read: samples, unpacked", (block,), _remote(plain, _packed)),
        Reader(
            "Prometheus: address and headers",
            (b"https://user:pass@prometheus:9090/prefix tenant",),
            _settings,
        ),
    ]
