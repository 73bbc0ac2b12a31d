"""Damaged files of the node agent: `python -m tests.soak.agent [--count N] [--seed N]`.

The agent's loop starts with each damaged state file on a node of real files, and must give every container
its CPU back; its journal is damaged as often, and must end no start and no round. Figures go to docs/soak.md.
"""

import argparse
import os
import platform
import sys
import time
from collections import Counter
from datetime import UTC, datetime

from tests.soak import write_figures
from tests.support.agent.damaging import Node, journal, keep_in_each, quick_folder, rounds, start_with_each
from tests.support.damage import damages


def main() -> int:
    """Run, and write the figures; the first start that is not as it should be ends the run."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.agent", description=__doc__)
    options.add_argument("--count", type=int, default=20_000, help="damages of each file (20000)")
    options.add_argument("--seed", type=int, default=19, help="which damages")
    chosen = options.parse_args()
    began_at = time.monotonic()
    with quick_folder() as folder:
        node = Node(folder)
        starts = start_with_each(node, (one.data for one in damages(node.sound, chosen.count, chosen.seed)))
        done = rounds()
        sound = journal(folder, done)
        kept = keep_in_each(folder, (one.data for one in damages(sound, chosen.count, chosen.seed)), done)
    entry = _entry(node.teller.said, starts, kept, chosen.seed, (time.monotonic() - began_at) / 60)
    print(entry)
    write_figures("agent", entry)
    return 0


def _entry(said: Counter[str], starts: int, kept: Counter[str], seed: int, minutes: float) -> str:
    rows = [
        ("starts with a damaged state file, a round each", starts),
        ("damage found and said", said["damaged"]),
        ("quotas found in the cgroups, and given back", said["found"]),
        ("starts after which a container had less CPU than it asks for", 0),
        ("starts with a damaged journal, four rounds each", kept.total()),
        ("of these, all rounds kept (in a new journal where need be)", kept["kept"]),
        ("of these, the reason said why not", kept["not kept"]),
        ("uncaught errors", 0),
    ]
    lines = "\n".join(f"| {name} | {value} |" for name, value in rows)
    machine = (
        f"{os.cpu_count()} cores, Python {platform.python_version()}; seed {seed}; {minutes:.0f} minutes."
    )
    day = datetime.now(UTC).date().isoformat()
    return f"### {day}: {starts} damages of each file\n\n{machine}\n\n| what | figure |\n|---|---|\n{lines}\n"


if __name__ == "__main__":
    sys.exit(main())
