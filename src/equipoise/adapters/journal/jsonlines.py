"""The journal as JSON lines: one record a line, in a bounded number of bounded files.

A record is written when it differs from its subject's last one. The length of its streak is a second line
with the same id, without the inputs, written when the streak ends; a reader joins the two.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Self

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.journal.records import (
    Damages,
    Query,
    Subject,
    gist,
    is_stored_whole,
    parse,
    prolonged,
    subject_of,
)
from equipoise.core.decision import Record
from equipoise.core.errors import DECODE_ERRORS, BadInput

FOUND_MAX = 10


class JsonLines:
    """A journal that never raises: when it cannot write, `failure` is the reason, and it retries later."""

    def __init__(self, path: Path | str, *, bytes_max: int, files_max: int = 4) -> None:
        self.path = Path(path)
        self.failure = ""
        self.lost = 0
        self.damage = ""
        """The last damage that was found, and how it was handled; empty without any."""
        self._file_bytes_max = bytes_max // max(1, files_max)
        self._files_max = max(1, files_max)
        self._lock = threading.Lock()
        self._last: dict[Subject, Record] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Write records; with `is_whole` also those that repeat the last one of their subject."""
        with self._lock:
            self._guarded(
                lambda: (line for record in records for line in self._lines(record, is_whole=is_whole)),
                len(records),
            )

    def close(self) -> None:
        """Write the lengths of the open streaks."""
        with self._lock:
            self._guarded(lambda: (last.to_json() for last in self._last.values() if last.streak), 0)
            self._last.clear()

    def _lines(self, record: Record, *, is_whole: bool) -> Iterator[bytes]:
        subject = subject_of(record)
        last = self._last.get(subject)
        if last is not None and not is_whole and not is_stored_whole(gist(last.decision), record):
            self._last[subject] = msgspec.structs.replace(last, streak=prolonged(last.streak, record))
            return
        if last is not None and last.streak is not None:
            yield last.to_json()
        self._last[subject] = record.without_inputs()
        yield record.to_json()

    def _guarded(self, lines: Callable[[], Iterator[bytes]], at_stake: int) -> None:
        try:
            for line in lines():
                self._write_line(line + b"\n")
        except Exception as error:  # noqa: BLE001 - a failed journal must not end the loop
            self._last.clear()
            self.failure = f"{self.path}: {getattr(error, 'strerror', None) or error}"
            self.lost += at_stake
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
        self.damage = f"{self.path} ended within a line: the last {end - whole} bytes were removed"
        return whole

    def _rotate(self) -> None:
        """Rename each file to the next older one; the oldest is deleted."""
        names = [_older(self.path, age) for age in range(self._files_max)]
        for younger, older in reversed(list(pairwise(names))):
            if younger.exists():
                younger.replace(older)
        if self._files_max == 1:
            self.path.unlink()


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
        """Yield the records, the newest first."""
        source = self._newest_first
        if query.before:
            source = sorted(source, key=lambda record: record.id, reverse=True)
        selected = islice(filter(query.matches, source), query.limit)
        return selected if is_whole else (record.without_inputs() for record in selected)

    def subjects(self, balancer: str, limit: int) -> Sequence[str]:
        """Return the subjects of a balancer's decisions, the newest first."""
        found = (record.decision.subject for record in self._newest_first if record.balancer == balancer)
        return list(islice(dict.fromkeys(found), limit))

    def starting(self, prefix: str) -> Sequence[Record]:
        """Return the records whose id has this prefix."""
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
                    damages.add(f"{path}: line {number}: expected a record, but: {why}")
    except OSError as error:
        raise BadInput(f"journal {path}: {error.strerror or error}") from error
