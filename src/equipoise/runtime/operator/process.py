"""The operator process: starts its parts in order, reports their errors, and stops them without losing data.

The loops end first, so that the Lease is released only when no action is in flight; the journal is closed
last, when nothing writes to it any more.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from equipoise.adapters.journal import SqliteJournal
from equipoise.adapters.kubernetes import CachedCluster, Reflector
from equipoise.adapters.kubernetes.lease import LeaseElection
from equipoise.adapters.kubernetes.pauses import NamespacePauses
from equipoise.core.errors import EquipoiseError
from equipoise.engine.balancer import BALANCERS, balancer
from equipoise.ports import Clock, CycleReport
from equipoise.ports.wiring import Loop
from equipoise.runtime.http import HttpServer, make_app
from equipoise.runtime.logs import DecisionLines, ErrorReporter, Log, log_failure
from equipoise.runtime.metrics import OperatorMetrics
from equipoise.runtime.operator.worker import Batches
from equipoise.runtime.runner import JITTER_MAX_SECONDS, HeartbeatRegistry, LoopRunner

CHECK_SECONDS = 5.0
QUIET_SECONDS = 30.0
"""The error of a reflector is reported only when its last contact with the server is older than this."""
UNREADABLE_MAX = 20
"""The maximum number of unreadable objects of a kind that are logged by name."""
RESERVE_SECONDS = 3.0
"""The part of the stop's time that is reserved for the lease, the caches, the journal and the server."""


class OperatorObserver:
    """Reports the cycles of one loop in the metrics and in the log."""

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
        unshown = self._metrics.observe_cycle(self._balancer, report, took_seconds, self._clock.now())
        self._lines.log(report)
        self._lines.log_failed(unshown)
        self._log_more(report)
        if report.failure:
            self._log.warning(f"the cycle could read only a part of the cluster: {report.failure}")

    def observe_failure(self, error: Exception, took_seconds: float) -> None:
        result = "failed" if isinstance(error, EquipoiseError) else "bug"
        self._metrics.observe_failure(self._balancer, result, took_seconds)
        self._log_more(error)
        log_failure(self._log, "the cycle failed", error)

    def _log_more(self, result: CycleReport | Exception) -> None:
        if self._balancer in BALANCERS:
            for line in balancer(self._balancer).log_lines(result):
                getattr(self._log, line.level)(line.event, **line.fields)


class Part(Protocol):
    """What runs beside the loops; by default it is live, ready and without errors."""

    def start(self) -> None:
        """Start; does nothing by default."""
        return

    def stop(self, timeout_seconds: float) -> bool:
        """Stop, and return whether it ended within the timeout."""
        ...

    def liveness_errors(self) -> list[str]:
        """Return the errors that only a restart fixes."""
        return []

    def readiness_errors(self) -> list[str]:
        """Return what it still waits for."""
        return []

    def errors(self) -> Mapping[str, str]:
        """Return the current errors by the name of the part."""
        return {}


@dataclass(eq=False)
class LeasePart(Part):
    """The election on its thread."""

    _election: LeaseElection
    _is_started: bool = False

    def start(self) -> None:
        self._election.start()
        self._is_started = True

    def stop(self, timeout_seconds: float) -> bool:
        """Release the lease, so that a successor need not wait."""
        self._is_started = False
        return self._election.stop(timeout_seconds)

    def liveness_errors(self) -> list[str]:
        """Return an error if the thread has died: this process could never lead again."""
        is_alive = any(thread.name == "lease" for thread in threading.enumerate())
        return ["the thread of the leader election has died"] if self._is_started and not is_alive else []

    def errors(self) -> Mapping[str, str]:
        error = self._election.last_error
        return {} if error is None else {"lease": str(error)}


class Caches(Part):
    """All reflectors: those of the cluster, of the pauses, and those that the loops add."""

    def __init__(
        self, clusters: Sequence[CachedCluster], pauses: NamespacePauses, monotonic: Callable[[], float]
    ) -> None:
        shared = [*(each for cluster in clusters for each in cluster.reflectors), pauses.reflector]
        self._watched: list[tuple[str | None, Reflector[Any]]] = [(None, each) for each in shared]
        """The reflectors, each with the only loop that reads it; None where all loops do."""
        self._monotonic = monotonic
        self._is_started = False

    @property
    def reflectors(self) -> Sequence[Reflector[Any]]:
        return tuple(reflector for _, reflector in self._watched)

    def watch(self, loop: str, reflector: Reflector[Any]) -> None:
        """Add a reflector that only this loop reads; start it now if the others have been started."""
        assert reflector not in self.reflectors, f"{reflector.kind.plural}: watched twice"
        self._watched.append((loop, reflector))
        if self._is_started:
            reflector.start()

    def start(self) -> None:
        self._is_started = True
        for reflector in self.reflectors:
            reflector.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Stop all reflectors at once, then wait for each."""
        until = self._monotonic() + timeout_seconds
        for reflector in self.reflectors:
            reflector.stop(0.0)
        ended = [reflector.stop(max(0.0, until - self._monotonic())) for reflector in self.reflectors]
        return all(ended)

    def readiness_errors(self) -> list[str]:
        return [_unlisted(each) for each in self.reflectors if not each.synced.is_set()]

    def awaited_by(self, loop: str) -> list[str]:
        """Return the readiness errors that concern this loop: a missing CRD stops only its users."""
        return [
            _unlisted(each)
            for reader, each in self._watched
            if reader in {None, loop} and not each.synced.is_set()
        ]

    def errors(self) -> Mapping[str, str]:
        """Return which reflectors have failed for a while, and which objects cannot be decoded."""
        now = self._monotonic()
        failing = {
            f"watch of {reflector.kind.plural}": str(reflector.last_error)
            for reflector in self.reflectors
            if reflector.last_error is not None and reflector.last_contact_age_seconds(now) > QUIET_SECONDS
        }
        unreadable = {
            f"{reflector.kind.name} {outline.place}": f"the object could not be decoded: {outline.why}"
            for reflector in self.reflectors
            for outline in list(reflector.unreadable.values())[:UNREADABLE_MAX]
        }
        return failing | unreadable


@dataclass(frozen=True, slots=True)
class JournalPart(Part):
    """The journal, flushed and closed at the end; losing it changes no decision."""

    _journal: SqliteJournal

    def stop(self, timeout_seconds: float) -> bool:
        """Flush and close the journal; on a disk that hangs, return False after the timeout."""
        closing = threading.Thread(target=self._journal.close, name="journal-close", daemon=True)
        closing.start()
        closing.join(timeout_seconds)
        return not closing.is_alive()

    def errors(self) -> Mapping[str, str]:
        found = {"journal": self._journal.failure, "journal's file": self._journal.damage}
        return {part: what for part, what in found.items() if what}

    def size_bytes(self) -> float:
        """Return the size of the file, its write-ahead log and the log's index together."""
        size = 0
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                size += Path(f"{self._journal.path}{suffix}").stat().st_size
        return float(size)


class NoJournal:
    """The journal of an operator without one: discards every record."""

    def append(self, *records: object, is_whole: bool = False) -> None: ...


def _unlisted(reflector: Reflector[Any]) -> str:
    error = reflector.last_error
    return f"the {reflector.kind.plural} have not been listed yet" + (f": {error}" if error else "")


class OperatorProcess:
    """The operator: its loops, its parts and its HTTP server, started and stopped together."""

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

        `awaited_by` returns what the first cycle of a loop still waits for: by default, every part.
        """
        names = [loop.name for loop in loops]
        assert len(names) == len(set(names)), f"two loops of one name: {names}"
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
        self._lease, self._parts = lease, parts
        self._background = (lease, *parts)
        self._batches = batches
        self._stop_seconds = stop_seconds
        self._log = log
        self._monotonic = monotonic
        self.server = HttpServer(
            address, make_app(self.liveness_errors, self.readiness_errors, metrics.registry)
        )
        self._errors = ErrorReporter(log, self._background_errors)

    def start(self) -> None:
        """Start everything; raises before anything else has started if the address is in use."""
        self.server.start()
        for part in (*self._parts, self._lease):
            part.start()
        for runner in self._runners:
            runner.start()
        names = ", ".join(runner.loop.name for runner in self._runners) or "no loops"
        self._log.info(f"started: {names}", port=self.server.port)

    def watch(self) -> None:
        while not self.stopping.wait(CHECK_SECONDS):
            self._errors.report()

    def stop(self) -> bool:
        """Finish cycles, release the lease, close the journal, stop serving; return whether it ended in time.

        The lease is not released while a cycle has not ended: it then expires by itself, so that no other
        replica begins while an action of this one may still be in flight.
        """
        self.stopping.set()
        until = self._monotonic() + self._stop_seconds
        self._batches.stop()
        reserve = min(RESERVE_SECONDS, self._stop_seconds / 2)
        late = [one.loop.name for one in self._runners if not one.join(self._remaining(until) - reserve)]
        for name in late:
            late_cycle = f"the cycle of {name} did not end in time; the Lease is not released and will expire"
            self._log.warning(late_cycle)
        parts = [*([] if late else [self._lease]), *reversed(self._parts)]
        ended = [part.stop(min(reserve / 2, self._remaining(until))) for part in parts]
        is_clean = not late and all(ended)
        self._log.info("stopped" if is_clean else "stopped before every part had ended")
        return self.server.stop(max(0.1, self._remaining(until))) and is_clean

    def liveness_errors(self) -> list[str]:
        """Return the errors that only a restart fixes."""
        loops = [error for runner in self._runners if (error := runner.liveness_error()) is not None]
        return loops + [error for part in self._background for error in part.liveness_errors()]

    def readiness_errors(self) -> list[str]:
        """Return what is not ready yet; a replica that is not the leader is ready too."""
        loops = [error for runner in self._runners for error in runner.readiness_errors()]
        return self._missing_parts() + loops

    def _missing_parts(self) -> list[str]:
        return [line for part in self._parts for line in part.readiness_errors()]

    def _remaining(self, until: float) -> float:
        return max(0.0, until - self._monotonic())

    def _background_errors(self) -> Mapping[str, str]:
        return {name: what for part in self._background for name, what in part.errors().items()}
