"""The command line as a plugin of kubectl, and which balancers an operator runs."""

import subprocess
import sys

import pytest

from equipoise.core.errors import BadInput
from tests.support.cli.running import clean, equipoise

PLUGIN = "from equipoise.cli.main import {0}; {0}()"


def _kubectl(function: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", PLUGIN.format(function), *words]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=60, env=clean())


def test_help_and_hints_name_the_command_as_it_was_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Usage, and whatever a message tells to run."""
    assert _kubectl("kubectl", "crds", "--help").stdout.startswith("Usage: kubectl equipoise crds ")
    from equipoise.cli import commands
    from equipoise.cli import main as line

    def refuse(**_: object) -> None:
        raise BadInput("not installed; `equipoise crds apply` installs it")

    monkeypatch.setattr(commands, "app", refuse)
    for called in ("kubectl equipoise", "equipoise"):
        with pytest.raises(SystemExit, match="2"):
            line.main(called)
        assert capsys.readouterr().err == f"error: not installed; `{called} crds apply` installs it\n"


@pytest.mark.parametrize(
    ("words", "first", "directive"),
    [
        (["ro"], "rotation\tRotate hot and cold pods", ":4"),
        (["rotation", ""], "plan\t", ":4"),
        (["rotation", "plan", "--all"], "--all-namespaces\t", ":4"),
        (["rotation", "plan", "w"], ":4", ":4"),
        (["validate", "w"], ":0", ":0"),
        (["explain", "NoHot"], "NoHotPods", ":4"),
        (["rotation", "plan", "-o", "j"], "json", ":4"),
        (["rotation", "plan", "--output=j"], "--output=json", ":4"),
        (["rotation", "plan", "--from", "x"], ":0", ":0"),
        ([], "forecast\t", ":4"),
        (["nonsense", "--vers"], "--version\t", ":4"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_may_come_next_is_offered_as_kubectl_asks_for_it(
    words: list[str], first: str, directive: str
) -> None:
    """Commands, or options; names of files only behind a command that takes words."""
    done = _kubectl("complete", *words)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, lines[-1]) == (0, "", directive)
    assert any(line.startswith(first) for line in lines)


@pytest.mark.parametrize(
    ("flags", "balancers"),
    [
        (["--balancers", "rotation,pools"], "[rotation, pools]"),
        (["--balancers", "proportional"], "[proportional]"),
        (["--balancer", "rotation", "--balancer", "proportional"], "[rotation, proportional]"),
        (
            ["--balancers", "rotation, recommendation", "--balancers=pools"],
            "[rotation, recommendation, pools]",
        ),
    ],
    ids=str,
)
def test_the_balancers_of_an_operator_are_a_list(flags: list[str], balancers: str) -> None:
    """Separated by commas, or in several flags, by either name."""
    done = equipoise("config", *flags)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first.split("#")[0].strip() == f"balancers: {balancers}"
    assert first.endswith("# from --balancers")


@pytest.mark.parametrize("names", ["rotation,magic", "magic", "", " , ", "qos"])
def test_a_balancer_that_is_none_is_refused_with_those_that_are(names: str) -> None:
    """Nothing is started."""
    done = equipoise("operator", "--balancers", names)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --balancers: ")
    for right in ("rotation", "recommendation", "proportional", "pools"):
        assert right in done.stderr
