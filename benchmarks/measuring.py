"""Take time and memory of one part in a process of its own, several times, and keep the middle."""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Figures = dict[str, float]

ROOT = Path(__file__).parents[1]
PART_MAX_SECONDS = 600.0
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Taken:
    """What one call cost this process."""

    wall_seconds: float
    cpu_seconds: float
    rss_before_bytes: int
    rss_after_bytes: int
    peak_bytes: int

    def figures(self, **more: float) -> Figures:
        return {**asdict(self), **more}


def measure(call: Callable[[], T]) -> tuple[T, Taken]:
    """Time a call, and see how large the process grew meanwhile; the result is still held."""
    gc.collect()
    # Forget the peak of what came before, such as the making of the input.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = memory_bytes("VmRSS")
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = memory_bytes("VmHWM")
    gc.collect()
    return result, Taken(wall, cpu, before, memory_bytes("VmRSS"), peak)


def memory_bytes(field: str) -> int:
    """Read a figure of this process.

    Not ru_maxrss: after vfork and exec that one still counts the pages of the parent.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise LookupError(field)


def in_own_process(
    part: Callable[..., Figures], *, seconds_max: float = PART_MAX_SECONDS, **options: Any
) -> Figures:
    """Run a part, a function at the top of its module, in a new process, so that its peak is its own."""
    command = [sys.executable, "-m", "benchmarks.part", part.__module__, part.__name__, json.dumps(options)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=seconds_max, check=True
    )
    figures: Figures = json.loads(done.stdout)
    return figures


def medians(runs: list[Figures]) -> Figures:
    """Give the middle of each figure over the runs."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def interleaved(repeats: int, *parts: Callable[[], Figures]) -> list[Figures]:
    """Run all parts in turn, several times, so that a busy minute of the machine falls on all of them."""
    rounds = [[part() for part in parts] for _ in range(repeats)]
    return [medians(list(runs)) for runs in zip(*rounds, strict=True)]
