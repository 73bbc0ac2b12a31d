"""Reading a journal beside its writer, in short transactions, so that no reader holds its log back."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from equipoise.adapters.journal import schema
from equipoise.adapters.journal.jsonlines import JsonLinesReader, parts_of
from equipoise.adapters.journal.keep import unpack
from equipoise.adapters.journal.query import Query, Reader
from equipoise.model.decision import Record, Streak
from equipoise.model.errors import BadInput

PAGE_ROWS = 200
FOUND_MAX = 10

_COLUMNS = "SELECT seq, brief, streak FROM records"
_SUBJECTS = """
SELECT subject FROM records WHERE balancer = ? GROUP BY subject ORDER BY max(seq) DESC LIMIT ?
"""


def open_reader(path: Path | str) -> Reader:
    """Open a journal of either kind; one that is missing or none at all is a BadInput."""
    path = Path(path)
    if path.suffix == ".jsonl" and parts_of(path):
        return JsonLinesReader(path)
    try:
        with path.open("rb") as file:
            first = file.read(1)
    except OSError as error:
        raise BadInput(f"journal {path}: {error.strerror or error}") from error
    return JsonLinesReader(path) if first == b"{" else SqliteReader(path)


class SqliteReader:
    """The records of an SQLite journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            self._connection = schema.open_reader(path)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def records(self, query: Query, *, is_whole: bool = False) -> Iterator[Record]:
        """Give the records, the newest first."""
        where, parameters = _where(query)
        order = "id" if query.before else "seq"
        below: int | str = query.before or 2**63 - 1
        left = query.limit
        while left is None or left > 0:
            count = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
            page = f"{_COLUMNS} WHERE {order} < ?{where} ORDER BY {order} DESC LIMIT ?"
            rows = self._rows(page, (below, *parameters, count), is_whole=is_whole)
            yield from (record for _, record in rows)
            if len(rows) < count:
                return
            seq, record = rows[-1]
            below = record.id if query.before else seq
            left = None if left is None else left - count

    def subjects(self, balancer: str, limit: int) -> Sequence[str]:
        """Give what a balancer decided about, the newest first."""
        with self._explained():
            if not schema.check(self._connection, self._path):
                return []
            return [name for (name,) in self._connection.execute(_SUBJECTS, (balancer, limit)).fetchall()]

    def starting(self, prefix: str) -> Sequence[Record]:
        """Give the records whose id starts like this."""
        exact = self._rows(f"{_COLUMNS} WHERE id = ?", (prefix,), is_whole=True)
        # Half-open in the order of codes: everything from the prefix up to the prefix's end.
        after = f"{_COLUMNS} WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        rows = exact or self._rows(after, (prefix, prefix + "\U0010ffff", FOUND_MAX), is_whole=True)
        return [record for _, record in rows]

    def _rows(self, select: str, parameters: Sequence[Any], *, is_whole: bool) -> list[tuple[int, Record]]:
        with self._explained():
            if not schema.check(self._connection, self._path):
                return []
            # One snapshot for both tables: between two reads the writer may delete a row.
            self._connection.execute("BEGIN")
            try:
                found = self._connection.execute(select, parameters).fetchall()
                inputs = [self._inputs(seq) if is_whole else None for seq, _, _ in found]
            finally:
                self._connection.execute("COMMIT")
            return [(row[0], _record(row, body)) for row, body in zip(found, inputs, strict=True)]

    def _inputs(self, seq: int) -> bytes | None:
        found = self._connection.execute("SELECT body FROM inputs WHERE seq = ?", (seq,)).fetchone()
        return found[0] if found else None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except schema.NotAJournal as error:
            raise BadInput(f"journal {error}") from error
        except (sqlite3.Error, schema.Damaged) as error:
            raise BadInput(f"journal {self._path}: expected a journal, but: {error}") from error


def _where(query: Query) -> tuple[str, list[Any]]:
    terms = {
        " AND balancer = ?": query.balancer,
        " AND subject GLOB ?": query.subject,
        " AND reason = ?": query.reason,
    }
    chosen = {term: value for term, value in terms.items() if value}
    where, parameters = "".join(chosen), list[Any](chosen.values())
    if query.since is not None:
        where += " AND until >= ?"
        parameters.append(query.since)
    return where, parameters


def _record(row: tuple[int, bytes, bytes | None], inputs: bytes | None) -> Record:
    _, brief, streak = row
    record = unpack(brief, Record)
    if streak is not None:
        record = msgspec.structs.replace(record, streak=unpack(streak, Streak))
    if inputs is None:
        return record
    policy, observation, memory = unpack(inputs, tuple[dict[str, Any], dict[str, Any], dict[str, Any]])
    return msgspec.structs.replace(record, policy=policy, observation=observation, memory=memory)
