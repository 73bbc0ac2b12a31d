"""Starts neighbours, waits for them within bounds, and ends exactly what it started."""

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import urllib3

T = TypeVar("T")

_TETHER = Path(__file__).with_name("tether.py")
_POLL_SECONDS = 0.05
_RANGES = 4
_FOUND: set[int] = set()
# The kernel's tether is tied to the thread that starts a process, not to the whole of ours: so one
# thread, which lives as long as we do, starts them all.
_STARTER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="testbed-starter")


class NotInTime(AssertionError):  # noqa: N818 - a missed bound, told as a fact
    """A condition did not come true within its bound, or the process it depended on has ended."""


class PortTaken(NotInTime):
    """Somebody else took the port between our look and the process's start."""


class Process:
    """One neighbour in a session of its own, with a log, tied to our life."""

    def __init__(self, name: str, command: Iterable[str | Path], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = [str(word) for word in command]
        self._popen: subprocess.Popen[bytes] | None = None
        self._niceness = 0

    def start(self) -> None:
        assert not self.alive, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._popen = _STARTER.submit(self._launch).result()
        self._take_priority()

    def _launch(self) -> "subprocess.Popen[bytes]":
        tether = [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid())]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*tether, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        assert self._popen is not None, f"{self.name} was never started"
        return self._popen.pid

    def hurry(self, niceness: int = -15) -> None:
        """Let it run before others from now on, after a restart too: what measures others must not be late.

        Where the kernel does not let us, it runs as all do.
        """
        self._niceness = niceness
        if self.alive:
            self._take_priority()

    def _take_priority(self) -> None:
        if self._niceness:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.pid, self._niceness)
            # Where sessions are groups for the scheduler, niceness alone counts within the group.
            with suppress(OSError):
                Path(f"/proc/{self.pid}/autogroup").write_text(str(self._niceness))

    def stop(self, grace_seconds: float = 10.0) -> None:
        """End it politely, then by force; return when it is gone."""
        self._end(signal.SIGTERM, grace_seconds)
        self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would; return when it is gone."""
        self._end(signal.SIGKILL, 60.0)

    def _end(self, number: signal.Signals, seconds: float) -> None:
        if self._popen is None or self._popen.poll() is not None:
            return
        os.killpg(self._popen.pid, number)
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            if number is signal.SIGKILL:
                raise

    def tail(self, lines: int = 15) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def wait_until(self, ready: Callable[[], object], what: str, seconds: float) -> None:
        """Wait for a condition; fail at once when this process ends, with the end of its log."""

        def ready_or_dead() -> bool:
            return bool(ready()) or not self.alive

        try:
            wait_until(ready_or_dead, what, seconds)
        except NotInTime as late:
            raise NotInTime(f"{late}; {self.name} says:\n{self.tail()}") from None
        if not self.alive:
            kind = PortTaken if "address already in use" in self.tail().lower() else NotInTime
            raise kind(f"{self.name} ended while we waited for {what}; it said:\n{self.tail()}")


def wait_until(condition: Callable[[], T | None], what: str, seconds: float) -> T:
    """Ask again and again until the answer is true, at most so many seconds; give the answer."""
    end = time.monotonic() + seconds
    while True:
        is_last = time.monotonic() > end  # before the look: a stall just after it is no answer
        answer = condition()
        if answer:
            return answer
        if is_last:
            raise NotInTime(f"{what}: not within {seconds:g} s")
        time.sleep(_POLL_SECONDS)


def is_answering(url: str) -> bool:
    """Tell whether a server is there and says that it is well."""
    try:
        with urllib3.PoolManager(timeout=10.0, retries=False) as pool:
            return pool.request("GET", url).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def free_port() -> int:
    """Find a port on the loopback address that nobody listens on.

    It lies below the range that the kernel gives to outgoing connections: a neighbour that is killed and
    comes back on its port must not find a client of somebody else there. None is found twice, and each of
    the first four workers of the tests has a range of its own: whoever gets a port binds it a moment later.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _RANGES
    own = range(20000 + worker, 32000, _RANGES)
    for port in random.SystemRandom().sample([port for port in own if port not in _FOUND], 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                _FOUND.add(port)
                return port
    raise NotInTime("no free port among 200 tried")


def with_free_ports(start: Callable[[], T], attempts: int = 3) -> T:
    """Start something that picks its own ports; pick again when somebody was quicker."""
    for _ in range(attempts - 1):
        try:
            return start()
        except PortTaken:
            continue
    return start()
