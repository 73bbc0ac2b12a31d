"""Where built things are kept between runs: one folder, outside the repository, versions in the names."""

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Unavailable(Exception):  # noqa: N818 - a fact about the machine, not an error of ours
    """This machine cannot provide a neighbour; the text says what to do about it."""


def is_promised() -> bool:
    """Tell whether somebody promised that this machine can provide everything, as CI does."""
    return os.environ.get("CI") == "true" or os.environ.get("EQUIPOISE_E2E_REQUIRE") == "1"


def folder() -> Path:
    """Give the cache folder: `EQUIPOISE_TESTBED`, or one in the user's cache folder."""
    chosen = os.environ.get("EQUIPOISE_TESTBED")
    if chosen:
        return Path(chosen).absolute()
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "equipoise-testbed"


def say(text: str) -> None:
    """Tell a person what takes so long."""
    print(f"testbed: {text}", file=sys.stderr, flush=True)


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a lock that other processes on this machine respect; the kernel frees it if we die."""
    locks = folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder on the cache's own file system, so that a rename out of it is atomic."""
    folder().mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="scratch-", dir=folder()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def put(made: Path, target: Path) -> None:
    """Move a finished file or folder to its name in one step: nobody ever sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made.rename(target)
