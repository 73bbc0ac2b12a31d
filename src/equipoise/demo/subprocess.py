"""Ends child processes with the demo: a child exits when its standard input reaches end of file.

A demo that is killed can stop nothing any more. But its end of each child's standard input is closed by the
kernel, whichever way it ended; nothing is ever written there.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

REDIS = "redis"
"""The folder of the embedded server, in that of the demo."""
_CLEAN_UP = (sys.executable, "-c", "from equipoise.demo.subprocess import clean_up; clean_up()")


@contextmanager
def cleanup_on_exit(folder: Path) -> Iterator[None]:
    """Start a child that stops the Redis of a folder and removes the folder if this process is killed."""
    with subprocess.Popen(
        [*_CLEAN_UP, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C and a closing terminal concern only the parent
    ) as cleaner:
        try:
            yield
        finally:
            cleaner.kill()


def clean_up() -> None:
    """Wait for the end of standard input, then remove a folder and stop its Redis."""
    _wait_for_eof()
    folder = Path(sys.argv[1])
    if (folder / REDIS).is_dir():
        from equipoise.adapters.redis.connect import embedded
        from equipoise.core.errors import EquipoiseError

        with suppress(EquipoiseError), embedded(folder / REDIS) as url:
            del url  # the last user stops the server, and there is no other
    shutil.rmtree(folder, ignore_errors=True)


def end_at_eof() -> None:
    """End this process with SIGTERM when its standard input reaches end of file."""
    threading.Thread(target=_terminate_at_eof, name="tether", daemon=True).start()


def _terminate_at_eof() -> None:
    _wait_for_eof()
    os.kill(os.getpid(), signal.SIGTERM)


def _wait_for_eof() -> None:
    while os.read(sys.stdin.fileno(), 1):
        continue
