"""How large and how old a journal may become: its file, its write-ahead log and the log's index together."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from equipoise.adapters.journal.schema import PAGE_BYTES

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


def limit_pages(connection: sqlite3.Connection, bounds: Bounds) -> None:
    """Have SQLite itself refuse to grow past the bound."""
    connection.execute(f"PRAGMA max_page_count={bounds.pages_max}").fetchall()


def expire(connection: sqlite3.Connection, path: Path, bounds: Bounds, now: float) -> bool:
    """Delete what is too old; say whether anything was."""
    has_deleted = False
    while delete(connection, path, bounds, _EXPIRED, (now - bounds.age_max_seconds, bounds.rows_max)):
        has_deleted = True
    return has_deleted


def make_room(connection: sqlite3.Connection, path: Path, bounds: Bounds, bytes_wanted: int) -> bool:
    """Delete the oldest until this much fits; say whether anything was deleted."""
    # A quarter more for half-empty pages, and a few for the indexes and SQLite's own.
    pages_wanted = bytes_wanted * 5 // 4 // PAGE_BYTES + 12
    has_deleted = False
    while pages_used(connection) + pages_wanted > bounds.pages_max:
        if not delete(connection, path, bounds, _OLDEST, (bounds.rows_max,)):
            break
        has_deleted = True
    return has_deleted


def delete(
    connection: sqlite3.Connection, path: Path, bounds: Bounds, which: str, parameters: tuple[float, ...]
) -> int:
    """Delete some rows in one small transaction; give how many."""
    rows = connection.execute(which, parameters).fetchall()
    if rows:
        room_in_log(connection, path, bounds)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("DELETE FROM records WHERE seq = ?", rows)
        connection.executemany("DELETE FROM inputs WHERE seq = ?", rows)
        connection.execute("COMMIT")
        trim_log(connection, path, bounds)
    return len(rows)


def give_back(connection: sqlite3.Connection, path: Path, bounds: Bounds) -> None:
    """Return pages to the disk, a few at a time, when half the file is empty or it is larger than allowed."""
    pages, free = _pragma(connection, "page_count"), _pragma(connection, "freelist_count")
    if pages > bounds.pages_max or (free > pages // 2 and free > bounds.rows_max):
        room_in_log(connection, path, bounds)
        # As a script: each page is a step without columns, and `execute` takes one step only.
        connection.executescript(f"PRAGMA incremental_vacuum({bounds.rows_max})")
        trim_log(connection, path, bounds)


def fit(connection: sqlite3.Connection, path: Path, bounds: Bounds) -> None:
    """Shrink a file that was written under a larger bound."""
    while (pages := _pragma(connection, "page_count")) > bounds.pages_max:
        make_room(connection, path, bounds, 0)
        give_back(connection, path, bounds)
        if _pragma(connection, "page_count") >= pages:
            break
    limit_pages(connection, bounds)


def pages_used(connection: sqlite3.Connection) -> int:
    """Count the pages that hold something."""
    return _pragma(connection, "page_count") - _pragma(connection, "freelist_count")


def trim_log(connection: sqlite3.Connection, path: Path, bounds: Bounds) -> None:
    """Empty the log when it is a quarter full; a reader, or another writer, may keep it for now."""
    if log_bytes(path) > bounds.log_bytes_max // 4:
        patience = _pragma(connection, "busy_timeout")
        connection.execute("PRAGMA busy_timeout=0").fetchall()
        _empty_log(connection)
        connection.execute(f"PRAGMA busy_timeout={patience}").fetchall()


def room_in_log(connection: sqlite3.Connection, path: Path, bounds: Bounds) -> None:
    """Refuse to write while the log has no room for one more transaction; wait for it as long as may be."""
    trim_log(connection, path, bounds)
    if log_bytes(path) > bounds.log_bytes_max // 2:
        _empty_log(connection)
    if log_bytes(path) > bounds.log_bytes_max // 2:
        raise LogStuck("a reader that does not finish keeps the write-ahead log from being emptied")


def _empty_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def log_bytes(path: Path) -> int:
    """Measure the log."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
