"""The `Lease` object: its fields, reads, and writes by compare-and-swap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError, bad_answer
from equipoise.adapters.kubernetes.objects import path_of
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.core.pools import EPOCH_MAX

_GROUP, _VERSION, _PLURAL = "coordination.k8s.io", "v1", "leases"
_KEPT_WHEN_MADE_ANEW = ("labels", "annotations")
NUMBER_MAX = 2**31
"""Beyond the 32 bits of the API's numbers, whatever their sign."""
_FIRST_EPOCH_SECONDS = 10.0
"""The unit of epochs: the time in it fits the API's 32 bits for six centuries."""


class Moved(Exception):  # noqa: N818 - reads as a fact
    """The object has changed since it was read: nothing was written."""


class EpochsUsedUp(WorldFailed):
    """The API has no higher epoch, so that no replica can lead."""


class RawLease(msgspec.Struct):
    """A Lease as the API has it, with the fields that we do not read."""

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
    def read(cls, raw: RawLease) -> LeaseRecord:
        """Return the record of an object."""
        spec = raw.spec or {}
        return cls(
            holder=str(spec.get("holderIdentity") or ""),
            transitions=_whole(spec, "leaseTransitions"),
            duration_seconds=float(_whole(spec, "leaseDurationSeconds")),
            version=str(raw.metadata.get("resourceVersion") or ""),
            metadata=raw.metadata,
            spec=spec,
        )

    @classmethod
    def new(cls, now: float) -> LeaseRecord:
        """Return the first record of a lease that does not exist yet."""
        return cls(holder="", transitions=first_epoch(now), duration_seconds=0)

    def missing(self) -> LeaseRecord:
        """Return the record of a deleted lease: its holder may still lead, and its epochs continue."""
        metadata = {name: self.metadata[name] for name in _KEPT_WHEN_MADE_ANEW if name in self.metadata}
        return replace(self, version="", metadata=metadata)

    def acquired_by(self, identity: str, epoch: int, lease_seconds: int, now: float) -> LeaseRecord:
        """Return the record with a new holder, in a new epoch."""
        assert identity, "a holder has a name"
        times = {"acquireTime": micro_time(now), "renewTime": micro_time(now)}
        return self._with(identity, epoch, lease_seconds, times)

    def renewed(self, lease_seconds: int, now: float) -> LeaseRecord:
        """Return the record with a new renewal time."""
        assert self.holder, "a lease that nobody holds is acquired, not renewed"
        return self._with(self.holder, self.transitions, lease_seconds, {"renewTime": micro_time(now)})

    def released(self, now: float) -> LeaseRecord:
        """Return the record without a holder; its epoch stays until the next acquisition."""
        assert self.holder, "only its holder releases a lease"
        return self._with("", self.transitions, 1, {"renewTime": micro_time(now)})

    def _with(self, holder: str, transitions: int, seconds: int, times: dict[str, str]) -> LeaseRecord:
        spec = {
            **self.spec,
            "holderIdentity": holder,
            "leaseTransitions": transitions,
            "leaseDurationSeconds": seconds,
            **times,
        }
        return replace(self, holder=holder, transitions=transitions, duration_seconds=seconds, spec=spec)


def first_epoch(now: float) -> int:
    """Return the lowest epoch that may be acquired at a time of day.

    There may have been another lease. After a deletion, a new installation or a switch to one lease for each
    balancer, ledgers and tiers still carry its epochs, and would refuse lower ones for ever. So epochs follow
    the time of day, in steps that are shorter than a leadership. A wrong clock costs time, not safety.
    """
    return int(now // _FIRST_EPOCH_SECONDS)


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
        f"Lease {place}: nobody can lead, since leaseTransitions is {record.transitions} and the API takes "
        "no higher number; no election counts that far, so somebody has edited it. Delete the Lease, and one "
        f"of the replicas leads again: kubectl delete lease -n {namespace} {name}"
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
        self._collection = path_of(_GROUP, _VERSION, _PLURAL, namespace)
        self._path = path_of(_GROUP, _VERSION, _PLURAL, namespace, name)
        self.place = f"{namespace}/{name}"

    def read(self, before: LeaseRecord | None) -> LeaseRecord | None:
        """Return the lease as it is; None when it does not exist and `before` is None."""
        try:
            return self._record(self._client.get(self._path), f"GET {self._path}")
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND or error.reason != "NotFound":
                raise
            return before.missing() if before is not None else None

    def write(self, desired: LeaseRecord) -> LeaseRecord:
        """Replace the lease, or create it where it has no version; raise Moved when it has changed."""
        metadata = {name: value for name, value in desired.metadata.items() if name != "managedFields"}
        metadata |= {"name": self._name, "namespace": self._namespace}
        body = {
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "kind": "Lease",
            "metadata": metadata,
            "spec": desired.spec,
        }
        method, path = ("PUT", self._path) if desired.version else ("POST", self._collection)
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
            return LeaseRecord.read(raw)
        except DECODE_ERRORS as error:
            raise bad_answer(self._client.address, request, answer, str(error)) from error


def micro_time(at: float) -> str:
    """Return a time as the API's MicroTime."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
