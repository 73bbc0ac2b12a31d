"""Pools on a server that may be away, now or later; for whoever runs for long.

Opens the pools that a command is about: a server by its URL, or the embedded one.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
    from contextlib import AbstractContextManager

    from equipoise.core.decision import Attendance, MovePod
    from equipoise.core.pools import PoolAnswer, PoolsSnapshot
    from equipoise.runtime.settings import Pools as PoolsSettings


T = TypeVar("T")
EVICTION_SECONDS = 30.0
"""After so long the server is asked again how it evicts keys: the setting can change while it runs."""
REST_SECONDS = 1.0
"""After a connection that failed, the next is not tried sooner: many callers would all wait for it."""


class _Connected:
    """Pools on one connection, and how many ask there now: whoever asks is not cut off."""

    def __init__(self, pools: RedisPools, url: str) -> None:
        self.pools = pools
        self.url = url
        self.asking = 0
        self.is_retired = False


class RemotePools:
    """Connects when it is first asked; after a failure the URL is read anew, since passwords change.

    It may be asked from any thread. The client behind it finds a server again by itself; one of another URL
    is let go of as soon as nobody asks it any more. Unless somebody accepted it, a server that evicts keys is
    asked nothing: neither at first, nor after a failover, nor when its setting changes.
    """

    def __init__(
        self,
        url: Callable[[], str],
        prefix: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        record_seconds: float = RECORD_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
        accepts_eviction: bool = False,
        accepting: str = "--accept-eviction",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what is needed to connect; `accepting` names the option behind `accepts_eviction`."""
        self._url = url
        self._prefix = prefix
        self._lease_seconds = lease_seconds
        self._record_seconds = record_seconds
        self._timeout_seconds = timeout_seconds
        self._accepts_eviction = accepts_eviction
        self._accepting = accepting
        self._asked_at = float("-inf")
        self._monotonic = monotonic
        self._connecting = threading.Lock()
        self._counting = threading.Lock()
        """Never held while a server is waited for."""
        self._current: _Connected | None = None
        self._is_doubtful = True
        self._failed: tuple[float, EquipoiseError] | None = None

    def ask(self, question: Callable[[RedisPools], T]) -> T:
        self._look_again()
        connected = self._taken()
        if connected is None:
            with self._connecting:
                connected = self._taken() or self._connect()
        try:
            return question(connected.pools)
        except WorldFailed:
            self._is_doubtful = True
            raise
        finally:
            self._give_back(connected)

    def close(self) -> None:
        with self._connecting:
            self._use(None)

    def _taken(self) -> _Connected | None:
        """Take the pools to ask them, unless they are in doubt."""
        with self._counting:
            found = None if self._is_doubtful else self._current
            if found is not None:
                assert not found.is_retired, "taken after it was let go of"
                found.asking += 1
            return found

    def _give_back(self, connected: _Connected) -> None:
        with self._counting:
            connected.asking -= 1
            assert connected.asking >= 0, "given back more often than taken"
            is_left = connected.is_retired and not connected.asking
        if is_left:
            connected.pools.close()

    def _use(self, connected: _Connected | None) -> None:
        """Take these, now and from now on, or none; those before are closed by whoever asks them last."""
        with self._counting:
            assert connected is None or not connected.is_retired, "used after it was let go of"
            before, self._current = self._current, connected
            self._is_doubtful = connected is None
            if connected is not None:
                connected.asking += 1
            if before is None or before is connected:
                return
            before.is_retired = True
            before.asking += 1
        self._give_back(before)

    def _connect(self) -> _Connected:
        """Take the pools where the URL says now, connected anew if they were elsewhere."""
        if self._failed is not None and self._monotonic() - self._failed[0] < REST_SECONDS:
            raise self._failed[1]
        try:
            url = self._url()
            current = self._current
            if current is None or url != current.url:
                current = self._connected_to(url)
            else:
                self._expect_no_eviction(current.pools)
        except EquipoiseError as error:
            self._failed = (self._monotonic(), error)
            raise
        self._failed = None
        self._use(current)
        return current

    def _connected_to(self, url: str) -> _Connected:
        client = connect(url, self._prefix, timeout_seconds=self._timeout_seconds)
        pools = RedisPools(
            client,
            self._prefix,
            address_of(url),
            lease_seconds=self._lease_seconds,
            record_seconds=self._record_seconds,
            read_tiers=tiers_for_scripts,
        )
        try:
            self._expect_no_eviction(pools)
        except WorldFailed:
            pools.close()
            raise
        if not self._accepts_eviction:
            ask_at_every_connect(client)
        return _Connected(pools, url)

    def _look_again(self) -> None:
        """Ask now and then whether the server evicts keys by now; who finds that out leaves it in doubt."""
        if self._accepts_eviction or self._monotonic() - self._asked_at < EVICTION_SECONDS:
            return
        with self._connecting:
            current, is_due = self._current, self._monotonic() - self._asked_at >= EVICTION_SECONDS
            if current is None or self._is_doubtful or not is_due:
                return
            try:
                self._expect_no_eviction(current.pools)
            except WorldFailed:
                self._is_doubtful = True  # the next connection says why

    def _expect_no_eviction(self, pools: RedisPools) -> None:
        """Refuse a server that may remove the keys of live calls. Whatever it answers, no pool was asked."""
        if self._accepts_eviction:
            return
        try:
            said = pools.eviction()
        except Unanswered as error:
            raise WorldFailed(str(error)) from error
        if said:
            raise SetUpWrong(f"{said}, or accept it with {self._accepting}")
        self._asked_at = self._monotonic()


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


class ReconnectingPools:
    """The port of the loop on pools that may be away."""

    def __init__(self, remote: RemotePools) -> None:
        self._ask = remote.ask

    def snapshot(self, *, is_thorough: bool = False, also: Sequence[str] = ()) -> "PoolsSnapshot":
        return self._ask(lambda pools: pools.snapshot(is_thorough=is_thorough, also=also))

    def reconcile(self, actions: "Sequence[Attendance]", epoch: int | None) -> "Sequence[PoolAnswer]":
        return self._ask(lambda pools: pools.reconcile(actions, epoch))

    def move(
        self, moves: "Sequence[MovePod]", version: str, epoch: int | None, *, marks_busy: bool = False
    ) -> "Sequence[PoolAnswer]":
        return self._ask(lambda pools: pools.move(moves, version, epoch, marks_busy=marks_busy))

    def recover(self, pods: Sequence[str], epoch: int | None) -> "Sequence[PoolAnswer]":
        return self._ask(lambda pools_: pools_.recover(pods, epoch))


def remote_pools(url: Callable[[], str], asked: "PoolsSettings") -> RemotePools:
    """Return the pools as the settings describe them."""
    return RemotePools(
        url,
        asked.prefix,
        lease_seconds=asked.lease_seconds,
        accepts_eviction=asked.accept_eviction,
        accepting="pools.acceptEviction",
    )


def url_source(asked: "PoolsSettings") -> Callable[[], str]:
    """Return where the URL comes from; a file is read whenever a connection is made."""
    url, file = asked.redis_url, asked.redis_url_file
    if file is not None and url is None:
        return lambda: read_url("pools.redisUrlFile", file)
    if url is None or file is not None:
        both = "one of pools.redisUrl and pools.redisUrlFile" if url else "the address of a Redis"
        raise BadInput(f"pools.redisUrl: expected {both}, since balancers has pools")
    address_of(url)  # refuses what makes no sense now, not in the first cycle
    return lambda: url


CALL_LENGTH_MAX = 256


@contextmanager
def opened(url: str | None, prefix: str, *, is_dry: bool = False) -> Iterator[RedisPools]:
    """Yield the pools under a prefix, for as long as the block lasts."""
    with _url(url) as found:
        pools = RedisPools(
            connect(found, prefix), prefix, address_of(found), is_dry=is_dry, read_tiers=tiers_for_scripts
        )
        try:
            yield pools
        finally:
            pools.close()


def _url(url: str | None) -> "AbstractContextManager[str]":
    if url is not None:
        return nullcontext(url)
    from equipoise.adapters.redis.embedded import embedded

    return embedded(state_folder())


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
