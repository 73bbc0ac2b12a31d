"""The HTTP service in this process, and a client that holds it to what it publishes."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jsonschema
from prometheus_client import CollectorRegistry

from equipoise.runtime.allocator.api import Api, Readiness
from equipoise.runtime.allocator.operations import openapi
from equipoise.runtime.http import HttpServer
from equipoise.runtime.redis import RemotePools
from equipoise.runtime.tokens import Tokens
from tests.testbed import wait_until


class Answer(NamedTuple):
    """What came back."""

    status: int
    document: Any
    headers: dict[str, str]


class Caller:
    """A client of the service that holds every answer against the published document."""

    def __init__(self, port: int) -> None:
        self.port = port

    def raw(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            said = {"Content-Type": "application/json"} if method == "POST" else {}
            connection.request(method, path, body or None, said | (headers or {}))
            response = connection.getresponse()
            return response.status, response.read(), {k.lower(): v for k, v in response.getheaders()}
        finally:
            connection.close()

    def ask(self, operation: str, token: str = "", **fields: str) -> Answer:
        method, path = ("GET", "/v1/status") if operation == "status" else ("POST", f"/v1/{operation}")
        body = b"" if operation == "status" else json.dumps(fields).encode()
        status, text, headers = self.raw(
            method, path, body, {"Authorization": f"Bearer {token}"} if token else {}
        )
        document = json.loads(text)
        published = openapi()["paths"][path][method.lower()]["responses"][str(status)]
        schema = published["content"]["application/json"]["schema"]
        jsonschema.validate(document, {"components": openapi()["components"], **schema})
        return Answer(status, document, headers)


@contextmanager
def service(
    url: str,
    tokens: Tokens | None = None,
    timeout_seconds: float = 60.0,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[Caller, Readiness]]:
    """Serve in this process."""
    registry = CollectorRegistry()
    remote = RemotePools(lambda: url, "voice", timeout_seconds=timeout_seconds, monotonic=monotonic)
    api = Api(remote, "voice", tokens, registry)
    readiness = Readiness(remote, tokens)
    door = HttpServer("127.0.0.1:0", api.app(list, readiness.readiness_errors, registry))
    door.start()
    try:
        yield Caller(door.port), readiness
    finally:
        assert door.stop(60)
        api.close()
        remote.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait until it is so, within a minute."""
    wait_until(condition, "what the test waits for", 60)


def later() -> Callable[[], float]:
    """A clock by which seconds have passed at every look, so that no failure is remembered."""
    now = [0.0]

    def tick() -> float:
        now[0] += 2.0
        return now[0]

    return tick
