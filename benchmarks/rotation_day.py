"""A simulated day of the production rotation loop: 1,000 workloads, every cause, every 30 seconds."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.measuring import MEBIBYTE, Figures, in_own_process, memory_bytes
from benchmarks.tables import Section, Table
from equipoise.core.cluster import WorkloadRef
from equipoise.core.reason import Code
from equipoise.rotation.progress import Ending, RotationResult
from equipoise.sim.experiment import CYCLE_SECONDS, enforce, rotation_loop, rotation_memory
from equipoise.sim.invariants import InvariantBroken
from equipoise.sim.world import World
from tests.support.sim.scenes import many_workloads

WORKLOADS, HOURS, SEED = 1000, 24.0, 1
DAY_MAX_SECONDS = 7200.0


def run(*, quick: bool) -> Section:
    workloads, hours = (WORKLOADS // 10, HOURS / 10) if quick else (WORKLOADS, HOURS)
    found = in_own_process(day, seconds_max=DAY_MAX_SECONDS, workloads=workloads, hours=hours, seed=SEED)
    return Section(
        "Rotating: a simulated day",
        [_whole(workloads, hours, found), _endings(found)],
        _meaning(workloads, hours, found),
        _remarks(found),
    )


@dataclass(slots=True)
class Day:
    """The loop in a world, and what it left in the ledgers."""

    world: World
    loop_cpu_seconds: float = 0.0
    cycles: int = 0
    verdicts: list[RotationResult] = field(default_factory=list)
    futile: set[str] = field(default_factory=set)
    _commits: int = 0
    _ended: dict[WorkloadRef, float] = field(default_factory=dict)

    def start(self) -> None:
        enforce(self.world, {})
        loop = rotation_loop(self.world)

        def cycle() -> None:
            began = time.process_time()
            report = loop.cycle(self.world.now)
            self.loop_cpu_seconds += time.process_time() - began
            self.cycles += 1
            self.futile |= {each.subject for each in report.decisions if each.reason.code is Code.FUTILE}
            self._look()

        self.world.every(CYCLE_SECONDS, cycle)

    def _look(self) -> None:
        """Read the verdict of each rotation once: only a ledger that was written can hold a new one."""
        commits = self.world.store.commits
        fresh, self._commits = commits[self._commits :], len(commits)
        for workload in {commit.key for commit in fresh}:
            last = rotation_memory(self.world, workload).last
            if last is not None and self._ended.get(workload) != last.ended_at:
                self._ended[workload] = last.ended_at
                self.verdicts.append(last)


def day(workloads: int, hours: float, seed: int) -> Figures:
    began = time.process_time()
    lived = Day(many_workloads(seed, workloads))
    lived.start()
    # A world is many small objects that all stay: looking through them for garbage finds none.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    violated = 0
    try:
        lived.world.advance(hours * 3600)
    except InvariantBroken as broken:
        print(broken, file=sys.stderr)
        violated = 1
    return {
        "cpu_seconds": time.process_time() - began,
        "loop_cpu_seconds": lived.loop_cpu_seconds,
        "cycles": lived.cycles,
        "peak_bytes": memory_bytes("VmHWM"),
        "pods": len(lived.world.state.pods),
        "evictions": len(lived.world.state.evictions),
        "futile": len(lived.futile),
        "violated": violated,
        **_verdict_figures(lived.verdicts),
    }


def _verdict_figures(verdicts: Sequence[RotationResult]) -> Figures:
    measured = [
        (verdict.predicted_percent, verdict.realised_percent)
        for verdict in verdicts
        if verdict.realised_percent is not None
    ]
    endings = Counter(verdict.ending for verdict in verdicts)
    return {
        "rotations": len(verdicts),
        "measured": len(measured),
        "lower": sum(realised > 0 for _, realised in measured),
        "predicted": median(predicted for predicted, _ in measured) if measured else 0.0,
        "realised": median(realised for _, realised in measured) if measured else 0.0,
        "error": median(abs(predicted - realised) for predicted, realised in measured) if measured else 0.0,
        **{f"ending {ending}": endings[ending] for ending in Ending},
    }


def _whole(workloads: int, hours: float, found: Figures) -> Table:
    table = Table(
        (
            "workloads",
            "hours",
            "cycles",
            "rotations",
            "pods evicted",
            "CPU s",
            "of it the loop",
            "ms per cycle",
        )
    )
    table.add(
        f"{workloads:,}",
        f"{hours:g}",
        f"{found['cycles']:,.0f}",
        f"{found['rotations']:,.0f}",
        f"{found['evictions']:,.0f}",
        f"{found['cpu_seconds']:.0f}",
        f"{found['loop_cpu_seconds']:.0f}",
        f"{found['loop_cpu_seconds'] / max(found['cycles'], 1) * 1000:.0f}",
    )
    return table


def _endings(found: Figures) -> Table:
    table = Table(("how rotations ended", "rotations", "share"))
    for ending in Ending:
        count = found[f"ending {ending}"]
        table.add(ending.value, f"{count:,.0f}", f"{count / max(found['rotations'], 1):.0%}")
    return table


def _meaning(workloads: int, hours: float, found: Figures) -> str:
    return (
        f"{hours:g} hours of {workloads:,} workloads: {found['rotations']:,.0f} rotations evicted "
        f"{found['evictions']:,.0f} pods. They promised {found['predicted']:.0f} % (median) and brought "
        f"{found['realised']:.0f} %; the median of the absolute error is {found['error']:.0f} points. "
        f"{found['violated']:.0f} invariants were violated."
    )


def _remarks(found: Figures) -> list[str]:
    lower, measured = found["lower"], found["measured"]
    held = found["peak_bytes"] / MEBIBYTE
    return [
        f"{lower:,.0f} of the {measured:,.0f} measured rotations lowered the hottest pod at all.",
        f"{found['futile']:,.0f} workloads were declared futile at some time.",
        "The simulator asks its invariants (budgets kept, no write lost, all work served) at every instant.",
        f"The loop's time includes its simulated neighbours' answers; the process held {held:.0f} MiB.",
    ]
