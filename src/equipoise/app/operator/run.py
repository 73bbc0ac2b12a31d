"""Stands a shell up until a signal says stop."""

import os
import sys
import threading

from equipoise.app.operator.layers import Effective
from equipoise.app.operator.logs import make_log
from equipoise.app.operator.shell import Shell
from equipoise.app.signals import end_on_signals, on_signals


def run(found: Effective) -> None:
    """Run the operator; a failure at the start is raised, and after that only a signal ends it."""
    from equipoise.app.operator.wiring import make_shell

    log = make_log(found.settings.logs)
    for warning in found.warnings:
        log.warning(warning)
    end_on_signals()
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
