"""Finds out what stands behind a URL, and connects to it."""

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redis import Redis, RedisCluster
from redis import exceptions as redis_errors
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from equipoise.adapters.redis.errors import explained
from equipoise.model.errors import BadInput, WorldFailed

SCHEMES = ("redis", "rediss", "unix")
FORM = "expected redis://HOST:PORT, rediss://HOST:PORT or unix://PATH"
DATABASE = re.compile(r"/?[0-9]{0,9}")
PREFIX = re.compile(r"[A-Za-z0-9_.:{}-]{1,200}")
VERSION_MIN = (6, 2)
TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 0.2


def connect(url: str, prefix: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> "Redis | RedisCluster":
    """Connect, and refuse what could not work: an old server, a cluster without a hash tag."""
    address = address_of(url)
    if not PREFIX.fullmatch(prefix):
        raise BadInput(f"--prefix: expected letters, digits and any of _ . : - {{ }}, got {prefix!r}")
    # For connections and what is only read; more would only hide a sick server. scripts.py counts its own.
    options: dict[str, Any] = {
        "decode_responses": True,
        "encoding_errors": "replace",
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "retry": Retry(ConstantBackoff(RETRY_SECONDS), 1),
    }
    if urlsplit(url).scheme == "unix":
        del options["socket_connect_timeout"]
    try:
        client = Redis.from_url(url, **options)
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)  # sends nothing
    except (TypeError, ValueError) as error:
        asked = ", ".join(parse_qs(urlsplit(url).query))
        raise BadInput(f"--redis: expected options of redis-py after the ?, got {asked}") from error
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
            return RedisCluster.from_url(url, **options)
        except redis_errors.RedisClusterException as error:
            raise WorldFailed(f"{address}: {error}") from error


def address_of(url: str) -> str:
    """Give the address without the password, for people to read; a refusal shows nothing of it either."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port or 6379
    except ValueError as error:
        # It would quote what stands where the port should: a part of the password, more often than not.
        raise BadInput(
            f"--redis: {FORM}; in a password, / ? # @ : [ and ] are written as %2F and so on"
        ) from error
    if parts.scheme not in SCHEMES or not url.startswith(f"{parts.scheme}://"):
        raise BadInput(f"--redis: {FORM}")
    if parts.scheme == "unix":
        return f"unix://{parts.path}"
    if not DATABASE.fullmatch(parts.path):
        raise BadInput("--redis: expected the number of a database after the /, or nothing")
    return f"{parts.scheme}://{host}:{port}"


def has_hash_tag(prefix: str) -> bool:
    """Tell whether Redis Cluster would put every key of this prefix into one slot."""
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
