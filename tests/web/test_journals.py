"""Journals that are late, replaced, damaged, many or large."""

import os
import sqlite3
from pathlib import Path

import pytest

from equipoise.adapters.journal import JsonLines, Query
from equipoise.dashboard import views as reading
from equipoise.dashboard.views import Journals
from tests.support.journal.worlds import NOON, Clock, calm, hot, journal

LATER = 4e9


def is_news(source: Journals, after_seconds: float = 3600.0) -> bool:
    """Look long after the last write, when its time tells everything."""
    newest = max((part.stat().st_mtime for part in source.paths[0].parent.iterdir()), default=0.0)
    return source.has_changed(lambda: newest + after_seconds)


def settled(source: Journals) -> None:
    """Look until there is nothing new."""
    is_news(source)
    is_news(source)
    assert not is_news(source)


@pytest.mark.parametrize("name", ["journal.db", "journal.jsonl"])
def test_a_look_sees_every_write_and_only_writes(tmp_path: Path, name: str) -> None:
    """From before the file is there, through appends, to another file in its place."""
    path = tmp_path / name
    source = Journals((path,))
    settled(source)
    kept = journal(path) if name.endswith(".db") else JsonLines(path, bytes_max=1 << 20)
    kept.append(hot(1))
    assert is_news(source)
    settled(source)
    kept.append(hot(2, subject="shop/other"))
    assert is_news(source)
    settled(source)
    kept.close()
    path.unlink()
    assert is_news(source)


def test_a_write_within_the_same_tick_is_not_missed(tmp_path: Path) -> None:
    """A file changed a moment ago is read once more, since its next change may carry the same time."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(hot(1))
        source = Journals((path,))
        assert is_news(source, 0.1)
        assert is_news(source, 0.2)
        assert is_news(source)
        assert not is_news(source)


def test_a_journal_that_is_not_there_yet_is_one_line(tmp_path: Path) -> None:
    """And its records, once it is."""
    path = tmp_path / "journal.db"
    source = Journals((path,))
    (line,) = source.newest().errors
    assert "No such file" in line
    assert "\n" not in line
    with journal(path) as kept:
        assert source.newest() == reading.JournalReading()
        kept.append(hot())
        assert [record.decision.subject for record in source.newest().records] == ["shop/web"]
        assert source.newest().errors == ()


def test_a_damaged_journal_is_one_line_and_the_others_are_read(tmp_path: Path) -> None:
    """Damage of any kind: bytes, rows, somebody else's file, a folder."""
    with journal(tmp_path / "good.db") as kept:
        kept.append(hot())
    (tmp_path / "bytes.db").write_bytes(os.urandom(9000))
    (tmp_path / "lines.jsonl").write_text("{not json}\n")
    (tmp_path / "folder.db").mkdir()
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE mine (x)")
    other.close()
    (tmp_path / "rows.db").write_bytes((tmp_path / "good.db").read_bytes())
    rows = sqlite3.connect(tmp_path / "rows.db")
    rows.execute("UPDATE records SET brief = x'00'")
    rows.commit()
    rows.close()
    names = ("good.db", "bytes.db", "lines.jsonl", "folder.db", "other.db", "rows.db", "none.db")
    source = Journals(tuple(tmp_path / name for name in names))
    for found in (source.newest(), source.of_balancer("rotation"), source.listed(Query())):
        assert len(found.records) == 1
        assert len(found.errors) == 6
        assert all("\n" not in line for line in found.errors)


def test_two_journals_are_read_as_one(tmp_path: Path) -> None:
    """The newest first, whoever wrote it, and once where both have it."""
    with journal(tmp_path / "a.db") as first, JsonLines(tmp_path / "b.jsonl", bytes_max=1 << 20) as second:
        first.append(hot(1, NOON), hot(3, NOON + 2, "shop/b"))
        second.append(hot(2, NOON + 1, "shop/c"), hot(3, NOON + 2, "shop/b"))
    source = Journals((tmp_path / "a.db", tmp_path / "b.jsonl"))
    found = source.of_balancer("rotation")
    assert [record.decision.subject for record in found.records] == ["shop/b", "shop/c", "shop/web"]
    assert set(found.subjects) == {"shop/b", "shop/c", "shop/web"}
    assert all(record.has_inputs for record in found.records)


@pytest.mark.parametrize("name", ["journal.db", "journal.jsonl"])
def test_the_list_is_paged_without_a_gap(tmp_path: Path, name: str) -> None:
    """Each record once, from the newest to the oldest, though more are written meanwhile."""
    path = tmp_path / name
    kept = journal(path) if name.endswith(".db") else JsonLines(path, bytes_max=1 << 24)
    # Written in another order than decided: by two processes, say.
    order = [number + 1 if number % 2 else number - 1 for number in range(1, 121)]
    kept.append(*(hot(number, NOON + number, f"shop/{number}") for number in order))
    source = Journals((path,))
    seen: list[str] = []
    chosen = Query()
    for turn in range(5):
        page = source.listed(chosen)
        seen += [record.decision.subject for record in page.records]
        kept.append(calm(900 + turn, NOON + 900 + turn, f"late/{turn}"))
        if not page.is_cut:
            break
        chosen = Query(before=page.records[-1].id)
    kept.close()
    assert seen == [f"shop/{number}" for number in sorted(order, reverse=True)]


def test_the_list_is_narrowed(tmp_path: Path) -> None:
    """By balancer, reason and a pattern of subjects."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(hot(1, subject="shop/web"), calm(2, subject="mail/web"))
    source = Journals((path,))
    assert len(source.listed(Query(balancer="rotation")).records) == 2
    assert source.listed(Query(balancer="qos")).records == ()
    assert len(source.listed(Query(reason="Rotate")).records) == 1
    assert len(source.listed(Query(subject="*/web")).records) == 2
    assert len(source.listed(Query(subject="mail/*")).records) == 1


def test_a_subject_that_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    """Chosen by name, `a/*` is not everything of a."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(hot(1, subject="a/*"), hot(2, subject="a/web"), hot(3, subject="a/[w]eb?"))
    source = Journals((path,))
    for name in ("a/*", "a/[w]eb?"):
        assert [one.decision.subject for one in source.of_balancer("rotation", name).records] == [name]


def test_a_page_of_thousands_of_subjects_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In records, in subjects and in bytes of their inputs."""
    path = tmp_path / "journal.db"
    with journal(path, Clock(), bytes_max=1 << 26) as kept:
        kept.append(*(calm(number, NOON + number, f"shop/{number}") for number in range(3000)))
    monkeypatch.setattr(reading, "BYTES_MAX", 40_000)
    found = Journals((path,)).of_balancer("rotation")
    assert len(found.records) == reading.RECORDS_MAX
    assert found.is_cut
    assert found.records[0].decision.subject == "shop/2999"
    assert found.records[0].has_inputs
    assert not found.records[-1].has_inputs
    assert len(found.subjects) == reading.SUBJECTS_MAX
    assert found.subjects[0] == "shop/2999"
    alone = Journals((path,)).of_balancer("rotation", "shop/7")
    assert [record.decision.subject for record in alone.records] == ["shop/7"]
