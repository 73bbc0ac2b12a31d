"""What a rotation brings, by the cause of the imbalance and by the way of rotating: seeded experiments.

For each seed the same world is made once for every strategy, so that all start from the same pods and loads.
The hottest pod is measured over one metrics window before, and over one after all pods are ready again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from equipoise.rotation.policy import RotationPolicy
from equipoise.sim.scenes import Unbalanced, unbalanced
from equipoise.sim.strategies import CLOSED_LOOP, LEFT_ALONE, STRATEGIES, Plan, plan_now
from equipoise.sim.truth import Watch, hottest_cores, run_until_measured

DRAWS_PER_WORLD_MAX = 30
"""How many worlds may be drawn for one in which something is hot."""
_NOISE = 1.001
"""Less than this is no change for the worse, but the way in which floats are added up."""


@dataclass(frozen=True, slots=True)
class Question:
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
        """Whether the hottest pod is hotter than before."""
        return self.after_cores > self.before_cores * _NOISE

    @property
    def peak_ratio(self) -> float:
        """The most that any pod used meanwhile, beside the hottest before."""
        return self.peak_cores / self.before_cores


def trials(cause: str, seed: int, question: Question) -> list[Trial]:
    """Rotate in every way in the world of one seed; nothing when no pod is hot there.

    The last one is left alone for as long as the closed loop took: what falls there fell by itself.
    """
    plan = plan_now(question.world(cause, seed), question.settings)
    if plan is None:
        return []
    found = [_trial(cause, seed, question, name, plan) for name in STRATEGIES]
    took_seconds = found[list(STRATEGIES).index(CLOSED_LOOP)].took_seconds
    return [*found, _trial(cause, seed, question, LEFT_ALONE, plan, took_seconds)]


def _trial(
    cause: str, seed: int, question: Question, name: str, plan: Plan, waits_seconds: float = 0.0
) -> Trial:
    scene, window_seconds = question.world(cause, seed), question.policy.metrics_window_seconds
    world, workload = scene.world, scene.workload
    began_at, replicas = world.now, workload.replicas
    before = hottest_cores(world, workload, window_seconds)
    watch = Watch(world, workload)
    evicted = STRATEGIES[name](scene, plan, question.settings) if name in STRATEGIES else 0
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
class Summary:
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


def summary(strategy: str, all_trials: Sequence[Trial]) -> Summary:
    """Sum up the trials of one strategy in which it did something."""
    own = [trial for trial in all_trials if trial.strategy == strategy]
    fired = own if strategy == LEFT_ALONE else [trial for trial in own if trial.evicted]
    evicted = sum(trial.evicted for trial in fired)
    realised = sum(trial.realised_percent for trial in fired)
    return Summary(
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
    summaries: Sequence[Summary]

    def of(self, strategy: str) -> Summary:
        """Give the summary of one strategy."""
        return next(each for each in self.summaries if each.strategy == strategy)


def study(
    cause: str, worlds: int, question: Question, *, told: Callable[[int], object] = int
) -> CauseStudied:
    """Draw worlds until something was hot in so many of them, and rotate in each; `told` hears how many."""
    fired: list[list[Trial]] = []
    drawn = 0
    while len(fired) < worlds and drawn < worlds * DRAWS_PER_WORLD_MAX:
        found = trials(cause, drawn, question)
        drawn += 1
        if found:
            fired.append(found)
            told(len(fired))
    done = [trial for found in fired for trial in found]
    summaries = [summary(name, done) for name in (*STRATEGIES, LEFT_ALONE)]
    return CauseStudied(cause, len(fired), drawn, summaries)
