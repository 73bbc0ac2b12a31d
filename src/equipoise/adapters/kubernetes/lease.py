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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from equipoise.adapters.http import NO_RETRIES
from equipoise.adapters.kubernetes.client import Client, Limits
from equipoise.adapters.kubernetes.errors import ApiError, bad_answer
from equipoise.adapters.kubernetes.objects import micro_time, path_of
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.core.pools import EPOCH_MAX

GROUP, VERSION, PLURAL = "coordination.k8s.io", "v1", "leases"
KEPT_WHEN_RECREATED = frozenset({"labels", "annotations"})
NUMBER_MAX = 2**31
"""Beyond the 32 bits of the API's numbers, whatever their sign."""
EPOCH_SECONDS = 10.0
"""The unit of epochs: the time in it fits the API's 32 bits for six centuries."""


class Moved(Exception):  # noqa: N818 - reads as a fact
    """The object has changed since it was read: nothing was written."""


class EpochsUsedUp(WorldFailed):
    """The API has no higher epoch, so that no replica can lead."""


class RawLease(msgspec.Struct):
    """A Lease with all its fields, also those that we do not read."""

    metadata: dict[str, Any]
    spec: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One state of a lease. Without a version, the object does not exist."""

    holder: str
    transitions: int
    duration_seconds: float
    version: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, raw: RawLease) -> LeaseRecord:
        spec = raw.spec or {}
        return cls(
            holder=str(spec.get("holderIdentity") or ""),
            transitions=_whole(spec, "leaseTransitions"),
            duration_seconds=float(_whole(spec, "leaseDurationSeconds")),
            version=str(raw.metadata.get("resourceVersion") or ""),
            metadata=raw.metadata,
            spec=spec,
        )

    def missing(self) -> LeaseRecord:
        """Return the record of a deleted lease: its holder may still lead, and its epochs continue."""
        metadata = {name: value for name, value in self.metadata.items() if name in KEPT_WHEN_RECREATED}
        return replace(self, version="", metadata=metadata)

    def acquired_by(self, identity: str, epoch: int, lease_seconds: int, now: float) -> LeaseRecord:
        assert identity, "a holder has a name"
        return self._with(identity, epoch, lease_seconds, now, acquireTime=micro_time(now))

    def renewed(self, lease_seconds: int, now: float) -> LeaseRecord:
        assert self.holder, "a lease that nobody holds is acquired, not renewed"
        return self._with(self.holder, self.transitions, lease_seconds, now)

    def released(self, now: float) -> LeaseRecord:
        """Return the record without a holder; its epoch stays until the next acquisition."""
        assert self.holder, "only its holder releases a lease"
        return self._with("", self.transitions, 1, now)

    def _with(self, holder: str, transitions: int, seconds: int, now: float, **times: str) -> LeaseRecord:
        owner = {"holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": seconds}
        spec = {**self.spec, **owner, **times, "renewTime": micro_time(now)}
        return replace(self, holder=holder, transitions=transitions, duration_seconds=seconds, spec=spec)


def first_epoch(now: float) -> int:
    """Return the lowest epoch that may be acquired at a time of day.

    There may have been another lease. After a deletion, a new installation or a switch to one lease for each
    balancer, ledgers and tiers still carry its epochs, and would refuse lower ones for ever. So epochs follow
    the time of day, in steps that are shorter than a leadership. A wrong clock costs time, not safety.
    """
    return int(now // EPOCH_SECONDS)


def next_epoch(record: LeaseRecord, now: float, place: str) -> int:
    """Return the epoch after a record's; raise EpochsUsedUp where the API has no number for it.

    A deleted Lease at the highest number starts again from the time of day: ledgers written in its epochs
    still refuse lower ones, so that no action runs twice.
    """
    if record.transitions < EPOCH_MAX:
        return record.transitions + 1
    if not record.version:
        return first_epoch(now) + 1
    namespace, _, name = place.partition("/")
    raise EpochsUsedUp(
        f"Lease {place}: no replica can lead because leaseTransitions is {record.transitions}, the highest "
        "number that the API accepts; somebody has probably edited it. Delete the Lease, so that a replica "
        f"can lead again: kubectl delete lease -n {namespace} {name}"
    )


def _whole(spec: dict[str, Any], name: str) -> int:
    """Return a number of the spec; 0 where it is absent."""
    value = spec.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > NUMBER_MAX:
        raise ValueError(f"spec.{name}: expected a whole number of 32 bits, got {str(value)[:40]}")
    return value


class LeaseRecords:
    """One Lease object, read and swapped; every request is sent once."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._path = path_of(GROUP, VERSION, PLURAL, namespace, name)
        self.place = f"{namespace}/{name}"

    def read(self, before: LeaseRecord | None) -> LeaseRecord | None:
        """Return the lease as it is; None when it does not exist and `before` is None."""
        try:
            return self._record(self._client.get(self._path), f"GET {self._path}")
        except ApiError as error:
            if not error.is_not_found:
                raise
            return None if before is None else before.missing()

    def write(self, desired: LeaseRecord) -> LeaseRecord:
        """Replace the lease, or create it where it has no version; raise Moved when it has changed."""
        metadata = {name: value for name, value in desired.metadata.items() if name != "managedFields"}
        metadata |= {"name": self._name, "namespace": self._namespace}
        kind = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Lease"}
        body = kind | {"metadata": metadata, "spec": desired.spec}
        collection = path_of(GROUP, VERSION, PLURAL, self._namespace)
        method, path = ("PUT", self._path) if desired.version else ("POST", collection)
        try:
            answer = self._client.request(method, path, body=body, retry=False)
        except ApiError as error:
            is_gone = error.status == HTTPStatus.NOT_FOUND and desired.version
            if error.status == HTTPStatus.CONFLICT or is_gone:
                raise Moved(error.message) from error
            raise
        return self._record(answer, f"{method} {path}")

    def _record(self, answer: bytes, request: str) -> LeaseRecord:
        raw = self._client.decode(RawLease, answer, request)
        try:
            return LeaseRecord.of(raw)
        except DECODE_ERRORS as error:
            raise bad_answer(self._client.address, request, answer, str(error)) from error


def uptime_seconds() -> float:
    """Return seconds of a clock that also runs while the process is stopped and the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def process_identity(host: str) -> str:
    """Return an identity of this process: a restarted container has the same host name as the one before."""
    return f"{host}_{secrets.token_hex(6)}"


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
        on_change: Callable[[int | None], object] = lambda _: None,
    ) -> None:
        """Prepare; nothing is sent yet. `on_change` gets the epoch or None, on the election's thread."""
        if not identity:
            raise ValueError("an election needs an identity that is of this process alone")
        self.identity = identity
        if not 0 < retry_seconds < renew_seconds < lease_seconds:
            raise ValueError(
                "expected 0 < retry_seconds < renew_seconds < lease_seconds, "
                f"got {retry_seconds:g}, {renew_seconds:g}, {lease_seconds:g}"
            )
        self.lease_seconds = lease_seconds  # how long the lease is valid
        self.renew_seconds = renew_seconds  # how long its holder leads without a renewal
        self.retry_seconds = retry_seconds  # how often it is renewed
        self.last_error: Exception | None = None
        self.failures = 0
        self._monotonic = monotonic
        self._clock = clock
        self._on_change = on_change
        self._client = _of_its_own(client, renew_seconds)
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
        belief = self._belief
        if belief is None or self._monotonic() - belief.since >= self.renew_seconds:
            return None
        return belief.epoch

    @property
    def holder(self) -> str:
        """The holder of the lease as of the last read; empty without one."""
        return "" if self._seen is None else self._seen.holder

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
            self._stopping.wait(self.retry_seconds)
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
        try:
            if self._seen is not None and self._seen.version and self._is_ours(self._seen):
                self._see(self._records.write(self._seen.released(self._clock())))
        except Exception as error:  # noqa: BLE001 - then the successor has to wait
            self.last_error = error
        self._tell()

    def _turn(self) -> None:
        if self.epoch() is not None and self._seen is not None:
            # After Moved, the object was changed, or an earlier renewal took effect unnoticed: read it.
            with suppress(Moved):
                self._renew(self._seen)
                return
        self._see(self._records.read(self._seen))
        record = self._seen
        if record is None:
            self._acquire(LeaseRecord("", first_epoch(self._clock()), 0))
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
        held_seconds = record.duration_seconds or self.lease_seconds
        return self._monotonic() - self._seen_at >= held_seconds

    def _acquire(self, record: LeaseRecord) -> None:
        self._belief = None
        now = self._clock()
        self._claimed = max(next_epoch(record, now, self._records.place), self._lowest)
        try:
            self._write(record.acquired_by(self.identity, self._claimed, self.lease_seconds, now))
        except Moved:
            self._claimed = 0  # another replica was faster; only a claim without an answer may still be ours
            raise

    def _renew(self, record: LeaseRecord) -> None:
        self._write(record.renewed(self.lease_seconds, self._clock()))

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
        try:
            self._on_change(epoch)
        except Exception as error:  # noqa: BLE001 - the listener's fault must not end the election
            self.last_error = error


def _of_its_own(client: Client, renew_seconds: float) -> Client:
    """Return a session whose requests end within half a leadership, so that a dead link leaves time to retry.

    It has its own credentials: a plugin that hangs for another session must not delay a renewal.
    """
    request_seconds = renew_seconds / 2
    limits = Limits(request_seconds, request_seconds, request_seconds, connections_max=1)
    return Client(client.target, backoff=NO_RETRIES, limits=limits, world=client.world)
