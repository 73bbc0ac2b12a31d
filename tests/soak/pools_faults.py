"""Faults of pools, the long way: `python -m tests.soak.pools_faults [--kills N] [--operations N]`.

Leaders are killed at random points; servers crash and fail over; foreign allocators work beside ours until a
million operations are done. Ends with 1 when a pod is lost, given twice, or its keys contradict each other.
Figures go to docs/soak.md.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.pools.beside import run_beside
from tests.pools.server_faults import Crash, failed_over_to_a_replica, killed_with_everything_written
from tests.pools.servers import server
from tests.pools.storm import storm
from tests.testbed import Unavailable

DOCUMENT = Path(__file__).parents[2] / "docs" / "soak.md"
BEGIN, END = "<!-- pools: begin -->", "<!-- pools: end -->"
BESIDE_SECONDS_MAX = 4 * 3600.0


def main() -> int:
    """Run, and write the figures."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.pools_faults", description=__doc__)
    options.add_argument("--kills", type=int, default=250)
    options.add_argument("--crashes", type=int, default=20, help="of each kind")
    options.add_argument("--operations", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    try:
        rows = [
            _storm(chosen.kills, chosen.seed),
            *_crashes(chosen.crashes),
            _beside(chosen.operations, chosen.seed),
        ]
    except Unavailable as missing:
        print(f"error: {missing}", file=sys.stderr)
        return 1
    except AssertionError as failure:
        print(f"error: seed {chosen.seed}: {failure}", file=sys.stderr)
        return 1
    _write(_entry(rows, chosen.seed))
    return 0


def _storm(kills: int, seed: int) -> tuple[str, str, str]:
    began = time.monotonic()
    with server() as url, tempfile.TemporaryDirectory(prefix="storm-") as folder:
        report = storm(url, Path(folder), kills, seed)
    print(report, flush=True)
    assert [*report.broken, *report.given_twice, *report.missing, *report.late_deeds] == [], report
    much = (
        f"{report.kills} kills, {report.stops} stopped past their turn, {report.empty_lists} empty lists, "
        f"{report.forgotten_scripts} SCRIPT FLUSH, {report.replaced} names reused, {report.served} calls"
    )
    came = f"{time.monotonic() - began:.0f} s; sound after every kill, no late deed, all came right"
    return "leaders killed at random points", much, came


def _crashes(times: int) -> list[tuple[str, str, str]]:
    kinds: dict[str, Callable[[Path], Crash]] = {
        "SIGKILL of Redis, append-only file, fsync always": killed_with_everything_written,
        "failover to a replica in step": failed_over_to_a_replica,
        "failover to a replica that was cut off": partial(failed_over_to_a_replica, is_behind=True),
    }
    rows = []
    for kind, crash in kinds.items():
        reports = []
        for _ in range(times):
            with tempfile.TemporaryDirectory(prefix="crash-") as folder:
                reports.append(crash(Path(folder)))
        acknowledged, lost = sum(r.acknowledged for r in reports), sum(len(r.lost) for r in reports)
        assert not any(report.broken or report.given_twice for report in reports), reports
        assert lost == 0 or "replica" in kind, reports
        unknown, kept = sum(r.unknown for r in reports), sum(r.kept for r in reports)
        what = f"{times} crashes, {acknowledged} acknowledged allocations, {unknown} without an answer"
        rows.append(
            (kind, what, f"{lost} acknowledged were lost; {kept} of the unanswered had happened; sound")
        )
        print(rows[-1], flush=True)
    return rows


def _beside(operations: int, seed: int) -> tuple[str, str, str]:
    began = time.monotonic()
    with server() as url:
        report = run_beside(url, BESIDE_SECONDS_MAX, seed, calls=operations // 2, exclusive=4, shared=2)
    print(report, flush=True)
    assert [*report.given_twice, *report.broken, *report.lost] == [], report
    assert report.served * 2 >= operations, report
    assert report.moves > 0, report
    much = (
        f"{report.served * 2:,} operations in other processes, {report.kills} of these killed, "
        f"{report.moves:,} moves, {report.recovered} pods recovered, {report.own:,} calls of ours"
    )
    came = f"{time.monotonic() - began:.0f} s; clean, no pod lost, none given twice"
    return "foreign allocators beside ours", much, came


def _entry(rows: list[tuple[str, str, str]], seed: int) -> str:
    day = datetime.now(UTC).date().isoformat()
    head = f"### {day}\n\n{os.cpu_count()} cores, Python {platform.python_version()}; seed {seed}.\n"
    table = ["| what | how much | what came of it |", "|---|---|---|"]
    return "\n".join([head, *table, *(f"| {' | '.join(row)} |" for row in rows)])


def _write(entry: str) -> None:
    text = DOCUMENT.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    DOCUMENT.write_text(f"{text[:begin]}\n\n{entry}\n\n{text[end:]}")
    print(f"Written to {DOCUMENT.name}.")


if __name__ == "__main__":
    sys.exit(main())
