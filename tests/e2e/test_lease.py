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

from equipoise.adapters.kubernetes import ApiError, connect
from equipoise.adapters.kubernetes.lease import LeaseElection
from tests.e2e.conftest import Offered
from tests.testbed import ControlPlane, Process, wait_until

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 3, 2.0, 0.3
SLACK_SECONDS = 2.5
"""What a busy machine may add to a request."""
TAKEOVER_SECONDS = LEASE_SECONDS + 2 * RETRY_SECONDS + SLACK_SECONDS
Times = tuple[int, float, float]
SHORT: Times = (LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS)
LONG: Times = (600, 400.0, RETRY_SECONDS)
"""A lease for whoever is to keep it, however busy the machine is."""
ATTEMPTS_MAX = 3
"""A machine that stands still for longer than a lease changes leaders: then the scene is set anew."""
BEAT_SECONDS = 0.1
"""Contenders answer more often than that, unless the machine keeps them from it."""
_PROGRAM = Path(__file__).parents[1] / "support" / "e2e" / "election_candidate.py"


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

    def last(self) -> tuple[float, int]:
        """Give the moment of the newest answer that it leads, and in which epoch."""
        led = [(answer.before, answer.epoch) for answer in self.answers() if answer.epoch is not None]
        return led[-1]

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

    def wait_for_doubt(self, moment: float, seconds: float = 60.0) -> None:
        """Wait until its newest answer is after this moment, and that it does not lead."""
        wait_until(
            lambda: self.since(moment) and self.epoch() is None, f"{self.process.name} in doubt", seconds
        )

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
    """Starts contenders for a lease; in the end nobody may have led beside anybody else."""
    began: dict[str, list[Contender]] = {}

    def one(name: str, times: Times, lease: str) -> Contender:
        command = [sys.executable, str(_PROGRAM), str(api_server.kubeconfig), "default"]
        process = Process(name, [*command, lease, name, *map(str, times)], tmp_path / f"{lease}-{name}.log")
        process.start()
        began.setdefault(lease, []).append(Contender(process))
        return began[lease][-1]

    yield one
    for contender in itertools.chain.from_iterable(began.values()):
        contender.process.kill()
    for contenders in began.values():
        _assert_never_two(contenders)


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


def _pair(start: Start, leader: Times = SHORT, follower: Times = SHORT) -> tuple[Contender, Contender]:
    """Let a lead, and b stand beside it."""
    for _ in range(ATTEMPTS_MAX):
        lease = f"lease-{secrets.token_hex(3)}"
        a = start("a", leader, lease)
        a.wait_for_epoch()
        b = start("b", follower, lease)
        wait_until(b.answers, "b asking", 60)
        time.sleep(2 * RETRY_SECONDS)  # so that b has seen the record
        if a.epoch() is not None and all(answer.epoch is None for answer in b.answers()):
            return a, b
        for one in (a, b):
            one.process.kill()
    raise AssertionError(f"a did not keep its lease in any of {ATTEMPTS_MAX} attempts")


def test_a_killed_leader_is_succeeded_when_its_lease_is_over(
    start: Start, record_property: Callable[[str, object], None]
) -> None:
    """Within the lease and two turns, in the next epoch."""
    took: list[float] = []
    while not took or (took[-1] > TAKEOVER_SECONDS and len(took) < ATTEMPTS_MAX):
        a, b = _pair(start, follower=LONG)
        killed = a.signal(signal.SIGKILL)
        first = b.wait_for_reign()
        require_fresh, epoch = a.last()
        assert first.epoch == epoch + 1
        assert first.before - require_fresh >= LEASE_SECONDS - RENEW_SECONDS, (
            "it had not stopped believing yet"
        )
        took.append(first.before - killed - b.lost(killed, first.before))
    record_property("takeover_seconds", round(took[-1], 2))
    print(f"takeover after SIGKILL: {took[-1]:.2f} s")
    assert took[-1] <= TAKEOVER_SECONDS, took


def test_a_stopped_leader_wakes_up_without_an_epoch(start: Start) -> None:
    """From its very first answer, and for as long as the other leads."""
    a, b = _pair(start, follower=LONG)
    a.signal(signal.SIGSTOP)
    first = b.wait_for_reign()
    _, epoch = a.last()
    assert first.epoch == epoch + 1
    woken = a.signal(signal.SIGCONT)
    wait_until(lambda: len(a.since(woken)) > 100, "a asking again", 60)
    time.sleep(LEASE_SECONDS)
    assert {answer.epoch for answer in a.since(woken)} == {None}
    wait_until(lambda: epoch + 1 in {answer.epoch for answer in b.since(woken)}, "b leading on", 60)


def test_a_leader_that_is_asked_to_leave_hands_over_at_once(start: Start) -> None:
    """Nobody waits for the lease to end."""
    a, b = _pair(start, leader=LONG, follower=LONG)
    asked = a.signal(signal.SIGTERM)
    first = b.wait_for_reign()
    assert first.epoch == a.last()[1] + 1
    print(f"takeover after SIGTERM: {first.before - asked:.2f} s")
    assert first.before - asked < LONG[0] - LONG[1]
    wait_until(lambda: not a.process.alive, "a ended", 60)


def test_a_short_outage_of_the_api_server_costs_nothing(api_server: ControlPlane, start: Start) -> None:
    """Shorter than the belief: the same leader in the same epoch, without a moment of doubt."""
    lease = f"lease-{secrets.token_hex(3)}"
    a = start("a", LONG, lease)
    epoch = a.wait_for_epoch()
    b = start("b", LONG, lease)
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
    a, b = _pair(start)
    api_server.kill_apiserver()
    killed = time.monotonic()
    for one in (a, b):
        one.wait_for_doubt(killed)
    doubtful = killed
    for one in (a, b):
        for answer in [answer for answer in one.since(killed) if answer.epoch is not None][-1:]:
            lost = one.lost(killed, answer.before)
            assert answer.before - killed - lost <= RENEW_SECONDS + SLACK_SECONDS, lost
            doubtful = max(doubtful, answer.after)
    epoch = max(answer.epoch or 0 for one in (a, b) for answer in one.answers())
    time.sleep(LEASE_SECONDS)
    assert {answer.epoch for one in (a, b) for answer in one.since(doubtful)} == {None}
    api_server.restart_apiserver()
    wait_until(lambda: a.epoch() or b.epoch(), "one of them leading again", 60)
    time.sleep(1.0)
    assert wait_until(lambda: a.epoch() or b.epoch(), "one of them leading", 60) > epoch


TOP = 2**31 - 1
"""The highest number that the API takes for `leaseTransitions`."""


def test_a_lease_at_the_end_of_all_epochs_is_led_by_nobody_until_it_is_deleted(
    api_server: ControlPlane,
) -> None:
    """The server takes no higher number; every replica says so, and what to do, and that helps."""
    client = connect(str(api_server.kubeconfig), environment={})
    collection = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    name = f"lease-{secrets.token_hex(3)}"

    def lease(transitions: object) -> dict[str, object]:
        kind: dict[str, object] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name},
        }
        return kind | {"spec": {"holderIdentity": "", "leaseTransitions": transitions}}

    for refused in (TOP + 1, -1, 1.5, "7"):
        with pytest.raises(ApiError, match=r"40\d|422"):
            client.post(collection, lease(refused), retry=False)
    client.post(collection, lease(TOP))

    def stand(who: str, lease: str) -> LeaseElection:
        seconds, renew_seconds, _ = LONG
        return LeaseElection(
            client, "default", lease, who, lease_seconds=seconds, renew_seconds=renew_seconds
        )

    replicas = [stand(who, name) for who in ("a", "b")]
    for replica in replicas:
        replica.step()
        assert replica.epoch() is None
        assert f"kubectl delete lease -n default {name}" in str(replica.last_error)
    client.delete(f"{collection}/{name}")
    for replica in replicas:
        replica.step()
    first, second = (replica.epoch() for replica in replicas)
    assert first is not None
    assert first < TOP
    assert second is None
    assert [replica.last_error for replica in replicas] == [None, None]
    for replica in replicas:
        replica.stop()
    client.post(collection, lease(None) | {"metadata": {"name": f"{name}-absent"}})
    absent = stand("a", f"{name}-absent")
    absent.step()
    assert absent.epoch() is not None
    absent.stop()
