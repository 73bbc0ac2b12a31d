"""Memory that outlives a leader, by compare-and-swap."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from equipoise.model.errors import WorldFailed
from equipoise.model.references import StoreKey, WorkloadRef
from equipoise.ports import StoreConflict, Stored
from equipoise.sim.faults import FaultKind
from equipoise.sim.state import State


@dataclass(frozen=True, slots=True)
class Commit:
    """One write that was done: which version it was meant to follow, and which it became."""

    key: StoreKey
    based_on: str
    version: str


class SimStore:
    """Small documents, kept as the bytes that were written."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._entries: dict[StoreKey, tuple[bytes, str]] = {}
        self.commits: list[Commit] = []

    def read(self, key: StoreKey) -> Stored:
        """Read an entry; an absent one is empty."""
        self._check_available()
        data, version = self._entries.get(key, (b"{}", ""))
        return Stored(msgspec.json.decode(data), version)

    def read_all(self, room: str, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        """Read every entry of a room at once."""
        self._check_available()
        return {
            key.workload.canonical: Stored(msgspec.json.decode(data), version)
            for key, (data, version) in self._entries.items()
            if key.room == room and namespace in {None, key.workload.namespace}
        }

    def write(self, key: StoreKey, data: Mapping[str, Any], version: str) -> Stored:
        """Write an entry if it still has this version."""
        self._check_available()
        workload = key.workload
        whose = {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name}
        encoded = msgspec.json.encode({"workload": whose} | dict(data))
        if len(encoded) > self._state.settings.store_bytes_max:
            raise WorldFailed(f"{key.room} of {key.workload}: {len(encoded)} bytes are too many")
        is_beaten = self._state.faults.now(FaultKind.STORE_CONFLICT) is not None
        if is_beaten or not self.is_newest(key, version):
            raise StoreConflict(f"{key.room} of {key.workload} is not at version {version!r}")
        written = str(self._state.next_version())
        self._entries[key] = (encoded, written)
        self.commits.append(Commit(key, version, written))
        self._state.log("Stored", key.workload, f"{key.room} {encoded.decode()}")
        if self._state.faults.now(FaultKind.STORE_ANSWER_LOST):
            raise WorldFailed("the answer to a write was lost (simulated)")
        return Stored(msgspec.json.decode(encoded), written)

    def is_newest(self, key: StoreKey, version: str) -> bool:
        """Whether an entry still has this version."""
        return self._entries.get(key, (b"", ""))[1] == version

    def _check_available(self) -> None:
        for kind in (FaultKind.API_UNAVAILABLE, FaultKind.STORE_UNAVAILABLE):
            if self._state.faults.now(kind):
                raise WorldFailed("the store does not answer (simulated)")
