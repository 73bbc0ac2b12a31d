"""One real server for all tests of a process, emptied before each."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from equipoise.adapters.redis import RedisPools
from equipoise.pools.policy import tiers_for_scripts
from tests.support.pools.servers import server


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The URL of a Valkey."""
    with server() as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    """A plain client on an empty server: the hand of a foreign allocator."""
    with Redis.from_url(url, decode_responses=True) as client:
        client.execute_command("CLIENT", "UNPAUSE")  # whatever a test that failed has left
        client.flushall()
        yield client


@pytest.fixture
def pools(url: str, client: Any) -> Iterator[RedisPools]:
    """Our port on the same server."""
    with Redis.from_url(url, decode_responses=True) as own:
        yield RedisPools(own, "voice", url, read_tiers=tiers_for_scripts)
