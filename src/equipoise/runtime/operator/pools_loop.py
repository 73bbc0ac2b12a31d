"""The loop of the pools, wired to a cluster and to a Redis that may come and go."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from equipoise.adapters.kubernetes.cluster import SelectedPods
from equipoise.adapters.kubernetes.selectors import parse_selector
from equipoise.adapters.redis.connect import address_of
from equipoise.core.errors import BadInput
from equipoise.crd.targets import Mode
from equipoise.pools.loop import PoolsLoop
from equipoise.pools.registration import RegistrationRule
from equipoise.runtime.operator.loops import Wiring
from equipoise.runtime.redis import RemotePools, read_url
from equipoise.runtime.settings import Pools as PoolsSettings
from equipoise.runtime.settings import Settings

if TYPE_CHECKING:
    from equipoise.core.decision import Attendance, MovePod
    from equipoise.core.pools import PoolAnswer, PoolsSnapshot


class ReconnectingPools:
    """The port of the loop on pools that may be away."""

    def __init__(self, remote: RemotePools) -> None:
        self._ask = remote.ask

    def snapshot(self, *, is_thorough: bool = False, also: Sequence[str] = ()) -> "PoolsSnapshot":
        """Read every pod, each at one moment."""
        return self._ask(lambda pools: pools.snapshot(is_thorough=is_thorough, also=also))

    def reconcile(self, actions: "Sequence[Attendance]", epoch: int | None) -> "Sequence[PoolAnswer]":
        """Register, unregister, suspend and resume pods."""
        return self._ask(lambda pools: pools.reconcile(actions, epoch))

    def move(
        self, moves: "Sequence[MovePod]", version: str, epoch: int | None, *, marks_busy: bool = False
    ) -> "Sequence[PoolAnswer]":
        """Move idle pods."""
        return self._ask(lambda pools: pools.move(moves, version, epoch, marks_busy=marks_busy))

    def recover(self, pods: Sequence[str], epoch: int | None) -> "Sequence[PoolAnswer]":
        """Put back pods that nobody holds."""
        return self._ask(lambda remote: remote.recover(pods, epoch))


def pools_loop(wiring: Wiring, settings: Settings) -> PoolsLoop:
    """Make the loop, and have its pods watched."""
    asked = settings.pools
    namespace = _expected(asked.namespace, "namespace", "where the pods of the tiers are")
    selector = _expected(asked.selector, "selector", "their labels, such as app=voice-agent")
    try:
        parse_selector(selector)
    except ValueError as error:
        raise BadInput(f"pools.selector: {error}") from error
    url = url_source(asked)
    pods = SelectedPods(wiring.client, namespace, selector)
    wiring.watch(pods.reflector)
    return PoolsLoop(
        pools=ReconnectingPools(remote_pools(url, asked)),
        pods=pods.pods,
        is_gone=pods.is_gone,
        pauses=wiring.pauses,
        leadership=wiring.leadership,
        journal=wiring.journal,
        new_id=wiring.record_ids.next,
        namespace=namespace,
        interval_seconds=settings.intervals.pools_seconds,
        rule=RegistrationRule(asked.loss_max, min(asked.missing_seconds, settings.intervals.pools_seconds)),
        is_acting=asked.mode is Mode.ENFORCE,
        marks_busy=asked.marks_busy,
        heartbeat=wiring.beat,
        has_changed=pods.has_changed,
    )


def remote_pools(url: Callable[[], str], asked: PoolsSettings) -> RemotePools:
    """Return the pools as the settings describe them."""
    return RemotePools(
        url,
        asked.prefix,
        lease_seconds=asked.lease_seconds,
        accepts_eviction=asked.accept_eviction,
        accepting="pools.acceptEviction",
    )


def url_source(asked: PoolsSettings) -> Callable[[], str]:
    """Return where the URL comes from; a file is read whenever a connection is made."""
    url, file = asked.redis_url, asked.redis_url_file
    if file is not None and url is None:
        return lambda: read_url("pools.redisUrlFile", file)
    if url is None or file is not None:
        both = "one of pools.redisUrl and pools.redisUrlFile" if url else "the address of a Redis"
        raise BadInput(f"pools.redisUrl: expected {both}, since balancers has pools")
    address_of(url)  # refuses what makes no sense now, not in the first cycle
    return lambda: url


def _expected(value: str | None, name: str, what: str) -> str:
    if not value:
        raise BadInput(f"pools.{name}: expected {what}, since balancers has pools")
    return value
