"""How long the closed loop goes on where rotating does not help: hours of it in one simulated world."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from equipoise.core.reason import Code
from equipoise.sim.scenes import Unbalanced
from equipoise.sim.study import (
    CYCLE_SECONDS,
    DRAWS_PER_WORLD_MAX,
    Experiment,
    enforce,
    plan_now,
    rotation_loop,
    rotation_memory,
)

HOURS_MAX = 12.0
QUIET_SECONDS = 2 * 3600.0
"""For so long without a hot pod, a workload counts as balanced."""


@dataclass(frozen=True, slots=True)
class FutilityRun:
    """The production loop in one world, until it gave up or its time was over."""

    rotations: int
    """How many it had ended by then."""
    rotations_failed: int | None
    """After how many in a row that did not help it declared the workload futile; None: it did not."""
    evicted: int
    hours: float
    has_hot_pods: bool
    """Whether the algorithm would rotate still, if nothing held it."""


def run_until_futile(
    scene: Unbalanced, experiment: Experiment, *, hours_max: float = HOURS_MAX
) -> FutilityRun:
    """Run the production loop on and on; the first `Futile` ends it."""
    world, ref = scene.world, scene.workload.ref
    enforce(world, experiment.settings)
    loop = rotation_loop(world)
    began_at, ended_at, rotations = world.now, 0.0, 0
    hot_at, failed = world.now, None
    while failed is None and world.now < min(began_at + hours_max * 3600, hot_at + QUIET_SECONDS):
        world.advance(CYCLE_SECONDS)
        (decision,) = loop.cycle(world.now).decisions
        if decision.reason.code is not Code.NO_HOT_PODS:
            hot_at = world.now
        last = rotation_memory(world, ref).last
        if last is not None and last.ended_at != ended_at:
            ended_at, rotations = last.ended_at, rotations + 1
        if decision.reason.code is Code.FUTILE:
            failed = rotation_memory(world, ref).failures
    is_hot = plan_now(scene, experiment.settings) is not None
    hours = (world.now - began_at) / 3600
    return FutilityRun(rotations, failed, len(world.state.evictions), hours, is_hot)


@dataclass(frozen=True, slots=True)
class Futility:
    """All runs of one cause."""

    cause: str
    worlds: int
    futile: int
    """In how many the loop gave up,"""
    rotations_failed_max: int | None
    """after at most so many rotations in a row that did not help."""
    balanced: int
    """In how many no pod is hot any more."""
    rotations_median: float | None
    evicted_median: float | None
    hours: float
    """How long the others were watched."""


def futility(
    cause: str,
    worlds: int,
    experiment: Experiment,
    *,
    hours_max: float = HOURS_MAX,
    on_progress: Callable[[int], object] = int,
) -> Futility:
    """Run the loop on in so many worlds in which something is hot at first."""
    runs: list[FutilityRun] = []
    for seed in range(worlds * DRAWS_PER_WORLD_MAX):
        if plan_now(experiment.world(cause, seed), experiment.settings) is None:
            continue
        runs.append(run_until_futile(experiment.world(cause, seed), experiment, hours_max=hours_max))
        on_progress(len(runs))
        if len(runs) == worlds:
            break
    return _summary(cause, runs, hours_max)


def _summary(cause: str, runs: Sequence[FutilityRun], hours_max: float) -> Futility:
    failed = [run.rotations_failed for run in runs if run.rotations_failed is not None]
    return Futility(
        cause=cause,
        worlds=len(runs),
        futile=len(failed),
        rotations_failed_max=max(failed, default=None),
        balanced=sum(run.rotations_failed is None and not run.has_hot_pods for run in runs),
        rotations_median=median(run.rotations for run in runs) if runs else None,
        evicted_median=median(run.evicted for run in runs) if runs else None,
        hours=hours_max,
    )
