"""Servers that crash: one that wrote everything down, and one whose replica takes over."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from equipoise.adapters.redis import RedisPools
from equipoise.core.errors import WorldFailed
from equipoise.pools.invariants import violations
from equipoise.pools.policy import read_policy, tiers_for_scripts
from equipoise.ports import Unanswered
from equipoise.runtime.redis import RemotePools
from tests.support.pools.fleet import World, make_loop, pod
from tests.support.pools.worlds import config
from tests.testbed import RedisServer, wait_until

PODS = 400
CALLS_EACH = PODS // 2 - 10
CALLS_BEFORE = 60
ANSWERS_SECONDS = 120.0


@dataclass
class Crash:
    """What was promised, and what was left of it."""

    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    """Calls that were answered with a pod, and that the server knows no more."""
    given_twice: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    unknown: int = 0
    """Calls that were never answered."""
    kept: int = 0
    """Of those, how many had happened all the same."""
    refused: int = 0
    """Calls that were answered with a *no*: nothing was changed."""
    denied: list[str] = field(default_factory=list)
    """Of those, what the server knows all the same."""


def killed_with_everything_written(folder: Path) -> Crash:
    """SIGKILL amid allocations, with an append-only file that is written before each answer; then restart."""
    server = RedisServer(folder, append_only=True, fsync="always")
    server.start()
    try:
        return _crash(server, server.restart, lambda: server.url)
    finally:
        server.stop()


def failed_over_to_a_replica(folder: Path, *, is_behind: bool = False) -> Crash:
    """SIGKILL of the primary amid allocations; its replica is promoted, and the URL says so.

    A replica that is behind was cut off amid the allocations: what came after never reached it.
    """
    primary = RedisServer(folder / "primary")
    primary.start()
    replica = RedisServer(folder / "replica", replica_of=primary)
    try:
        replica.start()
        replica.wait_for_replica()
        where = [primary]

        def detach() -> None:
            with replica.client() as client:
                client.execute_command("REPLICAOF", "NO", "ONE")

        def promote() -> None:
            if not is_behind:
                # It reads to the end what the primary had sent before it died.
                wait_until(lambda: _link(replica) == "down", "the replica to notice", 30)
            detach()
            where[0] = replica

        return _crash(primary, promote, lambda: where[0].url, detach if is_behind else None)
    finally:
        replica.stop()
        primary.stop()


def _crash(
    server: RedisServer,
    mend: Callable[[], object],
    url: Callable[[], str],
    amid: Callable[[], object] | None = None,
) -> Crash:
    """Allocate on two threads, crash the server amid it, mend it, and look what is left of the promises."""
    crash = Crash()
    with server.client() as client:
        client.set("voice:tier:config", _config())
    # A server that was killed refuses at once; only a busy one is waited for.
    remote = RemotePools(url, "voice", timeout_seconds=30.0, monotonic=_leaps())
    world = World([pod(f"a-{number}") for number in range(PODS)])
    loop = make_loop(world, _Asking(remote))
    loop.cycle(0.0)
    with server.client(socket_timeout=30) as client:
        if client.info("replication")["connected_slaves"]:
            client.wait(1, 20_000)
    answers: dict[str, str | None] = {}
    crashed, going = threading.Event(), threading.Event()
    going.set()
    threads = [threading.Thread(target=_allocate, args=(url(), who, answers, going, crashed)) for who in "ab"]
    for thread in threads:
        thread.start()
    _wait_for(CALLS_BEFORE // 2, answers, threads)
    if amid is not None:
        # Nobody begins meanwhile: on a busy machine nothing would be left to do after it.
        going.clear()
        try:
            amid()
        finally:
            going.set()
    _wait_for(min(len(answers) + CALLS_BEFORE // 2, CALLS_EACH * len(threads)), answers, threads)
    server.kill()
    crashed.set()
    for thread in threads:
        thread.join(30)
    with suppress(WorldFailed):
        loop.cycle(60.0)
        raise AssertionError("a cycle without a server went well")
    mend()
    loop.cycle(120.0)
    _judge(remote, answers, crash)
    remote.close()
    return crash


def _wait_for(count: int, answers: dict[str, str | None], threads: list[threading.Thread]) -> None:
    """Wait in short steps: a few more answers, and there is nothing left to crash amid."""
    end = time.monotonic() + ANSWERS_SECONDS
    while len(answers) < count:
        assert any(thread.is_alive() for thread in threads), "the allocators ended too soon"
        assert time.monotonic() < end, f"{len(answers)} of {count} answers within {ANSWERS_SECONDS:g} s"
        time.sleep(0.0005)


def _link(replica: RedisServer) -> str:
    with replica.client() as client:
        return str(client.info("replication").get("master_link_status"))


def _config() -> str:
    import json

    return json.dumps(config(gold=PODS // 2, silver=PODS // 2))


def _allocate(
    url: str, who: str, answers: dict[str, str | None], going: threading.Event, crashed: threading.Event
) -> None:
    """Ask for calls; an answer is a pod, nothing (unknown) or None (no)."""
    with Redis.from_url(url, decode_responses=True, socket_timeout=1) as client:
        pools = RedisPools(client, "voice", url, read_tiers=tiers_for_scripts)
        for number in range(CALLS_EACH):
            going.wait()
            if crashed.is_set():
                return
            call = f"{who}-{number}"
            try:
                answers[call] = pools.allocate(call).pod or None
            except (Unanswered, RedisError):
                answers[call] = ""  # a busy machine can be as silent as a dead server: the next call tells
            except WorldFailed:
                answers[call] = None
                if crashed.is_set():
                    return


def _judge(remote: RemotePools, answers: dict[str, str | None], crash: Crash) -> None:
    seen = remote.ask(lambda pools: pools.snapshot(is_thorough=True))
    crash.broken = [each.detail for each in violations(read_policy(seen.config, "config"), seen)]
    holders = {call: name for name, keys in seen.pods.items() for call in keys.calls}
    promised = {call: name for call, name in answers.items() if name}
    crash.acknowledged = len(promised)
    crash.lost = sorted(call for call, name in promised.items() if holders.get(call) != name)
    crash.unknown = list(answers.values()).count("")
    crash.kept = sum(call in holders for call, name in answers.items() if name == "")
    refused = [call for call, name in answers.items() if name is None]
    crash.refused = len(refused)
    records = remote.ask(lambda pools: [pools.heartbeat(call).code for call in refused])
    crash.denied = [
        call for call, code in zip(refused, records, strict=True) if call in holders or code != "UnknownCall"
    ]
    served = list(holders.values())
    crash.given_twice = sorted({name for name in served if served.count(name) > 1})


def _leaps() -> Callable[[], float]:
    now = [0.0]

    def tick() -> float:
        now[0] += 2.0
        return now[0]

    return tick


class _Asking:
    """The loop's port on pools that may be away."""

    def __init__(self, remote: RemotePools) -> None:
        self._remote = remote

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: self._remote.ask(
            lambda pools: getattr(pools, name)(*arguments, **options)
        )
