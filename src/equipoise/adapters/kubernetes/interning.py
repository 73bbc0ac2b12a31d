"""What the records of one cache share: equal values held once, and a count of what could not be read."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

T = TypeVar("T")


class Warnings:
    """What could not be read: how often, and where first."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, what: str, where: str) -> None:
        """Count one."""
        self._counts[what] += 1
        self._first.setdefault(what, where)

    def sentences(self) -> tuple[str, ...]:
        """Tell them, one line for each kind."""
        return tuple(f"{what}: {n} times, first in {self._first[what]}" for what, n in self._counts.items())


class Pool:
    """Values that many records share. Cleared when it grows too large, which costs sharing, not truth."""

    def __init__(self, entries_max: int = 200_000) -> None:
        self._entries: dict[object, object] = {}
        self._entries_max = entries_max

    def __len__(self) -> int:
        return len(self._entries)

    def share(self, value: T) -> T:
        """Return an equal value that is held already, or this one."""
        found = self._entries.get(value)
        if found is None:
            self.put(value, value)
            return value
        return found  # type: ignore[return-value] # equal keys have equal types here

    def find(self, key: object) -> object:
        """Return what was put under this key, or None."""
        return self._entries.get(key)

    def put(self, key: object, value: object) -> None:
        """Hold a value."""
        if len(self._entries) >= self._entries_max:
            self._entries.clear()
        self._entries[key] = value
