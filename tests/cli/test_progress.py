"""A long read shows how far it is on a terminal, and nowhere else."""

import io
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from equipoise.app.progress import counting, reading


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
