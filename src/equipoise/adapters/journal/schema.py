"""The journal's SQLite file: how it is laid out, opened and recognised.

How large and how old a journal may become: its file, its write-ahead log and the log's index together.
"""

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

APPLICATION_ID = 0x45715061
"""Says whose file it is (`EqPa`), so that nobody else's is written to."""

VERSION = 1
PAGE_BYTES = 4096
READER_BUSY_SECONDS = 5.0

TABLES = """
CREATE TABLE records (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, balancer TEXT NOT NULL, subject TEXT NOT NULL,
    reason TEXT NOT NULL, until REAL NOT NULL, gist BLOB NOT NULL, brief BLOB NOT NULL, streak BLOB
);
CREATE INDEX by_subject ON records (subject, balancer, seq);
CREATE INDEX by_until ON records (until);
CREATE TABLE inputs (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
_DOUBTFUL = (
    *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH),
    *(sqlite3.SQLITE_INTERNAL, sqlite3.SQLITE_SCHEMA),
)
"""Codes of our own mistakes, and of tables that are not as they were laid out."""


# The inputs stand apart, so that a longer streak rewrites one short row and never a large one.


class NotAJournal(Exception):  # noqa: N818 - reads as a fact
    """A file that is none of ours, or of a newer version of ours. It is left alone."""


class DamagedRow(Exception):  # noqa: N818 - reads as a fact
    """A row whose content is not what was written."""


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the file for writing, and lay it out when it is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
    try:
        if not check(connection, path):
            _lay_out(connection, path)
        # The log is emptied by whoever watches its size; deleted pages need no overwriting.
        for setting in ("synchronous=NORMAL", "wal_autocheckpoint=0", "secure_delete=OFF"):
            connection.execute(f"PRAGMA {setting}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open the file for reading beside a writer."""
    address = path.absolute().as_uri() + "?mode=ro"
    try:
        return _checked(address, path)
    except sqlite3.OperationalError:
        if Path(f"{path}-wal").exists():
            raise
        # A copy on a read-only disk: nobody writes it, and the log's index cannot be made.
        return _checked(address + "&immutable=1", path)


def _checked(address: str, path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, timeout=READER_BUSY_SECONDS, isolation_level=None)
    try:
        check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def check(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is laid out already; refuse somebody else's, and a newer one."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID and (application or tables):
        if _is_laid_out(connection):
            raise DamagedRow("its header does not have the mark of a journal")
        raise NotAJournal(f"{path}: expected a journal, got the SQLite file of another program")
    if version > VERSION:
        raise NotAJournal(
            f"{path}: a newer Equipoise wrote it (schema {version}; this version reads up to {VERSION})"
        )
    return bool(tables)


def _lay_out(connection: sqlite3.Connection, path: Path) -> None:
    # In this order: the first page, which the log's mode writes, already says how to vacuum.
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("BEGIN IMMEDIATE")
    if not check(connection, path):
        for statement in TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={VERSION}")
    connection.execute("COMMIT")


def refuse_damaged(connection: sqlite3.Connection) -> None:
    """Raise Damaged where SQLite finds that the pages do not fit together: writing to such may be in vain."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise DamagedRow(str(verdict).removeprefix("*** in database main ***\n"))


def is_ours(path: Path) -> bool:
    """Whether a file may be written to as a journal: absent, empty, or with our mark in its header."""
    try:
        with path.open("rb") as file:
            header = file.read(72)
    except FileNotFoundError:
        return True
    return not header or (len(header) == 72 and struct.unpack(">I", header[68:72])[0] == APPLICATION_ID)  # noqa: PLR2004


def is_corrupt(error: Exception, path: Path) -> bool:
    """Whether the file's content, not the disk, a lock or a mistake of ours, is the trouble."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    # Of text that is not UTF-8, in a row or in its own message, sqlite3 says so without a code.
    is_text = isinstance(error, UnicodeDecodeError) or (
        isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" in str(error)
    )
    if isinstance(error, DamagedRow) or is_text or code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return True
    return code in _DOUBTFUL and not _is_sound(path)


def _is_laid_out(connection: sqlite3.Connection) -> bool:
    """Whether the tables are those of a journal, to the letter."""
    fresh = sqlite3.connect(":memory:")
    try:
        fresh.executescript(TABLES)
        return connection.execute(_SCHEMA).fetchall() == fresh.execute(_SCHEMA).fetchall()
    finally:
        fresh.close()


def _is_sound(path: Path) -> bool:
    """Whether SQLite finds the file whole, with the tables of a journal."""
    try:
        connection = sqlite3.connect(path, timeout=1.0, isolation_level=None)
        try:
            verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()
            return verdict == ("ok",) and _is_laid_out(connection)
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError):
        return False


def move_aside(path: Path) -> Path:
    """Rename a corrupt file and its log for whoever wants to look; an earlier one gives way."""
    aside = path.with_name(path.name + ".corrupt")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{aside}{suffix}").unlink(missing_ok=True)
        source = Path(f"{path}{suffix}")
        if source.exists():
            source.replace(f"{aside}{suffix}")
    return aside


BYTES_MIN = 1 << 20
"""Below this, pages and the log's index (32 KiB) leave no room for records."""

_INDEX_BYTES = 32 * 1024
_OLDEST = "SELECT seq FROM records ORDER BY until LIMIT ?"
_EXPIRED = "SELECT seq FROM records WHERE until < ? ORDER BY until LIMIT ?"


class LogStuck(Exception):  # noqa: N818 - reads as a fact
    """The log is full, and a reader that does not finish keeps it from being emptied."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Three quarters for the file, one for the log; all else follows."""

    age_max_seconds: float
    bytes_max: int

    def __post_init__(self) -> None:
        if self.bytes_max < BYTES_MIN:
            raise ValueError(f"bytes_max: expected at least {BYTES_MIN}, got {self.bytes_max}")
        assert 0 < self.pages_max * PAGE_BYTES + self.log_bytes_max < self.bytes_max, "file and log fit"

    @property
    def pages_max(self) -> int:
        """How many pages the file may have."""
        return self.bytes_max * 3 // 4 // PAGE_BYTES

    @property
    def log_bytes_max(self) -> int:
        """How large the log may become; its index has one part for each 4096 pages of it."""
        quarter = self.bytes_max // 4
        return quarter - _INDEX_BYTES * (1 + quarter // (4096 * PAGE_BYTES))

    @property
    def write_bytes_max(self) -> int:
        """How much one transaction may write, so that the log has room for it and its indexes."""
        return self.log_bytes_max // 4

    @property
    def rows_max(self) -> int:
        """How many scattered rows one transaction may touch; each dirties a handful of pages."""
        return max(4, self.log_bytes_max // PAGE_BYTES // 8)


@dataclass(frozen=True, slots=True)
class BoundedFile:
    """A journal that is open for writing, and is kept within its bounds."""

    connection: sqlite3.Connection
    path: Path
    bounds: Bounds

    def fit(self) -> None:
        """Shrink a file that was written under a larger bound; SQLite refuses to grow past this one."""
        while (pages := self._pragma("page_count")) > self.bounds.pages_max:
            self.make_room(0)
            self.free_pages()
            if self._pragma("page_count") >= pages:
                break
        self.connection.execute(f"PRAGMA max_page_count={self.bounds.pages_max}").fetchall()

    def expire(self, now: float) -> bool:
        """Delete what is too old; return whether anything was."""
        has_deleted = False
        while self._delete(_EXPIRED, (now - self.bounds.age_max_seconds, self.bounds.rows_max)):
            has_deleted = True
        return has_deleted

    def make_room(self, bytes_wanted: int) -> bool:
        """Delete the oldest until this much fits; return whether anything was deleted."""
        # A quarter more for half-empty pages, and a few for the indexes and SQLite's own.
        pages_wanted = bytes_wanted * 5 // 4 // PAGE_BYTES + 12
        has_deleted = False
        while self._pages_used() + pages_wanted > self.bounds.pages_max:
            if not self._delete(_OLDEST, (self.bounds.rows_max,)):
                break
            has_deleted = True
        return has_deleted

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection for one transaction that the log has room for."""
        self.room_in_log()
        self.connection.execute("BEGIN IMMEDIATE")
        yield self.connection
        self.connection.execute("COMMIT")
        self.trim_log()

    def _delete(self, which: str, parameters: tuple[float, ...]) -> int:
        """Delete some rows in one small transaction; return how many."""
        rows = self.connection.execute(which, parameters).fetchall()
        if rows:
            with self.transaction() as connection:
                connection.executemany("DELETE FROM records WHERE seq = ?", rows)
                connection.executemany("DELETE FROM inputs WHERE seq = ?", rows)
        return len(rows)

    def free_pages(self) -> None:
        """Return a few pages to the disk when half the file is empty, or it is larger than allowed."""
        pages, free = self._pragma("page_count"), self._pragma("freelist_count")
        rows_max = self.bounds.rows_max
        if pages > self.bounds.pages_max or (free > pages // 2 and free > rows_max):
            self.room_in_log()
            # As a script: each page is a step without columns, and `execute` takes one step only.
            self.connection.executescript(f"PRAGMA incremental_vacuum({rows_max})")
            self.trim_log()

    def _pages_used(self) -> int:
        return self._pragma("page_count") - self._pragma("freelist_count")

    def trim_log(self) -> None:
        """Empty the log when it is a quarter full; a reader, or another writer, may keep it for now."""
        if self._log_bytes() > self.bounds.log_bytes_max // 4:
            patience = self._pragma("busy_timeout")
            self.connection.execute("PRAGMA busy_timeout=0").fetchall()
            self._empty_log()
            self.connection.execute(f"PRAGMA busy_timeout={patience}").fetchall()

    def room_in_log(self) -> None:
        """Refuse to write while the log has no room for one more transaction; wait as long as may be."""
        self.trim_log()
        if self._log_bytes() > self.bounds.log_bytes_max // 2:
            self._empty_log()
        if self._log_bytes() > self.bounds.log_bytes_max // 2:
            raise LogStuck("a reader that does not finish keeps the write-ahead log from being emptied")

    def _empty_log(self) -> None:
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _log_bytes(self) -> int:
        try:
            return Path(f"{self.path}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def _pragma(self, name: str) -> int:
        (value,) = self.connection.execute(f"PRAGMA {name}").fetchone()
        return int(value)
