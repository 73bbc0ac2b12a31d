"""Help pages, `explain`, `version`, and what every command line understands."""

import json
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from equipoise import __version__
from equipoise.cli.commands import app
from equipoise.cli.help import example_line, examples, summary_of
from equipoise.core.reason import Code, explanations
from tests.support.cli.running import clean, command, equipoise
from tests.support.docs.mistakes import mistake

HELP_SECONDS_MAX = 0.3
HEAVY = {"numpy", "pydantic", "redis", "rich", "simdjson", "sqlite3", "urllib3", "yaml"}
PLAN = str(Path(__file__).parents[2] / "examples" / "01-rotation-plan.yaml")


def _pages(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _pages(inner, (*path, name))


PAGES = dict(_pages(typer.main.get_command(app)))


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page or "equipoise")
def test_a_page_fits_is_complete_and_has_an_example(page: str, columns: int) -> None:
    """No line but an example is too long, no summary is cut, and no value is called by its Python type."""
    done = equipoise(*page.split(), "--help", environment={"COLUMNS": str(columns)})
    assert (done.returncode, done.stderr) == (0, "")
    typed = {f"  {example_line(line)}" for _, line in examples()[page]}
    assert [line for line in done.stdout.splitlines() if len(line) > columns and line not in typed] == []
    assert typed <= set(done.stdout.splitlines())
    assert "..." not in done.stdout.partition("\n\n")[2]
    assert not re.search(r"<(str|int|float|bool|list)|\[0<=x|\bNone\b", done.stdout)
    words = " ".join(done.stdout.split())
    for inner in getattr(PAGES[page], "commands", {}).values():
        assert f"{inner.name} {summary_of(inner)}" in words
    for param in PAGES[page].params:
        assert param.help, f"{page}: {param.name} has no meaning"


def test_every_example_is_understood() -> None:
    """Each stands on the page of its command, and every page has one."""
    assert set(examples()) == set(PAGES)
    wrong = {}
    for page, some in examples().items():
        assert some
        for _, line in some:
            for part in re.split(r"\s[|>]\s", line.replace("source <(equipoise ", "").replace(")", "")):
                words = tuple(shlex.split(part.removeprefix("equipoise ")))
                if words[0] in {each.split()[0] for each in PAGES if each} and (found := mistake(words)):
                    wrong[page, line] = found
        assert (
            all(page.split() == line.split()[: len(page.split())] for _, line in some) or page == "completion"
        )
    assert wrong == {}


def test_balancers_come_first() -> None:
    """Of the groups of the first page; the options that few need come last on the others."""
    headings = re.findall(r"^(\S.*):$", equipoise("--help").stdout, re.MULTILINE)
    assert headings[:2] == ["Examples", "Balancers"]
    assert headings[-1] == "Options"
    headings = re.findall(r"^(\S.*):$", equipoise("rotation", "plan", "--help").stdout, re.MULTILINE)
    assert headings == ["Examples", "Arguments", "Options", "Cluster options", "Prometheus options"]


def test_help_is_quick_and_loads_little() -> None:
    """By the processor's time, which others on the machine do not change; no library is loaded in vain."""
    code = (
        "import sys, time; sys.argv = ['equipoise', *{words!r}]\n"
        "from equipoise.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('\\n', time.process_time(), *sorted({heavy!r} & set(sys.modules)))"
    )
    for words in (["--help"], ["rotation", "plan", "--help"], ["pools", "config", "set", "--help"]):
        program = code.format(words=words, heavy=HEAVY)
        seconds = []
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
                env=clean(),
            )
            taken, *loaded = done.stdout.splitlines()[-1].split()
            assert loaded == []
            seconds.append(float(taken))
        assert statistics.median(seconds) < HELP_SECONDS_MAX


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rotaton plan", "Did you mean 'rotation'?"),
        ("rotation plan --al", "No such option: --al. Did you mean --all-namespaces?"),
        ("rotation plan --namespac shop", "Did you mean --namespace?"),
        (f"rotation plan --from {PLAN} --set topk=3", "topk: unknown key. Did you mean topK?"),
        (f"rotation plan --from {PLAN} --set kafkaLag.treshold=3", "Did you mean threshold?"),
        ("recommendation plan --set ehpa.fluctuation-treshold=3", "Did you mean fluctuation-threshold?"),
        ("config --set lease.nmae=x", "Did you mean name?"),
        ("explain NoHotPod", "Did you mean NoHotPods?"),
        ("schema plam", "Did you mean plan?"),
    ],
)
def test_a_misspelt_word_names_the_one_that_was_meant(line: str, expected: str) -> None:
    """Commands, options, keys and reasons; one line, exit status 2."""
    done = equipoise(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_a_word_like_no_other_gets_no_guess() -> None:
    """A wrong guess would be worse than none."""
    for line in ("rotation plan --zzz", "explain Zzzz", "zzz"):
        assert "Did you mean" not in equipoise(*line.split()).stderr


@pytest.mark.parametrize("word", ["-o=json", "-ojson", "--output=json"])
def test_an_option_takes_its_value_behind_an_equals_sign(word: str) -> None:
    """As kubectl's do."""
    done = equipoise("rotation", "plan", "--from", PLAN, word)
    assert json.loads(done.stdout)["balancer"] == "rotation"


def test_a_pipe_gets_one_line_for_each_row() -> None:
    """With complete names, at any width; without headers, nothing else is on standard output."""
    narrow = {"COLUMNS": "20"}
    done = equipoise("rotation", "plan", "--from", PLAN, environment=narrow)
    header, row, *_, following = done.stdout.splitlines()
    assert header.split("  ")[0] == "SUBJECT"
    assert row.startswith("shop/web  Rotate  a, b, f, e  ")
    assert following.startswith("Next: `equipoise rotation apply web -n shop --dry-run`")
    bare = equipoise("rotation", "plan", "--from", PLAN, "--no-headers", environment=narrow)
    (only,) = bare.stdout.splitlines()
    assert only.split() == row.split()
    assert "Nothing was changed." in bare.stderr


def test_the_version_is_printed_for_people_and_scripts() -> None:
    """The client's, since that is what answers."""
    assert equipoise("version").stdout.startswith(f"equipoise {__version__} ")
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        assert read(equipoise("version", "-o", form).stdout)["clientVersion"]["version"] == __version__


@pytest.mark.parametrize("code", Code, ids=lambda code: code.value)
def test_every_reason_is_explained(code: Code) -> None:
    """What it means and what to do, in any case of its letters."""
    shown = equipoise("explain", code.value.lower())
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == code.value
    entries = [each for each in explanations() if each.code is code]
    assert sum(line.startswith("  Meaning: ") for line in lines) == len(entries) > 0
    (document,) = json.loads(equipoise("explain", code.value, "-o", "json").stdout)["reasons"]
    assert [part["meaning"] for part in document["explanations"]] == [each.meaning for each in entries]


def test_without_a_reason_all_are_listed() -> None:
    """One row for each part of Equipoise that uses one."""
    rows = equipoise("explain", "--no-headers").stdout.splitlines()
    assert len(rows) == len(explanations())
    assert {row.split()[0] for row in rows} == {code.value for code in Code}


def test_a_closed_pipe_is_no_failure() -> None:
    """As with `| head -1`: exit status 0, and no message."""
    both = f"{shlex.join(command('explain'))} | head -1"
    done = subprocess.run(
        ["bash", "-c", both], capture_output=True, text=True, check=True, timeout=60, env=clean()
    )
    assert (done.stdout.split()[0], done.stderr) == ("REASON", "")
