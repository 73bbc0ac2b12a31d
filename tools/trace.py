"""Record which functions of ours run while one of them does, in the order of their first calls.

    trace("RotationLoop.cycle", through="KubernetesActuator.evict", to=path)

Each time that the first function returns, and the second was called meanwhile, the trace is written: a line
`FILE FUNCTION` for each function. Threads that it starts are included, others are not.
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
        self._steps: dict[tuple[str, str], None] = {}
        self._thread: int | None = None
        self._others: set[int] = set()

    def take(self, frame: FrameType, event: str, argument: object) -> None:
        """Take one event of the profiler."""
        del argument
        code = frame.f_code
        if MARK not in code.co_filename or event not in {"call", "return"}:
            return
        name, here = code.co_qualname, threading.get_ident()
        if name == self._begin:
            self._begin_or_end(event, here)
        if self._thread is None or (here != self._thread and here in self._others):
            return
        if event == "call":
            self._steps[code.co_filename.rpartition(MARK)[2], name] = None

    def _begin_or_end(self, event: str, here: int) -> None:
        if event == "call":
            self._thread, self._steps = here, {}
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
