"""Heavy batches in a worker process: results, failures, and who survives whom."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from equipoise.engine.executor import LeaselessLeadership, StoppingLeadership
from equipoise.engine.isolation import BatchLost, Isolation
from equipoise.runtime.operator.worker import Batches
from tests.support.operator import worker_functions as work
from tests.support.operator.worlds import WAIT_SECONDS, eventually


@pytest.fixture(scope="module")
def shared() -> Iterator[Batches]:
    batches = Batches()
    yield batches
    batches.stop()


def test_a_batch_runs_in_another_process_that_is_kept_and_yields(shared: Batches) -> None:
    """One worker for all batches, at a lower priority than ours."""
    assert shared.submit(work.add, 1, 2) == 3
    worker = shared.submit(work.worker_id)
    assert worker not in {os.getpid(), 0}
    assert shared.submit(work.worker_id) == worker
    assert shared.submit(work.niceness) > os.nice(0)


def test_an_exception_travels_with_its_traceback(shared: Batches) -> None:
    """The batch failed, the worker did not."""
    worker = shared.submit(work.worker_id)
    with pytest.raises(ValueError, match="no good") as failed:
        shared.submit(work.fail, "no good")
    assert "worker_functions.py" in failed.value.__notes__[0]
    with pytest.raises(RuntimeError, match="1 and 2"):
        shared.submit(work.fail_stubbornly)
    with pytest.raises(Exception, match="pickle"):
        shared.submit(work.give_lambda)
    assert shared.submit(work.worker_id) == worker


def test_a_worker_that_dies_is_reported_and_replaced(shared: Batches) -> None:
    """By itself or by the kernel's hand; the next batch gets a new one."""
    before = shared.replaced
    with pytest.raises(BatchLost, match="died \\(exit status 7\\)"):
        shared.submit(work.die)
    worker = shared.submit(work.worker_id)
    killer = threading.Timer(1.0, os.kill, (worker, signal.SIGKILL))
    killer.start()
    with pytest.raises(BatchLost, match="died \\(signal SIGKILL\\)"):
        shared.submit(work.hang)
    killer.join()
    assert shared.submit(work.add, 2, 2) == 4
    assert shared.replaced == before + 2


def _submit_until_it_fails(batches: Batches) -> None:
    while True:
        batches.submit(work.worker_id)
        time.sleep(0.01)


def test_a_worker_that_died_between_batches_costs_one_batch_at_most(shared: Batches) -> None:
    """Nobody is told of its death before the next batch."""
    worker = shared.submit(work.worker_id)
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(BatchLost):
        _submit_until_it_fails(shared)
    assert shared.submit(work.add, 2, 2) == 4


def test_a_batch_past_its_deadline_is_ended_with_its_worker(shared: Batches) -> None:
    """A hung worker, also one that is stopped and reads nothing, holds nobody up."""
    shared.submit(work.add, 0, 0)
    with pytest.raises(BatchLost, match=r"did not finish within 0\.3 s"):
        shared.submit(work.hang, deadline_seconds=0.3)
    worker = shared.submit(work.worker_id)
    os.kill(worker, signal.SIGSTOP)
    with pytest.raises(BatchLost, match=r"did not finish within 0\.3 s"):
        shared.submit(len, bytes(50_000_000), deadline_seconds=0.3)
    assert shared.submit(work.add, 2, 2) == 4


def test_batches_of_several_threads_take_turns(shared: Batches) -> None:
    """Each gets its own result."""
    results: dict[int, int] = {}

    def ask(number: int) -> None:
        results[number] = shared.submit(work.add, number, number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert results == {number: 2 * number for number in range(8)}


def test_who_waits_for_a_batch_still_beats(tmp_path: Path) -> None:
    """A long batch is no stalled loop; the deadline bounds it."""
    beats: list[int] = []
    heard = tmp_path / "heard"

    def beat() -> None:
        beats.append(threading.get_ident())
        heard.touch()

    batches = Batches(heartbeat=beat)
    assert batches.submit(work.burn_until, str(heard), WAIT_SECONDS)  # it ends only after a beat
    batches.stop()
    assert set(beats) == {threading.get_ident()}


def test_stopping_gives_up_the_batch_under_way_and_begins_no_other() -> None:
    """At once, since a batch is pure."""
    begun = threading.Event()
    batches = Batches(heartbeat=begun.set)
    worker = batches.submit(work.worker_id)
    begun.clear()
    lost: list[str] = []

    def ask() -> None:
        try:
            batches.submit(work.hang)
        except BatchLost as error:
            lost.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(WAIT_SECONDS)
    batches.stop()
    thread.join(WAIT_SECONDS)
    assert lost == ["the batch was cancelled: the operator is stopping"]
    with pytest.raises(BatchLost, match="not started"):
        batches.submit(work.add, 1, 1)
    eventually(lambda: not os.path.exists(f"/proc/{worker}"))  # noqa: PTH110


def test_a_batch_that_nobody_waits_for_any_more_does_not_answer_the_next() -> None:
    """Whatever it was that ended the waiting: the worker's answer is still to come."""
    troubles: list[Exception] = [MemoryError()]

    def beat() -> None:
        if troubles:
            raise troubles.pop()

    batches = Batches(heartbeat=beat)
    try:
        with pytest.raises(MemoryError):
            batches.submit(work.hang)
        assert batches.submit(work.add, 1, 2) == 3
    finally:
        batches.stop()


def test_one_that_ends_the_worker_costs_nobody_else_the_result(shared: Batches) -> None:
    """As the kernel does it where memory is short: halves are tried, each in a worker of its own."""
    shared.submit(work.add, 0, 0)
    before, isolation = shared.replaced, Isolation()
    found = isolation.each(range(6), lambda some: shared.submit(work.double_but, some, 4), str)
    assert [one if isinstance(one, int) else one.error for one in found] == [
        *(0, 2, 4, 6),
        "the batch's worker died (signal SIGKILL)",
        10,
    ]
    assert shared.replaced - before == 4
    isolation.begin(10.0)
    isolation.each(range(6), lambda some: shared.submit(work.double_but, some, 4), str)
    assert shared.replaced - before == 4, "who is known to end a worker waits"


def test_an_operator_that_stops_takes_no_batch_for_guilty() -> None:
    """What is given up is decided by the next leader, and nothing is told of it."""
    batches, isolation = Batches(), Isolation()
    stopping = threading.Event()
    isolation.begin(0.0, StoppingLeadership(LeaselessLeadership(lambda: 0.0), stopping))
    stopping.set()
    batches.stop()
    with pytest.raises(BatchLost, match="not started"):
        isolation.each(range(6), lambda some: batches.submit(work.double_but, some, 4), str)
    assert isolation.failed == []
