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
    return _counted(items, what, total)


def _counted(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    with stepping(what, total) as told:
        for number, item in enumerate(items):
            told(number)
            yield item


def _unseen(done: int, total: int | None = None) -> None:
    del done, total


@contextmanager
def stepping(title: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show how far something is, where somebody watches; it is called with the steps done, and all steps."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield _unseen
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from equipoise.app.console import Console

    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)

        def told(done: int, total: int | None = total) -> None:
            bar.update(task, completed=done, total=total)

        yield told
