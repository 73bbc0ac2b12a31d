"""The runtime on a real API server: kills, stops, pauses, and the operator as a user runs it."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.replicas import Operator, Replica
from tests.support.e2e.rotation_workload import REALISED_PERCENT, WAVES_SECONDS, Scene, make_scene, settle
from tests.testbed import ControlPlane, Kwok, Prometheus

Start = Callable[..., Replica]
INTENT_SECONDS = "5"
LONG = "60"
"""A lease for whoever is to lead to the end, however busy the machine is."""


@pytest.fixture(scope="module", autouse=True)
def crds(control_plane: ControlPlane) -> None:
    """Our kinds, installed by our own command."""
    done = equipoise("crds", "apply", "--kubeconfig", str(control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def scene(control_plane: ControlPlane, kwok: Kwok, prometheus: Prometheus, namespace: str) -> Scene:
    """Six pods, two of them hot."""
    return settle(make_scene(control_plane, kwok, prometheus, namespace))


@pytest.fixture
def start(scene: Scene, tmp_path: Path) -> Iterator[Start]:
    """Starts replicas that act."""
    begun: list[Replica] = []

    def start_one(identity: str, **options: str) -> Replica:
        extra = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
        config = str(scene.control_plane.kubeconfig)
        common = ["--kubeconfig", config, "--prometheus", scene.prometheus.url]
        who = ["--namespace", scene.namespace, "--identity", identity]
        replica = Replica(tmp_path, ["-m", "tests.support.e2e.operator_process", *common, *who, *extra])
        begun.append(replica)
        return replica

    yield start_one
    for replica in begun:
        replica.end()


@pytest.mark.parametrize(
    ("step", "gone", "remembered"),
    [
        ("intent", "", [("A", "Failed"), ("A", "Done"), ("B", "Done")]),
        ("deed", "A", [("A", "Done"), ("B", "Done")]),
        ("outcome", "A", [("A", "Done"), ("B", "Done")]),
    ],
    ids=["intent", "deed", "outcome"],
)
def test_a_leader_killed_at_any_step_leaves_nothing_to_be_done_twice(
    scene: Scene, start: Start, step: str, gone: str, remembered: list[tuple[str, str]]
) -> None:
    """SIGKILL after the intent, after the action, before the record; the successor has an empty disk.

    It knows from the ledger what was begun: no pod goes twice, never two at once, and it ends and verifies
    the rotation. An intent that came to nothing is begun anew.
    """
    with scene.watched() as watched:
        scene.control_plane.apply(scene.policy())
        first = start("first", at=step, lease_seconds=LONG)  # or a stall between two steps would fence it
        first.wait_for(lambda: first.process.poll() is not None, "the first to be killed")
        assert first.process.returncode == -signal.SIGKILL
        _end_lease(scene)
        first.wait_for(lambda: watched.letters == gone, f"{gone or 'nobody'} to be gone")
        second = start("second", intent_seconds=INTENT_SECONDS, lease_seconds=LONG)
        second.wait_for(scene.verdict, "the successor's verdict", WAVES_SECONDS)
        cycles = len(second.cycles())
        second.wait_for(lambda: len(second.cycles()) >= cycles + 4, "four cycles more")
    assert watched.letters == "AB"
    assert watched.ready_min == 5
    assert second.outcomes() == ["Accepted"] * len("AB".removeprefix(gone))
    assert len({cycle["epoch"] for cycle in second.cycles()}) == 1
    assert scene.sent() == remembered
    verdict = scene.verdict()
    assert (verdict["ending"], verdict["waves"], verdict["evicted"]) == ("NothingLeft", 2, 2)
    assert verdict["realisedPercent"] == REALISED_PERCENT
    assert scene.status()["realisedImprovementPercent"] == REALISED_PERCENT


def _end_lease(scene: Scene) -> None:
    """Let a lease whose holder is dead be over at once."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{scene.namespace}/leases/acting"
    scene.control_plane.api.patch(path, {"spec": {"holderIdentity": ""}})


def test_a_leader_stopped_between_guard_and_action_does_nothing_when_it_wakes(
    scene: Scene, start: Start
) -> None:
    """SIGSTOP for longer than the lease; the second takes over; the first continues, and is fenced."""
    with scene.watched() as watched:
        scene.control_plane.apply(scene.policy())
        first = start("first", at="intent", signal="SIGSTOP")
        first.wait_for(lambda: any("step" in line for line in first.lines()), "the first to be stopped")
        second = start("second", lease_seconds=LONG)
        second.wait_for(lambda: len(second.cycles()) >= 3, "the second to lead")
        before = len(first.cycles())
        first.process.send_signal(signal.SIGCONT)
        first.wait_for(lambda: len(first.cycles()) > before, "the first to finish its cycle")
        seen = len(second.cycles())
        second.wait_for(lambda: len(second.cycles()) >= seen + 4, "more cycles of the second")
    assert first.outcomes() == ["Fenced"]
    assert len(first.cycles()) == before + 1
    assert second.outcomes() == []
    assert watched.evicted == []
    assert scene.sent() == [("A", "Intent")]


@pytest.fixture
def operator(scene: Scene, tmp_path: Path) -> Iterator[Operator]:
    """`equipoise operator`, as a user runs it, looking every second."""
    with Operator(scene.control_plane, scene.prometheus.url, scene.namespace, tmp_path) as started:
        yield started


def test_the_operator_previews_and_stops_when_told(scene: Scene, operator: Operator) -> None:
    """Status, journal, replay; nothing is evicted; SIGTERM ends it with 0 and frees the lease."""
    with scene.watched() as watched:
        scene.control_plane.apply(scene.policy(mode="Preview"))
        operator.wait_for(lambda: operator.decisions(scene.namespace, "HeldByThreshold"), "a first look")
        operator.wait_for(lambda: scene.reason() == "Rotate", "a pod that was hot for long enough")
        assert scene.status()["conditions"][0]["reason"] == "Accepted"
        rotated = operator.decisions(scene.namespace, "Rotate")
        operator.wait_for(
            lambda: operator.decisions(scene.namespace, "Rotate") >= rotated + 3, "three looks more"
        )
        process = operator.replica.process
        process.send_signal(signal.SIGTERM)
        operator.wait_for(lambda: process.poll() is not None, "the operator to stop", 60)
    assert process.returncode == 0
    assert watched.evicted == []
    assert scene.sent() == []
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{operator.home}/leases"
    assert not scene.control_plane.api.get(f"{leases}/equipoise")["spec"].get("holderIdentity")
    replayed = equipoise("journal", "replay", "--all", "--file", str(operator.journal))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_a_pause_takes_effect_within_five_seconds(
    scene: Scene, operator: Operator, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command's return to the held decision in the status; and resume lets go again."""
    scene.control_plane.apply(scene.policy(mode="Preview"))
    where = ("-n", scene.namespace, "--kubeconfig", str(scene.control_plane.kubeconfig))
    operator.wait_for(lambda: scene.reason() == "Rotate", "a first decision")
    seconds: list[float] = []
    while not seconds or (seconds[-1] >= 5 and len(seconds) < 3):  # a stall of the machine is not its own
        told = equipoise("pause", *where, "--reason", "test")
        assert told.returncode == 0, told.stderr
        begun = time.monotonic()
        operator.wait_for(lambda: scene.reason() == "HeldByPause", "the pause")
        seconds.append(time.monotonic() - begun)
        resumed = equipoise("resume", *where)
        assert resumed.returncode == 0, resumed.stderr
        operator.wait_for(lambda: scene.reason() == "Rotate", "the resumption")
    with capsys.disabled():
        print(f"\npause took effect after {seconds[-1]:.1f} s")
    assert seconds[-1] < 5, seconds
