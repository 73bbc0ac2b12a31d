"""`equipoise retire`: the agents' DaemonSet goes, and the command ends when they have."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.cli.running import BOUND_SECONDS, clean, equipoise
from tests.support.kubernetes.server import Asked, Player, Stage, playing

DAEMONS = "/apis/apps/v1/namespaces/equipoise-system/daemonsets/equipoise-agent"
PODS = "/api/v1/namespaces/equipoise-system/pods"
SILENCE_SECONDS_MAX = 40.0
"""For a time-out of a second and a start on a busy machine; left to themselves, requests take a minute."""
PATIENT = (
    "from equipoise.cli import agent as retire; retire.REQUEST_SECONDS_MIN = 60.0; "
    "from equipoise.cli.main import main; main()"
)
"""The command, whose requests wait for a machine that stands still; how many there are is up to the time."""


class Ending:
    """An API server whose agents end after some looks."""

    def __init__(self) -> None:
        self.is_there = True
        self.is_allowed = True
        self.looks_left = 2
        self.removed: object = {"kind": "Status", "status": "Success"}

    def script(self, asked: Asked, stage: Stage) -> None:
        if asked.path == DAEMONS and not self.is_allowed:
            stage.refuse(403, "Forbidden", "no right to delete")
        elif asked.path == DAEMONS and self.is_there:
            self.is_there = False
            stage.answer(self.removed)
        elif asked.path == PODS:
            self.looks_left -= 1
            left = [_pod("agent-a", "DaemonSet", "equipoise-agent")] if self.looks_left >= 0 else []
            others = [
                _pod("agent-b", "DaemonSet", "other"),
                _pod("operator", "ReplicaSet", "equipoise-agent"),
            ]
            stage.answer({"metadata": {}, "items": [*left, *others]})
        else:
            stage.refuse(404, "NotFound", "not found")


def _pod(name: str, kind: str, owner: str) -> dict[str, object]:
    made_by = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u", "controller": True}
    return {"metadata": {"name": name, "ownerReferences": [made_by]}, "spec": {"nodeName": "node-1"}}


@pytest.fixture
def world() -> Ending:
    return Ending()


@pytest.fixture
def player(world: Ending, tmp_path: Path) -> Iterator[Player]:
    with playing(world.script) as found:
        (tmp_path / "kubeconfig").write_text(_kubeconfig(found))
        yield found


def _kubeconfig(player: Player) -> str:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": player.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return str(yaml.safe_dump(config))


def test_it_ends_when_the_last_agent_has(world: Ending, player: Player, tmp_path: Path) -> None:
    """One request to delete, in which Kubernetes is told to end the pods; pods of others do not count."""
    done = equipoise("retire", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "DaemonSet equipoise-system/equipoise-agent is removed.",
        "No agent is left: what they throttled is given back.",
    ]
    (deleted,) = [asked for asked in player.asked if asked.method == "DELETE"]
    assert json.loads(deleted.body)["propagationPolicy"] == "Background"
    assert [asked.path for asked in player.asked if asked.method == "GET"] == [PODS] * 3


def test_agents_that_stay_are_named_with_their_nodes(world: Ending, player: Player, tmp_path: Path) -> None:
    """Exit status 1; also when the DaemonSet itself has gone before."""
    world.is_there, world.looks_left = False, 1000
    done = subprocess.run(
        [sys.executable, "-c", PATIENT, "retire", "--timeout", "1s"],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_SECONDS,
        env=clean({"KUBECONFIG": str(tmp_path / "kubeconfig")}),
    )
    assert (done.returncode, done.stdout) == (1, "DaemonSet equipoise-system/equipoise-agent is not there.\n")
    assert done.stderr == (
        "error: namespace equipoise-system: after 1s some agents are still there, so that their nodes may be "
        "throttled or tainted: agent-a on node-1\n"
    )


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 1, "no right to delete"),
        (("--timeout", "soon"), 2, "--timeout: "),
        (("",), 2, "name '': expected"),
        (("..",), 2, "name '..': expected"),
        (("a", "-n", ""), 2, "namespace '': expected"),
    ],
)
def test_what_is_wrong_is_one_line(
    world: Ending, player: Player, tmp_path: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    """A missing right is the world's, a bad span the user's; nothing is waited for."""
    world.is_allowed = False
    done = equipoise("retire", *words, "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert all(asked.path == DAEMONS for asked in player.asked), "a name of nothing would mean all"


@pytest.mark.parametrize("silent", [DAEMONS, PODS], ids=["removal", "look"])
def test_a_silent_server_takes_no_longer_than_the_time_out(tmp_path: Path, silent: str) -> None:
    """Whatever it does not answer: a request is not waited for beyond the time that was given."""

    def script(asked: Asked, stage: Stage) -> None:
        stage.hang() if asked.path == silent else stage.answer({"kind": "Status", "status": "Success"})

    with playing(script) as player:
        (tmp_path / "kubeconfig").write_text(_kubeconfig(player))
        equipoise("--version")  # from here on what it imports is there
        began_at = time.monotonic()
        done = equipoise("retire", "--timeout", "1s", "--kubeconfig", str(tmp_path / "kubeconfig"))
        assert time.monotonic() - began_at < SILENCE_SECONDS_MAX
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("answer", [{"kind": "Status", "status": "Failure"}, {"kind": "PodList"}, [], None])
def test_a_removal_is_believed_only_when_the_server_says_so(
    world: Ending, player: Player, tmp_path: Path, answer: object
) -> None:
    """Whatever else answers with 200 is no API server."""
    world.removed = answer
    done = equipoise("retire", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "unexpected content" in done.stderr
