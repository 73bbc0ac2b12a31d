"""Exponential backoff: the wait after a number of failures in a row, and the keys that are still waiting.

A refused request is refused again if it is repeated at once, and each request has a cost. So every wait is
twice as long as the one before, up to a bound; a success resets it. It is in `core`, since adapters and the
engine use the same backoff.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")

DOUBLINGS_MAX = 60
"""More doublings than any bound allows; a float holds the result."""


def delay_seconds(failures: int, first_seconds: float, max_seconds: float) -> float:
    """Return the wait after this many failures in a row: `first_seconds` after one, then doubled."""
    assert failures >= 1, "who has not failed does not wait"
    return min(first_seconds * 2.0 ** min(failures - 1, DOUBLINGS_MAX), max_seconds)


class Failure(NamedTuple, Generic[V]):
    """Failures in a row of one key: their count, the end of the wait, and a value of the last one."""

    times: int
    until: float
    last: V


@dataclass(slots=True)
class KeyedBackoff(Generic[K, V]):
    """Failures by key, each with its own wait."""

    first_seconds: float
    max_seconds: float
    _failures: dict[K, Failure[V]] = field(default_factory=dict)

    def fail(self, key: K, at: float, last: V) -> None:
        """Count one more failure in a row, and start its wait."""
        before = self._failures.get(key)
        times = 1 if before is None else before.times + 1
        wait = delay_seconds(times, self.first_seconds, self.max_seconds)
        assert 0 <= wait <= self.max_seconds, f"a wait of {wait} s is out of bounds"
        self._failures[key] = Failure(times, at + wait, last)

    def failure(self, key: K) -> Failure[V] | None:
        """Return the failures since the last success, also after the wait has ended; None without any."""
        return self._failures.get(key)

    def forget(self, key: K) -> None:
        """Reset a key: it succeeded, or it stands for something else now."""
        self._failures.pop(key, None)

    def keep(self, keys: Collection[K]) -> None:
        """Drop all other keys, which no longer exist."""
        self._failures = {key: failure for key, failure in self._failures.items() if key in keys}

    def items(self) -> list[tuple[K, Failure[V]]]:
        """Return all failures with their keys."""
        return list(self._failures.items())
