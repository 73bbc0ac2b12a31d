"""The doors: help, version, demo, wrong words."""

import os
import re
import subprocess

import pytest

from equipoise import __version__
from tests.support.cli.running import BOUND_SECONDS, clean, command, equipoise


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["rotation", "doctor", "demo", "--debug"]),
        ([], ["rotation", "doctor", "demo"]),
        (["rotation", "--help"], ["plan", "apply"]),
        (
            ["rotation", "apply", "--help"],
            [
                "Rotate hot pods in waves",
                "--dry-run",
                "--interval",
                "--timeout",
                "--operator-namespace",
                "--journal",
            ],
        ),
        (["rotation", "plan", "--help"], ["--from", "--all-namespaces", "--output", "--prometheus-url"]),
        (["--version"], [__version__]),
    ],
    ids=" ".join,
)
def test_help_and_version_answer_with_exit_status_0(arguments: list[str], words: list[str]) -> None:
    """A new user's first words."""
    done = equipoise(*arguments)
    assert done.returncode == 0
    assert done.stderr == ""
    for word in words:
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["rotation", "plna"], "Did you mean 'plan'"),
        (["rotation", "plan", "--nonsense"], "No such option: --nonsense"),
        (["rotation", "plan", "-o", "xml", "--from", "-"], "'xml'"),
        (["rotation", "plan", "--from"], "--from"),
    ],
    ids=" ".join,
)
def test_wrong_words_get_one_error_line_and_exit_status_2(arguments: list[str], message: str) -> None:
    """Never a box, never a traceback."""
    done = equipoise(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert message in done.stderr


def test_debug_shows_the_traceback() -> None:
    """For whoever has to find out."""
    done = equipoise("rotation", "plan", "--from", "no/such.yaml", "--debug")
    assert "Traceback" in done.stderr
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: no/such.yaml")


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "amid a command"])
def test_a_reader_that_goes_is_no_failure(unbuffered: str) -> None:
    """As with `| head`: exit status 0, and not a word."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command("schema", "plan"),
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
            timeout=BOUND_SECONDS,
            env=clean({"PYTHONUNBUFFERED": unbuffered}),
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
