"""The Containerfile, read without an engine: it takes what is there, pinned, and runs as nobody."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.testbed.product import USER

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENT = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)
SHA256 = "--hash=sha256:"


class Instruction(NamedTuple):
    """One instruction with its words, continuation lines joined."""

    name: str
    text: str


def _instructions() -> list[Instruction]:
    lines = [
        line
        for line in (ROOT / "Containerfile").read_text().splitlines()
        if not line.startswith("#") and line
    ]
    joined = "\n".join(lines).replace("\\\n", " ")
    parts = (line.partition(" ") for line in joined.splitlines())
    return [Instruction(name, " ".join(text.split())) for name, _, text in parts]


def _stages() -> list[list[Instruction]]:
    """Give the instructions after each FROM, itself included."""
    stages: list[list[Instruction]] = []
    for one in _instructions():
        if one.name == "FROM":
            stages.append([])
        if stages:
            stages[-1].append(one)
    return stages


def _copied() -> list[str]:
    """Give what is copied from the checkout."""
    found = [one.text.split() for one in _instructions() if one.name == "COPY"]
    return [source for words in found if not words[0].startswith("--from") for source in words[:-1]]


def test_all_that_is_copied_is_in_the_checkout_and_is_given_to_the_engine() -> None:
    """The ignore file lets pass exactly that, and whole folders of it."""
    sources = _copied()
    assert [name for name in sources if not (ROOT / name).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    assert "*" in ignored
    passed = {line[1:] for line in ignored if line.startswith("!")}
    assert {name.split("/")[0] for name in sources} == passed


def test_the_wheel_gets_every_file_that_the_build_reads() -> None:
    """What pyproject.toml names is copied before the wheel is built."""
    named = {PROJECT["project"]["readme"], *PROJECT["project"]["license-files"], "pyproject.toml"}
    packages = {
        path.split("/")[0] for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    assert named | packages <= set(_copied())


@pytest.mark.parametrize("name", ["build", "run", "dashboard"])
def test_requirements_are_pinned_with_hashes_and_name_no_index(name: str) -> None:
    """Every one has at least one hash; the engine gets the file, and is told to insist on them."""
    text = _text(f"{name}.txt")
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(REQUIREMENT.findall(text)) > 3
    assert [block for block in blocks if SHA256 not in block] == []
    assert "://" not in text
    assert f"requirements/{name}.txt" in _copied()
    runs = [one.text for one in _instructions() if one.name == "RUN"]
    installs = [step.split() for run in runs for step in run.split("&&") if " -r " in step]
    assert {words[-1] for words in installs} == {"requirements/build.txt", "requirements/${REQUIREMENTS}.txt"}
    assert all("--require-hashes" in words for words in installs)


def test_what_runs_is_what_the_project_needs_and_no_tool_of_ours() -> None:
    """Each dependency is pinned; nothing that only tests or lints is in it."""
    normal = {re.sub(r"[-_.]+", "-", name).lower() for name, _ in REQUIREMENT.findall(_text("run.txt"))}
    asked = {re.split(r"[<>=\[;]", line)[0] for line in PROJECT["project"]["dependencies"]}
    assert asked <= normal
    more = {re.sub(r"[-_.]+", "-", name).lower() for name, _ in REQUIREMENT.findall(_text("dashboard.txt"))}
    assert more > normal
    assert (
        normal & {"pytest", "mypy", "ruff", "hatchling", "hypothesis", "cryptography", "matplotlib"} == set()
    )
    assert _text("build.in").split() == PROJECT["build-system"]["requires"]


def _text(name: str) -> str:
    return (ROOT / "requirements" / name).read_text()


def test_steps_that_install_say_what_from_and_never_a_shell_script_of_others() -> None:
    """Only pip and venv are run; nothing is fetched by other means."""
    runs = [one.text for one in _instructions() if one.name == "RUN"]
    programs = {shlex.split(step)[0] for run in runs for step in run.split("&&")}
    assert programs == {"python", "/opt/tools/bin/pip", "/opt/equipoise/bin/pip"}


def test_the_last_stage_runs_nothing_and_is_nobody() -> None:
    """A number that is not root's, the same as the chart's; the command is the project's own script."""
    last = _stages()[-1]
    assert "RUN" not in {one.name for one in last}
    (user,) = [one.text for one in last if one.name == "USER"]
    assert user == f"{USER}:{USER}" != "0:0"
    chart = (ROOT / "charts" / "equipoise" / "templates" / "deployment.yaml").read_text()
    assert f"runAsUser: {USER}\n" in chart
    (entry,) = [json.loads(one.text) for one in last if one.name == "ENTRYPOINT"]
    assert entry == ["equipoise"]
    assert entry[0] in PROJECT["project"]["scripts"]
    chart_command = re.findall(r"command: (\[.*\])", chart)
    assert all(yaml.safe_load(found)[0] == entry[0] for found in chart_command)


def test_bases_are_names_without_a_registry() -> None:
    """Whose registry it is, is the builder's affair; both stages have the same Python."""
    bases = {stage[0].text.split()[0] for stage in _stages()}
    assert bases == {"python:${PYTHON}-slim"}
    minimum = PROJECT["project"]["requires-python"].removeprefix(">=")
    asked = [one.text for one in _instructions() if one.name == "ARG"]
    assert asked == [f"PYTHON={minimum}", "REQUIREMENTS=run"]
