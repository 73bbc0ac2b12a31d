"""What a rotation brings, by the cause of the imbalance and by the strategy: seeded experiments.

For each seed the same world is made once for every strategy, so that all start from the same pods and
loads: the production loop, the rule that it came from, and simpler ones. The hottest pod is measured over one
metrics window before, and over one after all pods are ready again; what a workload went through is read from
the simulator itself and not from any metric.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from equipoise.core.reason import Code
from equipoise.engine.isolation import ignore
from equipoise.sim.experiment import (
    CYCLE_SECONDS,
    DRAWS_PER_WORLD_MAX,
    Experiment,
    PlanStrategy,
    Unbalanced,
    enforce,
    is_whole,
    plan_now,
    rotation_loop,
    rotation_memory,
)
from equipoise.sim.state import WorkloadState
from equipoise.sim.world import World

_STEP_SECONDS = 5.0
_WHOLE_MAX_SECONDS = 3600.0


class WorkloadWatch:
    """Sees every change of one workload's pods."""

    def __init__(self, world: World, workload: WorkloadState) -> None:
        self._workload = workload
        self.ready_min = len(workload.serving_pods())
        self.peak_cores = 0.0
        """The most that any pod used while another was away."""
        world.state.listeners.append(self._notice)

    def _notice(self, workload: WorkloadState) -> None:
        if workload is not self._workload:
            return
        serving = workload.serving_pods()
        self.ready_min = min(self.ready_min, len(serving))
        if len(serving) < workload.replicas:
            self.peak_cores = max([self.peak_cores, *(pod.rate_cores for pod in serving)])


def hottest_cores(world: World, workload: WorkloadState, window_seconds: float) -> float:
    """Return the mean usage of the busiest serving pod over the window that ends now."""
    counters = (pod.counter for pod in workload.serving_pods() if pod.counter is not None)
    return max(
        (counter.mean_cores(world.now - window_seconds, world.now) for counter in counters), default=0.0
    )


def run_until_measured(world: World, workload: WorkloadState, window_seconds: float) -> None:
    """Advance until all pods have served for one whole window, but for an hour at most."""
    ends_at = world.now + _WHOLE_MAX_SECONDS
    while world.now < ends_at:
        changed_at = max((pod.ready_changed_at for pod in workload.pods.values()), default=world.now)
        if is_whole(workload) and world.now >= changed_at + window_seconds:
            return
        world.advance(_STEP_SECONDS)


CLOSED_LOOP, SEED, HOT_ONLY, HOTTEST, LEFT_ALONE = "closed loop", "seed", "hot only", "hottest", "left alone"


CLOSED_LOOP_MAX_SECONDS = 4 * 3600.0
"""How long the closed loop may take for one rotation."""


Strategy = Callable[[Unbalanced, PlanStrategy, Mapping[str, Any]], int]
"""Rotates, and returns how many pods were evicted or deleted."""


def _delete(scene: Unbalanced, names: Sequence[str]) -> int:
    """Delete pods at once, past every budget."""
    pods = [pod for pod in scene.workload.pods.values() if pod.name in set(names)]
    for pod in pods:
        scene.world.kubelet.end(pod)
    return len(pods)


def close_the_loop(scene: Unbalanced, plan: PlanStrategy, settings: Mapping[str, Any]) -> int:
    """Run the production loop until its first rotation has ended and was verified."""
    del plan
    world, ref = scene.world, scene.workload.ref
    enforce(world, settings)
    loop = rotation_loop(world)
    ends_at = world.now + CLOSED_LOOP_MAX_SECONDS
    while world.now < ends_at:
        loop.cycle(world.now)
        if rotation_memory(world, ref).last is not None:
            break
        world.advance(CYCLE_SECONDS)
    return len(world.state.evictions)


STRATEGIES: dict[str, Strategy] = {
    CLOSED_LOOP: close_the_loop,
    SEED: lambda scene, plan, _: _delete(scene, plan.pods),
    HOT_ONLY: lambda scene, plan, _: _delete(scene, plan.hot),
    HOTTEST: lambda scene, plan, _: _delete(scene, plan.hot[:1]),
}


_NOISE = 1.001
"""Less than this is no change for the worse, but the way in which floats are added up."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One rotation in one world."""

    strategy: str
    evicted: int
    predicted_percent: float
    before_cores: float
    after_cores: float
    peak_cores: float
    ready_min: int
    took_seconds: float
    has_scaled: bool
    """Whether the autoscaler changed the number of pods meanwhile."""

    @property
    def realised_percent(self) -> float:
        """By how much the hottest pod fell."""
        return (1 - self.after_cores / self.before_cores) * 100

    @property
    def is_worse(self) -> bool:
        """Return whether the hottest pod is hotter than before."""
        return self.after_cores > self.before_cores * _NOISE

    @property
    def peak_ratio(self) -> float:
        """The most that any pod used meanwhile, beside the hottest before."""
        return self.peak_cores / self.before_cores


def trials(cause: str, seed: int, experiment: Experiment) -> list[Trial]:
    """Rotate in every way in the world of one seed; nothing when no pod is hot there.

    The last one is left alone for as long as the closed loop took: what falls there fell by itself.
    """
    plan = plan_now(experiment.world(cause, seed), experiment.settings)
    if plan is None:
        return []
    found = [_trial(cause, seed, experiment, name, plan) for name in STRATEGIES]
    took_seconds = found[list(STRATEGIES).index(CLOSED_LOOP)].took_seconds
    return [*found, _trial(cause, seed, experiment, LEFT_ALONE, plan, took_seconds)]


def _trial(
    cause: str, seed: int, experiment: Experiment, name: str, plan: PlanStrategy, waits_seconds: float = 0.0
) -> Trial:
    scene, window_seconds = experiment.world(cause, seed), experiment.policy.metrics_window_seconds
    world, workload = scene.world, scene.workload
    began_at, replicas = world.now, workload.replicas
    before = hottest_cores(world, workload, window_seconds)
    watch = WorkloadWatch(world, workload)
    evicted = STRATEGIES[name](scene, plan, experiment.settings) if name in STRATEGIES else 0
    world.advance(waits_seconds)
    run_until_measured(world, workload, window_seconds)
    is_logged = any(entry.kind == "Scaled" for entry in world.state.history)
    return Trial(
        strategy=name,
        evicted=evicted,
        predicted_percent=plan.predicted_percent,
        before_cores=before,
        after_cores=hottest_cores(world, workload, window_seconds),
        peak_cores=watch.peak_cores,
        ready_min=watch.ready_min,
        took_seconds=world.now - began_at,
        has_scaled=is_logged or workload.replicas != replicas,
    )


@dataclass(frozen=True, slots=True)
class StrategyMeasured:
    """All rotations of one cause by one strategy."""

    strategy: str
    fired: int
    """In how many worlds a pod went."""
    predicted_percent_median: float | None
    realised_percent_median: float | None
    worse_share: float | None
    evicted: int
    evicted_per_10_points: float | None
    """How many pods went for every 10 % by which the hottest fell; None where all in all it did not fall."""
    peak_ratio_median: float | None
    ready_min: int | None
    took_seconds_median: float | None
    scaled: int
    """In how many the autoscaler changed the number of pods meanwhile."""


def summary(strategy: str, all_trials: Sequence[Trial]) -> StrategyMeasured:
    """Sum up the trials of one strategy in which it did something."""
    own = [trial for trial in all_trials if trial.strategy == strategy]
    fired = own if strategy == LEFT_ALONE else [trial for trial in own if trial.evicted]
    evicted = sum(trial.evicted for trial in fired)
    realised = sum(trial.realised_percent for trial in fired)
    return StrategyMeasured(
        strategy=strategy,
        fired=len(fired),
        predicted_percent_median=_median([trial.predicted_percent for trial in fired]),
        realised_percent_median=_median([trial.realised_percent for trial in fired]),
        worse_share=sum(trial.is_worse for trial in fired) / len(fired) if fired else None,
        evicted=evicted,
        evicted_per_10_points=evicted / realised * 10 if realised > 0 and evicted else None,
        peak_ratio_median=_median([trial.peak_ratio for trial in fired if trial.evicted]),
        ready_min=min((trial.ready_min for trial in fired), default=None),
        took_seconds_median=_median([trial.took_seconds for trial in fired]),
        scaled=sum(trial.has_scaled for trial in fired),
    )


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


@dataclass(frozen=True, slots=True)
class CauseStudied:
    """What rotating brings where the imbalance has one cause."""

    cause: str
    worlds: int
    """In so many worlds a pod was hot,"""
    drawn: int
    """of so many that were drawn."""
    summaries: Sequence[StrategyMeasured]

    def of(self, strategy: str) -> StrategyMeasured:
        return next(each for each in self.summaries if each.strategy == strategy)


def study(
    cause: str, worlds: int, experiment: Experiment, *, on_progress: Callable[[int], object] = ignore
) -> CauseStudied:
    """Draw worlds until something was hot in so many of them, and rotate in each."""
    fired: list[list[Trial]] = []
    drawn = 0
    while len(fired) < worlds and drawn < worlds * DRAWS_PER_WORLD_MAX:
        found = trials(cause, drawn, experiment)
        drawn += 1
        if found:
            fired.append(found)
            on_progress(len(fired))
    done = [trial for found in fired for trial in found]
    summaries = [summary(name, done) for name in (*STRATEGIES, LEFT_ALONE)]
    return CauseStudied(cause, len(fired), drawn, summaries)


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
    """The number of worlds in which the loop stopped rotating."""
    rotations_failed_max: int | None
    """The most consecutive rotations without improvement before it stopped."""
    balanced: int
    """The number of worlds in which no pod is hot any more."""
    rotations_median: float | None
    evicted_median: float | None
    hours: float
    """The time for which the other worlds were simulated."""


def futility(
    cause: str,
    worlds: int,
    experiment: Experiment,
    *,
    hours_max: float = HOURS_MAX,
    on_progress: Callable[[int], object] = ignore,
) -> Futility:
    """Run the loop in this number of worlds that begin with a hot pod."""
    runs: list[FutilityRun] = []
    for seed in range(worlds * DRAWS_PER_WORLD_MAX):
        if plan_now(experiment.world(cause, seed), experiment.settings) is None:
            continue
        runs.append(run_until_futile(experiment.world(cause, seed), experiment, hours_max=hours_max))
        on_progress(len(runs))
        if len(runs) == worlds:
            break
    failed = [run.rotations_failed for run in runs if run.rotations_failed is not None]
    return Futility(
        cause=cause,
        worlds=len(runs),
        futile=len(failed),
        rotations_failed_max=max(failed, default=None),
        balanced=sum(run.rotations_failed is None and not run.has_hot_pods for run in runs),
        rotations_median=_median([run.rotations for run in runs]),
        evicted_median=_median([run.evicted for run in runs]),
        hours=hours_max,
    )
