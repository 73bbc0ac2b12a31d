"""Reading a journal beside its writer, in short transactions, so that no reader holds its log back."""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.journal import schema
from equipoise.adapters.journal.records import (
    Damages,
    JournalReader,
    JsonLinesReader,
    Query,
    parts_of,
    unpack,
)
from equipoise.core.decision import Record, Streak
from equipoise.core.errors import BadInput

PAGE_ROWS = 200
FOUND_MAX = 10
SEQ_MAX = 2**63 - 1

_COLUMNS = "SELECT seq, id, brief, streak FROM records"
_SUBJECTS = """
SELECT subject FROM records WHERE balancer = ? GROUP BY subject ORDER BY max(seq) DESC LIMIT ?
"""


def open_reader(path: Path | str) -> JournalReader:
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


class _FoundRow(NamedTuple):
    seq: int
    id: str
    record: Record | None
    """None where it is damaged."""


class _FoundRows(NamedTuple):
    found: list[_FoundRow]
    is_broken: bool
    """Whether SQLite could not read on."""

    @property
    def records(self) -> list[Record]:
        return [row.record for row in self.found if row.record is not None]


class SqliteReader:
    """The records of an SQLite journal."""

    def __init__(self, path: Path) -> None:
        self.damages = Damages()
        self._path = path
        with self._explained():
            self._connection = schema.open_reader(path)

    def close(self) -> None:
        self._connection.close()

    def records(self, query: Query, *, is_whole: bool = False) -> Iterator[Record]:
        where, parameters = _where(query)
        order = "id" if query.before else "seq"
        below: int | str = query.before or SEQ_MAX
        left = query.limit
        while left is None or left > 0:
            count = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
            page = f"{_COLUMNS} WHERE {order} < ?{where} ORDER BY {order} DESC LIMIT ?"
            rows = self._rows(page, (below, *parameters, count), is_whole=is_whole)
            yield from rows.records
            left = None if left is None else left - len(rows.records)
            if rows.is_broken and not query.before:
                below = min(int(below), *(row.seq for row in rows.found), SEQ_MAX)
                yield from islice(self._around_gaps(query, below, is_whole=is_whole), left)
            if rows.is_broken or len(rows.found) < count:
                return
            below = rows.found[-1].id if query.before else rows.found[-1].seq

    def _around_gaps(self, query: Query, below: int, *, is_whole: bool) -> Iterator[Record]:
        """Go on in a file with damaged pages: by number alone, since an index may be damaged too.

        Every step goes down, whatever numbers a damaged page has.
        """
        page = f"{_COLUMNS} NOT INDEXED WHERE seq < ? ORDER BY seq DESC LIMIT ?"
        is_broken = True
        while below := (self._below_the_gap(below) if is_broken else below):
            rows = self._rows(page, (below, PAGE_ROWS), is_whole=is_whole)
            yield from filter(query.matches, rows.records)
            if not (rows.found or rows.is_broken):
                return
            below = min(below - 1, *(row.seq for row in rows.found), SEQ_MAX)
            is_broken = rows.is_broken

    def subjects(self, balancer: str, limit: int) -> Sequence[str]:
        with self._explained():
            if not schema.check(self._connection, self._path):
                return []
            names, broken = self._fetched(_SUBJECTS, (balancer, limit))
            if broken:
                self.damages.add(f"{self._path}: the list of subjects could not be read: {broken}")
            return [str(name) for (name,) in names]

    def starting(self, prefix: str) -> Sequence[Record]:
        exact = self._rows(f"{_COLUMNS} WHERE id = ?", (prefix,), is_whole=True)
        # Half-open in the order of codes: everything from the prefix up to the prefix's end.
        after = f"{_COLUMNS} WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        last = prefix + "\U0010ffff"
        rows = exact if exact.found else self._rows(after, (prefix, last, FOUND_MAX), is_whole=True)
        return rows.records

    def _rows(self, select: str, parameters: Sequence[Any], *, is_whole: bool) -> _FoundRows:
        with self._explained():
            if not schema.check(self._connection, self._path):
                return _FoundRows([], is_broken=False)
            # One snapshot for both tables: between two reads the writer may delete a row.
            self._connection.execute("BEGIN")
            try:
                found, broken = self._fetched(select, parameters)
                if any(here <= there for (here, *_), (there, *_) in pairwise(found)) and "seq DESC" in select:
                    broken = broken or "the numbers of its rows are not in order"
                rows = [self._row(row, is_whole=is_whole) for row in found]
            finally:
                with suppress(sqlite3.Error):  # nothing was written; a damaged page may have ended it already
                    self._connection.execute("ROLLBACK")
            if broken:
                older = f"some records before {rows[-1].id}" if rows else "some records"
                self.damages.add(f"{self._path}: {older} could not be read: {broken}")
            return _FoundRows(rows, is_broken=bool(broken))

    def _fetched(self, select: str, parameters: Sequence[Any]) -> tuple[list[tuple[Any, ...]], str]:
        """Read rows until there are no more or SQLite can't read on; return also why it can't."""
        found: list[tuple[Any, ...]] = []
        try:
            for row in self._connection.execute(select, parameters):
                found.append(row)  # noqa: PERF402 - what came before an error counts
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not schema.is_corrupt(error, self._path):
                raise
            return found, one_line(str(error))
        return found, ""

    def _row(self, row: tuple[Any, ...], *, is_whole: bool) -> _FoundRow:
        """Read one record; one that is damaged is noted, and so are inputs that are."""
        seq, id_, *_ = row
        try:
            record = _record(row)
        except schema.DamagedRow as error:
            self.damages.add(f"{self._path}: record {one_line(str(id_), 60)} could not be read: {error}")
            return _FoundRow(seq, str(id_), None)
        if is_whole:
            inputs, broken = self._fetched("SELECT body FROM inputs WHERE seq = ?", (seq,))
            try:
                record = _with_inputs(record, inputs[0][0]) if inputs else record
            except schema.DamagedRow as error:
                broken = str(error)
            if broken:
                name = one_line(record.id, 60)
                self.damages.add(f"{self._path}: the inputs of record {name} could not be read: {broken}")
        return _FoundRow(seq, record.id, record)

    def _below_the_gap(self, above: int) -> int:
        """Return a number below which records can be read again, or 0: a damaged page hides a few of them."""
        newest = self._newest()
        if newest is None:
            tries = [2**power for power in range(62, -1, -1)]
        else:
            above = min(above, newest + 2)
            tries = [above - 2**power for power in range(63)]
        one = "SELECT seq, brief, streak FROM records NOT INDEXED WHERE seq < ? ORDER BY seq DESC LIMIT 1"
        broken_at = above
        for number in tries:
            if 0 < number < above:
                found, broken = self._fetched(one, (number,))
                if not broken:
                    # The highest that can be asked for, so that little is lost.
                    between = range(number + 1, broken_at)
                    skipped = bisect_left(between, 1, key=lambda seq: bool(self._fetched(one, (seq,))[1]))
                    return number + skipped if found else 0
                broken_at = number
        return 0

    def _newest(self) -> int | None:
        """Return the highest number, from an index where the table does not tell it."""
        for select in ("SELECT max(seq) FROM records", "SELECT max(seq) FROM records INDEXED BY by_until"):
            found, _ = self._fetched(select, ())
            if found and isinstance(found[0][0], int):
                return int(found[0][0])
        return None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except schema.NotAJournal as error:
            raise BadInput(f"journal {error}") from error
        except (sqlite3.Error, schema.DamagedRow, UnicodeDecodeError) as error:
            raise BadInput(f"journal {self._path}: expected a journal: {error}") from error


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


def _record(row: tuple[Any, ...]) -> Record:
    _, _, brief, streak = row
    record = unpack(brief, Record)
    return record if streak is None else msgspec.structs.replace(record, streak=unpack(streak, Streak))


def _with_inputs(record: Record, inputs: bytes) -> Record:
    policy, observation, memory = unpack(inputs, tuple[dict[str, Any], dict[str, Any], dict[str, Any]])
    return msgspec.structs.replace(record, policy=policy, observation=observation, memory=memory)
