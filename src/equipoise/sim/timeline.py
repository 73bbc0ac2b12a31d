"""Simulated time: what is to happen, in order, and nothing between."""

import heapq
from collections.abc import Callable

Happening = Callable[[], object]


class Timeline:
    """A queue of happenings. Those of one instant happen in the order in which they were asked for."""

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.now = started_at
        self._queue: list[tuple[float, int, Happening]] = []
        self._asked = 0

    def at(self, when: float, happening: Happening) -> None:
        """Let something happen at a time; a past one means now."""
        self._asked += 1
        heapq.heappush(self._queue, (max(when, self.now), self._asked, happening))

    def after(self, seconds: float, happening: Happening) -> None:
        """Let something happen after so many seconds."""
        self.at(self.now + seconds, happening)

    def every(self, seconds: float, happening: Happening, *, first_at: float) -> None:
        """Let something happen again and again, without drift."""
        if seconds <= 0:
            raise ValueError(f"a period of {seconds} s never ends")

        def again(number: int) -> None:
            self.at(first_at + (number + 1) * seconds, lambda: again(number + 1))
            happening()

        self.at(first_at, lambda: again(0))

    def run_until(self, when: float, settled: Happening) -> None:
        """Let everything up to a time happen; `settled` is told after each instant.

        A happening may itself run the timeline further (a late answer does): then this one only catches up.
        """
        while self._queue and self._queue[0][0] <= when:
            self.now = self._queue[0][0]
            while self._queue and self._queue[0][0] <= self.now:
                heapq.heappop(self._queue)[2]()
            settled()
        self.now = max(self.now, when)
