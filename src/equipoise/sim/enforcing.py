"""The production rotation loop on a simulated cluster, unmodified: alone in its lease, without a diary."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from equipoise.model.decision import Record
from equipoise.model.ledger import Ledger
from equipoise.model.references import StoreKey, WorkloadRef
from equipoise.rotation.loop import RotationLoop
from equipoise.rotation.memory import BALANCER, RotationMemory
from equipoise.sim.world import World

CYCLE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class OnlyLeader:
    """Nobody else stands for election."""

    def epoch(self) -> int | None:
        """Give the one transition that there ever was."""
        return 1


@dataclass(frozen=True, slots=True)
class NoDiary:
    """Keeps nothing: a study looks at the world, not at the records."""

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Forget these."""


def enforce(world: World, settings: Mapping[str, Any]) -> None:
    """Ask for the rotation of all workloads there are, with these settings of the policy."""
    for namespace in world.state.namespaces:
        world.policies.add(namespace, "all", {**settings, "selector": {}, "mode": "Enforce"})


def rotation_loop(world: World, *, is_acting: bool = True) -> RotationLoop:
    """Put the loop on the world's ports."""
    numbers = count()
    return RotationLoop(
        cluster=world.cluster,
        metrics=world.metrics,
        policies=world.policies,
        pauses=world.pauses,
        leadership=OnlyLeader(),
        store=world.store,
        actuator=world.actuator,
        journal=NoDiary(),
        new_id=lambda _: f"id-{next(numbers)}",
        now=world.clock.now,
        interval_seconds=CYCLE_SECONDS,
        is_acting=is_acting,
    )


def remembered(world: World, workload: WorkloadRef) -> RotationMemory:
    """Read what rotation remembers of a workload, where a new leader would find it."""
    ledger = Ledger.from_data(world.store.read(StoreKey("ledger", workload)).data)
    return RotationMemory.from_data(ledger.memory.get(BALANCER, {}))
