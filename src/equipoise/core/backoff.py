"""Exponential backoff: how long to wait after so many failures in a row, and whose wait is not over.

What was refused is refused again if it is asked for at once, and each question costs somebody. So every wait
is twice as long as the one before, up to a bound; the first success begins anew. It is here and not in the
engine, since adapters wait in the same way.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")

DOUBLINGS_MAX = 60
"""More than any bound lets count; a float holds it."""


def delay_seconds(failures: int, first_seconds: float, max_seconds: float) -> float:
    """Return the wait after so many failures in a row: the first after one, then twice as long each time."""
    assert failures >= 1, "who has not failed does not wait"
    return min(first_seconds * 2.0 ** min(failures - 1, DOUBLINGS_MAX), max_seconds)


class Failure(NamedTuple, Generic[V]):
    """How often something failed in a row, until when it waits, and what is kept of the last time."""

    times: int
    until: float
    last: V


@dataclass(slots=True)
class KeyedBackoff(Generic[K, V]):
    """The failures of many, each with a wait of its own."""

    first_seconds: float
    max_seconds: float
    _failures: dict[K, Failure[V]] = field(default_factory=dict)

    def fail(self, key: K, at: float, last: V) -> None:
        """Count one more failure in a row, and wait from now on."""
        before = self._failures.get(key)
        times = 1 if before is None else before.times + 1
        wait = delay_seconds(times, self.first_seconds, self.max_seconds)
        assert 0 <= wait <= self.max_seconds, f"a wait of {wait} s is out of bounds"
        self._failures[key] = Failure(times, at + wait, last)

    def failure(self, key: K) -> Failure[V] | None:
        """Return what is known of the failures since the last success, also where the wait is over."""
        return self._failures.get(key)

    def forget(self, key: K) -> None:
        """Begin anew: it succeeded, or it is about something else now."""
        self._failures.pop(key, None)

    def keep(self, keys: Collection[K]) -> None:
        """Forget all others: they are gone."""
        self._failures = {key: failure for key, failure in self._failures.items() if key in keys}

    def items(self) -> list[tuple[K, Failure[V]]]:
        """Return every failure that is remembered."""
        return list(self._failures.items())
