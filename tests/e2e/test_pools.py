"""Pools, the long way: large worlds, foreign allocators, other servers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.e2e.conftest import Offered
from tests.support.explorer.machine import World
from tests.support.explorer.running import explore
from tests.support.explorer.scenes import FOREIGN, LARGE, SMALL
from tests.support.pools.fault_clients import ask_under_kills
from tests.support.pools.foreign_processes import run_beside
from tests.support.pools.servers import server
from tests.testbed import StartRedis, binary

BESIDE_SECONDS = 60
ANSWERS_SECONDS = 20


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A Valkey of this module's own."""
    with server() as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Any]:
    """A client of it."""
    with Redis.from_url(url, decode_responses=True) as found:
        yield found


@pytest.mark.parametrize("world", [LARGE[0], LARGE[4], *FOREIGN[3:]], ids=lambda world: world.name)
def test_no_interleaving_of_a_large_world_breaks_an_invariant(client: Any, world: World) -> None:
    """Every state that they pass through is looked at; `python -m tests.soak.pools` explores all of them."""
    found = explore(client, world)
    assert not found.violations, found.example


def test_foreign_allocators_beside_us_lose_no_pod_and_get_none_twice(url: str) -> None:
    """The seed's flow in other processes, some of them killed, while targets change; the soak does more."""
    report = run_beside(url, BESIDE_SECONDS)
    print(report)
    assert report.given_twice == []
    assert report.broken == []
    assert report.lost == []
    assert report.served > BESIDE_SECONDS
    assert report.moves > BESIDE_SECONDS / 10


def test_no_answer_that_denies_a_change_is_false_while_servers_are_killed(
    start_redis: StartRedis, tmp_path: Path
) -> None:
    """16 clients over HTTP; every *no* is held against Redis, which writes it all down before it answers."""
    report = ask_under_kills(start_redis(append_only=True, fsync="always"), tmp_path, ANSWERS_SECONDS)
    print(report)
    assert report.false == []
    assert report.redis_kills > 0
    assert report.checked.total() > 0
    assert report.count("yes") > report.redis_kills


@pytest.fixture(scope="module")
def redis_client(offered: Offered) -> Iterator[Any]:
    """A client of a Redis of this module's own."""
    with offered():
        program = str(binary("redis-server"))
    with server(program) as url, Redis.from_url(url, decode_responses=True) as found:
        yield found


@pytest.mark.parametrize("world", SMALL[:4], ids=lambda world: world.name)
def test_the_same_holds_on_redis(redis_client: Any, world: World) -> None:
    """The scripts know no difference between Redis and Valkey."""
    found = explore(redis_client, world)
    assert not found.violations, found.example
