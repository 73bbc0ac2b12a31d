"""The journal's SQLite file: how it is laid out, opened and recognised."""

import sqlite3
import struct
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
_DOUBTFUL = frozenset(
    {
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_INTERNAL,
        sqlite3.SQLITE_SCHEMA,
    }
)
"""Codes of our own mistakes, and of tables that are not as they were laid out."""
# The inputs stand apart, so that a longer streak rewrites one short row and never a large one.


class NotAJournal(Exception):  # noqa: N818 - reads as a fact
    """A file that is none of ours, or of a newer version of ours. It is left alone."""


class Damaged(Exception):  # noqa: N818 - reads as a fact
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
            raise Damaged("its header does not have the mark of a journal")
        raise NotAJournal(f"{path}: expected a journal, got another program's SQLite file")
    if version > VERSION:
        raise NotAJournal(
            f"{path}: written by a newer Equipoise (schema {version}, and this one knows up to {VERSION})"
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
        raise Damaged(str(verdict).removeprefix("*** in database main ***\n"))


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
    if isinstance(error, Damaged) or is_text or code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
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
