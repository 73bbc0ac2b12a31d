"""Errors and backoff: what fails is named on one line, and not repeated at once.

A refused request is refused again if it is repeated at once, and each request has a cost. So every wait is
twice as long as the one before, up to a bound; a success resets it. Adapters and the engine use the same
backoff.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import msgspec

DECODE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError)
"""Every exception that decoding foreign data may raise, for `except` around such decoding.

`ValueError` covers broken UTF-8, pydantic's `ValidationError`, and dates that the calendar does not have;
`ArithmeticError` covers numbers too large for their type; `RecursionError` covers deep nesting.
"""


SENTENCE_LENGTH_MAX = 4000
"""A sentence may quote text from outside, which may be of any length."""


def _printable(sentence: str) -> str:
    """Return a sentence on one line that any encoding can write, cut at `SENTENCE_LENGTH_MAX`."""
    line = " ".join(sentence.splitlines()) if len(sentence.splitlines()) > 1 else sentence
    if not line.isascii():
        line = line.encode(errors="backslashreplace").decode()
    return line if len(line) <= SENTENCE_LENGTH_MAX else f"{line[:SENTENCE_LENGTH_MAX]}..."


class EquipoiseError(Exception):
    """An error printed on one line: what failed, where, and what was expected."""

    exit_status = 1

    def __str__(self) -> str:
        return _printable(super().__str__())


class BadInput(EquipoiseError):  # noqa: N818 - reads as a fact
    """The user's input is invalid: a file, a field, a flag. Nothing was changed."""

    exit_status = 2


class WorldFailed(EquipoiseError):  # noqa: N818 - reads as a fact
    """A system outside did not answer, refused the request, or gave an invalid answer."""


class SetUpWrong(WorldFailed):
    """A system outside answers, but its configuration makes actions harmful until a user corrects it."""


BEGINNING_MIN = 3
"""A beginning of so many letters stands for the only word that begins so."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question that names the known word closest to a misspelt one; empty if none is close."""
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    lower = {each.lower(): each for each in known}
    begun = [each for each in lower if len(word) >= BEGINNING_MIN and each.startswith(word.lower())]
    found = begun if len(begun) == 1 else get_close_matches(word.lower(), lower, 1)
    return f" Did you mean {lower[found[0]]}?" if found else ""


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
        return list(self._failures.items())
