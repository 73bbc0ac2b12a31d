"""Signals, as Kubernetes and people send them, to another process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.operator.worlds import WAIT_SECONDS, eventually

ROOT = Path(__file__).parents[2]


@contextmanager
def _operator(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.operator.programs", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def _line(process: subprocess.Popen[str], wanted: str = "") -> str:
    """Read what it prints until this line."""
    assert process.stdout is not None
    for line in process.stdout:
        if not wanted or line.strip() == wanted:
            return line.strip()
    raise AssertionError(f"{wanted!r} was never printed")


def _is_running(process_id: int) -> bool:
    """Whether it runs; a dead process that nobody has waited for yet does not."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def _children(process_id: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            text = path.read_text()
            if int(text.rpartition(")")[2].split()[1]) == process_id:
                found.append(int(path.parent.name))
    return found


def test_sigterm_ends_it_with_exit_status_0() -> None:
    """The cycle under way is finished, then the lease is given up, then the journal is closed."""
    with _operator("slow") as process:
        _line(process, "cycle")
        process.terminate()
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert out.split("\n") == ["cycle done", "stop lease", "stop journal", "ended", ""]
    assert process.returncode == 0
    assert "Traceback" not in err


def test_a_cycle_that_hangs_does_not_hold_the_process() -> None:
    """The stop is bounded; the lease is left to expire."""
    with _operator("stuck", "1") as process:
        _line(process, "cycle")
        began = time.monotonic()
        process.terminate()
        out, err = process.communicate(timeout=WAIT_SECONDS)
        took_seconds = time.monotonic() - began
    assert process.returncode == 0
    assert took_seconds < WAIT_SECONDS
    assert "stop lease" not in out
    assert "did not end in time" in err


def test_a_second_signal_ends_it_at_once() -> None:
    """For whoever can't wait."""
    with _operator("stuck", "3600") as process:
        _line(process, "cycle")
        until = time.monotonic() + WAIT_SECONDS
        # Two signals at once may arrive as one, so it is told again until it has heard a second.
        while process.poll() is None and time.monotonic() < until:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM


def test_ctrl_c_gives_up_a_batch_under_way() -> None:
    """The batch is pure; all else ends as with SIGTERM."""
    with _operator("batch") as process:
        worker = int(_line(process))
        _line(process, "start lease")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0
    assert "stop lease" in out
    eventually(lambda: not _is_running(worker))


def test_killing_it_leaves_no_process_behind() -> None:
    """SIGKILL can't be caught; the worker notices by itself, amid a batch too."""
    with _operator("batch") as process:
        worker = int(_line(process))
        _line(process, "start lease")
        children = _children(process.pid)
        assert worker in children
        os.kill(process.pid, signal.SIGKILL)
        process.wait(WAIT_SECONDS)
        eventually(lambda: not any(map(_is_running, children)))
