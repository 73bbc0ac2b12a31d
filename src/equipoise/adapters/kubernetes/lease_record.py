"""The `Lease` object: what is written in it, and how it is read and swapped."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.paths import path_of

_GROUP, _VERSION, _PLURAL = "coordination.k8s.io", "v1", "leases"
_KEPT_WHEN_MADE_ANEW = ("labels", "annotations")
_FIRST_EPOCH_SECONDS = 10.0
"""In these units the time fits the API's 32 bits for six centuries."""


class Moved(Exception):  # noqa: N818 - reads as a fact
    """The object is not what was read: nothing was written."""


class RawLease(msgspec.Struct):
    """A Lease as the API has it; fields that we do not know are kept as they are."""

    metadata: dict[str, Any]
    spec: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One state of a lease. Without a version the object is not there (any more)."""

    holder: str
    transitions: int
    duration_seconds: float
    version: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, raw: RawLease) -> Record:
        """Take what is written in an object."""
        spec = raw.spec or {}
        return cls(
            holder=str(spec.get("holderIdentity") or ""),
            transitions=int(spec.get("leaseTransitions") or 0),
            duration_seconds=float(spec.get("leaseDurationSeconds") or 0),
            version=str(raw.metadata.get("resourceVersion") or ""),
            metadata=raw.metadata,
            spec=spec,
        )

    @classmethod
    def new(cls, now: float) -> Record:
        """Begin a lease where there is none."""
        return cls(holder="", transitions=first_epoch(now), duration_seconds=0)

    def missing(self) -> Record:
        """Remember a lease whose object was deleted: its holder may not know yet, and its epochs go on."""
        kept = {name: self.metadata[name] for name in _KEPT_WHEN_MADE_ANEW if name in self.metadata}
        return replace(self, version="", metadata=kept)

    def acquired_by(self, identity: str, epoch: int, lease_seconds: int, now: float) -> Record:
        """Give it to a new holder, in a new epoch."""
        times = {"acquireTime": micro_time(now), "renewTime": micro_time(now)}
        return self._with(identity, epoch, lease_seconds, times)

    def renewed(self, lease_seconds: int, now: float) -> Record:
        """Leave it with its holder for longer."""
        return self._with(self.holder, self.transitions, lease_seconds, {"renewTime": micro_time(now)})

    def released(self, now: float) -> Record:
        """Leave it to whoever comes first; its epoch stays as it is until then."""
        return self._with("", self.transitions, 1, {"renewTime": micro_time(now)})

    def _with(self, holder: str, transitions: int, seconds: int, times: dict[str, str]) -> Record:
        spec = {
            **self.spec,
            "holderIdentity": holder,
            "leaseTransitions": transitions,
            "leaseDurationSeconds": seconds,
            **times,
        }
        return replace(self, holder=holder, transitions=transitions, duration_seconds=seconds, spec=spec)


def first_epoch(now: float) -> int:
    """Give the lowest epoch that may be taken at a time of day.

    There may have been another lease: whoever deletes one, installs anew, or lets each balancer run with a
    lease of its own (and back) leaves ledgers and tiers behind that were written in its epochs, and an epoch
    below those would be fenced off for ever. So epochs follow the time of day, in steps that are shorter than
    a reign. A clock that is wrong costs patience, not safety.
    """
    return int(now // _FIRST_EPOCH_SECONDS)


class LeaseRecords:
    """One Lease object, read and swapped; every request is sent once."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._collection = path_of(_GROUP, _VERSION, _PLURAL, namespace)
        self._path = path_of(_GROUP, _VERSION, _PLURAL, namespace, name)

    def read(self, before: Record | None) -> Record | None:
        """Give the lease as it is; None when there is none and never was one that we have seen."""
        try:
            return Record.read(self._client.get_as(RawLease, self._path))
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND or error.reason != "NotFound":
                raise
            return before.missing() if before is not None else None

    def write(self, wanted: Record) -> Record:
        """Swap the lease, or make it where it has no version; raise Moved when it is not as it was read."""
        metadata = {name: value for name, value in wanted.metadata.items() if name != "managedFields"}
        metadata |= {"name": self._name, "namespace": self._namespace}
        body = {
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "kind": "Lease",
            "metadata": metadata,
            "spec": wanted.spec,
        }
        method, path = ("PUT", self._path) if wanted.version else ("POST", self._collection)
        try:
            answer = self._client.request(method, path, body=body, retry=False)
        except ApiError as error:
            is_gone = error.status == HTTPStatus.NOT_FOUND and wanted.version
            if error.status == HTTPStatus.CONFLICT or is_gone:
                raise Moved(error.message) from error
            raise
        return Record.read(self._client.decode(RawLease, answer, f"{method} {path}"))


def micro_time(at: float) -> str:
    """Write a time as the API's MicroTime."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
