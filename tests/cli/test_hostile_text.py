"""Files and names that were written to harm whoever reads them: one sentence, and a terminal left alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from equipoise.cli import commands, main
from tests.support.cli.running import BOUND_SECONDS, clean, command, equipoise

SECONDS_MAX = 60.0
"""Written out, the first of them would take longer than anybody lives."""

TENS = list(zip("abcdefghijkl", "bcdefghijklm", strict=True))
LISTS = "\n".join(["a: &a [x]", *(f"{name}: &{name} [{','.join(['*' + last] * 10)}]" for last, name in TENS)])
MERGES = "\n".join(
    ["a: &a {x: 1}", *(f"{name}: &{name} {{<<: [{','.join(['*' + last] * 10)}]}}" for last, name in TENS)]
)
CHAIN = "\n".join(["a0: &a0 [x]", *(f"a{turn}: &a{turn} [*a{turn - 1}]" for turn in range(1, 2000))])
SELF = "ours: 1\na: &a {b: [*a]}"


@pytest.mark.parametrize(
    "words",
    [
        ["rotation", "plan", "--from"],
        ["proportional", "plan", "--policy"],
        ["qos", "plan", "--from"],
        ["validate"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LISTS, "expected at most 2000000 values once anchors are written out, got more in line 7"),
        (MERGES, "expected at most 2000000 values once anchors are written out, got more in line 7"),
        (CHAIN, "expected at most 100 levels, got more in line 100"),
        (SELF, "the alias *a contains itself in line 2"),
    ],
    ids=["lists", "merges", "a chain", "itself"],
)
def test_anchors_without_end_are_refused_in_every_command(
    tmp_path: Path, words: list[str], text: str, message: str
) -> None:
    """At once, with the file and the line."""
    file = tmp_path / "bomb.yaml"
    file.write_text(text)
    done = equipoise(*words, str(file), seconds=SECONDS_MAX)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {file}: ")
    assert done.stderr.endswith(f"{message}\n")


def test_anchors_that_end_are_written_out() -> None:
    """A number that has a name, and a pod that is like another."""
    named = "pods: [&a {name: a, cpu: &one 1.2, request: *one}, {<<: *a, name: b, cpu: 2}]"
    plain = "pods: [{name: a, cpu: 1.2, request: 1.2}, {name: b, cpu: 2, request: 1.2}]"
    plans = [
        equipoise("rotation", "plan", "--from", "-", "-o", "json", stdin=text) for text in (named, plain)
    ]
    assert plans[0].returncode == 0, plans[0].stderr
    assert plans[0].stdout == plans[1].stdout


def test_no_message_steers_the_terminal() -> None:
    """A path is part of the message; so is what a server says."""
    done = equipoise("rotation", "plan", "--from", "no\x1b[2J\x9bsuch\u202efile")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: no[2Jsuchfile: No such file or directory\n"


def test_no_cell_of_a_table_steers_the_terminal(tmp_path: Path) -> None:
    """Neither in colours nor without, and columns stay straight; our own colours are there."""
    file = tmp_path / "pods.yaml"
    file.write_text('workload: "we\\e]0;owned\\ab"\npods: [{name: a, cpu: 1.2, request: 1}]\n')
    bare = equipoise("rotation", "plan", "--from", str(file))
    colours = equipoise(
        "rotation", "plan", "--from", str(file), environment={"FORCE_COLOR": "1", "NO_COLOR": ""}
    )
    assert bare.returncode == colours.returncode == 0, bare.stderr
    assert "we]0;ownedb" in bare.stdout
    assert "we]0;ownedb" in colours.stdout
    assert not {"\x1b", "\x07"} & set(bare.stdout)
    assert "\x1b[" in colours.stdout
    assert "\x1b]" not in colours.stdout


def test_a_file_without_a_name_is_said_to_have_none() -> None:
    """The empty path is the folder one is in."""
    for words in (["rotation", "plan"], ["recommendation", "plan"]):
        done = equipoise(*words, "--from", "")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "error: expected the name of a file, got an empty one\n"


def test_a_parquet_file_that_is_missing_is_named_once() -> None:
    """As any other file."""
    done = equipoise("recommendation", "plan", "--from", "no/such.parquet")
    assert (done.returncode, done.stderr) == (2, "error: no/such.parquet: No such file or directory\n")


def test_debug_without_a_command_is_help_and_no_traceback() -> None:
    """Nothing has failed."""
    done = equipoise("--debug")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == equipoise().stdout


@pytest.mark.parametrize(
    ("debug", "advice"), [([], " (run again with --debug for the traceback)"), (["--debug"], "")]
)
def test_who_debugs_is_not_told_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debug: list[str], advice: str
) -> None:
    """The traceback is there already."""

    def fail(**_: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(commands, "app", fail)
    monkeypatch.setattr(sys, "argv", ["equipoise", *debug])
    with pytest.raises(SystemExit) as left:
        main.main()
    said = capsys.readouterr().err
    assert left.value.code == 1
    assert said.splitlines()[-1] == f"error: unexpected RuntimeError: odd{advice}"
    assert ("Traceback" in said) is bool(debug)


@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["plain", "debug"])
def test_a_full_disk_under_standard_error_keeps_the_exit_status(debug: list[str]) -> None:
    """Bad input stays 2: scripts go by it."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("rotation", "plan", "--from", "no/such.yaml", *debug),
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
            timeout=BOUND_SECONDS,
            env=clean(),
        )
    assert (done.returncode, done.stdout) == (2, b"")
