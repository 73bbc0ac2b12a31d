"""Connects to the pools in Redis: for one command, or for a process that must survive Redis outages.

A Redis may be down, may move to another URL and may change its password while a process runs. So
`RemotePools` connects on first use and again after an error; one that may evict keys is not used.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from equipoise.adapters.redis import RedisPools, connect
from equipoise.adapters.redis.connect import TIMEOUT_SECONDS, address_of, ask_at_every_connect
from equipoise.adapters.redis.pools import LEASE_SECONDS, RECORD_SECONDS
from equipoise.core.errors import BadInput, EquipoiseError, SetUpWrong, WorldFailed
from equipoise.core.pools import expect_name
from equipoise.pools.policy import tiers_for_scripts
from equipoise.ports import Unanswered

if TYPE_CHECKING:
    from equipoise.core.decision import MovePod, RegistrationAction
    from equipoise.core.pools import PoolAnswer, PoolsSnapshot
    from equipoise.runtime.settings import Pools as PoolsSettings


T = TypeVar("T")
EVICTION_SECONDS = 30.0
"""The interval between checks of the server's eviction policy, which can change while it runs."""
REST_SECONDS = 1.0
"""The minimum delay after a failed connection: otherwise each of many callers would wait for its own."""


@dataclass(slots=True, eq=False)
class _Connected:
    """Pools on one connection, and the number of calls in progress: it is closed after the last one."""

    pools: RedisPools
    url: str
    calls: int = 0
    is_retired: bool = False


@dataclass(eq=False)
class RemotePools:
    """Connects on first use; after a failure the URL is read again, since passwords change.

    Safe from any thread. The client reconnects to its server by itself; when the URL has changed, the old
    connection is closed after its last call. A server that evicts keys is never used unless that is accepted:
    neither at first, nor after a failover, nor when its setting changes.
    """

    url: Callable[[], str]
    prefix: str
    _: KW_ONLY
    lease_seconds: float = LEASE_SECONDS
    record_seconds: float = RECORD_SECONDS
    timeout_seconds: float = TIMEOUT_SECONDS
    accepts_eviction: bool = False
    accepting: str = "--accept-eviction"
    """The option of `accepts_eviction`, for errors."""
    monotonic: Callable[[], float] = time.monotonic
    _checked_at: float = float("-inf")
    _connect_lock: threading.Lock = field(default_factory=threading.Lock)
    _count_lock: threading.Lock = field(default_factory=threading.Lock)
    """Never held during network calls."""
    _current: _Connected | None = None
    _needs_check: bool = True
    _failed: tuple[float, EquipoiseError] | None = None

    def ask(self, call: Callable[[RedisPools], T]) -> T:
        self._check_eviction()
        connected = self._acquire()
        if connected is None:
            with self._connect_lock:
                connected = self._acquire() or self._connect()
        try:
            return call(connected.pools)
        except WorldFailed:
            self._needs_check = True
            raise
        finally:
            self._release(connected)

    def snapshot(self, *, is_thorough: bool = False, also: Sequence[str] = ()) -> "PoolsSnapshot":
        return self.ask(lambda pools: pools.snapshot(is_thorough=is_thorough, also=also))

    def reconcile(self, actions: "Sequence[RegistrationAction]", epoch: int | None) -> "Sequence[PoolAnswer]":
        return self.ask(lambda pools: pools.reconcile(actions, epoch))

    def move(
        self, moves: "Sequence[MovePod]", version: str, epoch: int | None, *, marks_busy: bool = False
    ) -> "Sequence[PoolAnswer]":
        return self.ask(lambda pools: pools.move(moves, version, epoch, marks_busy=marks_busy))

    def recover(self, pods: Sequence[str], epoch: int | None) -> "Sequence[PoolAnswer]":
        return self.ask(lambda pools: pools.recover(pods, epoch))

    def close(self) -> None:
        with self._connect_lock:
            self._use(None)

    def _acquire(self) -> _Connected | None:
        """Return the current pools and count a call, or None if they must be connected or checked first."""
        with self._count_lock:
            found = None if self._needs_check else self._current
            if found is not None:
                assert not found.is_retired, "taken after it was let go of"
                found.calls += 1
            return found

    def _release(self, connected: _Connected) -> None:
        with self._count_lock:
            connected.calls -= 1
            assert connected.calls >= 0, "given back more often than taken"
            is_unused = connected.is_retired and not connected.calls
        if is_unused:
            connected.pools.close()

    def _use(self, connected: _Connected | None) -> None:
        """Make these pools current, or none; the previous ones are closed after their last call."""
        with self._count_lock:
            assert connected is None or not connected.is_retired, "used after it was let go of"
            before, self._current = self._current, connected
            self._needs_check = connected is None
            if connected is not None:
                connected.calls += 1
            if before is None or before is connected:
                return
            before.is_retired = True
            before.calls += 1
        self._release(before)

    def _connect(self) -> _Connected:
        """Return the pools at the current URL; connect if the URL has changed, else check them."""
        if self._failed is not None and self.monotonic() - self._failed[0] < REST_SECONDS:
            raise self._failed[1]
        try:
            url = self.url()
            current = self._current
            if current is None or url != current.url:
                current = self._connected_to(url)
            else:
                self._expect_no_eviction(current.pools)
        except EquipoiseError as error:
            self._failed = (self.monotonic(), error)
            raise
        self._failed = None
        self._use(current)
        return current

    def _connected_to(self, url: str) -> _Connected:
        client = connect(url, self.prefix, timeout_seconds=self.timeout_seconds)
        pools = RedisPools(
            client,
            self.prefix,
            address_of(url),
            lease_seconds=self.lease_seconds,
            record_seconds=self.record_seconds,
            read_tiers=tiers_for_scripts,
        )
        try:
            self._expect_no_eviction(pools)
        except WorldFailed:
            pools.close()
            raise
        if not self.accepts_eviction:
            ask_at_every_connect(client)
        return _Connected(pools, url)

    def _check_eviction(self) -> None:
        """Check the server's eviction policy when due; on a failure, the next call connects again."""
        if self.accepts_eviction or self.monotonic() - self._checked_at < EVICTION_SECONDS:
            return
        with self._connect_lock:
            current, is_due = self._current, self.monotonic() - self._checked_at >= EVICTION_SECONDS
            if current is None or self._needs_check or not is_due:
                return
            try:
                self._expect_no_eviction(current.pools)
            except WorldFailed:
                self._needs_check = True  # the next connection raises the reason

    def _expect_no_eviction(self, pools: RedisPools) -> None:
        """Raise SetUpWrong for a server that may evict the keys of live calls, and WorldFailed if unknown."""
        if self.accepts_eviction:
            return
        try:
            objection = pools.eviction()
        except Unanswered as error:
            raise WorldFailed(str(error)) from error
        if objection:
            raise SetUpWrong(f"{objection}, or accept the risk with {self.accepting}")
        self._checked_at = self.monotonic()


def read_url(name: str, file: str) -> str:
    """Return the URL in a file, such as one of a Secret; `name` is the setting of the file, for errors."""
    try:
        text = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WorldFailed(f"{name} {file}: {getattr(error, 'strerror', None) or error}") from error
    try:
        address_of(text)
    except BadInput as error:
        raise WorldFailed(f"{name} {file}: expected redis://, rediss:// or unix://") from error
    return text


def remote_pools(url: Callable[[], str], settings: "PoolsSettings") -> RemotePools:
    return RemotePools(
        url,
        settings.prefix,
        lease_seconds=settings.lease_seconds,
        accepts_eviction=settings.accept_eviction,
        accepting="pools.acceptEviction",
    )


def url_source(settings: "PoolsSettings") -> Callable[[], str]:
    """Return a function that returns the URL; a file is read again for each connection."""
    url, file = settings.redis_url, settings.redis_url_file
    if file is not None and url is None:
        return lambda: read_url("pools.redisUrlFile", file)
    if url is None or file is not None:
        both = "one of pools.redisUrl and pools.redisUrlFile" if url else "the address of a Redis"
        raise BadInput(f"pools.redisUrl: expected {both} because balancers includes pools")
    address_of(url)  # rejects an invalid URL now, not in the first cycle
    return lambda: url


CALL_LENGTH_MAX = 256


@contextmanager
def opened(url: str | None, prefix: str, *, is_dry: bool = False) -> Iterator[RedisPools]:
    """Yield the pools under a prefix, while the block lasts; without a URL, of an embedded server."""
    from equipoise.adapters.redis.connect import embedded

    with embedded(state_folder()) if url is None else nullcontext(url) as found:
        client, address = connect(found, prefix), address_of(found)
        with closing(
            RedisPools(client, prefix, address, is_dry=is_dry, read_tiers=tiers_for_scripts)
        ) as pools:
            yield pools


def state_folder() -> Path:
    """Return the folder of the embedded server's data."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "equipoise" / "pools"


def pod_name(text: str, field: str = "POD") -> str:
    try:
        return expect_name(text)
    except ValueError as error:
        raise BadInput(f"{field}: {error}") from error


def call_id(text: str, field: str = "CALL") -> str:
    if not text or len(text) > CALL_LENGTH_MAX or not text.isprintable() or " " in text:
        raise BadInput(
            f"{field}: expected 1 to {CALL_LENGTH_MAX} printable characters without spaces, got {text[:60]!r}"
        )
    return text
