"""A damaged journal, of either kind: every start works, and a reader names what it can't read and goes on."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from equipoise.adapters.journal import JournalReader, JsonLines, Query, open_reader
from equipoise.cli.main import main
from equipoise.core.errors import BadInput
from tests.support.damage import DEEP, damages
from tests.support.journal.damage import (
    KEPT,
    lines_file,
    read,
    remove,
    sqlite_file,
    start_lines,
    start_sqlite,
)
from tests.support.journal.worlds import MIB, NOON, calm, hot, journal

RUNS = 80
"""Damages for each kind."""


@pytest.mark.parametrize("keeps_length", [False, True], ids=["any", "in place"])
def test_every_start_on_a_damaged_sqlite_journal_works(tmp_path: Path, keeps_length: bool) -> None:
    """It is set aside where it can't be written to, in one sentence; a reader goes on around the damage."""
    sound = sqlite_file(tmp_path)
    for damaged in damages(sound, RUNS, seed=19, keeps_length=keeps_length):
        start_sqlite(tmp_path / "journal.db", damaged.data)


def test_every_start_on_damaged_json_lines_works(tmp_path: Path) -> None:
    """A half line is removed, in one sentence; a reader names the lines that it can't read."""
    sound = lines_file(tmp_path)
    for damaged in damages(sound, RUNS * 2, seed=19):
        start_lines(tmp_path / "journal.jsonl", damaged.data)


def test_a_log_of_noise_beside_a_sound_journal_loses_nothing(tmp_path: Path) -> None:
    """The write-ahead log has checksums of its own; its index is made anew."""
    path = tmp_path / "journal.db"
    sound = sqlite_file(tmp_path)
    for suffix in ("-wal", "-shm"):
        remove(path)
        path.write_bytes(sound)
        Path(f"{path}{suffix}").write_bytes(bytes(range(256)) * 64)
        with journal(path) as kept:
            kept.append(hot(500, NOON + 50, "shop/new"))
            assert kept.failure == ""
        found, said = read(path)
        assert (len(found), said) == (KEPT + 2, ())


def _with_a_damaged_page(sound: bytes) -> Iterator[bytes]:
    """Yield the journal with each of its pages but the first overwritten."""
    for start in range(4096, len(sound), 4096):
        yield sound[:start] + b"\xa5" * 4096 + sound[start + 4096 :]


def test_a_damaged_page_hides_its_own_records_alone(tmp_path: Path) -> None:
    """Whichever it is: of the table's own leaves, all others are read around it."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(*(hot(number, NOON + number, f"shop/{number}") for number in range(60)))
    sound = path.read_bytes()
    counts = []
    for data in _with_a_damaged_page(sound):
        remove(path)
        path.write_bytes(data)
        found, said = read(path)
        counts.append(len(found))
        assert all(record == hot(int(record.decision.subject[5:]), record.at, record.decision.subject) or not
                   record.has_inputs for record in found)  # fmt: skip
        assert len(found) == 60 or said
    assert len(counts) > 10
    assert sum(count >= 50 for count in counts) >= len(counts) - 2, counts


def _some(path: Path) -> JournalReader:
    lines = [
        hot(1).to_json(),
        b'{"id":"deep","memory":%s}' % DEEP,
        b"\xff\xfe",
        b'{"id":' + b"9" * 5000 + b"}",
    ]
    lines += [
        calm(2, NOON + 1).to_json().replace(b'"memory":{}', b'"memory":{"a":%s}' % (b"[" * 500 + b"]" * 500))
    ]
    lines += [calm(3, NOON + 2).to_json(), b'{"half": ']
    path.write_bytes(b"\n".join(lines))
    return open_reader(path)


def test_lines_that_make_no_sense_are_named_one_by_one(tmp_path: Path) -> None:
    """Too deep, not UTF-8, a huge number, deeper than can be printed, and half a line at the end."""
    reader = _some(tmp_path / "journal.jsonl")
    assert list(reader.records(Query(), is_whole=True)) == [calm(3, NOON + 2), hot(1)]
    assert [line.partition(": ")[2].partition(":")[0] for line in reader.damages.lines] == [
        "line 2",
        "line 3",
        "line 4",
        "line 5",
    ]


@pytest.mark.parametrize(
    "words", [("list",), ("explain", hot(1).id), ("replay", "--all")], ids=lambda words: words[0]
)
def test_commands_name_what_they_could_not_read_and_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    """Of a journal with bad lines; what is printed stays one document."""
    path = tmp_path / "journal.jsonl"
    _some(path).close()
    monkeypatch.setattr(sys, "argv", ["equipoise", "journal", *words, "-o", "json", "--file", str(path)])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capsys.readouterr()
    assert left.value.code == 0
    assert json.loads(out)
    assert len(err.splitlines()) == 4
    assert all(line.startswith(f"warning: journal {path}: line ") for line in err.splitlines())


def test_what_is_no_file_is_one_line(tmp_path: Path) -> None:
    """A folder in the journal's place: the writer is unwell and says why, a reader refuses."""
    for name in ("journal.db", "journal.jsonl"):
        path = tmp_path / name
        path.mkdir()
        kept = journal(path) if name.endswith(".db") else JsonLines(path, bytes_max=MIB)
        kept.append(hot(1))
        assert str(path) in kept.failure
        assert kept.lost == 1
        kept.close()
        with pytest.raises(BadInput, match=r"journal\.(db|jsonl): Is a directory"):
            open_reader(path)
