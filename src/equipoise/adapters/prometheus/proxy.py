"""The way to a Prometheus inside the cluster: the API server's service proxy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import urllib3

from equipoise.adapters.prometheus.errors import Reply
from equipoise.adapters.prometheus.transport import FAILURES, read_reply, translate


class ApiServer(Protocol):
    """What is asked of the Kubernetes client: to read objects, and to pass a request on."""

    @property
    def address(self) -> str:
        """How messages name the API server."""
        ...

    def get(
        self, path: str, params: Mapping[str, str | int | bool] | None = None, *, bytes_max: int = ...
    ) -> bytes:
        """Read a path; a refusal raises."""
        ...

    def request_raw(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        fields: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = ...,
        timeout_seconds: float | None = None,
        preload: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        """Ask once and give any answer as it is; urllib3's exceptions pass."""
        ...


@dataclass(frozen=True, slots=True)
class ServiceProxy:
    """A Prometheus behind a Service.

    Queries are GETs, so that `get` on `services/proxy` is right enough; `post` needs `create` as well.
    """

    api: ApiServer
    namespace: str
    service: str
    port: str
    scheme: str = "http"
    path_prefix: str = ""

    query_max_bytes = 16 * 1024

    @property
    def path(self) -> str:
        """The proxy's path on the API server; without a scheme it speaks plain HTTP."""
        scheme = "https:" if self.scheme == "https" else ""
        return f"/api/v1/namespaces/{self.namespace}/services/{scheme}{self.service}:{self.port}/proxy"

    @property
    def address(self) -> str:
        """How messages name the server: the API server and the service behind it."""
        return f"{self.api.address}{self.path}{self.path_prefix}"

    def send(self, path: str, fields: Mapping[str, str], timeout_seconds: float, bytes_max: int) -> Reply:
        """Ask once through the API server."""
        deadline = time.monotonic() + timeout_seconds
        target = f"{self.path}{self.path_prefix}{path}"
        try:
            response = self.api.request_raw(
                "GET", target, params=fields or None, timeout_seconds=timeout_seconds, preload=False
            )
            return read_reply(response, bytes_max, deadline)
        except FAILURES as error:
            raise translate(error, self.address, bytes_max) from error

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        """Ask once through the API server."""
        try:
            return self.api.request_raw(
                "POST",
                f"{self.path}{self.path_prefix}{path}",
                body=body,
                content_type=headers.get("Content-Type", "application/octet-stream"),
                timeout_seconds=timeout_seconds,
                preload=False,
            )
        except FAILURES as error:
            raise translate(error, self.address, 0) from error

    def close(self) -> None:
        """Leave the API server's session to its owner."""
