"""What a rotation brings, by cause and strategy: the shape of it, in a handful of worlds."""

from dataclasses import replace

import pytest

from equipoise.sim.experiment import IMBALANCES, Experiment, Unbalanced, unbalanced
from equipoise.sim.study import (
    CLOSED_LOOP,
    HOT_ONLY,
    HOTTEST,
    LEFT_ALONE,
    SEED,
    STRATEGIES,
    Trial,
    futility,
    hottest_cores,
    run_until_futile,
    study,
    summary,
    trials,
)
from tests.support.sim.scenes import six_pods

WORLDS = 12
TARGET_CORES = 0.7


@pytest.mark.parametrize("cause", IMBALANCES)
@pytest.mark.parametrize("pods", [4, 6, 13])
def test_the_mean_of_an_unbalanced_workload_is_at_its_target(cause: str, pods: int) -> None:
    """So the autoscaler has nothing to do, and what is left is the imbalance."""
    scene = unbalanced(3, cause, pods=pods)
    used = [pod.counter.rate_cores for pod in scene.workload.pods.values() if pod.counter is not None]
    assert len(used) == pods
    assert sum(used) / pods == pytest.approx(TARGET_CORES)
    assert not [entry for entry in scene.world.state.history if entry.kind == "Scaled"]


def test_a_noisy_node_makes_its_own_pods_hot() -> None:
    """The same work costs more CPU there, and nowhere else."""
    scene = unbalanced(1, "noisy node")
    pods = [pod for pod in scene.workload.pods.values() if pod.node is not None and pod.counter is not None]
    noisy = {pod.name for pod in pods if pod.node is not None and pod.node.cpu_factor > 1}
    hot = {
        pod.name for pod in pods if pod.counter is not None and pod.counter.rate_cores > TARGET_CORES * 1.2
    }
    assert hot == noisy != set()


def test_every_strategy_starts_from_the_same_world() -> None:
    """The same hottest pod, the same promise; and the same seed gives the same again."""
    found = trials("stale counts", 0, Experiment())
    assert [trial.strategy for trial in found] == [*STRATEGIES, LEFT_ALONE]
    assert len({(trial.before_cores, trial.predicted_percent) for trial in found}) == 1
    assert found == trials("stale counts", 0, Experiment())


def test_a_world_without_a_hot_pod_gives_no_trial() -> None:
    """Another is drawn; when none is ever hot, that is said and not searched for ever."""
    question = Experiment(settings={"toleranceMultiplier": 9})
    assert trials("key skew", 0, question) == []
    found = study("stale counts", 1, question)
    assert (found.worlds, found.drawn, found.of(SEED).fired) == (0, 30, 0)


def test_one_pod_heals_stale_counts_as_well_as_all_of_the_plan() -> None:
    """Whoever leaves, the group counts anew: three times the evictions bring nothing more."""
    found = study("stale counts", WORLDS, Experiment())
    one, everybody = found.of(HOTTEST), found.of(SEED)
    assert one.realised_percent_median == pytest.approx(everybody.realised_percent_median)
    assert one.realised_percent_median is not None
    assert one.realised_percent_median > 30
    assert one.evicted == WORLDS
    assert everybody.evicted >= 3 * WORLDS
    assert found.of(CLOSED_LOOP).evicted == WORLDS
    assert found.of(CLOSED_LOOP).worse_share == 0


def test_key_skew_brings_far_less_than_was_promised() -> None:
    """What is hot stays hot wherever it goes."""
    found = study("key skew", WORLDS, Experiment())
    at_once = found.of(SEED)
    assert at_once.predicted_percent_median is not None
    assert at_once.realised_percent_median is not None
    assert at_once.realised_percent_median < at_once.predicted_percent_median / 2


@pytest.mark.parametrize("cause", IMBALANCES)
def test_the_closed_loop_never_has_two_pods_away(cause: str) -> None:
    """Where the rule at once leaves half of them, and loads the rest with all the work."""
    found = study(cause, 4, Experiment())
    ours, at_once = found.of(CLOSED_LOOP), found.of(SEED)
    assert ours.fired == 4
    assert ours.ready_min == 5
    assert at_once.ready_min in {2, 3}
    assert ours.peak_ratio_median is not None
    assert at_once.peak_ratio_median is not None
    assert ours.peak_ratio_median < at_once.peak_ratio_median


def test_settings_of_the_policy_reach_the_loop_and_the_rule() -> None:
    """With topK=1 the plan is one hot pod and one cold one."""
    found = trials("stale counts", 0, Experiment(settings={"topK": "1"}))
    by_name = {trial.strategy: trial for trial in found}
    assert (by_name[SEED].evicted, by_name[HOT_ONLY].evicted, by_name[LEFT_ALONE].evicted) == (2, 1, 0)
    assert 1 <= by_name[CLOSED_LOOP].evicted <= 2


def test_a_summary_weighs_pods_against_what_they_brought() -> None:
    """Three pods for 30 points are one for ten; a strategy that did nothing has no figures."""
    one = Trial(SEED, 2, 40.0, 1.0, 0.6, 1.5, 4, 310.0, has_scaled=False)
    other = replace(one, evicted=1, after_cores=1.1, peak_cores=0.5, ready_min=5)
    idle = replace(one, strategy=HOTTEST, evicted=0)
    found = summary(SEED, [one, other, idle])
    assert (found.fired, found.evicted, found.ready_min) == (2, 3, 4)
    assert found.evicted_per_10_points == pytest.approx(1.0)
    assert found.realised_percent_median == pytest.approx(15.0)
    assert found.peak_ratio_median == pytest.approx(1.0)
    assert found.worse_share == 0.5
    nothing = summary(HOTTEST, [one, other, idle])
    assert (nothing.fired, nothing.realised_percent_median, nothing.evicted_per_10_points) == (0, None, None)


def test_where_each_pod_takes_over_its_predecessors_load_three_rotations_are_the_last() -> None:
    """The third that does not help is followed by `Futile`, after at most four pods each."""
    six = six_pods(1)
    before = hottest_cores(six.world, six.workload, 300)
    run = run_until_futile(Unbalanced(six.world, six.workload), Experiment())
    assert (run.rotations, run.rotations_failed, run.has_hot_pods) == (3, 3, True)
    assert run.evicted <= 12
    assert hottest_cores(six.world, six.workload, 300) == pytest.approx(before)


def test_under_key_skew_the_loop_ends_balanced_or_futile() -> None:
    """With many pods a hot key stays hot: it gives up after three failures in a row, not more."""
    found = futility("key skew", 4, Experiment(pods=12), hours_max=8)
    assert found.worlds == 4
    assert found.futile > 0
    assert found.rotations_failed_max == 3
    assert found.futile + found.balanced <= 4
