"""Starts the operator's parts in order, watches over them, and stops them in an order that loses nothing."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from equipoise.core.errors import EquipoiseError
from equipoise.engine.balancer import BALANCERS, balancer
from equipoise.ports import Clock, CycleReport
from equipoise.ports.wiring import Loop
from equipoise.runtime.http import HttpServer, make_app
from equipoise.runtime.logs import DecisionLines, ErrorReporter, Log, log_failure
from equipoise.runtime.metrics import OperatorMetrics
from equipoise.runtime.operator.worker import Batches
from equipoise.runtime.runner import JITTER_MAX_SECONDS, HeartbeatRegistry, LoopRunner

LOOK_SECONDS = 5.0
RESERVE_SECONDS = 3.0
"""What the loops leave of the stop's time to the lease, the caches, the journal and the server."""


class OperatorObserver:
    """Shows the cycles of one loop in the metrics and in the log."""

    def __init__(
        self,
        loop: Loop,
        metrics: OperatorMetrics,
        log: Log,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._balancer = loop.name
        self._metrics = metrics
        self._log = log.bind(balancer=loop.name)
        self._lines = DecisionLines(log, loop.name, monotonic)
        self._clock = clock

    def observe_cycle(self, report: CycleReport, took_seconds: float) -> None:
        """Count a cycle, and log what is news in it."""
        unshown = self._metrics.observe_cycle(self._balancer, report, took_seconds, self._clock.now())
        self._lines.tell(report)
        self._lines.tell_failed(unshown)
        self._log_more(report)
        if report.failure:
            self._log.warning(f"the cycle saw only a part: {report.failure}")

    def observe_failure(self, error: Exception, took_seconds: float) -> None:
        """Count a cycle that failed, and log why."""
        result = "failed" if isinstance(error, EquipoiseError) else "bug"
        self._metrics.observe_failure(self._balancer, result, took_seconds)
        self._log_more(error)
        log_failure(self._log, "the cycle failed", error)

    def _log_more(self, came: CycleReport | Exception) -> None:
        if self._balancer in BALANCERS:
            for line in balancer(self._balancer).log_lines(came):
                getattr(self._log, line.level)(line.event, **line.fields)


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

    def readiness_errors(self) -> list[str]:
        """Return what it still waits for."""
        ...

    def errors(self) -> Mapping[str, str]:
        """Return what goes wrong now, by who complains."""
        ...


class OperatorProcess:
    """The operator as one thing that starts and stops."""

    def __init__(
        self,
        *,
        loops: Sequence[Loop],
        lease: Part,
        parts: Sequence[Part],
        batches: Batches,
        heartbeats: HeartbeatRegistry,
        metrics: OperatorMetrics,
        clock: Clock,
        address: str,
        stop_seconds: float,
        stopping: threading.Event,
        log: Log,
        awaited_by: Callable[[str], list[str]] | None = None,
        rng: Callable[[], float] = random.random,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`parts` are started in this order and stopped in the reverse; the lease is the last and first.

        `awaited_by` says what the first cycle of a loop has to wait for: by default, for every part.
        """
        self.stopping = stopping
        self._runners = [
            LoopRunner(
                loop,
                OperatorObserver(loop, metrics, log, clock, monotonic),
                clock=clock,
                heartbeats=heartbeats,
                log=log,
                stopping=stopping,
                missing=partial(awaited_by, loop.name) if awaited_by else self._missing_parts,
                jitter_seconds=rng() * min(JITTER_MAX_SECONDS, loop.interval_seconds),
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
        self.server = HttpServer(
            address, make_app(self.liveness_errors, self.readiness_errors, metrics.registry)
        )
        self._errors = ErrorReporter(log, self._background_errors)

    def start(self) -> None:
        """Start everything; an address that is taken ends it before anything else has begun."""
        self.server.start()
        for part in (*self._parts, self._lease):
            part.start()
        for runner in self._runners:
            runner.start()
        names = ", ".join(runner.loop.name for runner in self._runners) or "no loop"
        self._log.info(f"started: {names}", port=self.server.port)

    def watch(self) -> None:
        """Look after the parts until someone asks to stop."""
        while not self.stopping.wait(LOOK_SECONDS):
            self._errors.report()

    def stop(self) -> bool:
        """Finish the cycles under way, give up the lease, close the journal, stop answering; tell if in time.

        A cycle that does not end in time keeps the lease from being given up: it then expires by itself, so
        that nobody else begins while something of ours may still be under way.
        """
        self.stopping.set()
        until = self._monotonic() + self._stop_seconds
        self._batches.stop()
        reserve = min(RESERVE_SECONDS, self._stop_seconds / 2)
        late = [runner for runner in self._runners if not runner.join(self._left(until) - reserve)]
        for runner in late:
            self._log.warning(
                f"the cycle of {runner.loop.name} did not end in time; the lease is left to expire"
            )
        parts = [*([] if late else [self._lease]), *reversed(self._parts)]
        share = reserve / 2
        ended = [part.stop(min(share, self._left(until))) for part in parts]
        is_clean = not late and all(ended)
        self._log.info("stopped" if is_clean else "stopped, but not everything had ended in time")
        return self.server.stop(max(0.1, self._left(until))) and is_clean

    def liveness_errors(self) -> list[str]:
        """Return what only a restart can mend."""
        loops = [
            liveness_error
            for runner in self._runners
            if (liveness_error := runner.liveness_error()) is not None
        ]
        return loops + [
            liveness_error
            for part in (self._lease, *self._parts)
            for liveness_error in part.liveness_errors()
        ]

    def readiness_errors(self) -> list[str]:
        """Return what is still waited for; who does not lead is ready too."""
        return self._missing_parts() + [
            line for runner in self._runners for line in runner.readiness_errors()
        ]

    def _missing_parts(self) -> list[str]:
        return [line for part in self._parts for line in part.readiness_errors()]

    def _left(self, until: float) -> float:
        return max(0.0, until - self._monotonic())

    def _background_errors(self) -> Mapping[str, str]:
        return {who: what for part in (self._lease, *self._parts) for who, what in part.errors().items()}
