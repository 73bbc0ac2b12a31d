"""Signs of life: each loop's thread beats, and a loop that has not for too long counts as stalled."""

import threading
import time
from collections.abc import Callable

STALL_MIN_SECONDS = 60.0
STALL_INTERVALS = 3


class Heart:
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

    def illness(self) -> str | None:
        """Say for how long it has stalled, or None."""
        silent_seconds = self._monotonic() - self._beat_at
        if silent_seconds <= self.stall_seconds:
            return None
        return f"loop {self.name} has stalled: no heartbeat for {silent_seconds:.0f} s"


class Hearts:
    """Finds the heart of whoever calls: what runs deep inside a loop need not know which one it is."""

    def __init__(self) -> None:
        self._by_thread: dict[int, Heart] = {}

    def own(self, heart: Heart) -> None:
        """Make this heart the calling thread's."""
        self._by_thread[threading.get_ident()] = heart

    def beat(self) -> None:
        """Beat for the loop whose thread this is; any other thread has none."""
        heart = self._by_thread.get(threading.get_ident())
        if heart is not None:
            heart.beat()
