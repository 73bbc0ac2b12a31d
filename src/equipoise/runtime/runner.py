"""Runs one balancer's loop, in the operator and in the node agent: cycles at fixed intervals, until a signal.

A loop must neither end by a failure nor hang unnoticed. So one cycle runs at a time, an exception ends only
that cycle, and every cycle renews a heartbeat: a loop without a recent one counts as stalled.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from equipoise.core.errors import SetUpWrong

if TYPE_CHECKING:  # a process installs its signal handlers before it imports the rest
    from equipoise.ports import Clock, CycleReport
    from equipoise.ports.wiring import Loop
    from equipoise.runtime.logs import Log

STALL_MIN_SECONDS = 60.0
STALL_INTERVALS = 3
JITTER_MAX_SECONDS = 5.0
SYNC_POLL_SECONDS = 0.1
SYNC_REPORT_SECONDS = 60.0
WAKE_SECONDS = 1.0
"""The minimum delay between cycles that a wake-up starts."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SystemClock:
    """The system's wall clock, in seconds since the epoch."""

    def now(self) -> float:
        return time.time()


class Heartbeat:
    """The heartbeat of one loop: the time of its last progress."""

    def __init__(
        self, name: str, interval_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.stall_seconds = max(STALL_INTERVALS * interval_seconds, STALL_MIN_SECONDS)
        self._monotonic = monotonic
        self._renewed_at = monotonic()

    def renew(self) -> None:
        self._renewed_at = self._monotonic()

    def liveness_error(self) -> str | None:
        """Return for how long the loop has stalled, or None."""
        silent_seconds = self._monotonic() - self._renewed_at
        if silent_seconds <= self.stall_seconds:
            return None
        return f"loop {self.name} has stalled: no heartbeat for {silent_seconds:.0f} s"


class HeartbeatRegistry:
    """Maps each thread to its loop's heartbeat, so that code deep inside a loop needs no reference to it."""

    def __init__(self) -> None:
        self._by_thread: dict[int, Heartbeat] = {}

    def own(self, heartbeat: Heartbeat) -> None:
        assert heartbeat not in self._by_thread.values(), f"two threads run {heartbeat.name}"
        self._by_thread[threading.get_ident()] = heartbeat

    def renew(self) -> None:
        """Renew the calling thread's heartbeat; does nothing if it has none."""
        heartbeat = self._by_thread.get(threading.get_ident())
        if heartbeat is not None:
            heartbeat.renew()


class CycleObserver(Protocol):
    """Reports results of cycles: in metrics, in the log, as events."""

    def observe_cycle(self, report: "CycleReport", took_seconds: float) -> None:
        """Report a cycle that decided; an exception raised here counts as a failure of the cycle."""
        ...

    def observe_failure(self, error: Exception, took_seconds: float) -> None:
        """Report the exception that ended a cycle."""
        ...


class LoopRunner:
    """Runs a loop until `stopping` is set; the current cycle is finished first."""

    def __init__(
        self,
        loop: "Loop",
        observer: CycleObserver,
        *,
        clock: "Clock",
        heartbeats: HeartbeatRegistry,
        log: "Log",
        stopping: threading.Event,
        missing: Callable[[], list[str]] = list,
        jitter_seconds: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the thread; `missing` returns the dependencies that the first cycle still waits for."""
        assert loop.interval_seconds > 0, f"loop {loop.name} has no interval"
        self.loop = loop
        self.heartbeat = Heartbeat(loop.name, loop.interval_seconds, monotonic)
        self.failures = 0
        """How many of the last cycles failed, in a row."""
        self.last_error: Exception | None = None
        """The exception that ended the last cycle; None if it succeeded."""
        self.has_succeeded = False
        """True after one cycle that observed everything it should."""
        self._observer = observer
        self._clock = clock
        self._heartbeats = heartbeats
        self._log = log.bind(balancer=loop.name)
        self._stopping = stopping
        self._missing = missing
        self._jitter_seconds = jitter_seconds
        self._monotonic = monotonic
        self._thread = threading.Thread(target=self.run, name=f"loop-{loop.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the last cycle to end, and return whether it has."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def liveness_error(self) -> str | None:
        """Return an error that only a restart fixes (a dead thread, a stalled loop), or None."""
        if self._thread.ident is not None and not self._thread.is_alive() and not self._stopping.is_set():
            return f"the thread of loop {self.loop.name} has died"
        return self.heartbeat.liveness_error()

    def readiness_errors(self) -> list[str]:
        """Return why the loop is not ready: no cycle has succeeded yet, or a dependency is misconfigured."""
        if isinstance(self.last_error, SetUpWrong):
            return [f"loop {self.loop.name}: {self.last_error}"]
        return [] if self.has_succeeded else [f"loop {self.loop.name}: no cycle has succeeded yet"]

    def run(self) -> None:
        """Run cycles at fixed intervals on the calling thread; missed cycles are skipped, not made up for."""
        self._heartbeats.own(self.heartbeat)
        self._stopping.wait(self._jitter_seconds)
        self._wait_until_ready()
        due = self._monotonic()
        while not self._stopping.is_set():
            self.run_once()
            interval, now = self.loop.interval_seconds, self._monotonic()
            due += interval * max(1, -(-(now - due) // interval))
            assert due > now - interval, "a missed cycle would be made up for"
            if self._is_woken(due):
                due = self._monotonic()

    def _is_woken(self, due: float) -> bool:
        """Wait until the next cycle is due; return True early if the loop is woken (polled each second)."""
        is_woken = getattr(self.loop, "is_woken", None)
        while (remaining := due - self._monotonic()) > 0:
            is_stopping = self._stopping.wait(remaining if is_woken is None else min(remaining, WAKE_SECONDS))
            self.heartbeat.renew()
            if is_stopping:
                return False
            if is_woken is not None and is_woken():
                return True
        return False

    def run_once(self) -> None:
        self.heartbeat.renew()
        began = self._monotonic()
        try:
            report = self.loop.cycle(self._clock.now())
            self.last_error = None
            self._observer.observe_cycle(report, self._monotonic() - began)
        except Exception as error:  # noqa: BLE001 - one bad cycle must not end the loop
            self.failures, self.last_error = self.failures + 1, error
            self._observer.observe_failure(error, self._monotonic() - began)
        else:
            self.failures = 0
            self.has_succeeded = self.has_succeeded or not report.failure
        self.heartbeat.renew()

    def _wait_until_ready(self) -> None:
        """Wait for the caches, and log every minute what is missing: usually a permission."""
        reported_at = self._monotonic()
        while not self._stopping.is_set() and (missing := self._missing()):
            self.heartbeat.renew()
            if self._monotonic() - reported_at >= SYNC_REPORT_SECONDS:
                reported_at = self._monotonic()
                self._log.warning(f"the first cycle is waiting: {'; '.join(missing)}")
            self._stopping.wait(SYNC_POLL_SECONDS)


def end_on_signals() -> None:
    """Exit on SIGTERM and SIGINT before anything has started; process 1 of a container would ignore them."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: sys.exit(0))


def on_signals(stopping: threading.Event) -> None:
    """Set `stopping` on SIGTERM or SIGINT; a second signal ends the process at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in SIGNALS:
        signal.signal(number, on_signal)
