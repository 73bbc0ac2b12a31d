"""Several processes at once, and processes that die."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.journal.worlds import all_of, files_bytes
from tests.support.journal.writer import BYTES_MAX, numbered

NAMES = ["journal.db", "journal.jsonl"]


def _writer(path: Path, first: int, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.journal.writer", str(path), str(first), str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_writer_that_is_killed_leaves_whole_records_only(tmp_path: Path, name: str) -> None:
    """Six times, at six moments: what was reported is there, and nothing is half there."""
    path, chance = tmp_path / name, random.Random(1)
    first = 0
    for _ in range(6):
        with _writer(path, first, 10_000) as process:
            assert process.stdout is not None
            reported = [process.stdout.readline().strip() for _ in range(chance.randrange(1, 60))]
            process.kill()
            process.wait()
        assert reported == [str(number) for number in range(first, first + len(reported))]
        found = all_of(path)
        numbers = [record.decision.reason.numbers["n"] for record in found]
        assert found == [numbered(number) for number in numbers]
        assert numbers == sorted(numbers, reverse=True)
        assert numbers[0] >= int(reported[-1])
        first = numbers[0] + 1


TRIES = 4
"""A machine that lets one process stand still while another runs loses records; not in each of so many."""


def _written(lines: str) -> list[int]:
    """Read which records were written; on a machine that is very busy some may be lost, with a reason."""
    lost = [line for line in lines.splitlines() if not line.isdecimal()]
    assert all("database is locked" in line or "a reader that does not finish" in line for line in lost)
    return [int(line) for line in lines.splitlines() if line.isdecimal()]


def test_a_reader_hammers_while_a_writer_writes(tmp_path: Path) -> None:
    """Neither fails, what is read is whole, and the bound holds throughout."""
    assert any(_hammer(tmp_path / f"{count}.db", 250) > 125 for count in range(TRIES))


def _hammer(path: Path, count: int) -> int:
    """Read while somebody writes; give how many were written."""
    with _writer(path, 0, count) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        newest, rounds = 0, 0
        while process.poll() is None or not rounds:
            found = all_of(path)
            numbers = [record.decision.reason.numbers["n"] for record in found]
            assert found == [numbered(number) for number in numbers]
            assert numbers[0] >= newest
            assert files_bytes(path) <= BYTES_MAX
            newest, rounds = numbers[0], rounds + 1
        written = [0, *_written(process.stdout.read())]
    assert process.returncode == 0
    assert all_of(path)[0] == numbered(written[-1])
    return len(written)


def test_two_writers_share_a_file(tmp_path: Path) -> None:
    """An operator, and a person who adds a plan: what both wrote is there."""
    assert any(min(_shared(tmp_path / f"{count}.db", 60)) > 30 for count in range(TRIES))


def _shared(path: Path, count: int) -> list[int]:
    """Write from two processes; give how many each has written."""
    with _writer(path, 0, count) as one, _writer(path, 1000, count) as other:
        written = [_written(process.stdout.read()) for process in (one, other) if process.stdout]
    found = {record.decision.reason.numbers["n"] for record in all_of(path)}
    assert {*written[0], *written[1]} <= found <= {*range(count), *range(1000, 1000 + count)}
    return [len(each) for each in written]
