"""The disruption ledger of one workload: what we meant to do, what came of it, and since when.

It is written before every action, by compare-and-swap, and it is all that a new leader needs: an intent
without an outcome counts as done until the world shows otherwise.
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
"""How much one workload's entry may be, as a store writes it."""
GUEST_EPOCH = 0
"""Of entries that were written without a Lease. Lease transitions are far above it."""
FAILED_MAX = 20
"""How many entries of what did not happen are kept, for whoever wonders."""
AGE_MAX_SECONDS = 86_400.0
INTENT_MAX_SECONDS = 120.0
"""Longer than any request lasts, its time-outs included."""


class EntryState(StrEnum):
    """How far an action has come."""

    INTENT = "Intent"
    """Written before the action: it may have happened."""
    DONE = "Done"
    FAILED = "Failed"
    """It is certain that it did not happen."""


class Entry(msgspec.Struct, frozen=True):
    """One action against one pod of the workload."""

    id: str
    round: str
    """The actions of one decision share it."""
    balancer: str
    action: str
    pod: str
    uid: str
    at: float
    epoch: int
    state: EntryState = EntryState.INTENT


class Fenced(Exception):  # noqa: N818 - reads as a fact
    """A newer leader has written: whoever we are, it is not our turn any more."""


class Ledger(msgspec.Struct, frozen=True):
    """The entries of one workload, oldest first, and the newest epoch of all who wrote."""

    epoch: int = 0
    entries: tuple[Entry, ...] = ()
    entries_total: int = msgspec.field(default=0, name="entriesTotal")
    """How many there have ever been."""
    memory: dict[str, Any] = {}
    """What the balancers carry over, by balancer; kept as it is found."""
    epochs: dict[str, int] = {}
    """The newest epoch of each balancer: each may have a Lease of its own."""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Ledger":
        """Read what a store holds; an absent ledger is an empty one, and one we can't read is unknown."""
        try:
            refuse_deep(dict(data))
            entries = [
                dict(entry) | {"at": parse_moment(dict(entry).get("at"))} for entry in data.get("entries", ())
            ]
            return msgspec.convert(dict(data) | {"entries": entries}, type=cls)
        except DECODE_ERRORS as error:
            raise WorldFailed(f"a ledger that cannot be read: {error}") from error

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        for entry in data["entries"]:
            entry["at"] = datetime.fromtimestamp(entry["at"], UTC).isoformat(timespec="milliseconds")
        return data

    def with_intent(self, entry: Entry, memory: Mapping[str, Any] | None = None) -> "Ledger":
        """Add an intent, and what its balancer remembers from now on; refuse when a newer leader was here.

        Each balancer may have a Lease of its own, so only its own epochs say who came later. Whoever needs no
        Lease (epoch 0: a person's command, an agent) is kept apart by the compare-and-swap alone.
        """
        newest = self.epoch_of(entry.balancer)
        if entry.epoch != GUEST_EPOCH and entry.epoch < newest:
            raise Fenced(f"{entry.balancer} wrote in epoch {newest}, and we are of epoch {entry.epoch}")
        kept = _bounded([old for old in self.entries if old.at > entry.at - AGE_MAX_SECONDS])
        assert len(kept) < ENTRIES_MAX, "there is room for the intent"
        added = msgspec.structs.replace(
            self,
            epoch=max(self.epoch, entry.epoch),
            epochs=self.epochs | {entry.balancer: max(newest, entry.epoch)},
            entries=(*kept, entry),
            entries_total=self.entries_total + 1,
            memory=self.memory if memory is None else self.memory | {entry.balancer: dict(memory)},
        )
        assert added.epoch_of(entry.balancer) >= newest, "the epoch of a balancer never falls"
        assert added.epoch >= self.epoch, "the epoch of a ledger never falls"
        return added

    def remembering(self, balancer: str, memory: Mapping[str, Any]) -> "Ledger":
        return msgspec.structs.replace(self, memory=self.memory | {balancer: dict(memory)})

    def settled(self, entry_id: str, state: EntryState) -> "Ledger":
        """Write down what came of an intent; an entry that has gone stays gone."""
        assert state is not EntryState.INTENT, "an outcome is no intent"
        entries = tuple(
            msgspec.structs.replace(entry, state=state) if entry.id == entry_id else entry
            for entry in self.entries
        )
        return msgspec.structs.replace(self, entries=entries)

    def reconciled(self, alive: Collection[str], at: float) -> "Ledger":
        """Return every old intent the outcome that the world shows: `alive` are the UIDs that still run.

        A pod that has gone was evicted, as far as anybody can tell. One that still runs long after was not:
        no request is under way for so long.
        """
        entries = tuple(_reconciled(entry, alive, at) for entry in self.entries)
        assert [one.id for one in entries] == [one.id for one in self.entries], "no entry is lost or made"
        return self if entries == self.entries else msgspec.structs.replace(self, entries=entries)

    def epoch_of(self, balancer: str) -> int:
        """Return the newest epoch in which this balancer wrote; an old ledger does not tell whose its is."""
        return self.epochs.get(balancer, GUEST_EPOCH) if self.epochs else self.epoch

    def sent(self) -> frozenset[str]:
        """Return the UIDs of pods that were sent away, or may have been: one still seen is about to go."""
        return frozenset(entry.uid for entry in self.entries if entry.state is not EntryState.FAILED)

    def rounds_since(self, at: float, balancer: str) -> int:
        """Count this balancer's rounds that began after a moment, but for those that surely did nothing."""
        return len({entry.round for entry in self._counted(balancer) if entry.at > at})

    def last_at(self, balancer: str) -> float | None:
        """Return when this balancer last acted, or may have."""
        return max((entry.at for entry in self._counted(balancer)), default=None)

    def _counted(self, balancer: str) -> Iterator[Entry]:
        return (
            entry
            for entry in self.entries
            if entry.state is not EntryState.FAILED and entry.balancer == balancer
        )


def _bounded(entries: list[Entry]) -> list[Entry]:
    """Make room for one more: what did not happen goes first, since no budget counts it."""
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
