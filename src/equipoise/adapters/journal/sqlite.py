"""The journal in SQLite: one writer, any number of readers, bounded in size, and never blocking the loop."""

import math
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.journal import schema
from equipoise.adapters.journal.records import (
    Sentence,
    Subject,
    gist_of,
    is_stored_whole,
    merged,
    pack,
    prolonged,
    subject_of,
    unpack,
)
from equipoise.adapters.journal.schema import BoundedFile
from equipoise.core.decision import Record, Streak
from equipoise.ports import Clock

BUSY_MILLISECONDS = 1000
"""How long to wait for a reader or another writer: the loop must not wait for its journal."""

SETTLE_SECONDS = 60.0
"""How long a streak is counted in memory before it is written, and how often old records are deleted."""

_LAST = (
    "SELECT id, gist, brief, streak FROM records WHERE balancer = ? AND subject = ? ORDER BY seq DESC LIMIT 1"
)
_PUT = """
INSERT INTO records (id, balancer, subject, reason, until, gist, brief) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason, gist = excluded.gist, brief = excluded.brief
"""
_PUT_INPUTS = "INSERT OR REPLACE INTO inputs SELECT seq, ? FROM records WHERE id = ?"


class _NewRow(NamedTuple):
    id: str
    columns: tuple[object, ...]
    inputs: bytes | None
    size_bytes: int


class _Last(NamedTuple):
    id: str
    gist: bytes
    sentence: Sentence = Sentence("")


class SqliteJournal:
    """A journal that never raises: when it cannot write, `failure` is the reason, and it retries later."""

    def __init__(
        self,
        path: Path | str,
        *,
        age_max_seconds: float,
        bytes_max: int,
        clock: Clock,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self.path = Path(path)
        self.failure = ""
        """Why the last attempt failed; empty when it succeeded."""
        self.lost = 0
        """The number of records that could not be written."""
        self.damage = ""
        """The last damage that was found, and how it was handled; empty without any."""
        self._bounds = schema.Bounds(age_max_seconds, bytes_max)
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._tended_at = -math.inf
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file = 0
        self._checked_file = 0
        """The file that passed the integrity check, which runs once and not at every attempt to write."""
        self._last: dict[Subject, _Last] = {}
        self._streaks: dict[str, Streak] = {}
        self._guarded(lambda _: None, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Write records, in one transaction where the bound allows it; an existing id is replaced.

        With `is_whole` each is stored with its inputs, also those that repeat the last one of their subject.
        """
        with self._lock:
            self._guarded(lambda file: self._append(file, records, is_whole=is_whole), len(records))

    def flush(self) -> None:
        """Write the streaks that are still counted in memory."""
        with self._lock:
            self._guarded(self._settle, 0)

    def close(self) -> None:
        """Write the streaks and close the file."""
        self.flush()
        with self._lock:
            self._let_go()

    def _guarded(self, work: Callable[[BoundedFile], None], at_stake: int) -> None:
        """Run `work`, and once more on a new file when this one is corrupt."""
        for is_last in (False, True):
            try:
                work(self._opened())
            except Exception as error:  # noqa: BLE001 - a failed journal must not end the loop
                self._let_go()
                self._last.clear()
                if not is_last and schema.is_corrupt(error, self.path) and self._begin_anew(error):
                    continue
                text = str(error) or type(error).__name__
                self.failure = text if str(self.path) in text else f"{self.path}: {text}"
                self.lost += at_stake
            else:
                self.failure = ""
            return

    def _opened(self) -> BoundedFile:
        if self._connection is not None and self._file != self._file_now():
            # The file was deleted or replaced: no reader would see what we write.
            self._let_go()
            self._forget()
        if self._connection is None:
            connection = schema.open_writer(self.path)
            self._connection, self._file = connection, self._file_now()
            if self._file != self._checked_file:
                schema.refuse_damaged(connection)
                self._checked_file = self._file
            BoundedFile(connection, self.path, self._bounds).fit()
        # After one timeout, the other records of a long cycle do not wait again.
        self._connection.execute(f"PRAGMA busy_timeout={0 if self.failure else BUSY_MILLISECONDS}").fetchall()
        return BoundedFile(self._connection, self.path, self._bounds)

    def _file_now(self) -> int:
        try:
            return self.path.stat().st_ino
        except FileNotFoundError:
            return 0

    def _begin_anew(self, error: Exception) -> bool:
        self._forget()
        try:
            aside = schema.move_aside(self.path)
        except OSError:
            return False
        why = one_line(str(error))
        self.damage = (
            f"{self.path} was damaged ({why}); it was renamed to {aside.name}, and a new journal was created"
        )
        return True

    def _forget(self) -> None:
        self._last.clear()
        self._streaks.clear()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                # The file is what failed; there is nothing left to close.
                return

    def _append(self, file: BoundedFile, records: Sequence[Record], *, is_whole: bool) -> None:
        now = self._clock.now()
        if now - self._tended_at >= self._settle_seconds:
            self._tended_at = now
            self._settle(file)
            if file.expire(now):
                self._last.clear()
            file.free_pages()
        stored = [record for record in records if self._is_stored(file.connection, record, is_whole=is_whole)]
        assert not stored or self._last, "what was kept is the last of its subject"
        for rows in self._cut([_row(record, self._bounds) for record in stored]):
            self._put(file, rows)

    def _is_stored(self, connection: sqlite3.Connection, record: Record, *, is_whole: bool) -> bool:
        """Return whether the record is stored, and remember it as the last one of its subject."""
        subject = subject_of(record)
        last = self._last.get(subject)
        if last is None:
            last = self._last_in(connection, subject)
        if is_whole or is_stored_whole(last.gist, record):
            self._last[subject] = _Last(record.id, gist_of(record), Sentence(record.decision.reason.sentence))
            return True
        last = self._last[subject] = last._replace(sentence=last.sentence.then(record))
        self._streaks[last.id] = prolonged(self._streaks.get(last.id), record, last.sentence)
        return False

    def _last_in(self, connection: sqlite3.Connection, subject: Subject) -> _Last:
        """Return the last record of a subject in the file; its sentence may still be in memory only."""
        found = connection.execute(_LAST, subject).fetchone()
        if found is None:
            return _Last("", b"")
        name, gist, brief, streak = found
        if name in self._streaks:
            since = self._streaks[name]
            return _Last(name, gist, Sentence(since.reason.sentence, since.changed_at))
        try:
            record = unpack(brief, Record)
            record = msgspec.structs.replace(record, streak=unpack(streak, Streak) if streak else None)
        except schema.DamagedRow:  # its readers name the damage; here its sentence counts as another one
            return _Last(name, gist)
        return _Last(name, gist, Sentence.of(record))

    def _cut(self, rows: Sequence[_NewRow]) -> Iterator[list[_NewRow]]:
        """Split records into transactions that the log has room for, mostly one."""
        part: list[_NewRow] = []
        size = 0
        for row in rows:
            if part and size + row.size_bytes > self._bounds.write_bytes_max:
                yield part
                part, size = [], 0
            part.append(row)
            size += row.size_bytes
        if part:
            yield part

    def _put(self, file: BoundedFile, rows: Sequence[_NewRow]) -> None:
        size = sum(row.size_bytes for row in rows)
        try:
            self._put_in(file, rows, size)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            # Rows that leave pages half empty need more room than their size.
            file.connection.execute("ROLLBACK")
            self._put_in(file, rows, size * 4)

    def _put_in(self, file: BoundedFile, rows: Sequence[_NewRow], size: int) -> None:
        if file.make_room(size):
            self._last.clear()
        with file.transaction() as connection:
            for row in rows:
                connection.execute(_PUT, row.columns)
                if row.inputs is not None:
                    connection.execute(_PUT_INPUTS, (row.inputs, row.id))

    def _settle(self, file: BoundedFile) -> None:
        names = list(self._streaks)
        for start in range(0, len(names), self._bounds.rows_max):
            some = names[start : start + self._bounds.rows_max]
            file.room_in_log()
            file.connection.execute("BEGIN IMMEDIATE")
            for name in some:
                _prolong(file.connection, name, self._streaks[name])
            file.connection.execute("COMMIT")
            # Before the log is trimmed: where that fails, what is written is not counted twice.
            for name in some:
                del self._streaks[name]
            file.trim_log()


def _prolong(connection: sqlite3.Connection, name: str, streak: Streak) -> None:
    found = connection.execute("SELECT streak FROM records WHERE id = ?", (name,)).fetchone()
    if found is None:
        return
    before = unpack(found[0], Streak) if found[0] else None
    text = pack(msgspec.json.encode(merged(before, streak)))
    connection.execute("UPDATE records SET until = ?, streak = ? WHERE id = ?", (streak.until, text, name))


def _row(record: Record, bounds: schema.Bounds) -> _NewRow:
    """Return a record's row; inputs too large for one transaction are left out, their hash stays."""
    brief = pack(msgspec.structs.replace(record.without_inputs(), streak=None).to_json())
    inputs = None
    if record.has_inputs:
        inputs = pack(msgspec.json.encode([record.policy, record.observation, record.memory]))
        if len(inputs) > bounds.write_bytes_max:
            inputs = None
    said, reason = record.decision, record.decision.reason.code.value
    columns = (record.id, record.balancer, said.subject, reason, record.at, gist_of(record), brief)
    return _NewRow(record.id, columns, inputs, len(brief) + len(inputs or b"") + 200)
