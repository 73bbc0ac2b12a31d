"""Small files of the kernel: read whole, in one go; what vanished or makes no sense is None."""

import errno
import os
from pathlib import Path

SIZE_MAX = 65536
GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ESRCH})
"""A cgroup that is removed while we look answers with any of these."""


def read(path: str | Path, size_max: int = SIZE_MAX) -> bytes | None:
    """Read a file, or None when it is not there (any more)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    try:
        return os.read(handle, size_max)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    finally:
        os.close(handle)


def read_int(path: str | Path) -> int | None:
    """Read a whole number; `max` and garbage are None."""
    return to_int(read(path))


def to_int(text: bytes | None) -> int | None:
    """Understand a whole number."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def field(text: bytes | None, name: bytes) -> int | None:
    """Find the number of one line `name number` of a flat-keyed file."""
    if text is None:
        return None
    start = 0 if text.startswith(name + b" ") else text.find(b"\n" + name + b" ") + 1
    if start == 0 and not text.startswith(name + b" "):
        return None
    begin = start + len(name) + 1
    end = text.find(b"\n", begin)
    return to_int(text[begin:] if end < 0 else text[begin:end])


def write(path: str | Path, text: str) -> bool:
    """Write one value; False when the file is not there (any more)."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in GONE:
            return False
        raise
    try:
        os.write(handle, text.encode())
    except OSError as error:
        if error.errno in GONE:
            return False
        raise
    finally:
        os.close(handle)
    return True
