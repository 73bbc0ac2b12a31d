"""Every reader of foreign data on damaged input: `python -m tests.soak.readers [--seconds N | --inputs N]`.

The readers and their sound inputs are in `tests/fuzz`. An uncaught error, a refusal that is no sentence, a
healthy neighbour that is lost, or an input that takes too long is printed with its number, and the run fails.
Figures go to docs/soak.md.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.support.fuzz.all_readers import all_readers
from tests.support.fuzz.machine import Figures, run

DOCUMENT = Path(__file__).parents[2] / "docs" / "soak.md"
BEGIN, END = "<!-- readers: begin -->", "<!-- readers: end -->"


def main() -> int:
    """Run, and write the figures where nothing was found."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.readers", description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0, help="for all readers together (600)")
    options.add_argument("--inputs", type=int, default=None, help="for each reader, instead of a time")
    options.add_argument("--seed", type=int, default=19, help="which damages")
    options.add_argument("--only", default="", help="readers whose name has this")
    chosen = options.parse_args()
    readers = [one for one in all_readers() if chosen.only in one.name]
    began_at = time.monotonic()
    seconds = chosen.seconds if chosen.inputs is None else None
    figures = run(readers, chosen.seed, count=chosen.inputs, seconds=seconds)
    finds = [find for one in figures for find in one.finds.values()]
    print(_entry(figures, chosen.seed, (time.monotonic() - began_at) / 60))
    for find in finds:
        print(find, file=sys.stderr)
    if not (finds or chosen.only):
        _write(_entry(figures, chosen.seed, (time.monotonic() - began_at) / 60))
    return 1 if finds else 0


def _entry(figures: Sequence[Figures], seed: int, minutes: float) -> str:
    lines = "\n".join(one.row for one in figures)
    count = sum(one.inputs for one in figures)
    machine = (
        f"{os.cpu_count()} cores, Python {platform.python_version()}; seed {seed}; {minutes:.0f} minutes."
    )
    day = datetime.now(UTC).date().isoformat()
    uncaught = sum(len(one.finds) for one in figures)
    return (
        f"### {day}: {count:,} inputs for {len(figures)} readers, uncaught: {uncaught}\n\n{machine}\n\n"
        "| reader | inputs | refused with a sentence | read | slowest | uncaught |\n"
        f"|---|---|---|---|---|---|\n{lines}\n"
    )


def _write(entry: str) -> None:
    before, begin, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{DOCUMENT.name} has lost a marker"
    assert end, f"{DOCUMENT.name} has lost a marker"
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{entry}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
