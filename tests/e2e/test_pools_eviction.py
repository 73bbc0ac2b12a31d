"""A real Redis whose memory is full: what it removes first, and that `pools serve` refuses it for that."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from redis.exceptions import OutOfMemoryError

from equipoise.adapters.redis import RedisPools
from equipoise.pools.policy import tiers_for_scripts
from tests.support.cli.running import command, equipoise
from tests.support.pools.serving import Caller, until
from tests.support.pools.worlds import write
from tests.testbed import RedisServer, StartRedis

PODS = [f"a-{number}" for number in range(50)]
ROOM = 512 << 10
"""What the other tenant of the server fills."""


def _full(client: Any, policy: str) -> None:
    """Set a limit a little above what is used, and have another program write more than fits."""
    used = client.info("memory")["used_memory"]
    client.config_set("maxmemory", used + ROOM)
    client.config_set("maxmemory-policy", policy)
    with suppress(OutOfMemoryError):
        for number in range(2 * ROOM // 8192):
            client.set(f"other:{policy}:{number}", "x" * 8192)


@contextmanager
def _serving(server: RedisServer) -> Iterator[Caller]:
    words = ["pools", "serve", "--redis", server.url, "--address", "127.0.0.1:0", "--log-format", "json"]
    with subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            caller = Caller(json.loads(process.stderr.readline())["port"])
            until(lambda: caller.raw("GET", "/readyz")[0] == 200)
            yield caller
        finally:
            process.kill()


def test_a_full_redis_removes_live_calls_first_so_it_is_not_served_from(start_redis: StartRedis) -> None:
    """Leases and records are the only keys with a life time: `volatile-lru` takes just these."""
    server = start_redis()
    with server.client() as client:
        write(client, {"gold": PODS})
        pools = RedisPools(client, "voice", server.url, read_tiers=tiers_for_scripts)
        calls = [f"c{number}" for number in range(len(PODS))]
        assert all(pools.allocate(call).code == "Allocated" for call in calls)
        _full(client, "volatile-lru")
        assert client.info("stats")["evicted_keys"] > 0
        leases = sum(client.exists(f"voice:lease:{pod}") for pod in PODS)
        records = sum(client.exists(f"voice:call:{call}") for call in calls)
        assert (leases, records) == (0, 0), "calls that go on have lost what holds their pods"
    done = equipoise("pools", "serve", "--redis", server.url, "--address", "127.0.0.1:0", seconds=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "maxmemory-policy is volatile-lru" in done.stderr
    assert "set maxmemory-policy to noeviction, or accept the risk with --accept-eviction" in done.stderr


def test_a_full_redis_that_evicts_nothing_keeps_every_call(start_redis: StartRedis) -> None:
    """A setting that changes while it serves is noticed with the next connection."""
    server = start_redis()
    with server.client() as client:
        write(client, {"gold": PODS})
        with _serving(server) as caller:
            keys = [f"voice:lease:{caller.ask('allocate', call='c1').document['pod']}", "voice:call:c1"]
            _full(client, "noeviction")
            assert client.exists(*keys) == 2
            assert client.info("stats")["evicted_keys"] == 0
            client.config_set("maxmemory", "1gb")
            client.config_set("maxmemory-policy", "volatile-ttl")
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert caller.ask("allocate", call="c3").status == 503
            until(lambda: b"maxmemory-policy is volatile-ttl" in caller.raw("GET", "/readyz")[1])
            assert client.exists(*keys) == 2
            client.config_set("maxmemory", "0")
            until(lambda: caller.raw("GET", "/readyz")[0] == 200)
            assert caller.ask("allocate", call="c4").status == 200
