"""The `Leadership` port over a `Lease`: who leads, by election, with an epoch that only grows.

Safe by arithmetic on clocks that nobody compares. A leader believes in itself for `renew_seconds` from the
moment it *began* to send its last successful renewal. A contender takes over when it has seen the record
unchanged for the record's `leaseDurationSeconds`, counted on its own clock from when it first saw it, which
is later than the leader's beginning. Since `renew_seconds` is the shorter one, the belief has ended before
another's can begin, whatever the wall clocks say.

The clock is CLOCK_BOOTTIME: it goes on while the process is stopped (as CLOCK_MONOTONIC does) and while the
machine sleeps (as that does not), so a leader that was away for longer than its belief wakes up without it.

`leaseTransitions` is the epoch. It grows with every acquisition, our own after a lapse included, so what was
begun in an earlier belief can be told from what belongs to the present one. It is never below the time at
which the process began: one that takes over under a lease of another name, or under one that was made anew,
is above all that went before.

The API has 31 bits for it. A Lease at their end leaves no higher epoch, and a lower one would let what was
begun in a former belief pass for new: then nobody leads, and every replica says why. No election counts so
high; somebody has edited the Lease. Once it is deleted, epochs begin anew at the time of day.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from equipoise.adapters.http import NO_RETRIES
from equipoise.adapters.kubernetes.client import Client, Limits
from equipoise.adapters.kubernetes.lease_record import (
    LeaseRecord,
    LeaseRecords,
    Moved,
    first_epoch,
    next_epoch,
)


def uptime_seconds() -> float:
    """Count seconds that also pass while the process is stopped and while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def process_identity(host: str) -> str:
    """Name this process: a restarted container has the same host name, and must not pass for the old one."""
    return f"{host}_{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a lease holds, how long its holder believes in it, how often it is renewed."""

    lease_seconds: int
    renew_seconds: float
    retry_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError(
                "expected 0 < retry_seconds < renew_seconds < lease_seconds, "
                f"got {self.retry_seconds:g}, {self.renew_seconds:g}, {self.lease_seconds:g}"
            )


class _Belief(NamedTuple):
    """That we lead, and from when on it was true."""

    epoch: int
    since: float


class LeaseElection:
    """Stands for election on a thread and a connection of its own, so that no work can starve it.

    `identity` must be of this process alone. `step()` does one turn, for tests; `start()` runs it.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_seconds: int = 15,
        renew_seconds: float = 10.0,
        retry_seconds: float = 2.0,
        monotonic: Callable[[], float] = uptime_seconds,
        clock: Callable[[], float] = time.time,
        on_change: Callable[[int | None], object] | None = None,
    ) -> None:
        """Prepare; nothing is sent yet. `on_change` is told the epoch, or None, on the election's thread."""
        if not identity:
            raise ValueError("an election needs an identity that is of this process alone")
        self.identity = identity
        self.times = LeaseTimes(lease_seconds, renew_seconds, retry_seconds)
        self.last_error: Exception | None = None
        """Why the last turn failed, or None."""
        self.failures = 0
        self._monotonic = monotonic
        self._clock = clock
        self._on_change = on_change
        self._client = _of_its_own(client, self.times)
        self._records = LeaseRecords(self._client, namespace, name)
        self._seen: LeaseRecord | None = None
        self._seen_at = -math.inf
        self._belief: _Belief | None = None
        self._lowest = first_epoch(clock())
        """A process that begins later, under whatever lease, leads in a higher epoch."""
        self._claimed = 0
        """The epoch that we hold, or have asked for without getting an answer."""
        self._told: int | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def epoch(self) -> int | None:
        """Return the transition that we lead in, or None when we do not lead or can't be sure."""
        belief = self._belief
        if belief is None or self._monotonic() - belief.since >= self.times.renew_seconds:
            return None
        return belief.epoch

    @property
    def holder(self) -> str:
        """Who holds the lease as far as we have seen; empty when nobody does."""
        seen = self._seen
        return seen.holder if seen is not None else ""

    def start(self) -> None:
        self._thread = threading.Thread(target=self.run, name="lease", daemon=True)
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Return the lease up, so that a successor need not wait; tell whether that ended in time.

        Call it when no action of ours is under way any more.
        """
        self._stopping.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_seconds)
        self._client.abort()
        return thread is None or not thread.is_alive()

    def run(self) -> None:
        """Take turns until `stop()`, then give the lease up."""
        while not self._stopping.is_set():
            self.step()
            self._stopping.wait(self.times.retry_seconds)
        self.release()

    def step(self) -> None:
        """Renew, acquire or look on, once. A failure is kept in `last_error`, never raised."""
        try:
            self._turn()
            self.last_error = None
        except Exception as error:  # noqa: BLE001 - without its thread a leader could never lead again
            self.last_error = error
            self.failures += 1
        self._tell()

    def release(self) -> None:
        """Empty the lease if it is ours. We stop believing first, whatever comes of it."""
        self._belief = None
        seen = self._seen
        try:
            if seen is not None and seen.version and self._is_ours(seen):
                self._see(self._records.write(seen.released(self._clock())))
        except Exception as error:  # noqa: BLE001 - then the successor has to wait
            self.last_error = error
        self._tell()

    def _turn(self) -> None:
        if self.epoch() is not None and self._seen is not None:
            try:
                self._renew(self._seen)
            except Moved:
                pass  # somebody touched the object, or a renewal was done without our knowing: look
            else:
                return
        self._see(self._records.read(self._seen))
        self._judge()

    def _judge(self) -> None:
        """Decide by what is there now: keep, take or leave."""
        seen = self._seen
        if seen is None:
            self._acquire(LeaseRecord.new(self._clock()))
        elif self._is_ours(seen):
            # After a lapse it is acquired anew: nobody else has led meanwhile, but our belief had ended.
            self._acquire(seen) if self.epoch() is None else self._renew(seen)
        elif not seen.holder or self._is_expired(seen):
            self._acquire(seen)
        else:
            self._belief = None

    def _is_ours(self, seen: LeaseRecord) -> bool:
        return seen.holder == self.identity and seen.transitions == self._claimed

    def _is_expired(self, seen: LeaseRecord) -> bool:
        """By our own watching alone: the holder's clock may be wrong, and so may ours."""
        held_seconds = seen.duration_seconds or self.times.lease_seconds
        return self._monotonic() - self._seen_at >= held_seconds

    def _acquire(self, seen: LeaseRecord) -> None:
        self._belief = None
        now = self._clock()
        self._claimed = max(next_epoch(seen, now, self._records.place), self._lowest)
        try:
            self._write(seen.acquired_by(self.identity, self._claimed, self.times.lease_seconds, now))
        except Moved:
            self._claimed = 0  # somebody was quicker; only a claim without an answer may be ours yet
            raise

    def _renew(self, seen: LeaseRecord) -> None:
        self._write(seen.renewed(self.times.lease_seconds, self._clock()))

    def _write(self, wanted: LeaseRecord) -> None:
        """Swap the record; the belief counts from before the request, the successor's wait from after it."""
        began = self._monotonic()
        written = self._records.write(wanted)
        self._belief = _Belief(wanted.transitions, began)
        self._see(written)

    def _see(self, record: LeaseRecord | None) -> None:
        if record is None or self._seen is None or record.version != self._seen.version:
            self._seen_at = self._monotonic()
        self._seen = record

    def _tell(self) -> None:
        epoch = self.epoch()
        if epoch == self._told:
            return
        self._told = epoch
        if self._on_change is not None:
            try:
                self._on_change(epoch)
            except Exception as error:  # noqa: BLE001 - the listener's fault must not end the election
                self.last_error = error


def _of_its_own(client: Client, times: LeaseTimes) -> Client:
    """Open a session whose requests end well within a belief, so that a dead link leaves time for another.

    Its credentials are its own too: a plugin that hangs for somebody else must not hold up a renewal.
    """
    request_seconds = times.renew_seconds / 2
    limits = Limits(request_seconds, request_seconds, request_seconds, connections_max=1)
    return Client(client.target, backoff=NO_RETRIES, limits=limits, world=client.world)
