"""What is asked of a journal, whatever it is kept in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from equipoise.model.decision import Record

DAMAGES_MAX = 20


@dataclass(frozen=True, slots=True)
class Query:
    """Which records; what is empty or None does not matter. A subject may be a pattern: `shop/*`."""

    balancer: str = ""
    subject: str = ""
    reason: str = ""
    since: float | None = None
    limit: int | None = None
    before: str = ""
    """Only ids before this one, and then in the order of ids: a page begins where the last one ended."""

    def matches(self, record: Record) -> bool:
        """Whether a record is wanted."""
        return (
            self.balancer in {"", record.balancer}
            and (not self.subject or fnmatchcase(record.decision.subject, self.subject))
            and self.reason in {"", record.decision.reason.code.value}
            and (self.since is None or record.until >= self.since)
            and (not self.before or record.id < self.before)
        )


class Damages:
    """What of a journal could not be read, one line each: the first few, and how many there are."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}
        self._more = 0

    def add(self, line: str) -> None:
        """Note one, once."""
        if line in self._lines:
            return
        if len(self._lines) < DAMAGES_MAX:
            self._lines[line] = None
        else:
            self._more += 1

    @property
    def lines(self) -> tuple[str, ...]:
        """All that is known so far."""
        rest = (f"and {self._more} more could not be read",) if self._more else ()
        return (*self._lines, *rest)


class Reader(Protocol):
    """A journal that is open for reading.

    What is damaged is left out and noted in `damages`; trouble with the whole file is a BadInput of one line.
    """

    @property
    def damages(self) -> Damages:
        """What could not be read so far."""
        ...

    def records(self, query: Query, *, is_whole: bool = False) -> Iterator[Record]:
        """Give the records, the newest first; with their inputs where they were kept, if `is_whole`."""
        ...

    def starting(self, prefix: str) -> Sequence[Record]:
        """Give the records whose id starts like this, whole, at most ten; an exact match comes alone."""
        ...

    def subjects(self, balancer: str, limit: int) -> Sequence[str]:
        """Give what a balancer decided about, the newest first."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


def exactly(subject: str) -> str:
    """Give the pattern that only this subject matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in subject)
