"""Losing the journal changes no decision: it never raises, says what is wrong, and goes on."""

import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from equipoise.adapters.journal import JsonLines, Query, open_reader
from equipoise.core.errors import BadInput
from tests.support.journal.worlds import MIB, NOON, all_of, calm, hot, journal
from tests.support.journal.writer import numbered


@pytest.mark.parametrize(
    "content",
    [b"nonsense", b"SQLite format 3\x00" + b"\xff" * 5000, bytes(100), b"\x00" * 8192],
    ids=["text", "header", "zeros", "pages of zeros"],
)
def test_a_corrupt_file_is_moved_aside_and_a_new_one_begun(tmp_path: Path, content: bytes) -> None:
    """When it is opened."""
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    with journal(path) as kept:
        kept.append(hot(1))
        assert (kept.failure, kept.lost) == ("", 0)
    assert all_of(path) == [hot(1)]
    assert (tmp_path / "journal.db.corrupt").read_bytes() == content


def test_a_file_that_becomes_corrupt_is_noticed(tmp_path: Path) -> None:
    """While it is open: pages overwritten under the writer."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(*(hot(count, subject=f"shop/{count}") for count in range(200)))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(1).randbytes(path.stat().st_size - 4096))
    assert all_of(path) == []
    with journal(path) as kept:
        kept.append(hot(1))
        kept.append(hot(2, NOON + 1, "shop/api"))
        assert (kept.failure, kept.lost) == ("", 0)
        assert kept.damage.startswith(f"{path} was damaged (")
        assert kept.damage.endswith("); it was renamed to journal.db.corrupt, and a new journal was created")
    assert all_of(path) == [hot(2, NOON + 1, "shop/api"), hot(1)]


def test_a_damaged_row_is_named_by_a_reader_and_gives_the_writer_a_new_file(tmp_path: Path) -> None:
    """The page is well formed, and its content is not."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(calm(1), calm(2))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET streak = x'00', brief = x'00'")
    connection.close()
    reader = open_reader(path)
    assert list(reader.records(Query())) == []
    why = "a row is damaged: JSON is malformed: invalid character (byte 0)"
    assert reader.damages.lines == (f"{path}: record {calm(1).id} could not be read: {why}",)
    reader.close()
    with journal(path, settle_seconds=0) as kept:
        kept.append(calm(3))
        assert kept.failure == ""
    assert all_of(path) in ([], [calm(3)])


def test_a_file_that_vanishes_is_begun_anew(tmp_path: Path) -> None:
    """Somebody tidied the scratch disk."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(calm(1))
        for part in tmp_path.iterdir():
            part.unlink()
        kept.append(calm(2))
        assert all_of(path) == [calm(2)]


def test_a_newer_journal_is_left_alone(tmp_path: Path) -> None:
    """By the writer and by the reader, with the same sentence."""
    path = tmp_path / "journal.db"
    journal(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=2")
    connection.close()
    before = path.read_bytes()
    with journal(path) as kept:
        kept.append(hot(1))
        assert kept.failure == f"{path}: a newer Equipoise wrote it (schema 2; this version reads up to 1)"
        assert kept.lost == 1
    assert path.read_bytes() == before
    with pytest.raises(BadInput, match="a newer Equipoise wrote it"):
        open_reader(path)


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    """A wrong path must not cost somebody their data."""
    path = tmp_path / "mail.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mail (subject TEXT)")
    connection.close()
    before = path.read_bytes()
    with journal(path) as kept:
        kept.append(hot(1))
        assert "the SQLite file of another program" in kept.failure
    assert path.read_bytes() == before
    with pytest.raises(BadInput, match="the SQLite file of another program"):
        open_reader(path)


def test_a_place_that_cannot_be_written_makes_it_unwell(tmp_path: Path) -> None:
    """A file where the folder should be; and well again once it is gone."""
    (tmp_path / "state").write_text("in the way")
    with journal(tmp_path / "state" / "journal.db") as kept:
        assert kept.failure
        kept.append(hot(1))
        assert kept.lost == 1
        (tmp_path / "state").unlink()
        kept.append(hot(2))
        assert (kept.failure, kept.lost) == ("", 1)
    assert all_of(tmp_path / "state" / "journal.db") == [hot(2)]


def test_a_read_only_file_makes_it_unwell(tmp_path: Path) -> None:
    """Whoever runs the tests, root too: SQLite is told by its own flag."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(hot(1))
        assert kept._connection is not None
        kept._connection.execute("PRAGMA query_only=ON")
        kept.append(hot(2, subject="shop/api"))
        assert kept.failure == f"{path}: attempt to write a readonly database"
        kept.append(hot(3, subject="shop/api"))
        assert (kept.failure, kept.lost) == ("", 1)


def test_a_locked_file_makes_it_unwell_for_as_long(tmp_path: Path) -> None:
    """Another writer does not let go: the loop waits a second at most."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        kept.append(hot(1))
        assert kept.failure == f"{path}: database is locked"
        kept.append(*(hot(count) for count in range(3, 6)))
        assert kept.lost == 4
        other.close()
        kept.append(hot(2))
        assert kept.failure == ""
    assert all_of(path) == [hot(2)]


def test_a_record_that_is_no_json_is_lost_and_nothing_else(tmp_path: Path) -> None:
    """A mistake of ours: the file stays where it is."""
    bad = msgspec.structs.replace(hot(1), memory={"what": object()})
    for path in (tmp_path / "journal.db", tmp_path / "journal.jsonl"):
        kept = journal(path) if path.suffix == ".db" else JsonLines(path, bytes_max=MIB)
        kept.append(hot(2, subject="shop/api"))
        kept.append(bad)
        assert "object" in kept.failure
        kept.append(hot(3))
        kept.close()
        assert [record.id for record in all_of(path)] == [hot(3).id, hot(2).id]
    assert not list(tmp_path.glob("*.corrupt"))


@pytest.mark.parametrize("name", ["journal.db", "journal.jsonl"])
def test_a_full_disk_loses_records_and_nothing_else(tmp_path: Path, name: str) -> None:
    """The process lives, what it reported as written is there and whole, and the rest is not."""
    path = tmp_path / name
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.journal.writer", str(path), "0", "100", "150000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    written = [int(line) for line in lines if line.isdecimal()]
    assert 0 < len(written) < len(lines) == 100
    assert all(str(path) in line for line in lines if not line.isdecimal())
    found = all_of(path)
    numbers = [record.decision.reason.numbers["n"] for record in found]
    assert found == [numbered(number) for number in numbers]
    # One may be there although it was reported lost: written, and only the log could not be emptied.
    assert set(written) <= set(numbers)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_reader_of_something_else_gets_one_line(tmp_path: Path, content: bytes) -> None:
    """Never a traceback; a file that was just begun is simply empty."""
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    if not content:
        assert all_of(path) == []
        return
    with pytest.raises(BadInput, match=r"journal\.db: expected a journal: "):
        all_of(path)


def test_a_copy_on_a_read_only_disk_can_be_read(tmp_path: Path) -> None:
    """Without its log, and without the right to make one."""
    path = tmp_path / "there" / "journal.db"
    with journal(path) as kept:
        kept.append(hot(1))
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        assert all_of(path) == [hot(1)]
    finally:
        path.parent.chmod(0o700)
