"""What is kept of a decision, so that the journal is quiet at rest.

Whole: what was acted on, and what differs from the subject's last decision in its reason, in what is to
be done or in what is held. The rest only lengthens the streak of that last one: how often, until when,
and the last numbers and hash.

Names for records: later ones sort after earlier ones, and no two are the same.

What is asked of a journal, whatever it is kept in.
"""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

import msgspec

from equipoise.adapters.journal.schema import DamagedRow
from equipoise.core.decision import Decision, Record, Streak
from equipoise.core.documents import DEPTH_MAX, refuse_deep
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import check_moment

PACKING_LEVEL = 1
"""Nine tenths of what the highest level gains, for half its time."""

PACKED_ABOVE_BYTES = 512
"""Smaller texts gain less from zlib than it costs."""

_ZLIB = b"x"
"""The first byte of every zlib stream of ours; JSON begins with a brace or a bracket."""

T = TypeVar("T")

Subject = tuple[str, str]
"""Balancer and subject: whose streak it is."""


def subject_of(record: Record) -> Subject:
    """Whose streak this record belongs to."""
    return record.balancer, record.decision.subject


def gist(decision: Decision) -> bytes:
    """Return what makes two decisions alike: codes and actions, without numbers and sentences."""
    # Equal pods change places from look to look; that is no news.
    held = sorted((part.reason.value, msgspec.json.encode(part.action)) for part in decision.held)
    alike = (decision.reason.code, decision.actions, held)
    return hashlib.blake2b(msgspec.json.encode(alike), digest_size=8).digest()


def is_stored_whole(last: bytes | None, record: Record) -> bool:
    """Whether a record is kept whole, given the gist of its subject's last one."""
    return bool(record.outcomes) or last != gist(record.decision)


def prolonged(before: Streak | None, record: Record) -> Streak:
    """Add one more of the same to a streak."""
    times = 1 if before is None else before.times + 1
    return Streak(times, record.at, record.decision.reason, record.inputs_hash)


def merged(before: Streak | None, after: Streak | None) -> Streak | None:
    """Join what is on disk with what came since."""
    if before is None or after is None:
        return after or before
    return msgspec.structs.replace(after, times=before.times + after.times)


def pack(text: bytes) -> bytes:
    return text if len(text) <= PACKED_ABOVE_BYTES else zlib.compress(text, PACKING_LEVEL)


def unpack(data: bytes, kind: type[T]) -> T:
    """Return what `pack` took, decoded as this type."""
    try:
        return parse(zlib.decompress(data) if data[:1] == _ZLIB else data, kind)
    except (zlib.error, *DECODE_ERRORS) as error:
        raise DamagedRow(f"a row is damaged: {error}") from error


def parse(text: bytes, kind: type[T]) -> T:
    """Return what a line or a row has, read as this type; raise one of DECODE_ERRORS where it makes no sense.

    What can be read can be printed and written again: nothing is nested too deeply, and no moment is off the
    calendar.
    """
    value = msgspec.json.decode(text, type=kind)
    if text.count(b"{") + text.count(b"[") > DEPTH_MAX:
        refuse_deep(msgspec.json.decode(text))
    if isinstance(value, Record):
        check_moment(value.at)
        check_moment(value.until)
    elif isinstance(value, Streak):
        check_moment(value.until)
    return value


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's 32: no i, l, o or u, which a person misreads; in the order of their codes."""

TIME_DIGITS = 9
"""Milliseconds until the year 3084."""

WRITER_BITS = 15
COUNT_BITS = 20


def record_id(at: float, writer: int, count: int) -> str:
    """Name a record by its time, by who wrote it (a random number) and by how many came before it."""
    return (
        _digits(max(0, int(at * 1000)), TIME_DIGITS)
        + _digits(writer, WRITER_BITS // 5)
        + _digits(count, COUNT_BITS // 5)
    )


def _digits(number: int, width: int) -> str:
    assert number >= 0, "a sign has no digit"
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(width)))


class RecordIds:
    """Names for all that one process writes; `writer` is its own random number."""

    def __init__(self, writer: int) -> None:
        self._writer = writer
        self._count = 0

    def next(self, at: float) -> str:
        self._count += 1
        return record_id(at, self._writer, self._count)


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


class JournalReader(Protocol):
    """A journal that is open for reading.

    What is damaged is left out and noted in `damages`; trouble with the whole file is a BadInput of one line.
    """

    @property
    def damages(self) -> Damages:
        """What could not be read so far."""
        ...

    def records(self, query: Query, *, is_whole: bool = False) -> Iterator[Record]:
        """Yield the records, the newest first; with their inputs where they were kept, if `is_whole`."""
        ...

    def starting(self, prefix: str) -> Sequence[Record]:
        """Return the records whose id starts like this, whole, at most ten; an exact match comes alone."""
        ...

    def subjects(self, balancer: str, limit: int) -> Sequence[str]:
        """Return what a balancer decided about, the newest first."""
        ...

    def close(self) -> None: ...


def exactly(subject: str) -> str:
    """Return the pattern that only this subject matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in subject)
