"""Starts the parts in order, watches over them, and stops them in an order that loses nothing.

One loop on its thread: a cycle at every interval, never two at once, and no failure that ends it.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from equipoise.core.errors import EquipoiseError, SetUpWrong
from equipoise.ports import Clock, CycleReport, Leadership
from equipoise.runtime.http import HttpServer, make_app
from equipoise.runtime.liveness import Heartbeat, HeartbeatRegistry
from equipoise.runtime.logs import DecisionLines, ErrorReporter, Log, log_failure
from equipoise.runtime.operator.balancer_metrics import tell_moves, tell_unread
from equipoise.runtime.operator.loops import Loop
from equipoise.runtime.operator.metrics import OperatorMetrics
from equipoise.runtime.operator.worker import Batches

JITTER_MAX_SECONDS = 5.0
SYNC_POLL_SECONDS = 0.1
SYNC_REPORT_SECONDS = 60.0
WAKE_SECONDS = 1.0
"""So long at least is between two turns of a loop that is woken."""


class LoopRunner:
    """Runs a loop until `stopping` is set; the cycle under way is then finished."""

    def __init__(
        self,
        loop: Loop,
        *,
        clock: Clock,
        hearts: HeartbeatRegistry,
        meters: OperatorMetrics,
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
        self._heart = Heartbeat(loop.name, loop.interval_seconds, monotonic)
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

    def liveness_error(self) -> str | None:
        """Return what is wrong with it, or None."""
        if self._thread.ident is not None and not self._thread.is_alive() and not self._stopping.is_set():
            return f"the thread of loop {self.loop.name} has died"
        return self._heart.liveness_error()

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


LOOK_SECONDS = 5.0
RESERVE_SECONDS = 3.0
"""What the loops leave of the stop's time to the lease, the caches, the journal and the server."""


class Part(Protocol):
    """Something that runs beside the loops."""

    def start(self) -> None:
        """Begin."""
        ...

    def stop(self, timeout_seconds: float) -> bool:
        """End; tell whether it did in time."""
        ...

    def liveness_errors(self) -> list[str]:
        """Return what only a restart can mend."""
        ...

    def unready(self) -> list[str]:
        """Return what it still waits for."""
        ...

    def complaints(self) -> Mapping[str, str]:
        """Return what goes wrong now, by who complains."""
        ...


class StoppingLeadership:
    """Leadership that ends with the stop: an action under way is finished, and no new one begins."""

    def __init__(self, inner: Leadership, stopping: threading.Event) -> None:
        self._inner = inner
        self._stopping = stopping

    def epoch(self) -> int | None:
        """Return the epoch that we lead in, or None."""
        return None if self._stopping.is_set() else self._inner.epoch()


class OperatorProcess:
    """The operator as one thing that starts and stops."""

    def __init__(
        self,
        *,
        loops: Sequence[Loop],
        lease: Part,
        parts: Sequence[Part],
        batches: Batches,
        hearts: HeartbeatRegistry,
        meters: OperatorMetrics,
        clock: Clock,
        address: str,
        stop_seconds: float,
        stopping: threading.Event,
        log: Log,
        awaited_by: Callable[[str], list[str]] | None = None,
        chance: Callable[[], float] = random.random,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`parts` are started in this order and stopped in the reverse; the lease is the last and first.

        `awaited_by` says what the first cycle of a loop has to wait for: by default, for every part.
        """
        self.stopping = stopping
        self._turns = [
            LoopRunner(
                loop,
                clock=clock,
                hearts=hearts,
                meters=meters,
                log=log,
                stopping=stopping,
                unready=partial(awaited_by, loop.name) if awaited_by else self._parts_unready,
                chance=chance,
                monotonic=monotonic,
            )
            for loop in loops
        ]
        self._lease = lease
        self._parts = parts
        self._batches = batches
        self._stop_seconds = stop_seconds
        self._log = log
        self._monotonic = monotonic
        self.door = HttpServer(address, make_app(self.liveness_errors, self.unready, meters.registry))
        self._complaints = ErrorReporter(log, self._all_complaints)

    def start(self) -> None:
        """Start everything; an address that is taken ends it before anything else has begun."""
        self.door.start()
        for part in (*self._parts, self._lease):
            part.start()
        for turns in self._turns:
            turns.start()
        names = ", ".join(turns.loop.name for turns in self._turns) or "no loop"
        self._log.info(f"started: {names}", port=self.door.port)

    def watch(self) -> None:
        """Look after the parts until someone asks to stop."""
        while not self.stopping.wait(LOOK_SECONDS):
            self._complaints.look()

    def stop(self) -> bool:
        """Finish the cycles under way, give up the lease, close the journal, stop answering; tell if in time.

        A cycle that does not end in time keeps the lease from being given up: it then expires by itself, so
        that nobody else begins while something of ours may still be under way.
        """
        self.stopping.set()
        until = self._monotonic() + self._stop_seconds
        self._batches.stop()
        reserve = min(RESERVE_SECONDS, self._stop_seconds / 2)
        late = [turns for turns in self._turns if not turns.join(self._left(until) - reserve)]
        for turns in late:
            self._log.warning(
                f"the cycle of {turns.loop.name} did not end in time; the lease is left to expire"
            )
        parts = [*([] if late else [self._lease]), *reversed(self._parts)]
        share = reserve / 2
        ended = [part.stop(min(share, self._left(until))) for part in parts]
        is_clean = not late and all(ended)
        self._log.info("stopped" if is_clean else "stopped, but not everything had ended in time")
        return self.door.stop(max(0.1, self._left(until))) and is_clean

    def liveness_errors(self) -> list[str]:
        """Return what only a restart can mend."""
        loops = [
            liveness_error for turns in self._turns if (liveness_error := turns.liveness_error()) is not None
        ]
        return loops + [
            liveness_error
            for part in (self._lease, *self._parts)
            for liveness_error in part.liveness_errors()
        ]

    def unready(self) -> list[str]:
        """Return what is still waited for; who does not lead is ready too."""
        return self._parts_unready() + [line for turns in self._turns for line in turns.unready()]

    def _parts_unready(self) -> list[str]:
        return [line for part in self._parts for line in part.unready()]

    def _left(self, until: float) -> float:
        return max(0.0, until - self._monotonic())

    def _all_complaints(self) -> Mapping[str, str]:
        return {who: what for part in (self._lease, *self._parts) for who, what in part.complaints().items()}
