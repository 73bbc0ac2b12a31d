"""Runs the command as a user does: another process, its own environment."""

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

BOUND_SECONDS = 180
ROOT = Path(__file__).parents[3]
_FREE = threading.Lock()
"""Taken while a call is under way: those of other threads begin anew."""


def equipoise(
    *arguments: str,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    seconds: float = BOUND_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run `equipoise` and give back what it printed; no variable of ours leaks in from outside."""
    variables = clean(environment)
    # Python reads these as it begins.
    is_odd = any(name.startswith(("PYTHON", "LANG", "LC_")) for name in environment or ())
    if not is_odd and _FREE.acquire(blocking=False):
        try:
            return _warm().call(arguments, stdin, variables, seconds)
        finally:
            _FREE.release()
    return equipoise_anew(*arguments, stdin=stdin, environment=environment, seconds=seconds)


def equipoise_anew(
    *arguments: str,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    seconds: float = BOUND_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run it in a process that begins with Python itself."""
    return subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env=clean(environment),
    )


class Warm:
    """The process that forks for each call, until the other end of its socket is closed."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.cli.warm", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
            )
        self._answers = self._socket.makefile()
        atexit.register(self.close)

    def close(self) -> None:
        """End it."""
        self._answers.close()
        self._socket.close()
        self._process.wait(BOUND_SECONDS)

    def call(
        self, arguments: tuple[str, ...], stdin: str, environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run the command once."""
        asked = {"words": arguments, "environment": dict(environment), "folder": str(Path.cwd())}
        with contextlib.ExitStack() as stack:
            given, out, err = (stack.enter_context(tempfile.TemporaryFile("w+b")) for _ in range(3))
            given.write(stdin.encode())
            given.seek(0)
            streams = [stream.fileno() for stream in (given, out, err)]
            socket.send_fds(self._socket, [json.dumps(asked).encode()], streams)
            status = self._status(int(self._answers.readline()), arguments, seconds)
            for stream in (out, err):
                stream.seek(0)
            printed, said = out.read().decode(), err.read().decode()
        return subprocess.CompletedProcess(list(arguments), status, printed, said)

    def _status(self, child: int, arguments: tuple[str, ...], seconds: float) -> int:
        self._socket.settimeout(seconds)
        try:
            return int(self._answers.readline())
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            _warm.cache_clear()  # its stream can't be read again
            raise subprocess.TimeoutExpired(list(arguments), seconds) from None
        finally:
            self._socket.settimeout(None)


@functools.cache
def _warm() -> Warm:
    return Warm()


def command(*arguments: str) -> list[str]:
    """Give the words that start it."""
    return [sys.executable, "-c", "from equipoise.cli.main import main; main()", *arguments]


def terminal(columns: int) -> dict[str, str]:
    """Return the environment in which output is laid out as on a terminal of this width, without escapes."""
    return {"COLUMNS": str(columns), "LINES": "60", "TERM": "dumb", "TTY_COMPATIBLE": "1"}


def clean(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give an environment without variables that mean something to us, but for these."""
    foreign = (
        "KUBE",
        "REBALANCE_",
        "TOLERANCE_",
        "MINIMUM_",
        "HPA_",
        "KAFKA_",
        "METRICS_",
        "PROMETHEUS_",
        "DEPLOY",
    )
    ours = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return ours | {"COLUMNS": "100", "NO_COLOR": "1", "HOME": "/nonexistent"} | dict(environment or {})
