"""`equipoise rotation simulate`: a study for people and for scripts."""

import json
import re

import pytest
import typer
from typer.testing import CliRunner, Result

from equipoise.cli.rotation import simulate
from equipoise.core.errors import BadInput
from tests.support.cli.running import terminal

APP = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
APP.command()(simulate)


def run(*arguments: str, columns: int = 80) -> Result:
    return CliRunner().invoke(APP, arguments, env=terminal(columns))


@pytest.mark.parametrize("cause", ["key-skew", "stale-counts"])
@pytest.mark.parametrize("columns", [80, 120])
def test_the_tables_fit_and_one_line_says_what_fewer_pods_would_give(cause: str, columns: int) -> None:
    """Nothing is cut off; the cause has its own table, its own sentence."""
    shown = run("--cause", cause, "--seeds", "2", columns=columns)
    assert shown.exit_code == 0
    assert "…" not in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= columns
    assert re.search(r"^closed loop +2 ", shown.stdout, re.MULTILINE)
    assert re.search(r"^Fewer pods: the hottest alone, .*; all .* at once, ", shown.stdout, re.MULTILINE)
    assert ("Going on: " in shown.stdout) == (cause == "key-skew")
    assert shown.stderr == ""


def test_the_document_has_every_cause_and_strategy_with_numbers() -> None:
    """One object; the same command gives the same again."""
    shown = run("--seeds", "1", "-o", "json")
    document = json.loads(shown.stdout)
    names = [cause["cause"] for cause in document["causes"]]
    assert names == ["key skew", "stale counts", "connections", "noisy node"]
    for cause in document["causes"]:
        strategies = [strategy["name"] for strategy in cause["strategies"]]
        assert strategies == ["closed loop", "seed", "hot only", "hottest", "left alone"]
        assert all(strategy["realised_percent_median"] is not None for strategy in cause["strategies"])
        assert ("futility" in cause) == (cause["cause"] == "key skew")
    assert document["pods"] == 6
    assert run("--seeds", "1", "-o", "json").stdout == shown.stdout


def test_worlds_without_a_hot_pod_are_told_beside_the_answer() -> None:
    """The answer stays one document."""
    arguments = ("--cause", "noisy-node", "--seeds", "1", "--set", "toleranceMultiplier=9", "-o", "json")
    shown = run(*arguments)
    assert json.loads(shown.stdout)["causes"][0]["worlds"] == 0
    assert "noisy node: a pod was hot in 0 of 30 worlds only" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--set", "top=1"], "--set: top: unknown key"), (["--set", "topK"], "--set topK: expected KEY=VALUE")],
)
def test_a_bad_setting_is_refused_by_its_path(arguments: list[str], message: str) -> None:
    """Before anything is simulated."""
    with pytest.raises(BadInput, match=re.escape(message)):
        CliRunner().invoke(APP, arguments, catch_exceptions=False)
