"""The journal as JSON lines."""

from pathlib import Path

import msgspec
import pytest

from equipoise.adapters.journal import JsonLines, Query, open_reader
from equipoise.adapters.journal.records import Sentence, prolonged
from equipoise.core.errors import BadInput
from tests.support.journal.worlds import MIB, NOON, all_of, calm, hot


def test_one_record_is_one_line(tmp_path: Path) -> None:
    """As the record itself prints."""
    path = tmp_path / "a" / "journal.jsonl"
    with JsonLines(path, bytes_max=MIB) as kept:
        kept.append(hot(1), calm(2))
    assert path.read_bytes() == hot(1).to_json() + b"\n" + calm(2).to_json() + b"\n"
    assert all_of(path) == [calm(2), hot(1)]


def test_a_streak_is_one_more_line_without_the_inputs(tmp_path: Path) -> None:
    """As earlier versions wrote it; the reader joins the two."""
    path = tmp_path / "journal.jsonl"
    streak = prolonged(None, calm(1, NOON + 99), Sentence.of(calm(0)))
    ended = msgspec.structs.replace(calm(0).without_inputs(), streak=streak)
    path.write_bytes(b"".join(line.to_json() + b"\n" for line in (calm(0), ended, hot(100, NOON + 100))))
    rotated, quiet = all_of(path)
    assert rotated == hot(100, NOON + 100)
    assert quiet.streak is not None
    assert (quiet.streak.times, quiet.until) == (1, NOON + 99)
    assert msgspec.structs.replace(quiet, streak=None) == calm(0)


def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    """The oldest goes; the reader reads what is left, in order."""
    path = tmp_path / "journal.jsonl"
    with JsonLines(path, bytes_max=40_000) as kept:
        for count in range(200):
            kept.append(hot(count), is_whole=True)
            assert sum(part.stat().st_size for part in tmp_path.iterdir()) <= 40_000
    assert sorted(part.name for part in tmp_path.iterdir()) == [
        "journal.jsonl",
        "journal.jsonl.1",
        "journal.jsonl.2",
        "journal.jsonl.3",
    ]
    found = [record.id for record in all_of(path)]
    assert found == [hot(count).id for count in reversed(range(200))][: len(found)]
    assert len(found) > 10


def test_a_half_written_line_is_cut_off(tmp_path: Path) -> None:
    """A crash in the middle of a line costs that line only."""
    path = tmp_path / "journal.jsonl"
    path.write_bytes(hot(1).to_json() + b"\n" + hot(2).to_json()[:100])
    assert all_of(path) == [hot(1)]
    with JsonLines(path, bytes_max=MIB) as kept:
        kept.append(hot(3))
    assert all_of(path) == [hot(3), hot(1)]


def test_a_crash_while_files_move_on_loses_nothing(tmp_path: Path) -> None:
    """The youngest is already one older, and its successor not yet begun."""
    path = tmp_path / "journal.jsonl"
    (tmp_path / "journal.jsonl.1").write_bytes(hot(2).to_json() + b"\n")
    (tmp_path / "journal.jsonl.3").write_bytes(hot(1).to_json() + b"\n")
    assert all_of(path) == [hot(2), hot(1)]


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    """The file, the line, what was expected."""
    path = tmp_path / "journal.jsonl"
    path.write_bytes(hot(1).to_json() + b'\n{"id": 3}\n' + calm(2).to_json() + b"\n")
    reader = open_reader(path)
    assert list(reader.records(Query(), is_whole=True)) == [calm(2), hot(1)]
    (line,) = reader.damages.lines
    assert line.startswith(f"{path}: line 2: expected a record: Expected `str`, got `int`")
    path.write_bytes(b'{"id": 3}\n')
    with pytest.raises(BadInput, match=r"journal\.jsonl: line 1: expected a record: "):
        all_of(path)


def test_a_place_that_cannot_be_written_makes_it_unwell(tmp_path: Path) -> None:
    """And well again once it can."""
    path = tmp_path / "journal.jsonl"
    path.mkdir()
    kept = JsonLines(path, bytes_max=MIB)
    kept.append(hot(1), hot(2, subject="shop/api"))
    assert kept.failure == f"{path}: Is a directory"
    assert kept.lost == 2
    path.rmdir()
    kept.append(hot(3))
    assert kept.failure == ""
    assert all_of(path) == [hot(3)]
