"""Faults of pools, the long way: `python -m tests.soak.pools_faults [--kills N] [--operations N]`.

Leaders are killed at random points; servers crash and fail over; clients ask over HTTP while Redis and the
service are killed; foreign allocators work beside ours until a million operations are done. Ends with 1 when
a pod is lost, given twice, its keys contradict each other, or a *no* was false. Figures go to docs/soak.md.
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

from tests.soak import figures, write_figures
from tests.support.pools.fault_clients import CLIENTS, ask_under_kills
from tests.support.pools.foreign_processes import run_beside
from tests.support.pools.killed_leaders import storm
from tests.support.pools.server_faults import Crash, failed_over_to_a_replica, killed_with_everything_written
from tests.support.pools.servers import server
from tests.testbed import RedisServer, Unavailable

ANSWERS = "clients over HTTP, Redis (append-only file, fsync always) and the service killed"
BESIDE_SECONDS_MAX = 4 * 3600.0


def main() -> int:
    """Run, and write the figures."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.pools_faults", description=__doc__)
    options.add_argument("--kills", type=int, default=250)
    options.add_argument("--crashes", type=int, default=20, help="of each kind")
    options.add_argument("--minutes", type=float, default=10.0, help="of clients over HTTP")
    options.add_argument("--only", choices=["answers"], help="run this part alone, and add its line")
    options.add_argument("--operations", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    try:
        if chosen.only:
            write_figures("pools", _with_row(_answers(chosen.minutes, chosen.seed)))
            return 0
        rows = [
            _storm(chosen.kills, chosen.seed),
            *_crashes(chosen.crashes),
            _answers(chosen.minutes, chosen.seed),
            _beside(chosen.operations, chosen.seed),
        ]
    except Unavailable as missing:
        print(f"error: {missing}", file=sys.stderr)
        return 1
    except AssertionError as failure:
        print(f"error: seed {chosen.seed}: {failure}", file=sys.stderr)
        return 1
    write_figures("pools", _entry(rows, chosen.seed))
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
        assert not any(report.denied for report in reports), reports
        unknown, kept = sum(r.unknown for r in reports), sum(r.kept for r in reports)
        what = f"{times} crashes, {acknowledged} acknowledged allocations, {unknown} without an answer"
        rows.append(
            (kind, what, f"{lost} acknowledged were lost; {kept} of the unanswered had happened; sound")
        )
        print(rows[-1], flush=True)
    return rows


def _answers(minutes: float, seed: int) -> tuple[str, str, str]:
    with tempfile.TemporaryDirectory(prefix="answers-") as folder:
        redis = RedisServer(Path(folder) / "redis", append_only=True, fsync="always")
        redis.start()
        try:
            report = ask_under_kills(redis, Path(folder), minutes * 60, seed)
        finally:
            redis.stop()
    for (operation, outcome, result), count in sorted(report.answers.items()):
        print(f"{operation}: {outcome} {result}: {count}", flush=True)
    assert not report.false, report.false
    assert report.redis_kills > minutes, report
    kinds = ", ".join(f"{report.count(kind):,} {kind}" for kind in ("yes", "no", "unknown"))
    much = (
        f"{minutes:g} minutes, {CLIENTS} clients, {report.redis_kills} SIGKILL of Redis, "
        f"{report.serve_kills} of the service; answers: {kinds}"
    )
    checked = ", ".join(f"{count} of {operation}" for operation, count in sorted(report.checked.items()))
    return ANSWERS, much, f"of the *no* answers ({checked}) {len(report.false)} were false"


def _with_row(row: tuple[str, str, str]) -> str:
    """Return the entry that stands, with this line, and its day, in the place of the last one of its kind."""
    day = datetime.now(UTC).date().isoformat()
    kept = [line for line in figures("pools").splitlines() if not line.startswith(f"| {row[0]}")]
    return "\n".join([*kept, f"| {row[0]} | {row[1]} ({day}) | {row[2]} |"])


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


if __name__ == "__main__":
    sys.exit(main())
