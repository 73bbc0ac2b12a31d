"""Transports to a Prometheus: its address, or the API server's service proxy to a Service in the cluster."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlencode

import urllib3
from urllib3 import exceptions

from equipoise.adapters.http import (
    AnswerTooLarge,
    TryAgain,
    causes,
    explain,
    parse_retry_after,
    read_bounded,
    tls_context,
)
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.prometheus import errors
from equipoise.adapters.prometheus.errors import Reply
from equipoise.adapters.prometheus.settings import PrometheusSettings

CONNECT_MAX_SECONDS = 10.0
REFUSAL_MAX_BYTES = 64 * 1024
FAILURES = (exceptions.HTTPError, OSError, http.client.HTTPException, AnswerTooLarge)
"""The exceptions of connecting to a server and reading its answer."""
OK = 200
METHOD_NOT_ALLOWED = 405


class PrometheusTransport(Protocol):
    """Sends one request to a Prometheus and returns its answer."""

    @property
    def address(self) -> str: ...

    @property
    def query_max_bytes(self) -> int:
        """The longest query, form-encoded, that the transport supports."""
        ...

    def send(self, path: str, fields: Mapping[str, str], timeout_seconds: float, bytes_max: int) -> Reply:
        """Send once. Any status is an answer; without an answer, a `PrometheusFailed` is raised."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Posts(Protocol):
    """A transport that also sends bytes and returns a streamed answer."""

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        """Send once and return the answer with its body unread; raise a `PrometheusFailed` without one."""
        ...


class Direct:
    """A Prometheus at its own address."""

    query_max_bytes = 48 * 1024

    def __init__(self, settings: PrometheusSettings, connections_max: int = 4) -> None:
        self._settings = settings
        self._posts = True
        self._pool = _pool(settings, connections_max)

    @property
    def address(self) -> str:
        return self._settings.address

    def send(self, path: str, fields: Mapping[str, str], timeout_seconds: float, bytes_max: int) -> Reply:
        """POST the fields as a form, or GET where there are none or the server requires it."""
        if fields and self._posts:
            reply = self._send("POST", path, fields, timeout_seconds, bytes_max)
            if reply.status != METHOD_NOT_ALLOWED:
                return reply
            self._posts = False
        return self._send("GET", path, fields, timeout_seconds, bytes_max)

    def _send(
        self, method: str, path: str, fields: Mapping[str, str], timeout_seconds: float, bytes_max: int
    ) -> Reply:
        form = urlencode(fields)
        deadline = time.monotonic() + timeout_seconds
        with translated(self.address, bytes_max):
            if method == "POST":
                headers = {"Content-Type": "application/x-www-form-urlencoded"}
                response = self._open(method, path, timeout_seconds, headers, body=form)
            else:
                response = self._open(method, f"{path}?{form}" if form else path, timeout_seconds, {})
            return read_reply(response, bytes_max, deadline)

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        """Send once; a silence of `timeout_seconds` ends the answer."""
        with translated(self.address):
            return self._open("POST", path, timeout_seconds, headers, body=body, decode_content=False)

    def _open(
        self, method: str, path: str, timeout_seconds: float, headers: Mapping[str, str], **options: Any
    ) -> urllib3.BaseHTTPResponse:
        return self._pool.urlopen(
            method,
            f"{self._settings.path_prefix}{path}",
            headers={**self._settings.request_headers(), **headers},
            retries=False,
            redirect=False,
            preload_content=False,
            timeout=urllib3.Timeout(connect=min(CONNECT_MAX_SECONDS, timeout_seconds), read=timeout_seconds),
            **options,
        )

    def close(self) -> None:
        """Close idle connections; a later request opens new ones."""
        self._pool.close()


def _pool(settings: PrometheusSettings, connections_max: int) -> urllib3.HTTPConnectionPool:
    parts = settings.parts
    host = parts.hostname or ""
    if parts.scheme == "http":
        return urllib3.HTTPConnectionPool(host, parts.port or 80, maxsize=connections_max)
    context = tls_context(
        ca_file=settings.ca_file,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        insecure=settings.insecure,
    )
    return urllib3.HTTPSConnectionPool(
        host,
        parts.port or 443,
        maxsize=connections_max,
        ssl_context=context,
        cert_reqs="CERT_NONE" if settings.insecure else "CERT_REQUIRED",
        assert_hostname=False if settings.insecure else None,
    )


def read_reply(response: urllib3.BaseHTTPResponse, bytes_max: int, deadline: float) -> Reply:
    """Return an answer, read up to a size and a deadline."""
    headers = response.headers
    is_answer = response.status == OK
    try:
        body = read_bounded(response, bytes_max if is_answer else REFUSAL_MAX_BYTES, deadline=deadline)
    except AnswerTooLarge:
        if is_answer:
            raise
        body = b""  # a long refusal is a web page, whose status is enough
    return Reply(
        response.status,
        body,
        headers.get("Content-Type", ""),
        headers.get("Location", ""),
        parse_retry_after(headers.get("Retry-After"), time.time()),
    )


@contextmanager
def translated(address: str, bytes_max: int = 0) -> Iterator[None]:
    """Raise a `PrometheusFailed` for what fails while a request is sent or its answer is read."""
    try:
        yield
    except FAILURES as error:
        raise _translate(error, address, bytes_max) from error


def _translate(error: Exception, address: str, bytes_max: int) -> errors.PrometheusFailed:
    chain = list(causes(error))
    clause = explain(error, address)
    if isinstance(error, AnswerTooLarge):
        return errors.PrometheusTooLarge(
            f"{address} answered more than {bytes_max} bytes, the memory limit of one answer: "
            "narrow the namespaces or the time range, or raise prometheus memory_max_bytes"
        )
    if any(isinstance(e, (ssl.SSLEOFError, ssl.SSLZeroReturnError)) for e in chain):
        return errors.PrometheusUnreachable(clause)
    if any(isinstance(e, (ssl.SSLError, exceptions.SSLError)) for e in chain):
        return errors.TlsFailed(clause)
    if any(isinstance(e, exceptions.DecodeError) for e in chain):
        return errors.Malformed(
            f"{address} answered a body whose compression differs from its Content-Encoding"
        )
    # urllib3 counts a refused connection and an unknown name among its timeouts.
    is_refused = any(isinstance(e, exceptions.NewConnectionError) for e in chain)
    if not is_refused and any(isinstance(e, (exceptions.TimeoutError, TimeoutError)) for e in chain):
        return errors.TimedOut(clause)
    if any(
        isinstance(e, http.client.BadStatusLine) and not isinstance(e, http.client.RemoteDisconnected)
        for e in chain
    ):
        return errors.NotPrometheus(f"{clause}: expected the Prometheus API")
    return errors.PrometheusUnreachable(clause)


def retry_if_transient(error: Exception) -> TryAgain | None:
    """Return whether a request may be sent again, and the server's Retry-After."""
    if isinstance(error, errors.PrometheusFailed) and error.is_transient:
        return TryAgain(error.retry_after_seconds)
    return None


@dataclass(frozen=True, slots=True)
class ServiceProxy:
    """A Prometheus behind a Service, through the API server's proxy.

    Queries are GETs, which need the right `get` on `services/proxy`; `post` needs `create` as well.
    """

    api: Client
    namespace: str
    service: str
    port: str
    scheme: str = "http"
    path_prefix: str = ""

    query_max_bytes = 16 * 1024

    @property
    def path(self) -> str:
        """The proxy's path on the API server; without a scheme, plain HTTP."""
        scheme = "https:" if self.scheme == "https" else ""
        return f"/api/v1/namespaces/{self.namespace}/services/{scheme}{self.service}:{self.port}/proxy"

    @property
    def address(self) -> str:
        """The server's name in messages: the API server and the Service behind it."""
        return f"{self.api.address}{self.path}{self.path_prefix}"

    def send(self, path: str, fields: Mapping[str, str], timeout_seconds: float, bytes_max: int) -> Reply:
        deadline = time.monotonic() + timeout_seconds
        target = f"{self.path}{self.path_prefix}{path}"
        with translated(self.address, bytes_max):
            response = self.api.request_raw(
                "GET", target, params=fields or None, timeout_seconds=timeout_seconds, preload=False
            )
            return read_reply(response, bytes_max, deadline)

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        with translated(self.address):
            return self.api.request_raw(
                "POST",
                f"{self.path}{self.path_prefix}{path}",
                body=body,
                content_type=headers.get("Content-Type", "application/octet-stream"),
                timeout_seconds=timeout_seconds,
                preload=False,
            )

    def close(self) -> None:
        """Do nothing: the owner of the API server's session closes it."""
