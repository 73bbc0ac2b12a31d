"""Where the figures were taken: other machines give other seconds, and about the same ratios."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def machine() -> str:
    memory = _field("/proc/meminfo", "MemTotal")
    gibibytes = int(memory.split()[0]) / 1024**2 if memory else 0.0
    model = _field("/proc/cpuinfo", "model name") or platform.machine()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores ({model}), {gibibytes:.0f} GiB of memory, {python}, {platform.system()}"


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def load() -> float:
    """How many processes wanted a core in the last minute; ours included."""
    return os.getloadavg()[0]


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
