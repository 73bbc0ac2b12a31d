"""A line from the demo to what it starts: when the demo is gone, however it went, that ends too.

The line is the other's standard input. Nothing is ever said on it; it ends with whoever holds it, also where
that one is killed and can do nothing any more.
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
_SWEEP = (sys.executable, "-c", "from equipoise.demo.subprocess import sweep; sweep()")


@contextmanager
def swept(folder: Path) -> Iterator[None]:
    """Have somebody turn off the Redis of a folder, and remove that, should we be killed meanwhile."""
    with subprocess.Popen(
        [*_SWEEP, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C, and a terminal that closes, are for us
    ) as sweeper:
        try:
            yield
        finally:
            sweeper.kill()


def sweep() -> None:
    """Wait for the end of the line, then leave nothing behind of a folder."""
    _wait()
    folder = Path(sys.argv[1])
    if (folder / REDIS).is_dir():
        from equipoise.adapters.redis.embedded import embedded
        from equipoise.core.errors import EquipoiseError

        with suppress(EquipoiseError), embedded(folder / REDIS) as url:
            del url  # whoever leaves last turns it off, and nobody else is there
    shutil.rmtree(folder, ignore_errors=True)


def hold_on() -> None:
    """Have this process end as by SIGTERM when the line does."""
    threading.Thread(target=_let_go, name="tether", daemon=True).start()


def _let_go() -> None:
    _wait()
    os.kill(os.getpid(), signal.SIGTERM)


def _wait() -> None:
    while os.read(sys.stdin.fileno(), 1):
        continue
