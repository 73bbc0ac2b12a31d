"""How far a long read is, on a terminal; a file or a pipe gets nothing of it."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


LARGE_BYTES = 32 * 1024 * 1024
"""A file of less is read before anybody would look at a bar."""


@contextmanager
def reading(what: str, bytes_min: int = 0) -> Iterator[Callable[[int], None] | None]:
    """Show what is read and how much of it came; its size is known when it has all come.

    Of a file, `what` is its path, and one that is smaller than so many bytes is not shown.
    """
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    if not is_seen or (bytes_min and _is_smaller(what, bytes_min)):
        yield None
        return
    from rich.progress import (
        DownloadColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    from equipoise.app.console import Console

    columns = (
        SpinnerColumn(),
        TextColumn("reading {task.description}", markup=False),  # a path may have any brackets
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    lock, came = threading.Lock(), 0
    # Transient: what is left on the terminal is the answer.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=None)

        def on_bytes(count: int) -> None:
            nonlocal came
            with lock:
                came += count
                bar.update(task, completed=came)

        yield on_bytes


def _is_smaller(path: str, bytes_min: int) -> bool:
    """Whether it is a file, and no pipe, of fewer bytes; so is one that is not there."""
    if path == "-":
        return False
    try:
        return Path(path).stat().st_size < bytes_min and not Path(path).is_fifo()
    except (OSError, ValueError):
        return True  # whoever reads it says why it can't be read


def counting(items: Iterable[T], what: str, total: int) -> Iterable[T]:
    """Show how many of them were done, one by one."""
    if sys.stderr is None or not sys.stderr.isatty():
        return items
    from rich.progress import track

    from equipoise.app.console import Console

    return track(items, what, total=total, console=Console(stderr=True), transient=True)
