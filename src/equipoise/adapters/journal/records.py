"""Which records the journal stores, their ids, their encoding, the queries of its readers, and JSON lines.

A record is stored whole if it has outcomes, or if its reason, actions or held actions differ from the last
decision about its subject, or if only one of the two rounds could read anything. Any other only extends the
streak of that last one: a count, an end, the last sentence and since when, the last numbers and hash. Ids are
unique and sort by time.

A journal of JSON lines has one record a line, in a bounded number of bounded files. Commands write it, each
record whole. Lines of earlier versions may be of repeated records: then the length of the streak is a
second line with the same id, without the inputs, and the reader joins the two.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.journal.schema import DamagedRow
from equipoise.core.decision import Decision, Record, Streak
from equipoise.core.documents import DEPTH_MAX, refuse_deep
from equipoise.core.errors import DECODE_ERRORS, BadInput
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
    return record.balancer, record.decision.subject


def gist(decision: Decision, *, has_readings: bool = True) -> bytes:
    """Return the parts in which two decisions of a streak agree: codes and actions, without numbers."""
    # Equal pods change places between observations, which is no difference.
    held = sorted((part.reason.value, msgspec.json.encode(part.action)) for part in decision.held)
    alike: tuple[object, ...] = (decision.reason.code, decision.actions, held)
    if not has_readings:
        alike = (*alike, "nothing was read")
    return hashlib.blake2b(msgspec.json.encode(alike), digest_size=8).digest()


def is_stored_whole(last: bytes | None, record: Record) -> bool:
    """Return whether a record is stored whole, given the gist of its subject's last one."""
    return bool(record.outcomes) or last != gist_of(record)


def gist_of(record: Record) -> bytes:
    return gist(record.decision, has_readings=record.has_readings)


class Sentence(NamedTuple):
    """The latest sentence about a subject, and when it became that; None if it is the record's own."""

    text: str
    changed_at: float | None = None

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the latest sentence of a record and its streak."""
        return cls(record.reason.sentence, record.changed_at)

    def then(self, record: Record) -> "Sentence":
        """Return the sentence after one more record."""
        text = record.decision.reason.sentence
        return self if text == self.text else Sentence(text, record.at)


def prolonged(before: Streak | None, record: Record, sentence: Sentence) -> Streak:
    """Return the streak with one more record; `sentence` is the one after it."""
    times = 1 if before is None else before.times + 1
    return Streak(times, record.at, record.decision.reason, record.inputs_hash, sentence.changed_at)


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


FOUND_MAX = 10
FILES_MAX = 4
"""The files of a journal share its bound."""


class JsonLines:
    """A journal that never raises: when it cannot write, `failure` is the reason, and it retries later."""

    def __init__(self, path: Path | str, *, bytes_max: int) -> None:
        self.path = Path(path)
        self.failure = ""
        self.lost = 0
        self.damage = ""
        """The last damage that was found, and how it was handled; empty without any."""
        self._file_bytes_max = bytes_max // FILES_MAX

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: every line is written at once."""

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Write records, always whole."""
        del is_whole
        try:
            for record in records:
                self._write_line(record.to_json() + b"\n")
        except Exception as error:  # noqa: BLE001 - a failed journal must not end the loop
            self.failure = f"{self.path}: {getattr(error, 'strerror', None) or error}"
            self.lost += len(records)
        else:
            self.failure = ""

    def _write_line(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            end = self._end_of_last_line(file.fileno())
            if not end or end + len(line) <= self._file_bytes_max:
                _write_whole(file.fileno(), line, end)
                return
        self._rotate()
        self._write_line(line)

    def _end_of_last_line(self, descriptor: int) -> int:
        """Truncate a line that a crash left incomplete; return where the next line begins."""
        end = os.lseek(descriptor, 0, os.SEEK_END)
        if not end or os.pread(descriptor, 1, end - 1) == b"\n":
            return end
        whole = os.pread(descriptor, end, 0).rfind(b"\n") + 1
        os.ftruncate(descriptor, whole)
        self.damage = f"{self.path} ended within a line; the last {end - whole} bytes were removed"
        return whole

    def _rotate(self) -> None:
        """Rename each file to the next older one; the oldest is deleted."""
        names = [_older(self.path, age) for age in range(FILES_MAX)]
        for younger, older in reversed(list(pairwise(names))):
            if younger.exists():
                younger.replace(older)


def _older(path: Path, age: int) -> Path:
    return path if age == 0 else path.with_name(f"{path.name}.{age}")


def parts_of(path: Path) -> list[Path]:
    """Return the files of a journal, the oldest first; a crash during a rotation may leave a gap."""
    ages = [part.name.removeprefix(f"{path.name}.") for part in path.parent.glob(f"{path.name}.*")]
    older = [_older(path, age) for age in sorted((int(age) for age in ages if age.isdecimal()), reverse=True)]
    return older + [path] * path.exists()


def _write_whole(descriptor: int, line: bytes, end: int) -> None:
    """Write a whole line or, on a full disk, nothing."""
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        os.ftruncate(descriptor, end)
        raise


class JsonLinesReader:
    """The records of a JSON lines journal and of its older files."""

    def __init__(self, path: Path) -> None:
        self.damages = Damages()
        found: dict[str, Record] = {}
        for part in parts_of(path):
            for record in _read(part, self.damages):
                found[record.id] = _joined(found.get(record.id), record)
        if self.damages.lines and not found:
            raise BadInput(f"journal {self.damages.lines[0]}")
        # An exported journal begins with the newest record, a written one ends with it.
        self._newest_first = sorted(found.values(), key=lambda record: (record.at, record.id), reverse=True)

    def close(self) -> None:
        """Do nothing: the files were read at once."""

    def records(self, query: Query, *, is_whole: bool = False) -> Iterator[Record]:
        source = self._newest_first
        if query.before:
            source = sorted(source, key=lambda record: record.id, reverse=True)
        selected = islice(filter(query.matches, source), query.limit)
        return selected if is_whole else (record.without_inputs() for record in selected)

    def subjects(self, balancer: str, limit: int) -> Sequence[str]:
        found = (record.decision.subject for record in self._newest_first if record.balancer == balancer)
        return list(islice(dict.fromkeys(found), limit))

    def starting(self, prefix: str) -> Sequence[Record]:
        found = [record for record in self._newest_first if record.id.startswith(prefix)]
        return [record for record in found if record.id == prefix] or found[:FOUND_MAX]


def _joined(before: Record | None, after: Record) -> Record:
    """Return the later line of an id with the inputs of the first."""
    if before is None or after.has_inputs:
        return after
    return msgspec.structs.replace(
        after, policy=before.policy, observation=before.observation, memory=before.memory
    )


def _read(path: Path, damages: Damages) -> Iterator[Record]:
    """Yield the records of a file; an incomplete last line may be in the process of being written."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield parse(line, Record)
                except DECODE_ERRORS as error:
                    why = one_line(str(error)) or type(error).__name__
                    damages.add(f"{path}: line {number}: expected a record: {why}")
    except OSError as error:
        raise BadInput(f"journal {path}: {error.strerror or error}") from error
