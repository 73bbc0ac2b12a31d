"""The `Leadership` port over a `Lease`: leader election with an epoch that only increases.

Two replicas never lead at once, although their clocks are never compared. A leader leads for `renew_seconds`
from the moment it *began* to send its last successful renewal. A candidate takes over when the record has not
changed for its `leaseDurationSeconds`, counted on the candidate's clock from its first read of the record,
which is later than that moment. Since `renew_seconds` is shorter, the old leadership has ended before the new
one begins, whatever the wall clocks show.

The clock is CLOCK_BOOTTIME: it goes on while the process is stopped (as CLOCK_MONOTONIC does) and while the
machine sleeps (as that does not), so a leader that was suspended for longer no longer leads when it resumes.

`leaseTransitions` is the epoch. It increases with every acquisition, our own after a lapse included, so that
actions begun in an earlier leadership are distinguished from present ones. It is never below the time at
which the process started: a leader under a lease of another name, or under one that was deleted and created
again, has a higher epoch than all before.

The API has 31 bits for it. At the maximum there is no higher epoch, and a lower one would let actions of a
former leadership pass for new: then no replica leads, and each reports why. Elections never count that far;
the Lease was edited. Once it is deleted, epochs start again from the time of day.
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
    """Return seconds of a clock that also runs while the process is stopped and the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def process_identity(host: str) -> str:
    """Return an identity of this process: a restarted container has the same host name as the one before."""
    return f"{host}_{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a lease is valid, how long its holder leads without a renewal, how often it is renewed."""

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
    """Our leadership: its epoch, and the time from which it counts."""

    epoch: int
    since: float


class LeaseElection:
    """Runs leader election on its own thread and connection, so that other work does not delay it.

    `identity` must be unique to this process. `step()` runs one round, for tests; `start()` starts a thread.
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
        """Prepare; nothing is sent yet. `on_change` gets the epoch or None, on the election's thread."""
        if not identity:
            raise ValueError("an election needs an identity that is of this process alone")
        self.identity = identity
        self.times = LeaseTimes(lease_seconds, renew_seconds, retry_seconds)
        self.last_error: Exception | None = None
        """The error of the last round, or None."""
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
        """The lowest epoch of this process; a process that starts later leads in a higher one."""
        self._claimed = 0
        """The epoch that we hold, or whose acquisition got no answer."""
        self._told: int | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def epoch(self) -> int | None:
        """Return the Lease transition that we lead in; None when we do not lead or are unsure."""
        belief = self._belief
        if belief is None or self._monotonic() - belief.since >= self.times.renew_seconds:
            return None
        return belief.epoch

    @property
    def holder(self) -> str:
        """The holder of the lease as of the last read; empty without one."""
        record = self._seen
        return record.holder if record is not None else ""

    def start(self) -> None:
        self._thread = threading.Thread(target=self.run, name="lease", daemon=True)
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Release the lease, so that a successor need not wait; return whether the thread ended in time.

        Call it when no action of ours is in progress any more.
        """
        self._stopping.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_seconds)
        self._client.abort()
        return thread is None or not thread.is_alive()

    def run(self) -> None:
        """Run rounds until `stop()`, then release the lease."""
        while not self._stopping.is_set():
            self.step()
            self._stopping.wait(self.times.retry_seconds)
        self.release()

    def step(self) -> None:
        """Renew, acquire or observe the lease once. An error is stored in `last_error`, never raised."""
        try:
            self._turn()
            self.last_error = None
        except Exception as error:  # noqa: BLE001 - without its thread a leader could never lead again
            self.last_error = error
            self.failures += 1
        self._tell()

    def release(self) -> None:
        """Clear the lease's holder if it is ours. Our leadership ends first, even if the write fails."""
        self._belief = None
        record = self._seen
        try:
            if record is not None and record.version and self._is_ours(record):
                self._see(self._records.write(record.released(self._clock())))
        except Exception as error:  # noqa: BLE001 - then the successor has to wait
            self.last_error = error
        self._tell()

    def _turn(self) -> None:
        if self.epoch() is not None and self._seen is not None:
            try:
                self._renew(self._seen)
            except Moved:
                pass  # the object was changed, or an earlier renewal took effect unnoticed: read it
            else:
                return
        self._see(self._records.read(self._seen))
        self._judge()

    def _judge(self) -> None:
        """Renew, acquire or leave the lease, by the record that was read."""
        record = self._seen
        if record is None:
            self._acquire(LeaseRecord.new(self._clock()))
        elif self._is_ours(record):
            # After a lapse it is acquired again: no other replica has led since, but we did not either.
            self._acquire(record) if self.epoch() is None else self._renew(record)
        elif not record.holder or self._is_expired(record):
            self._acquire(record)
        else:
            self._belief = None

    def _is_ours(self, record: LeaseRecord) -> bool:
        return record.holder == self.identity and record.transitions == self._claimed

    def _is_expired(self, record: LeaseRecord) -> bool:
        """Return whether the record was unchanged for its duration; wall clocks are not compared."""
        held_seconds = record.duration_seconds or self.times.lease_seconds
        return self._monotonic() - self._seen_at >= held_seconds

    def _acquire(self, record: LeaseRecord) -> None:
        self._belief = None
        now = self._clock()
        self._claimed = max(next_epoch(record, now, self._records.place), self._lowest)
        try:
            self._write(record.acquired_by(self.identity, self._claimed, self.times.lease_seconds, now))
        except Moved:
            self._claimed = 0  # another replica was faster; only a claim without an answer may still be ours
            raise

    def _renew(self, record: LeaseRecord) -> None:
        self._write(record.renewed(self.times.lease_seconds, self._clock()))

    def _write(self, desired: LeaseRecord) -> None:
        """Swap the record; our leadership counts from before the request, others' wait from after it."""
        began = self._monotonic()
        written = self._records.write(desired)
        self._belief = _Belief(desired.transitions, began)
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
    """Return a session whose requests end within half a leadership, so that a dead link leaves time to retry.

    It has its own credentials: a plugin that hangs for another session must not delay a renewal.
    """
    request_seconds = times.renew_seconds / 2
    limits = Limits(request_seconds, request_seconds, request_seconds, connections_max=1)
    return Client(client.target, backoff=NO_RETRIES, limits=limits, world=client.world)
