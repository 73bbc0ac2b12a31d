"""`python -m benchmarks [NAME...] [--quick]`: measure, print, and rewrite docs/benchmarks.md."""

from __future__ import annotations

import argparse
import os

from rich.console import Console

from benchmarks import (
    agent,
    batches,
    forecast,
    held_pods,
    history,
    krr_rule,
    list_pods,
    pools,
    proportional,
    range_query,
    recommendation,
    recommendation_live,
    remote_read,
    rotation_causes,
    rotation_day,
    rotation_plan,
)
from benchmarks import help as cold_start
from benchmarks.machine import load, machine, today
from benchmarks.page import write

BENCHMARKS = {
    "list_pods": list_pods.run,
    "held_pods": held_pods.run,
    "range_query": range_query.run,
    "remote_read": remote_read.run,
    "history": history.run,
    "rotation_plan": rotation_plan.run,
    "rotation_causes": rotation_causes.run,
    "rotation_day": rotation_day.run,
    "recommendation": recommendation.run,
    "recommendation_live": recommendation_live.run,
    "krr_rule": krr_rule.run,
    "forecast": forecast.run,
    "proportional": proportional.run,
    "agent": agent.run,
    "pools": pools.run,
    "help": cold_start.run,
    "batches": batches.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Figures beside peers.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; by default all"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the size, once; the page is left alone"
    )
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    console.print(f"{today()}, {machine()}, load {load():.1f}", highlight=False)
    for name in asked.names or BENCHMARKS:
        before = load()
        section = BENCHMARKS[name](quick=asked.quick)
        section.show(console)
        if not asked.quick:
            write({"machine": f"{machine()}.", name: section.markdown(_when(before))})


def _when(load_before: float) -> str:
    taken = f"Taken on {today()}; the load before it was {load_before:.1f}"
    cores = os.cpu_count() or 1
    busy = f", so others kept the {cores} cores busy: trust ratios and CPU seconds, not wall time"
    return taken + (busy if load_before > cores / 2 else "") + "."


if __name__ == "__main__":
    main()
