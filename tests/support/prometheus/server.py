"""A scripted HTTP server, and a model of a Prometheus that understands the queries that we write."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    fields: Mapping[str, str]
    headers: Mapping[str, str]
    raw_length: int = 0
    body: bytes = b""


@dataclass(frozen=True)
class Response:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    declared_length: int | None = None
    """What Content-Length claims, where that is not the truth."""
    drops: bool = False
    """Close the connection without an answer."""


Answer = Callable[[Request], Response]

BUILD_INFO = "/api/v1/status/buildinfo"


def ok(data: Any, **more: Any) -> Response:
    return Response(body=json.dumps({"status": "success", "data": data, **more}).encode())


def failed(status: int, error_type: str, error: str) -> Response:
    return Response(status, json.dumps({"status": "error", "errorType": error_type, "error": error}).encode())


def vector(
    rows: Sequence[tuple[Mapping[str, str], float | str]], at: float = 1000.0, **more: Any
) -> Response:
    result = [{"metric": dict(labels), "value": [at, str(value)]} for labels, value in rows]
    return ok({"resultType": "vector", "result": result}, **more)


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        self._answer(dict(parse_qsl(split.query, keep_blank_values=True)), len(self.path))

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fields = parse_qsl(form.decode("utf-8", "replace"), keep_blank_values=True)
        self._answer(dict(fields), len(form), form)

    def _answer(self, fields: Mapping[str, str], raw_length: int, body: bytes = b"") -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, urlsplit(self.path).path, fields, headers, raw_length, body)
        with self.server.lock:
            self.server.requests.append(request)
        response = self.server.answer(request)
        if response.drops:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        length = len(response.body) if response.declared_length is None else response.declared_length
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(response.body)
        if response.declared_length is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answer: Answer, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Answering)
        self.answer = answer
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self.connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def kill(self) -> None:
        """End like a killed process: listener and connections alike."""
        self.server_close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def asked(self) -> list[Request]:
        """All requests but those for what the server is."""
        return [request for request in self.requests if request.path != BUILD_INFO]

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that gives up early is part of the tests."""


@contextmanager
def serving(answer: Answer, port: int = 0) -> Iterator[Server]:
    server = Server(answer, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.kill()
        thread.join()


_SELECTOR = re.compile(r'([a-zA-Z_:][\w:]*)\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}')
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)("(?:[^"\\]|\\.)*")')
_BY = re.compile(r"by \(([^)]*)\)")


@dataclass
class Model:
    """Answers like a Prometheus over a fixed set of series; values may depend on the time."""

    series: Sequence[tuple[Mapping[str, str], float]]
    sampled_at: float = 995.0
    reach: tuple[int, int] = (285, 20)
    """Seconds from the first to the last sample in the window, and how many they are."""
    value: Callable[[Mapping[str, str], float, float], float | None] = lambda _labels, value, _at: value
    series_max: int | None = None
    points_max: int = 11_000
    warnings: Sequence[str] = ()

    def __call__(self, request: Request) -> Response:
        query = request.fields.get("query", "")
        if request.path == BUILD_INFO:
            return ok({"version": "2.42.0", "revision": "225c61122d88b01d1f0eaaee0e05b6f3e0567ac0"})
        if query == "1":
            return ok({"resultType": "scalar", "result": [1000, "1"]})
        counts = re.fullmatch(r"count\((.*)\)", query)
        if request.path.endswith("/query_range"):
            return self._range(query, request.fields)
        if counts:
            return vector([({}, len(self._rows(counts[1], float(request.fields["time"]))))])
        rows = self._rows(query, float(request.fields["time"]))
        return self._limited(len(rows)) or vector(list(rows.items_as_labels()), warnings=list(self.warnings))

    def _limited(self, series: int) -> Response | None:
        if self.series_max is not None and series > self.series_max:
            return failed(422, "execution", f"the number of series {series} exceeds the limit")
        return None

    def _range(self, query: str, fields: Mapping[str, str]) -> Response:
        start, end, step = (float(fields[name]) for name in ("start", "end", "step"))
        points = int((end - start) / step + 1e-6) + 1
        if points > self.points_max:
            return failed(400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries")
        found: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
        for i in range(points):
            at = round(start + i * step, 3)
            for labels, value in self._rows(query, at).items_as_labels():
                found.setdefault(tuple(labels.items()), []).append([at, str(value)])
        result = [{"metric": dict(labels), "values": values} for labels, values in found.items()]
        return self._limited(len(result)) or ok({"resultType": "matrix", "result": result})

    def _shown(self, query: str, labels: Mapping[str, str], value: float, at: float) -> float | None:
        span, count = self.reach
        if query.startswith("sum by"):
            return count + 2**20
        if "count_over_time(" in query:
            return span * 1000 + count / 2**20
        if " offset " in query:
            return self._begun(query, span, at)
        return self.sampled_at if "timestamp(" in query else self.value(labels, value, at)

    def _begun(self, query: str, span: int, at: float) -> float | None:
        """The first sample, where the time that is asked for is not before it."""
        offset = re.search(r" offset (?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?\)", query)
        assert offset, query
        minutes, seconds, milliseconds = (float(part or 0) for part in offset.groups())
        first = self.sampled_at - span
        asked = at - minutes * 60 - seconds - milliseconds / 1000
        return first if float(query.rsplit(">= ", 1)[1].rstrip(")")) <= first <= asked else None

    def _rows(self, query: str, at: float) -> Rows:
        selector = _SELECTOR.search(query)
        assert selector, query
        matchers = [(m[1], m[2], json.loads(m[3])) for m in _MATCHER.finditer(selector[2])]
        by = _BY.search(query)
        rows = Rows()
        for labels, value in self.series:
            if labels.get("__name__", selector[1]) == selector[1] and all(
                _holds(labels, *m) for m in matchers
            ):
                names = [n.strip() for n in by[1].split(",")] if by else list(labels)
                key = tuple((name, labels[name]) for name in names if name in labels)
                shown = self._shown(query, labels, value, at)
                if shown is None:
                    continue
                if query.startswith("count by"):
                    rows[key] = rows.get(key, 0) + 1
                elif query.startswith("sum by"):
                    rows[key] = rows.get(key, 0) + shown
                else:
                    rows[key] = max(rows.get(key, shown), shown)
        return rows


class Rows(dict[tuple[tuple[str, str], ...], float]):
    def items_as_labels(self) -> Iterator[tuple[Mapping[str, str], float]]:
        for key, value in self.items():
            yield dict(key), value


def _holds(labels: Mapping[str, str], label: str, operator: str, value: str) -> bool:
    actual = labels.get(label, "")
    match operator:
        case "=":
            return actual == value
        case "!=":
            return actual != value
        case "=~":
            return re.fullmatch(value, actual) is not None
    return re.fullmatch(value, actual) is None
