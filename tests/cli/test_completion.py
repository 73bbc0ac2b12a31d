"""What a shell is offered: names from the cluster, in bounded time, and never a message."""

import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from equipoise.cli.completion import CLUSTER_SECONDS_MAX, SCRIPTS
from tests.support.cli.running import clean, command, equipoise
from tests.support.kubernetes.server import Asked, Stage, playing

CONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts:
- {{name: here, context: {{cluster: c, user: u, namespace: shop}}}}
- {{name: there, context: {{cluster: c, user: u}}}}
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{}}}}]
"""
OBJECTS = {
    "/api/v1/namespaces": ["kube-system", "shop", "shop-test"],
    "/api/v1/nodes": ["worker-1"],
    "/apis/apps/v1/namespaces/shop/deployments": ["api", "web"],
    "/apis/apps/v1/namespaces/shop/statefulsets": ["web-db"],
    "/apis/apps/v1/namespaces/batch/deployments": ["wagon"],
    "/apis/apps/v1/deployments": ["web", "world"],
}


def _serve(asked: Asked, stage: Stage) -> None:
    named = OBJECTS.get(asked.path)
    if named is None:
        stage.refuse(403, "Forbidden")
    else:
        stage.answer({"metadata": {}, "items": [{"metadata": {"name": name}} for name in named]})


def _offered(config: Path, *words: str) -> list[str]:
    done = equipoise("__complete", *words, environment={"KUBECONFIG": str(config)})
    assert (done.returncode, done.stderr) == (0, "")
    *lines, directive = done.stdout.splitlines()
    assert directive == ":4"
    return [line.partition("\t")[0] for line in lines]


def _expect(config: Path, *words: str, offered: list[str]) -> None:
    """A machine that stalls for the bound offers nothing, and whoever presses Tab presses it again."""
    assert offered in (_offered(config, *words) for _ in range(8))


def test_names_come_from_the_cluster(tmp_path: Path) -> None:
    """Of the namespace and the context on the line; a kind that may not be read is left out."""
    config = tmp_path / "config"
    with playing(_serve) as player:
        config.write_text(CONFIG.format(url=player.url))
        _expect(config, "rotation", "plan", "-n", "s", offered=["shop", "shop-test"])
        _expect(config, "rotation", "plan", "--namespace=k", offered=["--namespace=kube-system"])
        _expect(config, "rotation", "plan", "w", offered=["web", "web-db"])
        _expect(config, "rotation", "plan", "deployment/", offered=["deployment/api", "deployment/web"])
        _expect(config, "rotation", "plan", "-n", "batch", "w", offered=["wagon"])
        _expect(config, "rotation", "plan", "-A", "w", offered=["web", "world"])
        _expect(config, "qos", "plan", "--node", "", offered=["worker-1"])
        _expect(config, "rotation", "plan", "--context", "", offered=["here", "there"])


def test_without_a_cluster_there_are_no_names_and_no_message(tmp_path: Path) -> None:
    """A kubeconfig that is missing or broken, and a server that is not there."""
    config = tmp_path / "config"
    assert _offered(config, "rotation", "plan", "-n", "") == []
    config.write_text("{")
    assert _offered(config, "rotation", "plan", "-n", "") == []
    config.write_text(CONFIG.format(url="http://127.0.0.1:9"))
    assert _offered(config, "rotation", "plan", "-n", "") == []


def test_a_cluster_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """The shell goes on after the bound."""
    config = tmp_path / "config"

    def hang(asked: Asked, stage: Stage) -> None:
        stage.connection.recv(1)  # until the other side closes

    with playing(hang) as player:
        config.write_text(CONFIG.format(url=player.url))
        began = time.monotonic()
        assert _offered(config, "rotation", "plan", "-n", "") == []
        assert CLUSTER_SECONDS_MAX * 0.9 < time.monotonic() - began < CLUSTER_SECONDS_MAX + 10


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_scripts_are_read_by_their_shells(shell: str, tmp_path: Path) -> None:
    """As far as the shell is installed; each names the word that the program understands."""
    script = equipoise("completion", shell).stdout
    assert script == SCRIPTS[shell]
    assert "__complete" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(script)
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["equipoise", "rota"], ["rotation"]),
        (["equipoise", "rotation", "plan", "--all"], ["--all-namespaces"]),
        (["equipoise", "rotation", "plan", "-o", "j"], ["json"]),
        (["equipoise", "rotation", "plan", "--output", "=", "y"], ["yaml"]),
        (["equipoise", "rotation", "plan", "--output", "="], ["table", "json", "yaml"]),
        (["equipoise", "explain", "NoHot"], ["NoHotPods"]),
        (["equipoise", "schema", "recommendation-s"], ["recommendation-simulation"]),
    ],
    ids=" ".join,
)
def test_bash_offers_what_may_come_next(words: list[str], offered: list[str], tmp_path: Path) -> None:
    """In bash itself, with the words as readline splits them."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    program = tmp_path / "equipoise"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    program.chmod(0o755)
    typed = shlex.join([str(program), *words[1:]])
    lines = [
        SCRIPTS["bash"],
        f"COMP_WORDS=({typed})",
        f"COMP_CWORD={len(words) - 1}",
        "_equipoise",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True, timeout=60, env=clean()
    )
    assert done.stdout.split() == offered
