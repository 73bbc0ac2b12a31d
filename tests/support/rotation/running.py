"""The production loop on a simulated workload, cycle after cycle, with an eye on the workload in between."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from equipoise.core.decision import Decision
from equipoise.core.ledger import Entry, EntryState, Ledger
from equipoise.ports import CycleReport
from equipoise.rotation.loop import RotationLoop
from equipoise.rotation.progress import RotationMemory
from equipoise.sim.state import WorkloadState
from equipoise.sim.world import World
from tests.support.rotation.tenants import ENFORCE, Diary, Lease, Pauses, Policies, loop_in

CYCLE_SECONDS = 30.0
LOOK_SECONDS = 10.0


class Killed(BaseException):
    """The process ends here."""


def serving(workload: WorkloadState) -> int:
    """How many pods serve."""
    return sum(pod.is_serving for pod in workload.pods.values())


@dataclass
class Run:
    """One workload under one loop."""

    world: World
    workload: WorkloadState
    changes: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    watch: Callable[[], None] | None = None
    """Asked every few seconds."""

    def __post_init__(self) -> None:
        self.policies = Policies(ENFORCE | self.changes)
        self.diary, self.pauses = Diary(), Pauses()
        self.reports: list[CycleReport] = []
        self.planned: dict[str, int] = {}
        self.verdicts: list[dict[str, Any]] = []
        self.fewest = serving(self.workload)
        self.numbers = count()
        self.loop = self.start(**self.options)

    def start(self, epoch: int = 1, **options: Any) -> RotationLoop:
        """Put a new process in charge."""
        common = {
            "journal": self.diary,
            "pauses": self.pauses,
            "leadership": Lease(epoch),
            "new_id": lambda _: f"id-{next(self.numbers)}",
        }
        self.loop = loop_in(self.world, self.policies, **(common | options))
        return self.loop

    def cycle(self) -> Decision:
        """Do one cycle now."""
        report = self.loop.cycle(self.world.now)
        self.reports.append(report)
        memory = self.memory
        if memory.run is not None:
            self.planned[memory.run.round] = memory.run.planned
        last = self.ledger.memory.get("rotation", {}).get("last")
        if last is not None and (not self.verdicts or self.verdicts[-1] != last):
            self.verdicts.append(last)
        return report.decisions[0]

    def rest(self, seconds: float = CYCLE_SECONDS) -> None:
        """Let time pass, and count who serves."""
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.advance(min(LOOK_SECONDS, end - self.world.now))
            self.fewest = min(self.fewest, serving(self.workload))
            if self.watch is not None:
                self.watch()

    def run(self, cycles: int) -> list[Decision]:
        """Do so many cycles."""
        decisions = []
        for _ in range(cycles):
            decisions.append(self.cycle())
            self.rest()
        return decisions

    def until_evicted(self, count: int, cycles_max: int = 200) -> None:
        """Go on until so many pods have been sent away."""
        for _ in range(cycles_max):
            if len(self.gone) >= count:
                return
            self.cycle()
            self.rest()
        raise AssertionError(f"{len(self.gone)} of {count} pods went")

    @property
    def ledger(self) -> Ledger:
        return Ledger.from_data(self.world.store.read(self.workload.ref).data)

    @property
    def memory(self) -> RotationMemory:
        return RotationMemory.from_data(self.ledger.memory.get("rotation", {}))

    @property
    def gone(self) -> list[Entry]:
        """The entries of what was carried out, or may have been."""
        return [entry for entry in self.ledger.entries if entry.state is not EntryState.FAILED]

    @property
    def rounds(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self.gone:
            found.setdefault(entry.round, []).append(entry)
        return found

    @property
    def evictions(self) -> list[str]:
        """The UIDs of all pods that the server was asked to evict and agreed to."""
        return [
            str(entry.subject)
            for entry in self.world.state.history
            if entry.kind == "EvictionAsked" and entry.detail.startswith("Accepted dry=False")
        ]


def run_in(scene: Any, changes: dict[str, Any] | None = None, **options: Any) -> Run:
    """Begin a run in a scene that has a world and a workload."""
    return Run(scene.world, scene.workload, changes or {}, options)
