"""The last known state of one kind, and the changes between two states.

Ten thousand pods repeat the same labels, owners and quantities. So the records of one cache share a pool that
holds equal values once, and a count of the fields that could not be read.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from equipoise.adapters.kubernetes.kinds import ResourceKind

T = TypeVar("T")


class Warnings:
    """Counts fields and objects that could not be read, and where the first was."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, what: str, where: str) -> None:
        self._counts[what] += 1
        self._first.setdefault(what, where)

    def sentences(self) -> tuple[str, ...]:
        return tuple(f"{what}: {n} times, first in {self._first[what]}" for what, n in self._counts.items())


class Pool:
    """Values that many records share. Cleared when it grows too large, which costs memory only."""

    def __init__(self, entries_max: int = 200_000) -> None:
        self._entries: dict[object, object] = {}
        self._entries_max = entries_max

    def __len__(self) -> int:
        return len(self._entries)

    def share(self, value: T) -> T:
        """Return the equal value of the pool, after adding this one if there is none."""
        found = self._entries.get(value)
        if found is None:
            self.put(value, value)
            return value
        return found  # type: ignore[return-value] # equal keys have equal types here

    def find(self, key: object) -> object:
        return self._entries.get(key)

    def put(self, key: object, value: object) -> None:
        if len(self._entries) >= self._entries_max:
            self._entries.clear()
        self._entries[key] = value
        assert len(self._entries) <= self._entries_max, "the pool is bounded"


R = TypeVar("R")


class ChangeType(StrEnum):
    """How an object changed."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(NamedTuple, Generic[R]):
    """One change; an object that was replaced by another with its name is a deletion and an addition."""

    type: ChangeType
    old: R | None
    new: R | None


class Cache(Generic[R]):
    """Records by namespace and name. Reads from any thread; writes from the reflector's."""

    def __init__(self, kind: ResourceKind[R]) -> None:
        self._key = kind.key
        self._identity = kind.identity
        self._lock = threading.Lock()
        self._records: dict[str, dict[str, R]] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum(len(records) for records in self._records.values())

    def get(self, namespace: str, name: str) -> R | None:
        with self._lock:
            return self._records.get(namespace, {}).get(name)

    def records(self, namespace: str | None = None) -> list[R]:
        """Return all records, or those of a namespace, as they are now."""
        with self._lock:
            if namespace is not None:
                return list(self._records.get(namespace, {}).values())
            return [record for records in self._records.values() for record in records.values()]

    def replace(self, records: Iterable[R]) -> list[Change[R]]:
        """Replace all records and return the changes, deletions that no watch reported included."""
        fresh: dict[str, dict[str, R]] = {}
        changes: list[Change[R]] = []
        for record in records:
            namespace, name = self._key(record)
            old = self.get(namespace, name)
            steps = self._between(old, record)
            fresh.setdefault(namespace, {})[name] = record if steps or old is None else old
            changes += steps
        gone = [
            Change(ChangeType.DELETED, old, None)
            for namespace, olds in self._records.items()
            for name, old in olds.items()
            if name not in fresh.get(namespace, {})
        ]
        for change in gone:
            assert change.old is not None, "only what was there can be gone"
        with self._lock:
            self._records = fresh
        return gone + changes

    def put(self, record: R) -> list[Change[R]]:
        """Store an object that was added or modified; return the changes."""
        namespace, name = self._key(record)
        with self._lock:
            within = self._records.setdefault(namespace, {})
            changes = self._between(within.get(name), record)
            within[name] = record
        return changes

    def drop(self, namespace: str, name: str) -> list[Change[R]]:
        """Remove a deleted object; return the changes."""
        with self._lock:
            within = self._records.get(namespace, {})
            old = within.pop(name, None)
            if not within:
                self._records.pop(namespace, None)
        return [] if old is None else [Change(ChangeType.DELETED, old, None)]

    def _between(self, old: R | None, new: R) -> list[Change[R]]:
        if old is None:
            return [Change(ChangeType.ADDED, None, new)]
        (old_uid, old_version), (uid, version) = self._identity(old), self._identity(new)
        if old_uid != uid:
            return [Change(ChangeType.DELETED, old, None), Change(ChangeType.ADDED, None, new)]
        return [] if old_version == version else [Change(ChangeType.MODIFIED, old, new)]
