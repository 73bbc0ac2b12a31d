"""A long read shows how far it is on a terminal, and nowhere else."""

import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from equipoise.adapters.sample_files import read_samples
from equipoise.cli.main import main
from equipoise.runtime.output import counting, reading


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bytes_are_counted_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """From all threads that read; standard output has nothing of it."""
    terminal, out = _Terminal(), io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", out)
    with reading("a week of usage") as on_bytes:
        assert on_bytes is not None
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(on_bytes, [25_000] * 1000))
    assert "reading a week of usage" in terminal.getvalue()
    assert "25.0" in terminal.getvalue()
    assert out.getvalue() == ""


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a closed standard error."""
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with reading("a week of usage") as on_bytes:
            assert on_bytes is None
        assert stream is None or stream.getvalue() == ""


def test_steps_are_counted_on_a_terminal_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them pass through, in order."""
    monkeypatch.setenv("TERM", "xterm")
    for stream in (_Terminal(), io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        assert list(counting(iter("abc"), "applying", 3)) == ["a", "b", "c"]
        shown = "" if stream is None else stream.getvalue()
        assert ("applying" in shown) == isinstance(stream, _Terminal)


def test_only_a_large_file_or_a_pipe_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A bar that comes and goes at once is noise; what can't be read is said by whoever reads it."""
    monkeypatch.setenv("TERM", "xterm")
    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    small.write_bytes(b"x" * 99)
    large.write_bytes(b"x" * 100)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    absent = [(tmp_path / "absent", False), (tmp_path / ("n" * 300), False)]
    for path, is_shown in ((small, False), (large, True), (pipe, True), ("-", True), *absent):
        monkeypatch.setattr(sys, "stderr", _Terminal())
        with reading(str(path), bytes_min=100) as on_bytes:
            assert (on_bytes is not None) is is_shown


def test_a_path_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets in it are no orders to the terminal."""
    terminal = _Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with reading("run[/b][red].csv") as on_bytes:
        assert on_bytes is not None
    assert "run[/b][red].csv" in terminal.getvalue()


def test_the_lines_of_a_csv_are_counted(tmp_path: Path) -> None:
    """All but its header, block by block."""
    file, came = tmp_path / "usage.csv", list[int]()
    rows = "".join(f"{60 * n},1\n" for n in range(100))
    file.write_text(f"timestamp,value\n{rows}")
    read_samples(str(file), came.append)
    assert sum(came) == len(rows)


def test_deciding_for_many_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The decisions are the same as without a terminal."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("equipoise.recommendation.decide.BATCH", 2)
    rows = [f"{3600 * hour},w{number},p,{number + hour % 24}" for number in range(5) for hour in range(48)]
    text = "\n".join(["timestamp,workload,pod,value", *rows]).encode()
    printed = []
    for terminal in (_Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "argv", ["equipoise", "recommendation", "plan", "--from", "-", "-o", "json"])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        monkeypatch.setattr(sys, "stderr", terminal)
        with pytest.raises(SystemExit, match="0"):
            main()
        printed.append(capsys.readouterr().out)
        assert ("deciding" in terminal.getvalue()) is isinstance(terminal, _Terminal)
    assert printed[0] == printed[1]
    assert printed[0].count('"subject"') == 5
