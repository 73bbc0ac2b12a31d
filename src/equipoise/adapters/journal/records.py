"""Which records the journal stores, their ids, their encoding, and the queries of its readers.

A record is stored whole if it has outcomes, or if its reason, actions or held actions differ from the last
decision about its subject. Any other only extends the streak of that last one: a count, an end, and the last
numbers and hash. Ids are unique and sort by time.
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
"""Balancer and subject, the key of a streak."""


def subject_of(record: Record) -> Subject:
    """Return the key of the record's streak."""
    return record.balancer, record.decision.subject


def gist(decision: Decision) -> bytes:
    """Return the parts in which two decisions of a streak agree: codes and actions, without numbers."""
    # Equal pods change places between observations, which is no difference.
    held = sorted((part.reason.value, msgspec.json.encode(part.action)) for part in decision.held)
    alike = (decision.reason.code, decision.actions, held)
    return hashlib.blake2b(msgspec.json.encode(alike), digest_size=8).digest()


def is_stored_whole(last: bytes | None, record: Record) -> bool:
    """Return whether a record is stored whole, given the gist of its subject's last one."""
    return bool(record.outcomes) or last != gist(record.decision)


def prolonged(before: Streak | None, record: Record) -> Streak:
    """Return the streak with one more record."""
    times = 1 if before is None else before.times + 1
    return Streak(times, record.at, record.decision.reason, record.inputs_hash)


def merged(before: Streak | None, after: Streak | None) -> Streak | None:
    """Return the union of the streak on disk and the one since."""
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
    """Return a line or a row decoded as this type; raise one of DECODE_ERRORS where it is invalid.

    A decoded value can be printed and written again: it is not nested too deeply, and all times are valid.
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
"""Crockford's 32 digits, without the easily misread i, l, o and u, in the order of their codes."""

TIME_DIGITS = 9
"""Milliseconds until the year 3084."""

WRITER_BITS = 15
COUNT_BITS = 20


def record_id(at: float, writer: int, count: int) -> str:
    """Return an id of the time, the writer's random number and the count of its earlier records."""
    return (
        _digits(max(0, int(at * 1000)), TIME_DIGITS)
        + _digits(writer, WRITER_BITS // 5)
        + _digits(count, COUNT_BITS // 5)
    )


def _digits(number: int, width: int) -> str:
    assert number >= 0, "a sign has no digit"
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(width)))


class RecordIds:
    """Ids for the records of one process; `writer` is its random number."""

    def __init__(self, writer: int) -> None:
        self._writer = writer
        self._count = 0

    def next(self, at: float) -> str:
        self._count += 1
        return record_id(at, self._writer, self._count)


DAMAGES_MAX = 20


@dataclass(frozen=True, slots=True)
class Query:
    """A filter of records; empty and None match all. A subject may be a pattern: `shop/*`."""

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
    """The unreadable parts of a journal, one line each: the first few, and their number."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}
        self._more = 0

    def add(self, line: str) -> None:
        """Add a line, unless it is there already."""
        if line in self._lines:
            return
        if len(self._lines) < DAMAGES_MAX:
            self._lines[line] = None
        else:
            self._more += 1

    @property
    def lines(self) -> tuple[str, ...]:
        """Return all lines so far."""
        rest = (f"and {self._more} more could not be read",) if self._more else ()
        return (*self._lines, *rest)


class JournalReader(Protocol):
    """A journal that is open for reading.

    Damaged records are left out and listed in `damages`; an unreadable file is a BadInput of one line.
    """

    @property
    def damages(self) -> Damages:
        """Return what could not be read so far."""
        ...

    def records(self, query: Query, *, is_whole: bool = False) -> Iterator[Record]:
        """Yield the records, the newest first; with `is_whole` also their stored inputs."""
        ...

    def starting(self, prefix: str) -> Sequence[Record]:
        """Return at most ten whole records whose id has this prefix; an exact match alone."""
        ...

    def subjects(self, balancer: str, limit: int) -> Sequence[str]:
        """Return the subjects of a balancer's decisions, the newest first."""
        ...

    def close(self) -> None: ...


def exactly(subject: str) -> str:
    """Return the pattern that only this subject matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in subject)
