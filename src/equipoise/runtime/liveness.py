"""Signs of life: each loop's thread beats, and a loop that has not for too long counts as stalled.

How a process that runs on is asked to stop.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

STALL_MIN_SECONDS = 60.0
STALL_INTERVALS = 3


class Heartbeat:
    """The life of one loop."""

    def __init__(
        self, name: str, interval_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.stall_seconds = max(STALL_INTERVALS * interval_seconds, STALL_MIN_SECONDS)
        self._monotonic = monotonic
        self._beat_at = monotonic()

    def beat(self) -> None:
        """Say that the loop gets on."""
        self._beat_at = self._monotonic()

    def liveness_error(self) -> str | None:
        """Say for how long it has stalled, or None."""
        silent_seconds = self._monotonic() - self._beat_at
        if silent_seconds <= self.stall_seconds:
            return None
        return f"loop {self.name} has stalled: no heartbeat for {silent_seconds:.0f} s"


class HeartbeatRegistry:
    """Finds the heart of whoever calls: what runs deep inside a loop need not know which one it is."""

    def __init__(self) -> None:
        self._by_thread: dict[int, Heartbeat] = {}

    def own(self, heart: Heartbeat) -> None:
        """Make this heart the calling thread's."""
        self._by_thread[threading.get_ident()] = heart

    def beat(self) -> None:
        """Beat for the loop whose thread this is; any other thread has none."""
        heart = self._by_thread.get(threading.get_ident())
        if heart is not None:
            heart.beat()


SIGNALS = (signal.SIGTERM, signal.SIGINT)


def end_on_signals() -> None:
    """End at SIGTERM and SIGINT while nothing has begun: a container's first process would ignore them."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: sys.exit(0))


def on_signals(stopping: threading.Event) -> None:
    """Have SIGTERM and SIGINT ask for a stop; a second one ends the process at once."""
    for number in SIGNALS:
        signal.signal(number, _signalled(stopping))


def _signalled(stopping: threading.Event) -> "signal._HANDLER":
    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    return on_signal
