"""How long a person waits for the first line, beside a Python that does nothing."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measuring import ROOT
from benchmarks.tables import Section, Table, ratio

GOAL_SECONDS = 0.3
EQUIPOISE = str(Path(sys.executable).with_name("equipoise"))
EXAMPLE = "examples/01-rotation-plan.yaml"
YARDSTICK = "`python -c 'import typer, rich'`"
HELP = "`equipoise --help`"
COMMANDS = {
    "`python -c pass`": (sys.executable, "-c", "pass"),
    YARDSTICK: (sys.executable, "-c", "import typer, rich"),
    HELP: (EQUIPOISE, "--help"),
    f"`equipoise rotation plan --from {EXAMPLE}`": (EQUIPOISE, "rotation", "plan", "--from", EXAMPLE),
}


class Cost(NamedTuple):
    """What one start took."""

    wall_seconds: float
    cpu_seconds: float


def run(*, quick: bool) -> Section:
    starts: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
    # The first round only brings the files into the page cache; in turns, so that noise falls on all.
    for turn in range(1 + (3 if quick else 15)):
        for name, command in COMMANDS.items():
            cost = _cost(command)
            if turn:
                starts[name].append(cost)
    middle = {name: Cost(*map(statistics.median, zip(*costs, strict=True))) for name, costs in starts.items()}
    columns = ("command", "wall s", "fastest s", "CPU s", "CPU ratio to `import typer, rich`")
    table = Table(columns)
    for name, cost in middle.items():
        table.add(
            name,
            f"{cost.wall_seconds:.2f}",
            f"{min(starts[name]).wall_seconds:.2f}",
            f"{cost.cpu_seconds:.2f}",
            ratio(cost.cpu_seconds, middle[YARDSTICK].cpu_seconds),
        )
    seen = middle[HELP]
    verdict = "meets" if seen.wall_seconds <= GOAL_SECONDS else "misses"
    return Section(
        "Cold start",
        [table],
        f"`equipoise --help` answers in {seen.wall_seconds:.2f} s, which {verdict} the goal of "
        f"{GOAL_SECONDS} s, and needs {seen.cpu_seconds:.2f} s of CPU; a Python that only imports its "
        f"libraries, typer and rich, needs {middle[YARDSTICK].cpu_seconds:.2f} s.",
        ["A plan also loads pydantic, which checks policies; no goal is set for it."],
    )


def _cost(command: tuple[str, ...]) -> Cost:
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=60, check=True)
    wall_seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall_seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
