"""One loop on its thread: a cycle at every interval, never two at once, and no failure that ends it."""

import threading
import time
from collections.abc import Callable

from equipoise.app.operator.hearts import Heart, Hearts
from equipoise.app.operator.logs import DecisionLines, Log, log_failure
from equipoise.app.operator.loops import Loop
from equipoise.app.operator.meters import Meters
from equipoise.app.operator.pools_meters import tell_moves, tell_unread
from equipoise.model.errors import EquipoiseError, SetUpWrong
from equipoise.ports import Clock, CycleReport

JITTER_MAX_SECONDS = 5.0
SYNC_POLL_SECONDS = 0.1
SYNC_REPORT_SECONDS = 60.0
WAKE_SECONDS = 1.0
"""So long at least is between two turns of a loop that is woken."""


class Turns:
    """Runs a loop until `stopping` is set; the cycle under way is then finished."""

    def __init__(
        self,
        loop: Loop,
        *,
        clock: Clock,
        hearts: Hearts,
        meters: Meters,
        log: Log,
        stopping: threading.Event,
        unready: Callable[[], list[str]],
        chance: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`unready` says what the first cycle still has to wait for."""
        self.loop = loop
        self._clock = clock
        self._hearts = hearts
        self._heart = Heart(loop.name, loop.interval_seconds, monotonic)
        self._has_succeeded = False
        self._refused = ""
        self._meters = meters
        self._log = log.bind(balancer=loop.name)
        self._lines = DecisionLines(log, loop.name, monotonic)
        self._stopping = stopping
        self._unready = unready
        self._chance = chance
        self._monotonic = monotonic
        self._thread = threading.Thread(target=self.run, name=f"loop-{loop.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the last cycle to end; tell whether it has."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def illness(self) -> str | None:
        """Say what is wrong with it, or None."""
        if self._thread.ident is not None and not self._thread.is_alive() and not self._stopping.is_set():
            return f"the thread of loop {self.loop.name} has died"
        return self._heart.illness()

    def unready(self) -> list[str]:
        """Return why the loop is not at work: no cycle has gone well yet, or a neighbour is set up wrong."""
        if self._refused:
            return [f"loop {self.loop.name}: {self._refused}"]
        return [] if self._has_succeeded else [f"loop {self.loop.name}: no cycle has gone well yet"]

    def run(self) -> None:
        """Take turns at fixed moments; those that were missed are left out."""
        self._hearts.own(self._heart)
        self._stopping.wait(self._chance() * min(JITTER_MAX_SECONDS, self.loop.interval_seconds))
        self._wait_until_ready()
        due = self._monotonic()
        while not self._stopping.is_set():
            self.turn()
            interval, now = self.loop.interval_seconds, self._monotonic()
            due += interval * max(1, -(-(now - due) // interval))
            if self._is_woken(due):
                due = self._monotonic()

    def _is_woken(self, due: float) -> bool:
        """Wait for the next turn, and tell whether the loop wants it sooner: it is asked once a second."""
        wants = getattr(self.loop, "is_woken", None)
        while (left := due - self._monotonic()) > 0:
            is_stopping = self._stopping.wait(left if wants is None else min(left, WAKE_SECONDS))
            self._heart.beat()
            if is_stopping:
                return False
            if wants is not None and wants():
                return True
        return False

    def turn(self) -> None:
        """Do one cycle, and tell what came of it wherever it is told."""
        self._heart.beat()
        began = self._monotonic()
        try:
            report = self.loop.cycle(self._clock.now())
            self._refused = ""
            self._tell(report, self._monotonic() - began)
        except Exception as error:  # noqa: BLE001 - one bad cycle must not end the loop
            result = "failed" if isinstance(error, EquipoiseError) else "bug"
            self._refused = str(error) if isinstance(error, SetUpWrong) else ""
            self._meters.cycle_failed(self.loop.name, result, self._monotonic() - began)
            tell_unread(self._log, error)
            log_failure(self._log, "the cycle failed", error)
        self._heart.beat()

    def _tell(self, report: CycleReport, took_seconds: float) -> None:
        unshown = self._meters.cycle_done(self.loop.name, report, took_seconds, self._clock.now())
        self._lines.tell(report)
        self._lines.tell_failed(unshown)
        if self.loop.name == "pools":
            tell_moves(self._log, report)
        if report.failure:
            self._log.warning(f"the cycle saw only a part: {report.failure}")
        else:
            self._has_succeeded = True

    def _wait_until_ready(self) -> None:
        """Wait for the caches, and say now and then what they wait for: it is mostly a missing right."""
        told = self._monotonic()
        while not self._stopping.is_set() and (missing := self._unready()):
            self._heart.beat()
            if self._monotonic() - told >= SYNC_REPORT_SECONDS:
                told = self._monotonic()
                self._log.warning(f"the first cycle waits: {'; '.join(missing)}")
            self._stopping.wait(SYNC_POLL_SECONDS)
