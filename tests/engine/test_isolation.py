"""Whom an error is about: narrowed down by halves, at a bounded cost."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.decision import Record
from equipoise.core.errors import WorldFailed
from equipoise.engine.isolation import (
    WORKERS_LOST_MAX,
    BatchLost,
    Isolation,
    WorkerBusy,
    failed_decision,
    failed_turn,
)
from equipoise.engine.recording import failed_record
from equipoise.ports import FailedTurn


class Work:
    """Doubles numbers, many at once, and fails where one of the guilty is among them."""

    def __init__(self, guilty: set[int], error: Exception) -> None:
        self.guilty, self.error = guilty, error
        self.calls = 0
        self.failures = 0

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.calls += 1
        if self.guilty & set(numbers):
            self.failures += 1
            raise self.error
        return [2 * number for number in numbers]


@given(count=st.integers(0, 60), data=st.data())
def test_the_guilty_are_found_and_all_others_have_their_results(count: int, data: st.DataObject) -> None:
    """In the order in which they were asked for; finding one costs about twice the logarithm of all."""
    guilty = data.draw(st.sets(st.integers(0, count - 1))) if count else set()
    isolation, work = Isolation(), Work(guilty, KeyError("x"))
    found = isolation.each(range(count), work, str)
    assert [number for number, one in enumerate(found) if isinstance(one, FailedTurn)] == sorted(guilty)
    assert [one for one in found if not isinstance(one, FailedTurn)] == [
        2 * number for number in range(count) if number not in guilty
    ]
    assert sorted(failed.subject for failed in isolation.failed) == sorted(map(str, guilty))
    assert work.calls <= 1 + 2 * len(guilty) * count.bit_length()


@given(guilty=st.sets(st.integers(0, 499), min_size=1, max_size=40))
def test_lost_workers_are_bounded_and_in_the_end_only_the_guilty_wait(guilty: set[int]) -> None:
    """Each cycle pays for so many; who was found waits alone, ever longer, and costs nobody a second try."""
    isolation, work = Isolation(), Work(guilty, BatchLost("the worker died"))
    at, cycles = 0.0, 0
    while True:
        isolation.begin(at)
        before = work.failures
        found = isolation.each(range(500), work, str)
        assert work.failures - before <= WORKERS_LOST_MAX + len(guilty)
        failed = {number for number, one in enumerate(found) if isinstance(one, FailedTurn)}
        assert guilty <= failed
        if failed == guilty:
            break
        at, cycles = at + 30.0, cycles + 1
        assert cycles < 100
    work.guilty = set()
    isolation.begin(at + 4000.0)
    assert isolation.each(range(500), work, str) == [2 * number for number in range(500)]


def test_one_that_costs_a_worker_is_not_tried_in_every_cycle() -> None:
    """A minute later, then two, then four; its decision says why all the while."""
    isolation, work = Isolation(), Work({3}, BatchLost("the worker died"))
    tries = []
    for cycle in range(30):
        isolation.begin(cycle * 30.0)
        before = work.failures
        found = isolation.each(range(8), work, str)
        assert isinstance(found[3], FailedTurn)
        if work.failures > before:
            tries.append(cycle)
    assert tries == [0, 2, 6, 14]


def test_a_worker_that_others_keep_busy_is_nobodys_fault() -> None:
    """It is raised as it is, once."""
    work = Work({1}, WorkerBusy("busy"))
    with pytest.raises(WorkerBusy):
        Isolation().each(range(4), work, str)
    assert work.calls == 1


def test_a_result_too_few_is_an_error_of_somebody() -> None:
    """Nobody gets another's result."""
    found = Isolation().each([1, 2, 3], lambda some: [one for one in some if one != 2], str)
    assert [isinstance(one, FailedTurn) for one in found] == [False, True, False]


def test_a_world_that_fails_one_after_the_other_is_no_matter_of_workloads() -> None:
    """The third in a row ends the cycle; two, and then one that goes well, do not."""
    isolation = Isolation()

    def fail() -> None:
        raise WorldFailed("no answer")

    for subject in ("a", "b"):
        assert isolation.turn(subject, fail) == FailedTurn(subject, "no answer")
        assert isolation.attempt(subject, lambda: 1) == 1, "a record of it is no turn"
    assert isolation.turn("c", lambda: 1) == 1
    isolation.turn("d", fail)
    isolation.turn("e", fail)
    with pytest.raises(WorldFailed):
        isolation.turn("f", fail)


class Mute(Exception):  # noqa: N818
    """An exception that can't say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@given(st.text(alphabet=st.characters(), max_size=2000))
def test_any_message_can_be_told_and_kept(text: str) -> None:
    """Half letters, line ends, a megabyte: one bounded line that JSON takes."""
    error = KeyError(text)
    error.args = (text,)
    failed = failed_turn("shop/web", error)
    assert len(failed.error) < 400
    assert len(failed.error.splitlines()) == 1
    decision = failed_decision(failed)
    record = failed_record("rotation", decision, 0.0, "id")
    assert Record.from_json(record.to_json()) == record
    assert msgspec.json.encode(decision)


def test_an_exception_without_words_and_one_from_far_down_are_told() -> None:
    """The traceback is bounded, too."""

    def down(depth: int) -> None:
        down(depth + 1)

    assert failed_turn("a", Mute()).error == "Mute"
    try:
        down(0)
    except RecursionError as error:
        failed = failed_turn("a", error)
    assert failed.is_bug
    assert len(failed.traceback) <= 20_000
    assert failed.place.endswith(".py:" + failed.place.rpartition(":")[2])
