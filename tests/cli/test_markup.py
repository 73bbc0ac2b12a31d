"""A name or a message is printed as it is: brackets, colons and links in it are no markup."""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from rich.columns import Columns
from rich.console import Group
from rich.padding import Padding
from rich.table import Table

from equipoise.cli.main import main
from equipoise.runtime import output
from equipoise.runtime.console import Console
from equipoise.runtime.output import plain

WIDE = 400
NAMES = (
    "[red]x[/red]",
    "[/]",
    "[embedded]",
    "[link=http://h]x[/link]",
    ":smile:",
    "voice:a:b",
    "[b",
    "\\[b]",
)
SPECIAL = st.text(alphabet="[]/\\:=#@ redboldlinkONa1:smile\x1b\x07\x9b\u202e", max_size=40)
EXAMPLES = Path(__file__).parents[2] / "examples"


def _table(text: str) -> Table:
    table = Table(text, title=text, caption=text)
    table.add_row(text)
    return table


WAYS: dict[str, Callable[[Console, str], Any]] = {
    "print": lambda console, text: console.print(text, soft_wrap=True),
    "styled": lambda console, text: console.print(text, style="bold", soft_wrap=True),
    "table": lambda console, text: console.print(_table(text)),
    "padding": lambda console, text: console.print(Padding(text, (0, 2))),
    "group": lambda console, text: console.print(Group(text, text)),
    "columns": lambda console, text: console.print(Columns([text])),
    "rule": lambda console, text: console.rule(text),
}


def _shown(way: str, text: str, *, is_terminal: bool) -> str:
    screen = io.StringIO()
    console = Console(
        file=screen, width=WIDE, force_terminal=is_terminal, color_system="truecolor" if is_terminal else None
    )
    WAYS[way](console, text)
    return screen.getvalue()


@pytest.mark.parametrize("way", WAYS)
@given(text=SPECIAL)
@example(text="[red]x[/red]")
@example(text="[/]")
@example(text="[link=http://h]x[/link]")
@example(text=":smile: [embedded]")
def test_every_way_of_printing_shows_a_text_as_it_is(way: str, text: str) -> None:
    """But for control characters, which are left out; nothing fails on what would be malformed markup."""
    wanted = " ".join(plain(text).split())
    shown = " ".join(_shown(way, text, is_terminal=False).split())
    assert wanted in shown
    coloured = _shown(way, text, is_terminal=True)
    assert "\x1b]" not in coloured, "no link"
    assert _styles(coloured) <= _styles(_shown(way, "x", is_terminal=True)), "no style but our own"


def _styles(shown: str) -> set[str]:
    return set(re.findall(r"\x1b\[[0-9;]*m", shown))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", NAMES)
def test_a_bar_shows_its_title_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A title may have a path, or the name of a workload."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    for bar in (output.reading(name), output.stepping(name, 3)):
        terminal = _Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        with bar as told:
            assert told is not None
            told(1)
        assert name in terminal.getvalue()
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(output.counting(iter("ab"), name, 2)) == ["a", "b"]
    assert name in terminal.getvalue()


Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process; give all that it printed."""

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["equipoise", *words])
        monkeypatch.setenv("COLUMNS", "1000")
        monkeypatch.setenv("NO_COLOR", "1")
        with pytest.raises(SystemExit):
            main()
        said = capsys.readouterr()
        assert "unexpected" not in said.err, said.err
        return said.out + said.err

    return run


@pytest.mark.parametrize("name", NAMES)
def test_names_in_files_are_printed_as_they_are(name: str, run: Run, tmp_path: Path) -> None:
    """By every command that takes a file, whether it takes the name or refuses it."""
    file = tmp_path / "file"
    pods = [{"name": f"{name}-{turn}", "cpu": turn, "request": 1} for turn in range(5)]
    hpa = {"target": {"type": "Utilization", "value": 50}}
    file.write_text(json.dumps({"workload": name.replace("/", ""), "hpa": hpa, "pods": pods}))
    assert f"{name}-4" in run("rotation", "plan", "--from", str(file))
    assert name in _refused(run, file, {"kind": name, "apiVersion": "equipoise.dev/v1alpha1"}, "validate")
    assert name in _refused(run, file, {"pods": [], name: 1}, "rotation", "plan", "--from")
    node = yaml.safe_load((EXAMPLES / "06-qos-plan.yaml").read_text())
    for pod in node["pods"]:
        pod["name"] += name.replace("/", "")
    file.write_text(yaml.safe_dump(node))
    assert name.replace("/", "") in run("qos", "plan", "--from", str(file))
    rows = "".join(f'{at * 3600},shop,"{name}",p,{1 + at % 24}\n' for at in range(170))
    usage = tmp_path / "usage.csv"
    usage.write_text(f"timestamp,namespace,workload,pod,value\n{rows}")
    asked = ("--from", str(usage), "--request", "1")
    assert name in run("recommendation", "plan", *asked, "--no-forecast")
    assert name in run("recommendation", "simulate", *asked)
    file.write_text(json.dumps(_policy(name)))
    assert name in run("proportional", "plan", "--policy", str(file), "--input", "cores=18")
    assert name in run("config", "-o", "table", "--set", f"pools.selector={name}")


def _refused(run: Run, file: Path, document: object, *words: str) -> str:
    file.write_text(json.dumps(document))
    return run(*words, str(file))


def _policy(name: str) -> dict[str, Any]:
    function = {"input": "cores", "base": "100m", "slope": "10m"}
    resources = {"requests": [{"resource": "cpu", "function": function}]}
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "containers": [{"name": name, "resources": resources}],
    }
