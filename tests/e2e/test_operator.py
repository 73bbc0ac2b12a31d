"""The runtime on a real API server: kills, stops, pauses, and the operator as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import equipoise
from tests.testbed import ControlPlane, Prometheus, free_port, wait_until
from tests.testbed.processes import is_answering

Start = Callable[..., "Replica"]


class Replica:
    """One process that prints JSON lines into a file."""

    def __init__(self, folder: Path, arguments: list[str], environment: dict[str, str] | None = None) -> None:
        self.log = folder / f"replica-{len(list(folder.glob('replica-*')))}.log"
        self._file = self.log.open("w")
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env=os.environ | (environment or {}),
        )

    def lines(self) -> list[dict[str, Any]]:
        """What it has said so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def cycles(self) -> list[dict[str, Any]]:
        """The cycles in which it led."""
        return [line for line in self.lines() if "outcomes" in line]

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float = 60) -> None:
        """Wait for something that it does; its words are in the error."""
        try:
            wait_until(condition, what, seconds)
        except Exception as error:
            raise AssertionError(f"{what}: {self.log.read_text()[-2000:]}") from error

    def end(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(30)
        self._file.close()


@pytest.fixture(scope="module", autouse=True)
def crds(control_plane: ControlPlane) -> None:
    """Our kinds, installed by our own command."""
    done = equipoise("crds", "apply", "--kubeconfig", str(control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def start(
    control_plane: ControlPlane, namespace: str, measured: Prometheus, tmp_path: Path
) -> Iterator[Start]:
    """Starts replicas that act."""
    begun: list[Replica] = []

    def start_one(identity: str, **options: str) -> Replica:
        extra = [text for name, value in options.items() for text in (f"--{name}", value)]
        common = ["--kubeconfig", str(control_plane.kubeconfig), "--prometheus", measured.url]
        replica = Replica(
            tmp_path,
            ["-m", "tests.e2e.acting", *common, "--namespace", namespace, "--identity", identity, *extra],
        )
        begun.append(replica)
        return replica

    yield start_one
    for replica in begun:
        replica.end()


def _policy(namespace: str, **changes: Any) -> dict[str, Any]:
    spec = {"targetRef": {"kind": "Deployment", "name": "web"}, "mode": "Enforce", "minPodAge": "0s"}
    return {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "RotationPolicy",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": spec | changes,
    }


def _survivors(control_plane: ControlPlane, namespace: str, six: dict[str, str]) -> str:
    """The letters of the six that still run."""
    pods = control_plane.api.items(f"/api/v1/namespaces/{namespace}/pods")
    alive = {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    return "".join(letter for letter, name in six.items() if name in alive)


def _ledger_entries(control_plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    ledgers = control_plane.api.items(f"/apis/equipoise.dev/v1alpha1/namespaces/{namespace}/ledgers")
    return [entry for ledger in ledgers for entry in ledger["data"]["entries"]]


@pytest.mark.parametrize(
    ("step", "survivors"), [("intent", "ABCDEF"), ("deed", "BCDEF"), ("outcome", "BCDEF")]
)
def test_a_leader_killed_at_any_step_leaves_nothing_to_be_done_twice(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], start: Start, step: str, survivors: str
) -> None:
    """SIGKILL after the intent, after the action, before the record; the successor has an empty disk."""
    control_plane.apply(_policy(namespace))
    first = start("first", at=step)
    first.wait_for(lambda: first.process.poll() is not None, "the first to be killed")
    assert first.process.returncode == -signal.SIGKILL
    assert _survivors(control_plane, namespace, six) == survivors
    second = start("second")
    second.wait_for(lambda: len(second.cycles()) >= 6, "six cycles of the successor")
    assert all(cycle["outcomes"] == [] for cycle in second.cycles())
    assert len({cycle["epoch"] for cycle in second.cycles()}) == 1
    assert _survivors(control_plane, namespace, six) == survivors
    assert len(_ledger_entries(control_plane, namespace)) == 1


def test_a_leader_stopped_between_guard_and_action_does_nothing_when_it_wakes(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], start: Start
) -> None:
    """SIGSTOP for longer than the lease; the second takes over; the first continues, and is fenced."""
    control_plane.apply(_policy(namespace))
    first = start("first", at="intent", signal="SIGSTOP")
    first.wait_for(lambda: any("step" in line for line in first.lines()), "the first to be stopped")
    second = start("second")
    second.wait_for(lambda: len(second.cycles()) >= 3, "the second to lead")
    first.process.send_signal(signal.SIGCONT)
    first.wait_for(first.cycles, "the first to finish its cycle")
    assert first.cycles()[0]["outcomes"] == ["Fenced"]
    seen = len(second.cycles())
    second.wait_for(lambda: len(second.cycles()) >= seen + 4, "more cycles of the second")
    assert [cycle["outcomes"] for cycle in first.cycles()[1:]] == []
    assert all(cycle["outcomes"] == [] for cycle in second.cycles())
    assert _survivors(control_plane, namespace, six) == "ABCDEF"


def test_a_rotation_takes_one_pod_and_rests(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], start: Start
) -> None:
    """The hottest goes; cooldown and the PodDisruptionBudget hold the others; the event says why."""
    control_plane.apply(_policy(namespace))
    replica = start("only")
    replica.wait_for(lambda: any(cycle["outcomes"] for cycle in replica.cycles()), "an eviction")
    acted = len(replica.cycles())
    replica.wait_for(lambda: len(replica.cycles()) >= acted + 5, "five cycles more")
    assert [cycle["outcomes"] for cycle in replica.cycles() if cycle["outcomes"]] == [["Accepted"]]
    assert _survivors(control_plane, namespace, six) == "BCDEF"
    events = control_plane.api.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    assert any(six["A"] in event.get("note", "") and event["reason"] == "Rotate" for event in events)


@pytest.fixture
def operator(
    control_plane: ControlPlane, namespace: str, measured: Prometheus, tmp_path: Path
) -> Iterator[tuple[Replica, str]]:
    """`equipoise operator`, as a user runs it, looking every second; and the address of its pages."""
    address = f"127.0.0.1:{free_port()}"
    config = tmp_path / "operator.yaml"
    config.write_text(
        json.dumps(
            {
                "kubernetes": {"kubeconfig": str(control_plane.kubeconfig)},
                "lease": {"namespace": namespace},
                "http": {"address": address},
                "prometheus": {"url": measured.url},
                "journal": {"path": str(tmp_path / "journal.db")},
                "intervals": {"rotation": "1s"},
                "logs": {"format": "json"},
            }
        )
    )
    program = "from equipoise.app.main import main; main()"
    replica = Replica(tmp_path, ["-c", program, "operator", "--config", str(config)])
    try:
        replica.wait_for(lambda: is_answering(f"http://{address}/readyz"), "the operator to be ready")
        yield replica, f"http://{address}"
    finally:
        replica.end()


def _status(control_plane: ControlPlane, namespace: str) -> dict[str, Any]:
    path = f"/apis/equipoise.dev/v1alpha1/namespaces/{namespace}/rotationpolicies/web"
    status = control_plane.api.get(path).get("status", {})
    assert isinstance(status, dict)
    return status


def test_the_operator_previews_and_stops_when_told(
    control_plane: ControlPlane,
    namespace: str,
    six: dict[str, str],
    operator: tuple[Replica, str],
    tmp_path: Path,
) -> None:
    """Status, journal, replay, metrics; nothing is evicted; SIGTERM ends it with 0 and frees the lease."""
    replica, _ = operator
    control_plane.apply(_policy(namespace))
    replica.wait_for(
        lambda: _status(control_plane, namespace).get("lastDecision"), "a decision in the status"
    )
    status = _status(control_plane, namespace)
    assert status["lastDecision"]["reason"] == "Rotate"
    assert status["conditions"][0]["reason"] == "PreviewOnly"
    assert _survivors(control_plane, namespace, six) == "ABCDEF"
    replica.process.send_signal(signal.SIGTERM)
    replica.wait_for(lambda: replica.process.poll() is not None, "the operator to stop", 30)
    assert replica.process.returncode == 0
    lease = control_plane.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/equipoise")
    assert not lease["spec"].get("holderIdentity")
    replayed = equipoise("journal", "replay", "--all", "--file", str(tmp_path / "journal.db"))
    assert replayed.returncode == 0, replayed.stderr


def test_a_pause_takes_effect_within_five_seconds(
    control_plane: ControlPlane,
    namespace: str,
    six: dict[str, str],
    operator: tuple[Replica, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From the command's return to the held decision in the status; and resume lets go again."""
    del six
    replica, _ = operator
    control_plane.apply(_policy(namespace))

    def reason() -> str:
        return str(_status(control_plane, namespace).get("lastDecision", {}).get("reason"))

    replica.wait_for(lambda: reason() == "Rotate", "a first decision")
    told = equipoise(
        "pause", "-n", namespace, "--kubeconfig", str(control_plane.kubeconfig), "--reason", "test"
    )
    assert told.returncode == 0, told.stderr
    begun = time.monotonic()
    replica.wait_for(lambda: reason() == "HeldByPause", "the pause", 15)
    seconds = time.monotonic() - begun
    with capsys.disabled():
        print(f"\npause took effect after {seconds:.1f} s")
    assert seconds < 5
    resumed = equipoise("resume", "-n", namespace, "--kubeconfig", str(control_plane.kubeconfig))
    assert resumed.returncode == 0, resumed.stderr
    replica.wait_for(lambda: reason() == "Rotate", "the resumption", 15)
