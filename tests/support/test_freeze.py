"""The freeze (`make freeze`): the same in every run, and whatever changes is shown."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.freeze.__main__ import differences, ratios
from tools.freeze.inside import NOW
from tools.freeze.record import FIGURES, HERE, KEPT, ROOT, SKIPPED, Tree

TEXTS = {
    "cases/rotation/case-001.txt": '$ equipoise rotation plan\n{"sentence": "No pod is hot."}\n= 0\n',
    "live/agent-metrics.yaml": "equipoise_agent_rounds: {help: Rounds., labels: [reason]}\n",
    "variables/EQUIPOISE_LEASE_NAME.txt": "  name: equipoise   # from default\n",
}


def _recording(folder: Path, **texts: str) -> Path:
    for name, text in (TEXTS | texts).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("cases/rotation/case-001.txt", "No pod is hot.", "No pod is warm."),
        ("live/agent-metrics.yaml", "equipoise_agent_rounds", "equipoise_agent_turns"),
        ("variables/EQUIPOISE_LEASE_NAME.txt", "name: equipoise", "name: balance"),
    ],
    ids=["a sentence", "a metric", "a default"],
)
def test_a_change_is_shown_as_what_it_was_and_what_it_is(
    tmp_path: Path, name: str, before: str, after: str
) -> None:
    """One file, one line out and one in; nothing else."""
    old = _recording(tmp_path / "old")
    new = _recording(tmp_path / "new", **{name: TEXTS[name].replace(before, after)})
    heading, *lines = differences(old, new)
    assert heading == f"=== {name}"
    (out,) = (line for line in lines if line.startswith("-"))
    (in_,) = (line for line in lines if line.startswith("+"))
    assert before in out
    assert after in in_


def test_what_has_gone_and_what_has_come_are_differences(tmp_path: Path) -> None:
    """A schema that is missing is told as one that changed is."""
    old = _recording(tmp_path / "old", **{"schema/plan.txt": "{}\n"})
    new = _recording(tmp_path / "new", **{"schema/decision.txt": "{}\n"})
    assert [line for line in differences(old, new) if line.startswith("=== ")] == [
        "=== schema/decision.txt",
        "=== schema/plan.txt",
    ]


def test_bytes_figures_and_what_one_machine_lacks_are_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures are told as ratios, and what is left out is named."""
    old = _recording(
        tmp_path / "old",
        **{
            f"{KEPT}/state.json": "{}",
            FIGURES: json.dumps({"agent: modules": 800}),
            "rendered/plain.yaml": "a\n",
        },
    )
    new = _recording(
        tmp_path / "new",
        **{
            f"{KEPT}/state.json": "{1}",
            FIGURES: json.dumps({"agent: modules": 400}),
            f"rendered/{SKIPPED}": "\n",
        },
    )
    assert list(differences(old, new)) == []
    assert "rendered" in capsys.readouterr().out
    assert list(ratios(old, new)) == ["figure: agent: modules: 800 -> 400 (0.50x)"]


def test_a_case_says_the_same_whenever_and_wherever_it_runs(tmp_path: Path) -> None:
    """Files, standard input and variables reach the command; its folder and the clock do not show."""
    cases: list[dict[str, Any]] = [
        {
            "name": "plan",
            "steps": [
                [
                    "rotation",
                    "plan",
                    "--from",
                    "{examples}/01-rotation-plan.yaml",
                    "--journal",
                    "j.db",
                    "-o",
                    "json",
                ],
                ["journal", "list", "--file", "j.db", "-o", "json"],
            ],
        },
        {
            "name": "bad",
            "files": {"bad.yaml": "pods: 3\n"},
            "steps": [["rotation", "plan", "--from", "bad.yaml"]],
        },
    ]
    found = []
    for name in ("one", "another"):
        work = tmp_path / name
        work.mkdir()
        found.append(Tree(ROOT, work).run(cases))
    assert found[0] == found[1]
    planned, listed = found[0]["plan"]
    assert json.loads(planned["out"])["decisions"][0]["reason"] == "Rotate"
    assert json.loads(listed["out"])["records"][0]["at"] == NOW
    (refused,) = found[0]["bad"]
    assert (refused["status"], refused["out"]) == (2, "")
    assert refused["err"].startswith("error: ")


def test_every_case_names_inputs_that_are_there() -> None:
    """And no input is left that no case takes."""
    document = yaml.safe_load((HERE / "cases.yaml").read_text())
    taken = {case["stdin"] for case in document["cases"] if "stdin" in case}
    taken |= {name for case in document["cases"] for name in case.get("files", {}).values()}
    assert taken == set(document["inputs"])
