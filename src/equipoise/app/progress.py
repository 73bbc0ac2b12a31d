"""How far a long read is, on a terminal; a file or a pipe gets nothing of it."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def reading(what: str) -> Iterator[Callable[[int], None] | None]:
    """Show what is read and how much of it came; its size is known when it has all come."""
    if sys.stderr is None or not sys.stderr.isatty():
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
        TextColumn("reading {task.description}"),
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


def counting(items: Iterable[T], what: str, total: int) -> Iterable[T]:
    """Show how many of them were done, one by one."""
    if sys.stderr is None or not sys.stderr.isatty():
        return items
    from rich.progress import track

    from equipoise.app.console import Console

    return track(items, what, total=total, console=Console(stderr=True), transient=True)
