"""The disruption ledger of one workload: intended actions, their outcomes and times.

It is written by compare-and-swap before every action, and it is all that a new leader needs: an intent
without an outcome counts as done until an observation shows otherwise.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from equipoise.core.documents import refuse_deep
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.core.quantity import parse_moment

ENTRIES_MAX = 200
BYTES_MAX = 64 * 1024
"""The largest ledger of one workload, as a store writes it."""
GUEST_EPOCH = 0
"""The epoch of entries that were written without a Lease. Lease transitions are far above it."""
FAILED_MAX = 20
"""How many entries of failed actions are stored, for users who investigate."""
AGE_MAX_SECONDS = 86_400.0
INTENT_MAX_SECONDS = 120.0
"""Longer than any request, timeouts included."""


class EntryState(StrEnum):
    """How far an action has come."""

    INTENT = "Intent"
    """Written before the action, which may have taken effect."""
    DONE = "Done"
    FAILED = "Failed"
    """The action certainly had no effect."""


class Entry(msgspec.Struct, frozen=True):
    """One action against one pod of the workload."""

    id: str
    round: str
    """The same for all actions of one decision."""
    balancer: str
    action: str
    pod: str
    uid: str
    at: float
    epoch: int
    state: EntryState = EntryState.INTENT


class Fenced(Exception):  # noqa: N818 - reads as a fact
    """A newer leader has written the ledger, so this process must not act any more."""


class Ledger(msgspec.Struct, frozen=True):
    """The entries of one workload, oldest first, and the newest epoch of all who wrote."""

    epoch: int = 0
    entries: tuple[Entry, ...] = ()
    entries_total: int = msgspec.field(default=0, name="entriesTotal")
    """The number of entries that were ever written."""
    memory: dict[str, Any] = {}
    """The memory of each balancer, stored as it is."""
    epochs: dict[str, int] = {}
    """The newest epoch of each balancer, since each may have its own Lease."""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Ledger":
        """Return a store's ledger: empty where it is absent; raise WorldFailed where it cannot be decoded."""
        try:
            refuse_deep(dict(data))
            entries = [
                dict(entry) | {"at": parse_moment(dict(entry).get("at"))} for entry in data.get("entries", ())
            ]
            return msgspec.convert(dict(data) | {"entries": entries}, type=cls)
        except DECODE_ERRORS as error:
            raise WorldFailed(f"its content is invalid: {error}") from error

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        for entry in data["entries"]:
            entry["at"] = datetime.fromtimestamp(entry["at"], UTC).isoformat(timespec="milliseconds")
        return data

    def with_intent(self, entry: Entry, memory: Mapping[str, Any] | None = None) -> "Ledger":
        """Return the ledger with an intent and its balancer's new memory; raise Fenced after a newer leader.

        Each balancer may have its own Lease, so only the epochs of one balancer are compared. Writers without
        a Lease (epoch 0: a user's command, an agent) are separated by the compare-and-swap alone.
        """
        newest = self.epoch_of(entry.balancer)
        if entry.epoch != GUEST_EPOCH and entry.epoch < newest:
            raise Fenced(
                f"{entry.balancer} wrote in epoch {newest}, but this process leads in epoch {entry.epoch}"
            )
        remaining = _bounded([old for old in self.entries if old.at > entry.at - AGE_MAX_SECONDS])
        assert len(remaining) < ENTRIES_MAX, "there is room for the intent"
        added = msgspec.structs.replace(
            self,
            epoch=max(self.epoch, entry.epoch),
            epochs=self.epochs | {entry.balancer: max(newest, entry.epoch)},
            entries=(*remaining, entry),
            entries_total=self.entries_total + 1,
            memory=self.memory if memory is None else self.memory | {entry.balancer: dict(memory)},
        )
        assert added.epoch_of(entry.balancer) >= newest, "the epoch of a balancer never falls"
        assert added.epoch >= self.epoch, "the epoch of a ledger never falls"
        return added

    def remembering(self, balancer: str, memory: Mapping[str, Any]) -> "Ledger":
        return msgspec.structs.replace(self, memory=self.memory | {balancer: dict(memory)})

    def settled(self, entry_id: str, state: EntryState) -> "Ledger":
        """Return the ledger with an intent's outcome; an entry that was dropped is not added again."""
        assert state is not EntryState.INTENT, "an outcome is no intent"
        entries = tuple(
            msgspec.structs.replace(entry, state=state) if entry.id == entry_id else entry
            for entry in self.entries
        )
        return msgspec.structs.replace(self, entries=entries)

    def reconciled(self, alive: Collection[str], at: float) -> "Ledger":
        """Return the ledger with outcomes of old intents: `alive` are the UIDs that still run.

        A pod that no longer exists counts as evicted. One that still runs after `INTENT_MAX_SECONDS` was not
        evicted, since no request lasts so long.
        """
        entries = tuple(_reconciled(entry, alive, at) for entry in self.entries)
        assert [one.id for one in entries] == [one.id for one in self.entries], "no entry is lost or made"
        return self if entries == self.entries else msgspec.structs.replace(self, entries=entries)

    def epoch_of(self, balancer: str) -> int:
        """Return the newest epoch in which this balancer wrote; an old ledger has one epoch for all."""
        return self.epochs.get(balancer, GUEST_EPOCH) if self.epochs else self.epoch

    def sent(self) -> frozenset[str]:
        """Return the UIDs of pods that were or may have been evicted; one that still runs is about to end."""
        return frozenset(entry.uid for entry in self.entries if entry.state is not EntryState.FAILED)

    def rounds_since(self, at: float, balancer: str) -> int:
        """Return how many of this balancer's rounds began after `at`, without those that had no effect."""
        return len({entry.round for entry in self._counted(balancer) if entry.at > at})

    def last_at(self, balancer: str) -> float | None:
        """Return when this balancer last acted or may have acted; None before any action."""
        return max((entry.at for entry in self._counted(balancer)), default=None)

    def _counted(self, balancer: str) -> Iterator[Entry]:
        return (
            entry
            for entry in self.entries
            if entry.state is not EntryState.FAILED and entry.balancer == balancer
        )


def _bounded(entries: list[Entry]) -> list[Entry]:
    """Return the entries with room for one more; failed ones are dropped first, as no budget counts them."""
    failed = [entry.id for entry in entries if entry.state is EntryState.FAILED][:-FAILED_MAX]
    surplus = set(failed)
    return [entry for entry in entries if entry.id not in surplus][-(ENTRIES_MAX - 1) :]


def _reconciled(entry: Entry, alive: Collection[str], at: float) -> Entry:
    if entry.state is not EntryState.INTENT:
        return entry
    if entry.uid not in alive:
        return msgspec.structs.replace(entry, state=EntryState.DONE)
    if at - entry.at > INTENT_MAX_SECONDS:
        return msgspec.structs.replace(entry, state=EntryState.FAILED)
    return entry
