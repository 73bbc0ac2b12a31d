"""A process that has imported the command, and forks for each call: `python -m tests.support.cli.warm FD`.

Starting Python and importing takes longer than most calls. What is forked is a process of its own all the
same, with the words, the environment, the folder and the streams that it is given, and it ends as any other.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import time
from typing import Any

import equipoise

LEFT_OUT = ("equipoise.dashboard", "equipoise.demo")
"""These need an extra, or are large and run rarely."""


def import_all() -> None:
    """Import what a command may import."""
    for found in pkgutil.walk_packages(equipoise.__path__, "equipoise."):
        if not found.name.startswith(LEFT_OUT):
            importlib.import_module(found.name)
    gc.freeze()  # or each child would touch, and so copy, all of it


def main() -> None:
    """Answer calls until nobody asks any more; a child goes on as the command."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    import_all()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        words, streams, _, _ = socket.recv_fds(asked, 1 << 20, 3)
        if not words:
            return
        child = os.fork()
        if child == 0:
            asked.close()
            _become(json.loads(words), streams)
            return
        for stream in streams:
            os.close(stream)
        asked.sendall(b"%d\n" % child)
        _, status = os.waitpid(child, 0)
        asked.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _become(call: dict[str, Any], streams: list[int]) -> None:
    """Be the command: whatever it raises ends this process as it would end any other."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(call["environment"])
    time.tzset()
    os.chdir(call["folder"])
    if "coverage" in sys.modules:
        from tools.coverage_map import switch_context

        switch_context(os.environ.get("PYTEST_CURRENT_TEST", ""))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.argv = ["-c", *call["words"]]
    from equipoise.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
