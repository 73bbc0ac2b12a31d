"""Pools on a server that may be away, now or later; for whoever runs for long."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from equipoise.adapters.redis import RedisPools, connect
from equipoise.adapters.redis.connect import TIMEOUT_SECONDS, address_of
from equipoise.adapters.redis.pools import LEASE_SECONDS, RECORD_SECONDS
from equipoise.model.errors import BadInput, EquipoiseError, WorldFailed

T = TypeVar("T")
REST_SECONDS = 1.0
"""After a connection that failed, the next is not tried sooner: many callers would all wait for it."""


class RemotePools:
    """Connects when it is first asked; after a failure the URL is read anew, since passwords change.

    It may be asked from any thread. The client behind it finds a server again by itself.
    """

    def __init__(
        self,
        url: Callable[[], str],
        prefix: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        record_seconds: float = RECORD_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._prefix = prefix
        self._lease_seconds = lease_seconds
        self._record_seconds = record_seconds
        self._timeout_seconds = timeout_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._pools: RedisPools | None = None
        self._connected_to = ""
        self._is_doubtful = True
        self._failed: tuple[float, EquipoiseError] | None = None

    def ask(self, question: Callable[[RedisPools], T]) -> T:
        """Ask the pools something."""
        pools = self._pools if not self._is_doubtful else None
        if pools is None:
            with self._lock:
                pools = self._connected()
        try:
            return question(pools)
        except WorldFailed:
            self._is_doubtful = True
            raise

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            if self._pools is not None:
                self._pools.close()
            self._pools, self._is_doubtful = None, True

    def _connected(self) -> RedisPools:
        """Give the pools, connected to where the URL says now."""
        now = self._monotonic()
        if self._failed is not None and now - self._failed[0] < REST_SECONDS:
            raise self._failed[1]
        try:
            url = self._url()
            if self._pools is None or url != self._connected_to:
                client = connect(url, self._prefix, timeout_seconds=self._timeout_seconds)
                self._pools = RedisPools(
                    client,
                    self._prefix,
                    address_of(url),
                    lease_seconds=self._lease_seconds,
                    record_seconds=self._record_seconds,
                )
                self._connected_to = url
        except EquipoiseError as error:
            self._failed = (self._monotonic(), error)
            raise
        self._failed, self._is_doubtful = None, False
        return self._pools


def read_url(name: str, file: str) -> str:
    """Read a URL from a file, such as one of a Secret; `name` is what the user calls the file."""
    try:
        text = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WorldFailed(f"{name} {file}: {getattr(error, 'strerror', None) or error}") from error
    try:
        address_of(text)
    except BadInput as error:
        raise WorldFailed(f"{name} {file}: expected redis://, rediss:// or unix://") from error
    return text
