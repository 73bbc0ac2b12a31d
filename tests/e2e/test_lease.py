"""Elections between real processes over the real API server: killed, stopped, asked to leave, cut off."""

import itertools
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.conftest import Offered
from tests.testbed import ControlPlane, Process, wait_until

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 3, 2.0, 0.3
SLACK_SECONDS = 2.5
"""What a busy machine may add to a request."""
Times = tuple[int, float, float]
SHORT: Times = (LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS)
LONG: Times = (600, 400.0, RETRY_SECONDS)
"""A lease for whoever is to keep it, however busy the machine is."""
BEAT_SECONDS = 0.1
"""Contenders answer more often than that, unless the machine keeps them from it."""
_PROGRAM = Path(__file__).with_name("contender.py")


class Answer(NamedTuple):
    """One answer of `epoch()`, and the machine's clock around it."""

    before: float
    after: float
    epoch: int | None


class Contender:
    """One process that stands for election."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def answers(self) -> list[Answer]:
        text = self.process.log.read_text() if self.process.log.exists() else ""
        whole = text[: text.rfind("\n") + 1].splitlines()
        rows = (line.split() for line in whole if line[:1].isdigit())
        return [Answer(float(a), float(b), None if e == "-" else int(e)) for a, b, e in rows]

    def epoch(self) -> int | None:
        """Give the newest answer."""
        answers = self.answers()
        return answers[-1].epoch if answers else None

    def since(self, moment: float) -> list[Answer]:
        return [answer for answer in self.answers() if answer.before >= moment]

    def lost(self, begin: float, end: float) -> float:
        """Give the seconds within this time in which the machine did not let it answer."""
        moments = [begin, *(answer.before for answer in self.answers() if begin < answer.before < end), end]
        return sum(max(0.0, later - earlier - BEAT_SECONDS) for earlier, later in itertools.pairwise(moments))

    def signal(self, number: signal.Signals) -> float:
        """Send a signal; give the moment before it."""
        moment = time.monotonic()
        os.kill(self.process.pid, number)
        return moment

    def wait_for_epoch(self, seconds: float = 60.0) -> int:
        return wait_until(self.epoch, f"{self.process.name} leading", seconds)

    def wait_for_reign(self, seconds: float = 60.0) -> Answer:
        """Give the first answer that it led, ever."""
        return wait_until(
            lambda: next((a for a in self.answers() if a.epoch is not None), None),
            f"{self.process.name} leading",
            seconds,
        )


Start = Callable[..., Contender]


@pytest.fixture(scope="module")
def api_server(offered: Offered, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server of these tests' own, since some of them kill it."""
    with ExitStack() as stack:
        with offered():
            folder = tmp_path_factory.mktemp("lease")
            started = stack.enter_context(ControlPlane(folder, controllers=False, scheduler=False))
        yield started


@pytest.fixture
def start(api_server: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Starts contenders for one lease; in the end nobody may have led beside anybody else."""
    lease, began = f"lease-{secrets.token_hex(3)}", []

    def one(name: str, times: Times) -> Contender:
        command = [sys.executable, str(_PROGRAM), str(api_server.kubeconfig), "default", lease, name]
        process = Process(name, [*command, *map(str, times)], tmp_path / f"{name}.log")
        process.start()
        began.append(Contender(process))
        return began[-1]

    yield one
    for contender in began:
        contender.process.kill()
    _assert_never_two(began)


def _assert_never_two(contenders: list[Contender]) -> None:
    """Every reign has ended before the next begins, by the clock that all processes share."""
    reigns: dict[tuple[int, str], list[Answer]] = {}
    for contender in contenders:
        for answer in contender.answers():
            if answer.epoch is not None:
                reigns.setdefault((answer.epoch, contender.process.name), []).append(answer)
    ordered = sorted(reigns.items())
    epochs = [epoch for (epoch, _), _ in ordered]
    assert len(set(epochs)) == len(epochs), f"an epoch with two leaders: {sorted(reigns)}"
    for (_, earlier), (_, later) in itertools.pairwise(ordered):
        assert earlier[-1].before <= later[0].after, "two led at one moment"


def _pair(start: Start, leader: Times = SHORT, follower: Times = SHORT) -> tuple[Contender, Contender, int]:
    a = start("a", leader)
    a.wait_for_epoch()
    b = start("b", follower)
    wait_until(b.answers, "b asking", 60)
    time.sleep(2 * RETRY_SECONDS)  # so that b has seen the record
    return a, b, a.wait_for_epoch()


def test_a_killed_leader_is_succeeded_when_its_lease_is_over(
    start: Start, record_property: Callable[[str, object], None]
) -> None:
    """Within the lease and two turns, in the next epoch."""
    a, b, epoch = _pair(start, follower=LONG)
    killed = a.signal(signal.SIGKILL)
    first = b.wait_for_reign()
    assert first.epoch == epoch + 1
    taken = first.before
    record_property("takeover_seconds", round(taken - killed, 2))
    print(f"takeover after SIGKILL: {taken - killed:.2f} s")
    assert taken - killed >= LEASE_SECONDS - RENEW_SECONDS, "before the killed one had stopped believing"
    lost = b.lost(killed, taken)
    assert taken - killed - lost <= LEASE_SECONDS + 2 * RETRY_SECONDS + SLACK_SECONDS, lost


def test_a_stopped_leader_wakes_up_without_an_epoch(start: Start) -> None:
    """From its very first answer, and for as long as the other leads."""
    a, b, epoch = _pair(start, follower=LONG)
    a.signal(signal.SIGSTOP)
    assert b.wait_for_reign().epoch == epoch + 1
    woken = a.signal(signal.SIGCONT)
    wait_until(lambda: len(a.since(woken)) > 100, "a asking again", 60)
    time.sleep(LEASE_SECONDS)
    assert {answer.epoch for answer in a.since(woken)} == {None}
    assert epoch + 1 in {answer.epoch for answer in b.since(woken)}


def test_a_leader_that_is_asked_to_leave_hands_over_at_once(start: Start) -> None:
    """Nobody waits for the lease to end."""
    a, b, epoch = _pair(start, leader=LONG)
    asked = a.signal(signal.SIGTERM)
    first = b.wait_for_reign()
    assert first.epoch == epoch + 1
    print(f"takeover after SIGTERM: {first.before - asked:.2f} s")
    assert first.before - asked < LONG[0] - LONG[1]
    wait_until(lambda: not a.process.alive, "a ended", 60)


def test_a_short_outage_of_the_api_server_costs_nothing(api_server: ControlPlane, start: Start) -> None:
    """Shorter than the belief: the same leader in the same epoch, without a moment of doubt."""
    a = start("a", LONG)
    epoch = a.wait_for_epoch()
    b = start("b", LONG)
    began = time.monotonic()
    api_server.kill_apiserver()
    api_server.restart_apiserver()
    mended = time.monotonic()
    assert mended - began < 0.9 * LONG[1], (
        "the API server took too long to come back for this test to say anything"
    )
    wait_until(lambda: a.since(mended + 4 * RETRY_SECONDS), "a asking on", 60)
    wait_until(b.answers, "b asking", 60)
    assert {answer.epoch for answer in a.since(began)} == {epoch}
    assert {answer.epoch for answer in b.answers()} == {None}


def test_a_long_outage_leaves_nobody_leading_and_then_one(api_server: ControlPlane, start: Start) -> None:
    """Both know that they do not know; afterwards one leads, in a new epoch."""
    a, b, epoch = _pair(start)
    api_server.kill_apiserver()
    killed = time.monotonic()
    wait_until(lambda: a.epoch() is None, "a in doubt", 60)
    doubtful = next(answer.before for answer in a.since(killed) if answer.epoch is None)
    lost = a.lost(killed, doubtful)
    assert doubtful - killed - lost <= RENEW_SECONDS + SLACK_SECONDS, lost
    time.sleep(LEASE_SECONDS)
    assert {answer.epoch for answer in [*a.since(doubtful), *b.since(killed)]} == {None}
    api_server.restart_apiserver()
    wait_until(lambda: a.epoch() or b.epoch(), "one of them leading again", 60)
    time.sleep(1.0)
    (new,) = wait_until(
        lambda: [found for one in (a, b) if (found := one.epoch()) is not None], "one of them leading", 60
    )
    assert new > epoch
