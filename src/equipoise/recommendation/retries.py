"""How long an Analytics that could not be answered is left alone: each look reads a week, so ever longer.

It is remembered in this process only: whoever leads next begins with a try of its own. Where the past could
not be read, nobody has to wait any longer once somebody could.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from equipoise.ports import PolicyObject
from equipoise.recommendation.status import moment

LONGEST_SECONDS = 600.0


class _Failure(NamedTuple):
    generation: int
    """Whoever asks for something else is not made to wait."""
    tries: int
    until: float
    warnings: Sequence[str]
    unread: str
    """What of the past could not be read; nothing where it was something else."""


@dataclass(slots=True)
class Retries:
    """Which Analytics failed, how often in a row, and until when they wait."""

    first_seconds: float
    _failures: dict[str, _Failure] = field(default_factory=dict)
    """By UID."""

    def waits(self, about: PolicyObject, at: float) -> bool:
        """Whether it is too early for the next try; half a first wait does not matter."""
        failure = self._failure(about)
        return failure is not None and at < failure.until - self.first_seconds / 2

    def is_open(self, about: PolicyObject) -> bool:
        """Whether the last try failed, so that there is another, whatever the status says."""
        return self._failure(about) is not None

    def warnings(self, about: PolicyObject) -> Sequence[str]:
        """Give what went wrong at the last try: it is wrong for as long as nobody tried again."""
        failure = self._failure(about)
        return () if failure is None else failure.warnings

    def unread(self, about: PolicyObject) -> str:
        """Give what of the past could not be read at the last try, and when the next is."""
        failure = self._failure(about)
        if failure is None or not failure.unread:
            return ""
        return f"{failure.unread}; the next try is at {moment(failure.until)}"

    def failed(self, about: PolicyObject, at: float, warnings: Sequence[str] = (), unread: str = "") -> None:
        """Wait twice as long as before, up to a bound."""
        before = self._failure(about)
        tries = 1 if before is None else before.tries + 1
        doublings = min(tries - 1, 32)
        wait = min(self.first_seconds * 2.0**doublings, max(LONGEST_SECONDS, self.first_seconds))
        self._failures[about.ref.uid] = _Failure(about.generation, tries, at + wait, warnings, unread)

    def succeeded(self, about: PolicyObject) -> None:
        """Forget what failed before."""
        self._failures.pop(about.ref.uid, None)

    def read(self) -> None:
        """Let those try again for whom the past could not be read: it was read now."""
        self._failures = {uid: failure for uid, failure in self._failures.items() if not failure.unread}

    def keep(self, uids: Collection[str]) -> None:
        """Forget those that are gone; of nobody, all."""
        self._failures = {uid: failure for uid, failure in self._failures.items() if uid in uids}

    def _failure(self, about: PolicyObject) -> _Failure | None:
        found = self._failures.get(about.ref.uid)
        return None if found is None or found.generation != about.generation else found
