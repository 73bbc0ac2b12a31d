"""The journal never outgrows its bounds."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise.adapters.journal import Query, open_reader
from tests.support.journal.worlds import MIB, NOON, Clock, all_of, calm, dense, files_bytes, hot, journal


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.integers(0, 2**32), st.sampled_from([200, 3000, 20000, 100000]))
def test_file_and_log_stay_below_the_bound(tmp_path: Path, seed: int, size_bytes: int) -> None:
    """After every append, whatever the sizes: never a byte above it, and the newest are there."""
    chance = random.Random(seed)
    path = tmp_path / f"{seed}-{size_bytes}.db"
    peak, count = 0, 0
    with journal(path, bytes_max=MIB) as kept:
        for _ in range(30):
            batch = [dense(chance, count + turn, chance.randrange(size_bytes)) for turn in range(5)]
            count += len(batch)
            kept.append(*batch)
            peak = max(peak, files_bytes(path))
            assert kept.failure == ""
    assert peak <= MIB
    found = [record.decision.reason.numbers["n"] for record in all_of(path)]
    assert found == list(range(count - 1, count - 1 - len(found), -1))
    assert len(found) > 3


def test_most_of_the_bound_is_used(tmp_path: Path) -> None:
    """A bound is no reason to throw away what fits."""
    path, chance = tmp_path / "journal.db", random.Random(1)
    with journal(path, bytes_max=2 * MIB) as kept:
        for count in range(150):
            kept.append(*(dense(chance, 10 * count + turn, 1500) for turn in range(10)))
    held = sum(len(record.to_json()) for record in all_of(path))
    assert path.stat().st_size > 1.3 * MIB
    assert held > MIB


def test_a_large_batch_is_cut_to_the_logs_size(tmp_path: Path) -> None:
    """Ten times the log in one call."""
    path, chance = tmp_path / "journal.db", random.Random(1)
    with journal(path, bytes_max=4 * MIB) as kept:
        kept.append(*(dense(chance, count, 4000) for count in range(1200)))
        assert (kept.failure, kept.lost) == ("", 0)
        assert files_bytes(path) <= 4 * MIB
    assert all_of(path)[0].decision.reason.numbers["n"] == 1199


def test_inputs_that_are_too_large_are_left_to_their_hash(tmp_path: Path) -> None:
    """The decision is kept all the same."""
    path = tmp_path / "journal.db"
    large = dense(random.Random(1), 1, 300_000)
    with journal(path, bytes_max=MIB) as kept:
        kept.append(large)
        assert kept.failure == ""
    assert all_of(path) == [large.without_inputs()]


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    """Counted from when it was last decided, so that a long quiet streak stays."""
    path, clock = tmp_path / "journal.db", Clock()
    with journal(path, clock, age_max_seconds=3600, settle_seconds=0) as kept:
        kept.append(hot(1, NOON), calm(2, NOON, "shop/quiet"))
        for minute in range(0, 120, 10):
            clock.at = NOON + minute * 60
            kept.append(calm(minute, clock.at, "shop/quiet"))
        kept.append(hot(200, clock.at))
    assert [(record.id, record.decision.subject) for record in all_of(path)] == [
        (hot(200, clock.at).id, "shop/web"),
        (calm(2, NOON).id, "shop/quiet"),
    ]


def test_a_subject_whose_record_has_gone_is_recorded_anew(tmp_path: Path) -> None:
    """Its streak must not lengthen a row that is no more."""
    path, clock = tmp_path / "journal.db", Clock()
    with journal(path, clock, age_max_seconds=3600) as kept:
        kept.append(calm(1, NOON))
        clock.at = NOON + 7200
        kept.append(calm(2, clock.at), calm(3, clock.at))
    (record,) = all_of(path)
    assert record.id == calm(2, clock.at).id
    assert record.streak is not None


def test_space_is_given_back_to_the_disk(tmp_path: Path) -> None:
    """When most of it has expired."""
    path, clock, chance = tmp_path / "journal.db", Clock(), random.Random(1)
    with journal(path, clock, age_max_seconds=3600) as kept:
        kept.append(*(dense(chance, count, 4000) for count in range(1000)))
    full = path.stat().st_size
    clock.at += 7200
    with journal(path, clock, age_max_seconds=3600, settle_seconds=0) as kept:
        for count in range(20):
            kept.append(hot(count, clock.at))
    assert path.stat().st_size < full / 3


def test_a_smaller_bound_shrinks_the_file_at_once(tmp_path: Path) -> None:
    """A restart with other settings."""
    path, chance = tmp_path / "journal.db", random.Random(1)
    with journal(path, bytes_max=8 * MIB) as kept:
        kept.append(*(dense(chance, count, 9000) for count in range(350)))
    assert path.stat().st_size > 4 * MIB
    with journal(path, bytes_max=MIB) as kept:
        assert kept.failure == ""
        assert files_bytes(path) <= MIB
        kept.append(dense(chance, 350, 10))
        assert files_bytes(path) <= MIB
    assert all_of(path)[0].decision.reason.numbers["n"] == 350


def test_a_reader_that_does_not_finish_cannot_break_the_bound(tmp_path: Path) -> None:
    """The log cannot be emptied under it: records are lost, it is said, and it goes on afterwards."""
    import sqlite3

    path, chance = tmp_path / "journal.db", random.Random(1)
    with journal(path, bytes_max=MIB) as kept:
        kept.append(dense(chance, 0, 2000))
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM records").fetchall()
        count = 1
        while not kept.failure:
            kept.append(dense(chance, count, 9000))
            count += 1
            assert files_bytes(path) <= MIB
            assert count < 1000
        assert "a reader that does not finish" in kept.failure
        assert kept.lost == 1
        reader.close()
        kept.append(dense(chance, count, 9000))
        assert kept.failure == ""
    assert all_of(path)[0].decision.reason.numbers["n"] == count


def test_a_bound_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    """When the program starts, not in the loop."""
    with pytest.raises(ValueError, match="bytes_max: expected at least 1048576"):
        journal(tmp_path / "journal.db", bytes_max=1000)


def test_reading_while_it_is_pruned_never_fails(tmp_path: Path) -> None:
    """A page is one snapshot; rows that go between two pages are simply not there."""
    path, chance = tmp_path / "journal.db", random.Random(1)
    with journal(path, bytes_max=2 * MIB) as kept:
        kept.append(*(dense(chance, count, 1000) for count in range(900)))
        reader = open_reader(path)
        seen = 0
        for seen, record in enumerate(reader.records(Query(), is_whole=True), 1):
            assert record.has_inputs
            if seen % 100 == 0:
                kept.append(*(dense(chance, 1000 + seen + turn, 4000) for turn in range(100)))
        reader.close()
        assert seen > 100
