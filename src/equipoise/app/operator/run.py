"""Stands a shell up until a signal says stop."""

import os
import signal
import sys
import threading
from types import FrameType

from equipoise.app.operator.layers import Effective
from equipoise.app.operator.logs import make_log
from equipoise.app.operator.shell import Shell

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(found: Effective) -> None:
    """Run the operator; a failure at the start is raised, and after that only a signal ends it."""
    from equipoise.app.operator.wiring import make_shell

    log = make_log(found.settings.logs)
    for warning in found.warnings:
        log.warning(warning)
    # A container's first process ignores signals that it has not asked for, and nothing has begun yet.
    for number in SIGNALS:
        signal.signal(number, lambda *_: sys.exit(0))
    stand(make_shell(found.settings, log, threading.Event()))


def stand(shell: Shell) -> None:
    """Start, wait for SIGTERM or SIGINT, stop. A second signal ends the process at once."""
    on_signals(shell.stopping)
    shell.start()
    shell.watch()
    if not shell.stop():
        # A thread that hangs must not hold the process: interpreters wait for pools of threads.
        sys.stderr.flush()
        os._exit(0)


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
