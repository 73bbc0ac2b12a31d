"""How a process that runs on is asked to stop."""

import os
import signal
import sys
import threading
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def end_on_signals() -> None:
    """End at SIGTERM and SIGINT while nothing has begun: a container's first process would ignore them."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: sys.exit(0))


def on_signals(stopping: threading.Event) -> None:
    """Have SIGTERM and SIGINT ask for a stop; a second one ends the process at once."""
    for number in SIGNALS:
        signal.signal(number, _signalled(stopping))


def _signalled(stopping: threading.Event) -> "signal._HANDLER":
    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    return on_signal
