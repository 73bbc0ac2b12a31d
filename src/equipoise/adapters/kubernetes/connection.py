"""Connections to one API server, which another thread can abort during a read, and a splitter of lines."""

from __future__ import annotations

import base64
import socket
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import urllib3
from urllib3.connection import HTTPConnection

from equipoise.adapters.http import tls_context
from equipoise.adapters.kubernetes.credentials import Certificate
from equipoise.adapters.kubernetes.errors import Stopped
from equipoise.adapters.kubernetes.kubeconfig import Endpoint
from equipoise.adapters.urls import shown_url, split_url

if TYPE_CHECKING:
    from urllib3._base_connection import BaseHTTPConnection


KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), seconds)
        for name, seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
"""With these, the kernel notices a dead peer within a minute."""


class _TrackedPool(urllib3.HTTPConnectionPool):
    """A pool that tracks its connections while they are in use."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lent: weakref.WeakSet[BaseHTTPConnection] = weakref.WeakSet()
        self.lent_lock = threading.Lock()

    def _new_conn(self) -> BaseHTTPConnection:
        connection = super()._new_conn()
        with self.lent_lock:
            self.lent.add(connection)
        return connection

    def shut_down(self) -> None:
        """Shut down all connections; a thread that waits in a read gets the end of its stream."""
        with self.lent_lock:
            connections = list(self.lent)
        for connection in connections:
            sock = getattr(connection, "sock", None)
            if isinstance(sock, socket.socket):
                with suppress(OSError):
                    # Not SSLSocket.shutdown, which first drops the TLS state that the reader uses.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _TrackedTlsPool(_TrackedPool, urllib3.HTTPSConnectionPool):  # type: ignore[misc] # its connections are TLS's
    """A tracked pool with TLS."""


class Wire:
    """A pool of connections. A new client certificate needs a new pool, since it is part of the handshake."""

    def __init__(self, endpoint: Endpoint, connections_max: int) -> None:
        self._endpoint = endpoint
        self._connections_max = connections_max
        self._lock = threading.Lock()
        self._pool: _TrackedPool | None = None
        self._certificate: Certificate | None = None
        self._is_cut = False
        self._streams: weakref.WeakSet[urllib3.BaseHTTPResponse] = weakref.WeakSet()
        parts = split_url(endpoint.server)
        self._prefix = parts.path.rstrip("/")
        if endpoint.proxy_url and parts.scheme == "http":
            # A proxy for plain HTTP expects absolute URLs.
            self._prefix = endpoint.server.rstrip("/")

    def send(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: urllib3.Timeout,
        certificate: Certificate | None,
    ) -> urllib3.BaseHTTPResponse:
        """Send once and return the answer with its body unread. urllib3's exceptions are not translated."""
        response = self._pool_for(certificate).urlopen(
            method,
            self._prefix + target,
            body=body,
            headers=headers,
            retries=False,
            redirect=False,
            assert_same_host=False,
            preload_content=False,
            timeout=timeout,
        )
        with self._lock:
            self._streams.add(response)
            is_cut = self._is_cut
        if is_cut:
            response.close()
            raise Stopped(f"the session with {shown_url(self._endpoint.server)} was stopped")
        return response

    def abort(self) -> None:
        """Shut down every connection, also those in use, and refuse new ones."""
        with self._lock:
            self._is_cut = True
            pool, streams = self._pool, list(self._streams)
        if pool is not None:
            pool.shut_down()
            pool.close()
        for response in streams:
            # After `Connection: close`, only the answer holds its connection.
            with suppress(OSError, RuntimeError, ValueError):
                response.shutdown()

    def close(self) -> None:
        """Close idle connections; a later request opens new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _pool_for(self, certificate: Certificate | None) -> _TrackedPool:
        with self._lock:
            if self._is_cut:
                raise Stopped(f"the session with {shown_url(self._endpoint.server)} was stopped")
            if self._pool is None or self._certificate != certificate:
                if self._pool is not None:
                    self._pool.close()
                self._pool = self._make_pool(certificate)
                self._certificate = certificate
            return self._pool

    def _make_pool(self, certificate: Certificate | None) -> _TrackedPool:
        endpoint = self._endpoint
        options: dict[str, Any] = {
            "maxsize": self._connections_max,
            "socket_options": [*HTTPConnection.default_socket_options, *KEEPALIVE],
        }
        if endpoint.server.startswith("https:"):
            mine = certificate or Certificate()
            options["ssl_context"] = tls_context(
                ca_file=endpoint.ca_file,
                ca_data=endpoint.ca_data,
                cert_file=mine.cert_file,
                cert_data=mine.cert_data,
                key_file=mine.key_file,
                key_data=mine.key_data,
                insecure=endpoint.insecure,
            )
            if endpoint.insecure:
                options["cert_reqs"] = "CERT_NONE"
            if endpoint.tls_server_name:
                options["server_hostname"] = endpoint.tls_server_name
        if endpoint.proxy_url:
            secret = unquote(split_url(endpoint.proxy_url).netloc.rpartition("@")[0])
            # urllib3 itself encodes Latin 1 only.
            credential = f"Basic {base64.b64encode(secret.encode()).decode()}"
            headers = {"proxy-authorization": credential} if secret else None
            keeper: urllib3.PoolManager = urllib3.ProxyManager(
                endpoint.proxy_url, proxy_headers=headers, **options
            )
        else:
            keeper = urllib3.PoolManager(**options)
        keeper.pool_classes_by_scheme = {"http": _TrackedPool, "https": _TrackedTlsPool}
        pool = keeper.connection_from_url(endpoint.server)
        assert isinstance(pool, _TrackedPool)
        return pool


class LineTooLong(ValueError):  # noqa: N818 - reads as a fact
    """A line is longer than any event."""


class Lines:
    """Splits arriving bytes into lines."""

    def __init__(self, length_max: int = 16 * 1024 * 1024) -> None:
        self._length_max = length_max
        self._begun: list[bytes] = []
        self._begun_length = 0

    def feed(self, part: bytes) -> list[bytes]:
        """Add bytes; return the lines that are complete now, without empty ones."""
        *ended, rest = part.split(b"\n")
        if ended:
            ended[0] = b"".join((*self._begun, ended[0]))
            self._begun, self._begun_length = [], 0
        if rest:
            self._begun.append(rest)
            self._begun_length += len(rest)
        if self._begun_length > self._length_max or any(len(line) > self._length_max for line in ended):
            raise LineTooLong(f"a line of more than {self._length_max} bytes")
        return [line for line in ended if line.strip()]
