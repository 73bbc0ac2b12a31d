"""Connects to the Redis, Sentinel or cluster behind a URL, and checks its configuration."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from redis import Redis, RedisCluster
from redis import exceptions as redis_errors
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from equipoise.adapters.redis.errors import explained
from equipoise.adapters.urls import split_url
from equipoise.core.errors import BadInput, WorldFailed

SCHEMES = ("redis", "rediss", "unix")
FORM = "expected redis://HOST:PORT, rediss://HOST:PORT or unix://PATH"
DATABASE = re.compile(r"/?[0-9]{0,9}")
PREFIX = re.compile(r"[A-Za-z0-9_.:{}-]{1,200}")
VERSION_MIN = (6, 2)
TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 0.2
KEEPS_ALL = "noeviction"
"""The only maxmemory-policy without evictions of keys."""


class _Cluster(RedisCluster):
    """A cluster's client that ends its connections where it is closed; the library's leaves them open."""

    def close(self) -> None:
        nodes = list(self.nodes_manager.nodes_cache.values()) if hasattr(self, "nodes_manager") else []
        super().close()
        for node in nodes:
            if node.redis_connection is not None:
                node.redis_connection.connection_pool.disconnect()


def expect_prefix(prefix: str) -> None:
    """Raise for a prefix that no key can begin with."""
    if not PREFIX.fullmatch(prefix):
        raise BadInput(f"--prefix: expected letters, digits and any of _ . : - {{ }}, got {prefix!r}")


def connect(url: str, prefix: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> "Redis | RedisCluster":
    """Return a connected client; raise for a server that is too old or a prefix without a hash tag."""
    address = address_of(url)
    expect_prefix(prefix)
    # For connections and reads; more retries would hide a failing server. scripts.py counts its own.
    options: dict[str, Any] = {
        "decode_responses": True,
        "encoding_errors": "replace",
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "retry": Retry(ConstantBackoff(RETRY_SECONDS), 1),
    }
    if url.startswith("unix:"):
        del options["socket_connect_timeout"]
    try:
        client = Redis.from_url(url, **options)
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)  # sends nothing
    except (TypeError, ValueError):
        asked = ", ".join(parse_qs(split_url(url).query))
        # What redis-py says quotes their values, a password among them.
        raise BadInput(
            f"--redis: expected options of redis-py with values that they take after the ?, got {asked}"
        ) from None
    try:
        is_cluster = _is_cluster(client, address)
    except BaseException:
        client.close()
        raise
    if not is_cluster:
        return client
    client.close()
    if not has_hash_tag(prefix):
        raise BadInput(
            f"--prefix: expected a hash tag such as {{{prefix}}}, since {address} is a Redis Cluster: "
            "all keys of the pools must share one slot"
        )
    with explained(address):
        try:
            return _Cluster.from_url(url, **options)
        except redis_errors.RedisClusterException as error:
            raise WorldFailed(f"{address}: {error}") from error


def address_of(url: str) -> str:
    """Return the address without the password, for messages; an error does not show the password either."""
    try:
        parts = split_url(url)
        host, port = parts.hostname or "localhost", parts.port or 6379
    except ValueError as error:
        raise BadInput(f"--redis: {FORM}; {error}") from error
    if parts.scheme not in SCHEMES or not url.startswith(f"{parts.scheme}://"):
        raise BadInput(f"--redis: {FORM}")
    if parts.scheme == "unix":
        return f"unix://{parts.path}"
    if not DATABASE.fullmatch(parts.path):
        raise BadInput("--redis: expected the number of a database after the /, or nothing")
    return f"{parts.scheme}://{host}:{port}"


class EvictingServer(redis_errors.ConnectionError):
    """A new connection reached a server that may evict the keys of live calls, so it was not used."""


def ask_at_every_connect(client: "Redis | RedisCluster") -> None:
    """Have every new connection check its server's eviction policy: a failover leads to another server."""
    if isinstance(client, RedisCluster):
        client.user_on_connect_func = _expect_no_eviction
    else:
        pool = client.connection_pool
        pool.connection_kwargs["redis_connect_func"] = _connected
        pool.disconnect()
        pool.reset()  # a connection that exists would connect anew as it was made


def eviction_of(client: "Redis | RedisCluster", address: str) -> str:
    """Return why keys of live calls may be lost, and the remedy; empty where they are safe.

    Every primary of a Redis Cluster is checked; an unreachable one is checked on its next connection.
    """
    with explained(address):
        if not isinstance(client, RedisCluster):
            said = _eviction_at(client)
            return f"{address}: {said}" if said else ""
        for node in client.get_primaries():  # type: ignore[no-untyped-call]
            try:
                said = _eviction_at(client.get_redis_connection(node))
            except (redis_errors.ConnectionError, redis_errors.TimeoutError):
                continue
            if said:
                return f"{address}: the primary {node.name}: {said}"
    return ""


def _eviction_at(client: "Redis") -> str:
    try:
        found: dict[str, Any] = client.info("memory")
    except EvictingServer as error:
        return str(error)
    except redis_errors.ResponseError as error:
        if not _is_closed(error):
            raise
        return _unknown(str(error))
    return eviction_in(found)


def eviction_in(memory: Mapping[str, Any]) -> str:
    """Return the problem that the section `memory` of INFO shows; a missing field is a problem, too."""
    policy, limit = memory.get("maxmemory_policy"), memory.get("maxmemory")
    if policy == KEEPS_ALL or str(limit) == "0":
        return ""
    if policy is None:
        return _unknown("INFO memory has no maxmemory_policy")
    shown = memory.get("maxmemory_human") or limit or "not reported"
    return (
        f"Redis evicts keys when its memory is full (maxmemory-policy is {policy}, maxmemory is {shown}), "
        f"so a live call could lose its pod to another; set maxmemory-policy to {KEEPS_ALL}"
    )


def _is_closed(error: redis_errors.ResponseError) -> bool:
    """Return whether INFO is refused permanently, and not only while a script runs."""
    return isinstance(error, redis_errors.NoPermissionError) or "unknown command" in str(error)


def _unknown(why: str) -> str:
    return (
        f"whether Redis evicts keys is not known ({why}), so a live call could lose its pod to another; "
        f"allow the command INFO (+info), and set maxmemory-policy to {KEEPS_ALL}"
    )


def _connected(connection: Any) -> None:
    connection.on_connect()
    _expect_no_eviction(connection)


def _expect_no_eviction(connection: Any) -> None:
    connection.send_command("INFO", "memory")
    try:
        answer = connection.read_response()
    except redis_errors.ResponseError as error:
        if _is_closed(error):
            raise EvictingServer(_unknown(str(error))) from error
        # It is no answer to what the connection is made for.
        raise redis_errors.ConnectionError(str(error)) from error
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    said = eviction_in(dict(line.split(":", 1) for line in text.splitlines() if ":" in line))
    if said:
        raise EvictingServer(said)


def has_hash_tag(prefix: str) -> bool:
    """Return whether Redis Cluster would put every key of this prefix into one slot."""
    _, brace, rest = prefix.partition("{")
    tag, end, _ = rest.partition("}")
    return bool(brace and end and tag)


def _is_cluster(client: "Redis", address: str) -> bool:
    with explained(address):
        about: dict[str, Any] = client.info("server")
        _expect_version(str(about.get("redis_version", "")), address)
        return bool(client.info("cluster").get("cluster_enabled"))


def _expect_version(text: str, address: str) -> None:
    found = re.match(r"(\d+)\.(\d+)", text)
    if found and (int(found[1]), int(found[2])) < VERSION_MIN:
        raise WorldFailed(f"{address}: expected Redis 6.2 or newer, or Valkey; got Redis {text}")
