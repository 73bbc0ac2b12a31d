"""Long runs against the real neighbours: `python -m tests.soak [--minutes N]`.

The watch of one kind under 200 changes a second, cut again and again for an hour; the first disagreement
ends the run with its seed. Figures are added to docs/soak.md.
"""

import argparse
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from tests.soak import figures, write_figures
from tests.support.e2e.reflector_faults import CHANGES_PER_SECOND, Cut, Disagreement, api_server, run, table
from tests.testbed import NotInTime, Unavailable


def main() -> int:
    """Run, and write the figures."""
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=60.0, help="how long to go on (60)")
    options.add_argument("--seed", type=int, default=None, help="the order of the cuts and of the changes")
    options.add_argument("--folder", type=Path, default=None, help="keep data and logs here")
    chosen = options.parse_args()
    seed = random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    where = nullcontext(chosen.folder) if chosen.folder else tempfile.TemporaryDirectory(prefix="soak-")
    began_at = time.monotonic()
    try:
        with where as folder:
            cuts = _watch(Path(folder), chosen.minutes, seed)
    except Unavailable as missing:
        print(f"error: {missing}", file=sys.stderr)
        return 1
    except (Disagreement, NotInTime) as failure:
        print(f"error: seed {seed}: {failure}", file=sys.stderr)
        return 1
    newest = _entry(cuts, (time.monotonic() - began_at) / 60, seed)
    write_figures("watch", f"{newest}\n{figures('watch')}")
    return 0


def _watch(folder: Path, minutes: float, seed: int) -> list[Cut]:
    chance = random.Random(seed)

    def until_the_end(kinds: list[str]) -> Iterator[str]:
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            yield chance.choice(kinds)

    with api_server(folder) as control_plane:
        return run(control_plane, folder, until_the_end, seed=seed, say=lambda text: print(text, flush=True))


def _entry(cuts: list[Cut], minutes: float, seed: int) -> str:
    day = datetime.now(UTC).date().isoformat()
    changes, deletes = sum(cut.changes for cut in cuts), sum(cut.deletes_reported for cut in cuts)
    title = f"### {day}: {minutes:.0f} minutes, {len(cuts)} cuts, {changes} changes, no deletion missed"
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    told = (
        f"{machine}; at least {CHANGES_PER_SECOND:.0f} changes a second before every cut; seed {seed}. "
        f"All {deletes} deletions of pods that had been seen were reported, each once."
    )
    return f"{title}\n\n{told}\n\n{table(cuts)}\n"


if __name__ == "__main__":
    sys.exit(main())
