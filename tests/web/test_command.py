"""`equipoise dashboard` as it is called, and what it says when it can't."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli.running import equipoise

WITHOUT = """
import sys
sys.modules["nicegui"] = None
from importlib import util
found = util.find_spec
util.find_spec = lambda name, *rest: None if name == "nicegui" else found(name, *rest)
sys.argv = ["equipoise", "dashboard"]
from equipoise.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0: expected --token-file"),
        (["--host", "example.org"], "--host example.org: expected --token-file"),
        (
            ["--host", "0.0.0.0", "--token-file", "/nowhere/tokens"],
            "--token-file /nowhere/tokens: No such file",
        ),
        (["--port", "70000"], "65535"),
        (["--port", "many"], "--port"),
    ],
)
def test_wrong_words_are_one_line(arguments: list[str], said: str) -> None:
    """And exit status 2, before anything listens."""
    done = equipoise("dashboard", *arguments, "--no-open")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("port", "hint"), [("0", ""), ("8088", " (--port 0 takes any free one)")], ids=["any", "one"]
)
def test_another_port_is_advised_only_where_one_was_named(port: str, hint: str, tmp_path: Path) -> None:
    """An address that is not ours, which no port mends."""
    (tmp_path / "tokens").write_text("a-token-of-some-length\n")
    guarded = ["--host", "192.0.2.1", "--token-file", str(tmp_path / "tokens"), "--no-open"]
    done = equipoise("dashboard", *guarded, "--port", port)
    assert done.returncode == 1
    said = f"error: --host 192.0.2.1 --port {port}: Cannot assign requested address{hint}\n"
    warning, last = done.stderr.splitlines()
    assert warning.startswith(
        "warning: journal /nonexistent/.local/state/equipoise/journal.db: it does not exist"
    )
    assert "`equipoise rotation plan -A --journal " in warning
    assert last == said.rstrip()


def test_a_missing_extra_is_named() -> None:
    """With the words that install it."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1] == (
        "error: dashboard: expected the extra dashboard to be installed: pip install 'equipoise[dashboard]'"
    )


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    """A token that can be guessed is none."""
    (tmp_path / "tokens").write_text("short\n")
    done = equipoise("dashboard", "--no-open", "--token-file", str(tmp_path / "tokens"))
    assert done.returncode == 2
    assert "at least 16 characters" in done.stderr


def test_the_frame_loads_no_arrays_and_help_loads_no_frame() -> None:
    """What is heavy waits until it is needed."""
    words = "import sys, equipoise.cli.commands; print({'nicegui', 'fastapi', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"
    words = (
        "import sys, equipoise.dashboard.server, equipoise.dashboard.server; print('numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"
