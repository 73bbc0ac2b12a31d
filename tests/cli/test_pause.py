"""`equipoise pause` and `equipoise resume`, as people use them in a hurry."""

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from tests.support.cli.running import equipoise
from tests.support.contracts.small_api import SmallApi
from tests.support.kubernetes.server import playing

Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def api() -> SmallApi:
    """A cluster with two namespaces."""
    api = SmallApi()
    for name in ("shop", "equipoise-system"):
        api.put(f"/api/v1/namespaces/{name}", {"metadata": {"name": name, "annotations": {}}})
    return api


@pytest.fixture
def run(api: SmallApi, tmp_path: Path) -> Iterator[Run]:
    """Runs the command against it; a namespace in the environment must not make a stop smaller."""
    with playing(api.script) as player:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": player.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
            "current-context": "x",
        }
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        environment = {"USER": "alice", "LOGNAME": "alice", "KUBE_NAMESPACE": "shop"}
        yield lambda *words: equipoise(*words, "--kubeconfig", str(file), environment=environment)


def _notes(api: SmallApi, name: str) -> dict[str, str]:
    return dict(api.objects[f"/api/v1/namespaces/{name}"]["metadata"]["annotations"])


def test_pause_without_a_namespace_stops_everything(api: SmallApi, run: Run) -> None:
    """One sentence, with the way back."""
    done = run("pause", "--reason", "an incident")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout == "Every action everywhere is paused (alice: an incident); `equipoise resume` ends it.\n"
    )
    assert _notes(api, "equipoise-system") == {"equipoise.dev/paused-everywhere": "alice: an incident"}
    assert _notes(api, "shop") == {}


def test_resume_says_what_it_ended_and_what_still_holds(api: SmallApi, run: Run) -> None:
    """A namespace under a larger pause is not free yet."""
    run("pause")
    run("pause", "-n", "shop")
    done = run("resume", "-n", "shop")
    assert done.stdout == (
        "Acting in namespace shop is resumed (it was paused by alice), "
        "but everything is still paused (alice).\n"
    )
    assert run("resume").stdout == "Acting everywhere is resumed (it was paused by alice).\n"
    assert run("resume").stdout == "Acting everywhere was not paused.\n"
    assert _notes(api, "shop") == _notes(api, "equipoise-system") == {}


def test_a_missing_namespace_is_one_line_and_exit_status_1(run: Run) -> None:
    """The world failed, not the words."""
    done = run("pause", "-n", "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: namespace nowhere: not found\n"
    done = run("pause", "--operator-namespace", "elsewhere")
    assert done.returncode == 1
    assert done.stderr.startswith("error: namespace elsewhere: not found; --operator-namespace names")
