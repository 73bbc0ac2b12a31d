"""Starts the parts in order, watches over them, and stops them in an order that loses nothing."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from equipoise.app.operator.batches import Batches
from equipoise.app.operator.complaints import Complaints
from equipoise.app.operator.hearts import Hearts
from equipoise.app.operator.http import Door, make_app
from equipoise.app.operator.logs import Log
from equipoise.app.operator.loops import Loop
from equipoise.app.operator.meters import Meters
from equipoise.app.operator.turns import Turns
from equipoise.ports import Clock, Leadership

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

    def illnesses(self) -> list[str]:
        """Say what only a restart can mend."""
        ...

    def unready(self) -> list[str]:
        """Say what it still waits for."""
        ...

    def complaints(self) -> Mapping[str, str]:
        """Say what goes wrong now, by who complains."""
        ...


class Turnstile:
    """Leadership that ends with the stop: an action under way is finished, and no new one begins."""

    def __init__(self, inner: Leadership, stopping: threading.Event) -> None:
        self._inner = inner
        self._stopping = stopping

    def epoch(self) -> int | None:
        """Give the epoch that we lead in, or None."""
        return None if self._stopping.is_set() else self._inner.epoch()


class Shell:
    """The operator as one thing that starts and stops."""

    def __init__(
        self,
        *,
        loops: Sequence[Loop],
        lease: Part,
        parts: Sequence[Part],
        batches: Batches,
        hearts: Hearts,
        meters: Meters,
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
            Turns(
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
        self.door = Door(address, make_app(self.illnesses, self.unready, meters.registry))
        self._complaints = Complaints(log, self._all_complaints)

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

    def illnesses(self) -> list[str]:
        """Say what only a restart can mend."""
        loops = [illness for turns in self._turns if (illness := turns.illness()) is not None]
        return loops + [illness for part in (self._lease, *self._parts) for illness in part.illnesses()]

    def unready(self) -> list[str]:
        """Say what is still waited for; who does not lead is ready too."""
        return self._parts_unready() + [line for turns in self._turns for line in turns.unready()]

    def _parts_unready(self) -> list[str]:
        return [line for part in self._parts for line in part.unready()]

    def _left(self, until: float) -> float:
        return max(0.0, until - self._monotonic())

    def _all_complaints(self) -> Mapping[str, str]:
        return {who: what for part in (self._lease, *self._parts) for who, what in part.complaints().items()}
