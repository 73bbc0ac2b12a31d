"""What a rotation brings, by the cause of the imbalance and by the strategy: seeded experiments.

For each seed the same world is made once for every strategy, so that all start from the same pods and
loads: the production loop, the rule that it came from, and simpler ones. The hottest pod is measured over one
metrics window before, and over one after all pods are ready again; what a workload went through is read from
the simulator itself and not from any metric.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any

from equipoise.core.cluster import WorkloadRef
from equipoise.core.decision import Record
from equipoise.core.ledger import Ledger
from equipoise.engine.isolation import Isolation
from equipoise.ports import FailedTurn
from equipoise.rotation.loop import DEFAULTS, CyclePlanner, RotationLoop
from equipoise.rotation.observe import Ports
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.progress import BALANCER, RotationMemory
from equipoise.rotation.status import assign
from equipoise.sim.scenes import Unbalanced, is_whole, unbalanced
from equipoise.sim.state import WorkloadState
from equipoise.sim.world import World

_STEP_SECONDS = 5.0
_WHOLE_MAX_SECONDS = 3600.0


class WorkloadWatch:
    """Sees every change of one workload's pods."""

    def __init__(self, world: World, workload: WorkloadState) -> None:
        self._workload = workload
        self.ready_min = sum(pod.is_serving for pod in workload.pods.values())
        self.peak_cores = 0.0
        """The most that any pod used while another was away."""
        world.state.listeners.append(self._notice)

    def _notice(self, workload: WorkloadState) -> None:
        if workload is not self._workload:
            return
        serving = [pod for pod in workload.pods.values() if pod.is_serving]
        self.ready_min = min(self.ready_min, len(serving))
        if len(serving) < workload.replicas:
            used = (pod.counter.rate_cores for pod in serving if pod.counter is not None)
            self.peak_cores = max(self.peak_cores, *used, 0.0)


def hottest_cores(world: World, workload: WorkloadState, window_seconds: float) -> float:
    """Return the mean usage of the busiest serving pod over the window that ends now."""
    since, until = world.now - window_seconds, world.now
    return max(
        (
            pod.counter.mean_cores(since, until)
            for pod in workload.pods.values()
            if pod.is_serving and pod.counter is not None
        ),
        default=0.0,
    )


def run_until_measured(world: World, workload: WorkloadState, window_seconds: float) -> bool:
    """Advance until all pods have served for one whole window; return whether they did in time."""
    ends_at = world.now + _WHOLE_MAX_SECONDS
    while world.now < ends_at:
        if is_whole(workload):
            changed_at = max(pod.ready_changed_at for pod in workload.pods.values())
            if world.now >= changed_at + window_seconds:
                return True
        world.advance(_STEP_SECONDS)
    return False


CYCLE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class OnlyLeader:
    """Is always the leader: a study has one replica."""

    def epoch(self) -> int | None:
        """Return the only epoch."""
        return 1


@dataclass(frozen=True, slots=True)
class NoJournal:
    """Drops all records: a study reads the simulated cluster only."""

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Forget these."""


def enforce(world: World, settings: Mapping[str, Any]) -> None:
    """Ask for the rotation of all workloads there are, with these settings of the policy."""
    for namespace in world.state.namespaces:
        world.policies.add(namespace, "all", {**settings, "selector": {}, "mode": "Enforce"})


def ports(world: World) -> Ports:
    """Return the ports of a rotation in a simulated cluster."""
    numbers = count()
    return Ports(
        cluster=world.cluster,
        metrics=world.metrics,
        pauses=world.pauses,
        leadership=OnlyLeader(),
        store=world.store,
        actuator=world.actuator,
        journal=NoJournal(),
        new_id=lambda _: f"id-{next(numbers)}",
        now=world.clock.now,
    )


def rotation_loop(world: World) -> RotationLoop:
    """Return the production loop on the ports of a simulated cluster."""
    return RotationLoop(ports(world), world.policies, interval_seconds=CYCLE_SECONDS)


def rotation_memory(world: World, workload: WorkloadRef) -> RotationMemory:
    """Return the memory of rotation in a workload's ledger."""
    ledger = Ledger.from_data(world.store.read(workload).data)
    return RotationMemory.from_data(ledger.memory.get(BALANCER, {}))


CLOSED_LOOP, SEED, HOT_ONLY, HOTTEST, LEFT_ALONE = "closed loop", "seed", "hot only", "hottest", "left alone"
CLOSED_LOOP_MAX_SECONDS = 4 * 3600.0
"""How long the closed loop may take for one rotation."""


@dataclass(frozen=True, slots=True)
class PlanStrategy:
    """The plan at one moment, held actions included: the hottest pods first, then the coldest."""

    pods: Sequence[str]
    hot: Sequence[str]
    predicted_percent: float


def plan_now(scene: Unbalanced, settings: Mapping[str, Any]) -> PlanStrategy | None:
    """Return what the production loop would decide, without doing it; None when nothing is hot."""
    world = scene.world
    enforce(world, settings)
    targets, _ = assign(world.policies.policies(), world.cluster.workloads())
    planner = CyclePlanner(ports(world), DEFAULTS, Isolation(), is_acting=False)
    _, ((_, planned),) = planner.plan_cycle(targets, world.now)
    assert not isinstance(planned, FailedTurn), planned
    # What is held was to follow what is not.
    actions = [*planned.decision.actions, *(held.action for held in planned.decision.held)]
    plan = planned.details.plan
    if not actions:
        return None
    assert plan is not None, "only a plan has actions"
    assert plan.improvement_percent is not None, "only an improvement is worth a rotation"
    return PlanStrategy([action.pod for action in actions], plan.hot, plan.improvement_percent)


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


DRAWS_PER_WORLD_MAX = 30
"""How many worlds may be drawn for one in which something is hot."""
_NOISE = 1.001
"""Less than this is no change for the worse, but the way in which floats are added up."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """How large the workload is, and how its policy is set."""

    pods: int = 6
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def policy(self) -> RotationPolicy:
        """The settings, checked."""
        return RotationPolicy.model_validate(self.settings)

    def world(self, cause: str, seed: int) -> Unbalanced:
        """Make a world whose pods can be judged."""
        policy = self.policy
        age_seconds = max(policy.candidate_age_min_seconds, policy.metrics_window_seconds) + 60
        return unbalanced(seed, cause, pods=self.pods, age_seconds=age_seconds)


@dataclass(frozen=True, slots=True)
class Trial:
    """One rotation in one world."""

    cause: str
    strategy: str
    seed: int
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
    return Trial(
        cause=cause,
        strategy=name,
        seed=seed,
        evicted=evicted,
        predicted_percent=plan.predicted_percent,
        before_cores=before,
        after_cores=hottest_cores(world, workload, window_seconds),
        peak_cores=watch.peak_cores,
        ready_min=watch.ready_min,
        took_seconds=world.now - began_at,
        has_scaled=workload.replicas != replicas or any(entry.kind == "Scaled" for entry in world.history),
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
        """Return the summary of one strategy."""
        return next(each for each in self.summaries if each.strategy == strategy)


def study(
    cause: str, worlds: int, experiment: Experiment, *, on_progress: Callable[[int], object] = int
) -> CauseStudied:
    """Draw worlds until something was hot in so many of them, and rotate in each; `told` hears how many."""
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
