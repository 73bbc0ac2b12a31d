"""Simulated time, and the faults that are injected into it.

Nothing happens between two entries of the timeline, so hours pass in milliseconds and a seed gives the same
order again.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

Happening = Callable[[], object]


class Timeline:
    """A queue of happenings. Those of one instant happen in the order in which they were asked for."""

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.now = started_at
        self._queue: list[tuple[float, int, Happening]] = []
        self._asked = 0

    def at(self, when: float, happening: Happening) -> None:
        """Schedule something at a time; a past one means now."""
        self._asked += 1
        heapq.heappush(self._queue, (max(when, self.now), self._asked, happening))

    def after(self, seconds: float, happening: Happening) -> None:
        self.at(self.now + seconds, happening)

    def every(self, seconds: float, happening: Happening, *, first_at: float) -> None:
        """Schedule something at a fixed interval, without drift."""
        if seconds <= 0:
            raise ValueError(f"a period of {seconds} s never ends")

        def again(number: int) -> None:
            self.at(first_at + (number + 1) * seconds, lambda: again(number + 1))
            happening()

        self.at(first_at, lambda: again(0))

    def run_until(self, when: float, settled: Happening) -> None:
        """Run everything up to a time; `settled` is called after each instant.

        A happening may itself run the timeline further (a late answer does): then this one only catches up.
        """
        while self._queue and self._queue[0][0] <= when:
            self.now = self._queue[0][0]
            while self._queue and self._queue[0][0] <= self.now:
                heapq.heappop(self._queue)[2]()
            settled()
        self.now = max(self.now, when)


class FaultKind(StrEnum):
    """The kinds of failures of an external system."""

    API_UNAVAILABLE = "ApiUnavailable"
    """No read, eviction, event or memory: the API server does not answer."""
    EVICTION_ANSWER_LOST = "EvictionAnswerLost"
    """Evictions are executed, and their answers are lost."""
    WATCH_LAG = "WatchLag"
    """Reads are `value` seconds old, or as old as the fault."""
    METRICS_OUTAGE = "MetricsOutage"
    METRICS_GAP = "MetricsGap"
    """Scrapes in this time are lost; a target is a pod's or a workload's `namespace/name`.

    One that began long ago and ends now is a Prometheus that starts with an empty store.
    """
    METRICS_NAN = "MetricsNaN"
    """Scrapes in this time give NaN, so that a rate over any of them is unknown."""
    METRICS_STALE = "MetricsStale"
    """Answers are as of `value` seconds ago."""
    METRICS_LATE = "MetricsLate"
    """Answers take `value` seconds."""
    RESOURCE_METRICS_OUTAGE = "ResourceMetricsOutage"
    """The HPA gets no metrics."""
    STORE_UNAVAILABLE = "StoreUnavailable"
    STORE_CONFLICT = "StoreConflict"
    """Every write conflicts with another one."""
    STORE_ANSWER_LOST = "StoreAnswerLost"
    """Writes are executed, and their answers are lost."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault for a time."""

    kind: FaultKind
    starts_at: float
    ends_at: float
    value: float = 0.0
    target: str = ""


class Faults:
    """All faults of a simulated cluster, past and future."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._by_kind: dict[FaultKind, list[Fault]] = {}
        self.begun: dict[FaultKind, Happening] = {}
        """What must happen at the start of a kind of fault."""

    def add(
        self,
        kind: FaultKind,
        *,
        seconds: float,
        starts_at: float | None = None,
        value: float = 0.0,
        target: str = "",
    ) -> Fault:
        """Inject a fault for so many seconds, from now or from a time on."""
        start = self._timeline.now if starts_at is None else starts_at
        fault = Fault(kind, start, start + seconds, value, target)
        self._by_kind.setdefault(kind, []).append(fault)
        begun = self.begun.get(kind)
        if begun is not None and start <= self._timeline.now:
            begun()
        elif begun is not None:
            self._timeline.at(start, begun)
        return fault

    def of(self, kind: FaultKind) -> list[Fault]:
        return self._by_kind.get(kind, [])

    def now(self, kind: FaultKind, target: str = "") -> Fault | None:
        """Return the fault of a kind that holds now, for everybody or for this target."""
        now = self._timeline.now
        for fault in self._by_kind.get(kind, ()):
            if fault.starts_at <= now < fault.ends_at and fault.target in {"", target}:
                return fault
        return None
