"""`kubectl equipoise …`: the real kubectl finds the plugin, passes words through, and completes them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from equipoise import __version__
from tests.e2e.conftest import Offered
from tests.testbed import ControlPlane, binary
from tests.testbed.scenes import namespaced

SCRIPTS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def kubectl(offered: Offered) -> Path:
    """The real command."""
    with offered():
        return Path(binary("kubectl"))


def _run(kubectl: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(SCRIPTS), os.environ["PATH"]])
    return subprocess.run(
        [str(kubectl), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PATH": path, "COLUMNS": "100"} | environment,
    )


def test_kubectl_finds_and_completes_the_plugin(kubectl: Path) -> None:
    """By its name on the PATH; help and mistakes name the command as it was called."""
    assert str(SCRIPTS / "kubectl-equipoise") in _run(kubectl, "plugin", "list").stdout
    assert _run(kubectl, "equipoise", "--version").stdout == f"equipoise {__version__}\n"
    assert (
        "Usage: kubectl equipoise rotation plan"
        in _run(kubectl, "equipoise", "rotation", "plan", "--help").stdout
    )
    wrong = _run(kubectl, "equipoise", "rotate")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: No such command 'rotate'")
    offered = _run(kubectl, "__complete", "equipoise", "ro").stdout
    assert offered.splitlines()[0].split("\t")[0] == "rotation"
    deeper = _run(kubectl, "__complete", "equipoise", "rotation", "plan", "--name").stdout
    assert deeper.startswith("--namespace\t")


def test_the_plugin_asks_the_cluster_of_kubectls_own_configuration(
    kubectl: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """`KUBECONFIG` as kubectl has it; what to run is said as a kubectl user runs it."""
    control_plane.apply(namespaced(namespace))
    config = str(control_plane.kubeconfig)
    words = ("__complete", "equipoise", "rotation", "plan", "-n", namespace[:-1])
    assert namespace in _run(kubectl, *words, KUBECONFIG=config).stdout.splitlines()
    done = _run(kubectl, "equipoise", "pause", "-n", namespace, "--reason", "a test", KUBECONFIG=config)
    assert done.returncode == 0, done.stderr
    noted = control_plane.api.get(f"/api/v1/namespaces/{namespace}")["metadata"]["annotations"]
    assert any("pause" in key for key in noted)
    done = _run(kubectl, "equipoise", "resume", "-n", namespace, KUBECONFIG=config)
    assert done.returncode == 0, done.stderr
