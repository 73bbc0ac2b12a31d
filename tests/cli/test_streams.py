"""Streams that can't print every letter, and Ctrl-C before anything has begun."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.cli.running import BOUND_SECONDS, clean
from tests.support.journal.worlds import hot, journal

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-rotation-plan.yaml"
NAMES = "timestamp,namespace,workload,pod,value\n0,café,日本,p,1\n60,café,日本,p,2\n"
COMMAND = "from equipoise.cli.main import main; main()"


def _printed(*words: str, encoding: str, program: str = COMMAND) -> bytes:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        check=False,
        timeout=BOUND_SECONDS,
        env=clean({"PYTHONIOENCODING": encoding}),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_a_table_has_stand_ins_for_what_can_not_be_printed(tmp_path: Path) -> None:
    """A name from a file ends no command; what the terminal can print of it stays."""
    file = tmp_path / "usage.csv"
    file.write_text(NAMES)
    plan = ("recommendation", "plan", "--from", str(file), "--request", "1")
    assert b"\ncaf?/??  1 " in _printed(*plan, encoding="ascii")
    assert "\ncafé/??  1 ".encode("latin-1") in _printed(*plan, encoding="latin-1:strict")


def test_a_document_keeps_every_letter_as_an_escape(tmp_path: Path) -> None:
    """A script reads the same from every terminal."""
    file = tmp_path / "usage.csv"
    file.write_text(NAMES)
    plan = ("recommendation", "plan", "--from", str(file), "--request", "1", "-o")
    subjects = [
        json.loads(_printed(*plan, "json", encoding="latin-1").decode("ascii"))["decisions"][0]["subject"],
        yaml.safe_load(_printed(*plan, "yaml", encoding="ascii").decode("ascii"))["decisions"][0]["subject"],
        json.loads(_printed(*plan, "json", encoding="utf-8").decode())["decisions"][0]["subject"],
    ]
    assert subjects == ["café/日本"] * 3


def test_records_keep_every_letter_as_an_escape(tmp_path: Path) -> None:
    """A journal's lines are JSON too."""
    record, path = hot(subject="shop/wéb"), tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(record)
    lines = _printed("journal", "list", "--file", str(path), "-o", "jsonl", encoding="ascii").decode("ascii")
    assert json.loads(lines) == json.loads(record.to_json())


@pytest.mark.parametrize(
    ("letter", "instead"), [("→", b"->"), ("…", b"..."), ("█", b"#"), ("é", b"?"), ("\udcff", b"?")]
)
def test_our_own_signs_become_plain_ones(letter: str, instead: bytes) -> None:
    """An arrow is still one."""
    from equipoise.runtime.output import print_anywhere

    print_anywhere()
    assert f"a{letter}b".encode("ascii", "equipoise") == b"a" + instead + b"b"


STOPPED = """
import os, signal, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "equipoise.cli.rotation":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Stop())
"""


def _stopped_while_importing(before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"{STOPPED}\n{before}\n{COMMAND}", "rotation", "plan", "--from", str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_SECONDS,
        env=clean(),
    )


def test_ctrl_c_while_python_imports_is_130_without_a_word() -> None:
    """As it is later; no traceback of our own modules."""
    done = _stopped_while_importing("signal.signal(signal.SIGINT, signal.default_int_handler)")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_stays_ignored_where_somebody_ignores_it() -> None:
    """As nohup and shells in the background do."""
    done = _stopped_while_importing("signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing was changed." in done.stdout
