"""The machine's CPU time, memory, load and pressure from /proc, and small files of the kernel.

A file is read whole, at once; one that vanished or is invalid is None.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from equipoise.core.errors import WorldFailed

SIZE_MAX = 65536
GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ESRCH})
"""The errors of reading a cgroup that is being removed."""


def read(path: str | Path, size_max: int = SIZE_MAX) -> bytes | None:
    """Read a file, or None when it is not there (any more)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(handle, size_max)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise


def read_int(path: str | Path) -> int | None:
    """Read a whole number; `max` and garbage are None."""
    return to_int(read(path))


def to_int(text: bytes | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def field(text: bytes | None, name: bytes) -> int | None:
    """Return the number of the line `name number` of a flat-keyed file."""
    start = -1 if text is None else (b"\n" + text).find(b"\n" + name + b" ")
    if text is None or start < 0:
        return None
    return to_int(text[start + len(name) + 1 :].partition(b"\n")[0])


def write(path: str | Path, text: str) -> bool:
    """Write one value; False when the file is not there (any more)."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno in GONE:
            return False
        raise
    return True


NANO = 10**9
BUSY = (0, 1, 2, 5, 6)
"""The columns user, nice, system, irq and softirq; idle, iowait and steal are not busy."""
KIB = 1024
STAT_SIZE_MAX = 1024 * KIB
"""A line for each CPU: those of a thousand do not fit in what is read of other files."""
SPANS = ("avg10", "avg60", "avg300")


def cpu_time(proc: Path, ticks_per_second: int) -> tuple[int, int]:
    """Return the nanoseconds in which the machine was busy, and how many CPUs it has."""
    lines = (read(proc / "stat", STAT_SIZE_MAX) or b"").splitlines()
    cpus = sum(line.startswith(b"cpu") and line[3:4].isdigit() for line in lines)
    words = lines[0].split() if lines else []
    try:
        counts = [int(word) for word in words[1:8]]
        return sum(counts[place] for place in BUSY) * NANO // ticks_per_second, max(1, cpus)
    except (ValueError, IndexError):
        raise WorldFailed(f"{proc}/stat: expected CPU times in its first line") from None


def memory(proc: Path) -> tuple[int | None, int | None]:
    """Return the bytes of the machine's memory, and those that are not available."""
    text = read(proc / "meminfo")
    total, available = (_kib(text, name) for name in (b"MemTotal:", b"MemAvailable:"))
    return total, None if total is None or available is None else total - available


def _kib(text: bytes | None, name: bytes) -> int | None:
    """Read a line such as `MemTotal:  24689776 kB`."""
    if text is None:
        return None
    squeezed = b"\n".join(b" ".join(line.split()[:2]) for line in text.splitlines())
    amount = field(squeezed, name)
    return None if amount is None else amount * KIB


def gauges(proc: Path) -> dict[str, str]:
    """Return load and pressure by metric; a kernel without pressure has none."""
    found: dict[str, str] = {}
    loads = (read(proc / "loadavg") or b"").split()[:3]
    for minutes, load in zip((1, 5, 15), loads, strict=False):
        found |= _number(f"cpu_load_{minutes}_min", load)
    for resource in ("cpu", "memory", "io"):
        with suppress(OSError):  # compiled in, but switched off
            for line in (read(proc / "pressure" / resource) or b"").splitlines():
                found |= _pressure(resource, line)
    return found


def _pressure(resource: str, line: bytes) -> dict[str, str]:
    """Read a line such as `some avg10=0.12 avg60=0.05 avg300=0.01 total=123`."""
    who, *parts = line.decode("ascii", "replace").split() or [""]
    found: dict[str, str] = {}
    for part in parts:
        span, _, value = part.partition("=")
        if span in SPANS and who in {"some", "full"}:
            found |= _number(f"{resource}_pressure_{who}_{span}", value.encode())
    short = found.get(f"{resource}_pressure_some_avg10")
    return found if short is None else found | {f"{resource}_pressure": short}


def _number(name: str, value: bytes) -> dict[str, str]:
    text = value.decode("ascii", "replace")
    whole, _, rest = text.partition(".")
    return {name: text} if whole.isdigit() and (rest.isdigit() or not rest) else {}
