"""Record in which files of ours code runs while one function does, in the order in which they are entered.

    trace("RotationLoop.cycle", through="KubernetesActuator.evict", to=path)

Each time that the first function returns, and the second was called meanwhile, the trace is written: a line
for each call that goes from one file into another, `FILE FUNCTION`. Threads that it starts are included,
others are not.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

MARK = "/src/equipoise/"


class Trace:
    """What is recorded between the beginning and the end of one function."""

    def __init__(self, begin: str, through: str, to: Path) -> None:
        self._begin, self._through, self._to = begin, through, to
        self._steps: list[tuple[str, str]] = []
        self._thread: int | None = None
        self._others: set[int] = set()
        self._last: dict[int, str] = {}

    def take(self, frame: FrameType, event: str, argument: object) -> None:
        """Take one event of the profiler."""
        del argument
        code = frame.f_code
        if MARK not in code.co_filename or event not in {"call", "return"}:
            return
        name, here = code.co_qualname, threading.get_ident()
        if name == self._begin:
            self._turn(event, here)
        if self._thread is None or (here != self._thread and here in self._others):
            return
        if event == "call":
            file = code.co_filename.rpartition(MARK)[2]
            if self._last.get(here) != file or name == self._through:
                self._steps.append((file, name))
            self._last[here] = file
        elif frame.f_back is not None and MARK in frame.f_back.f_code.co_filename:
            self._last[here] = frame.f_back.f_code.co_filename.rpartition(MARK)[2]

    def _turn(self, event: str, here: int) -> None:
        if event == "call":
            self._thread, self._steps = here, []
            self._last = {}
            self._others = {thread.ident or 0 for thread in threading.enumerate()} - {here}
            return
        self._thread = None
        if any(name == self._through for _, name in self._steps):
            lines = "".join(f"{file} {name}\n" for file, name in self._steps)
            beside = self._to.with_suffix(".part")
            beside.write_text(lines)
            beside.rename(self._to)


def trace(begin: str, *, through: str, to: Path) -> Callable[[], None]:
    """Begin to trace this process; return what ends it."""
    taking = Trace(begin, through, to).take
    threading.setprofile(taking)
    sys.setprofile(taking)

    def end() -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    return end
