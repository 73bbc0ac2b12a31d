"""The journal in SQLite: what goes in comes out, and at rest next to nothing goes in."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise.adapters.journal import Query, SqliteJournal, open_reader
from equipoise.adapters.journal.records import pack, unpack
from equipoise.core.decision import Outcome, Record
from tests.support.journal.worlds import NOON, Clock, all_of, calm, files_bytes, hot, journal


def test_what_goes_in_comes_out_newest_first(tmp_path: Path) -> None:
    """Every field, one by one or in a batch."""
    path = tmp_path / "a" / "journal.db"
    records = [hot(1), calm(2), hot(3), calm(4, subject="shop/api")]
    with journal(path) as kept:
        kept.append(records[0])
        kept.append(*records[1:])
        assert (kept.failure, kept.lost) == ("", 0)
    assert all_of(path) == records[::-1]
    assert all_of(path, is_whole=False) == [record.without_inputs() for record in records[::-1]]


def test_a_batch_is_one_transaction(tmp_path: Path) -> None:
    """A reader sees all of it or nothing."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        reader = open_reader(path)
        assert list(reader.records(Query())) == []
        kept.append(*(hot(count, subject=f"shop/{count}") for count in range(50)))
        assert len(list(reader.records(Query()))) == 50
        reader.close()


def test_more_of_the_same_lengthens_a_streak(tmp_path: Path) -> None:
    """One row per subject and reason, with how often, until when, and the last numbers."""
    path, clock = tmp_path / "journal.db", Clock()
    with journal(path, clock) as kept:
        for cycle in range(10):
            clock.at = NOON + 30 * cycle
            kept.append(calm(cycle, clock.at, cores=0.5 + cycle / 100))
        last = calm(9, clock.at, cores=0.59)
    (record,) = all_of(path)
    assert record.without_inputs() == msgspec.structs.replace(
        calm(0, cores=0.5).without_inputs(), streak=record.streak
    )
    assert record.streak is not None
    assert (record.streak.times, record.until) == (9, NOON + 270)
    assert record.streak.reason == last.decision.reason
    assert record.streak.inputs_hash == last.inputs_hash != record.inputs_hash


def test_a_streak_goes_on_after_a_restart(tmp_path: Path) -> None:
    """The writer finds its subjects' last records in the file."""
    path = tmp_path / "journal.db"
    for start in (0, 3, 6):
        with journal(path) as kept:
            for cycle in range(start, start + 3):
                kept.append(calm(cycle, NOON + cycle))
    (record,) = all_of(path)
    assert record.streak is not None
    assert (record.streak.times, record.until) == (8, NOON + 8)


def _saying(cycle: int, sentence: str, *, has_readings: bool = True) -> Record:
    record = calm(cycle, NOON + 10 * cycle)
    reason = msgspec.structs.replace(record.decision.reason, sentence=sentence)
    decision = msgspec.structs.replace(record.decision, reason=reason)
    return msgspec.structs.replace(record, decision=decision, has_readings=has_readings)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=12))
def test_a_streak_has_the_latest_sentence_and_since_when(
    tmp_path: Path, rounds: list[tuple[str, bool]]
) -> None:
    """Whenever it is written to the disk, and whenever the process is another one."""
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
    kept, changed = journal(path), None
    for cycle, (sentence, is_restarted) in enumerate(rounds):
        if is_restarted:
            kept.close()
            kept = journal(path)
        kept.append(_saying(cycle, sentence))
        if cycle and sentence != rounds[cycle - 1][0]:
            changed = NOON + 10 * cycle
    kept.close()
    (record,) = all_of(path)
    assert record.decision.reason.sentence == rounds[0][0]
    assert (record.reason.sentence, record.changed_at) == (rounds[-1][0], changed)
    assert (record.streak.times if record.streak else 0) == len(rounds) - 1


def test_a_round_without_readings_is_a_record_of_its_own(tmp_path: Path) -> None:
    """The same reason, and nothing to do in each: yet one of them knew, and the other did not."""
    path = tmp_path / "journal.db"
    for start in (0, 6):
        with journal(path) as kept:
            for cycle in range(start, start + 6):
                kept.append(_saying(cycle, "Calm.", has_readings=cycle // 4 != 1))
    records = all_of(path)[::-1]
    assert [record.has_readings for record in records] == [True, False, True]
    assert [record.streak.times if record.streak else 0 for record in records] == [3, 3, 3]


def test_a_journal_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Its streaks do not say since when; the next other sentence has its time again."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(_saying(0, "a"), _saying(1, "b"))
    with closing(sqlite3.connect(path)) as file, file:
        (brief, streak) = file.execute("SELECT brief, streak FROM records").fetchone()
        old = unpack(brief, dict[str, Any]), unpack(streak, dict[str, Any])
        del old[0]["has_readings"], old[1]["changed_at"]
        file.execute(
            "UPDATE records SET brief = ?, streak = ?", [pack(msgspec.json.encode(one)) for one in old]
        )
    (record,) = all_of(path)
    assert (record.reason.sentence, record.changed_at, record.has_readings) == ("b", None, True)
    for cycle, sentence, changed in ((2, "b", None), (3, "c", NOON + 30)):
        with journal(path) as kept:
            kept.append(_saying(cycle, sentence))
        (record,) = all_of(path)
        assert (record.reason.sentence, record.changed_at) == (sentence, changed)


def test_streaks_are_written_once_a_minute(tmp_path: Path) -> None:
    """Checkpoints are rare at rest; a reader may be a minute behind."""
    path, clock = tmp_path / "journal.db", Clock()
    with journal(path, clock) as kept:
        seen = []
        for cycle in range(7):
            clock.at = NOON + 30 * cycle
            kept.append(calm(cycle, clock.at))
            (record,) = all_of(path)
            seen.append(0 if record.streak is None else record.streak.times)
    assert seen == [0, 0, 1, 1, 3, 3, 5]


def test_a_changed_reason_ends_a_streak(tmp_path: Path) -> None:
    """Back and forth is three records, each whole."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(*(calm(count, NOON + count) for count in range(3)))
        kept.append(hot(3, NOON + 3), calm(4, NOON + 4), calm(5, NOON + 5))
    records = all_of(path)
    assert [record.decision.reason.code.value for record in records] == ["NoHotPods", "Rotate", "NoHotPods"]
    assert [record.streak.times if record.streak else 0 for record in records] == [1, 0, 2]
    assert all(record.has_inputs for record in records)


def test_each_is_kept_when_asked(tmp_path: Path) -> None:
    """A person who plans twice finds two plans."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(hot(1), is_whole=True)
        kept.append(hot(2), is_whole=True)
    assert all_of(path) == [hot(2), hot(1)]


def test_the_same_id_again_adds_what_came_of_it(tmp_path: Path) -> None:
    """Written before the action, and again after it."""
    path = tmp_path / "journal.db"
    before = hot(1)
    outcomes = tuple(Outcome(action, "Evicted") for action in before.decision.actions)
    after = msgspec.structs.replace(before, outcomes=outcomes)
    with journal(path) as kept:
        kept.append(before)
        kept.append(after)
    assert all_of(path) == [after]


def test_at_rest_the_file_does_not_grow(tmp_path: Path) -> None:
    """A hundred subjects, a thousand quiet rounds: not a byte more."""
    path, clock = tmp_path / "journal.db", Clock()
    records = [calm(count, subject=f"shop/{count}") for count in range(100)]
    with journal(path, clock) as kept:
        sizes = []
        for cycle in range(1, 301):
            clock.at = NOON + 30 * cycle
            kept.append(*(msgspec.structs.replace(record, at=clock.at) for record in records))
            if cycle in {10, 300}:
                kept.flush()
                kept.close()
                sizes.append(files_bytes(path))
        assert kept.failure == ""
    assert sizes[0] == sizes[1]
    assert len(all_of(path, is_whole=False)) == 100


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(), [4, 3, 2, 1]),
        (Query(limit=2), [4, 3]),
        (Query(balancer="rotation"), [4, 3, 2, 1]),
        (Query(balancer="qos"), []),
        (Query(subject="shop/web"), [2, 1]),
        (Query(subject="shop/*"), [3, 2, 1]),
        (Query(subject="web"), []),
        (Query(reason="Rotate"), [4, 1]),
        (Query(since=NOON + 3), [4, 3]),
        (Query(since=NOON + 1, reason="NoHotPods", subject="shop/*", limit=1), [3]),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["journal.db", "journal.jsonl"])
def test_a_query_finds_what_it_asks_for(tmp_path: Path, name: str, query: Query, expected: list[int]) -> None:
    """The same answer from SQLite and from JSON lines."""
    from equipoise.adapters.journal import JsonLines

    records = {
        1: hot(1, NOON + 1),
        2: calm(2, NOON + 2),
        3: calm(3, NOON + 3, "shop/api"),
        4: hot(4, NOON + 4, "other/web"),
    }
    path = tmp_path / name
    kept: SqliteJournal | JsonLines
    kept = journal(path) if name.endswith("db") else JsonLines(path, bytes_max=1 << 20)
    with kept:
        kept.append(*records.values())
    assert all_of(path, query) == [records[number] for number in expected]


def test_pages_of_many_rows_join_without_a_gap(tmp_path: Path) -> None:
    """More records than are read at once."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(*(hot(count, subject=f"shop/{count}") for count in range(501)))
    for limit in (None, 1, 200, 201, 400, 501, 999):
        names = [record.decision.subject for record in all_of(path, Query(limit=limit), is_whole=False)]
        assert names == [f"shop/{count}" for count in reversed(range(501))][:limit]


def test_ids_may_be_abbreviated(tmp_path: Path) -> None:
    """A prefix finds all that start like it, and a whole id that one alone."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        for name in ("abc", "abcd", "abe", "b"):
            kept.append(msgspec.structs.replace(hot(1, subject=name), id=name))
    reader = open_reader(path)
    found = {prefix: [record.id for record in reader.starting(prefix)] for prefix in ("ab", "abc", "b", "x")}
    reader.close()
    assert found == {"ab": ["abc", "abcd", "abe"], "abc": ["abc"], "b": ["b"], "x": []}
