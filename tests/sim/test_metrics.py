"""The simulated Prometheus: rates from samples, and all the ways in which they are missing."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.cluster import Container
from equipoise.core.errors import WorldFailed
from equipoise.sim import Delay, FaultKind, SimSettings, Template, World
from equipoise.sim.autoscaling import sample
from equipoise.sim.load import Constant, CpuCounter
from equipoise.sim.state import PodState, WorkloadState
from tests.support.sim.scenes import Ramp

TWO = Template(
    containers=(Container("app", 1.0), Container("side", 0.1)),
    split=(0.75, 0.25),
    start_up=Delay(5),
    stop=Delay(1),
)


def steady(cores: float = 2.0, replicas: int = 2, seconds: float = 600) -> tuple[World, WorkloadState]:
    world = World(2)
    world.add_node("node")
    workload = world.add_workload("shop", "web", replicas=replicas, template=TWO, shape=Constant(cores))
    world.advance(seconds)
    return world, workload


def asked(workload: WorkloadState) -> Mapping[str, Sequence[str]]:
    return {"shop": [pod.name for pod in workload.pods.values()]}


def app_cores(world: World, workload: WorkloadState, window_seconds: float = 300) -> dict[str, float]:
    usage = world.metrics.cpu_usage(asked(workload), world.now, window_seconds)
    rows = zip(usage.pods, usage.containers, usage.cores.tolist(), strict=True)
    return {pod: cores for pod, container, cores in rows if container == "app"}


def test_a_steady_load_is_measured_exactly_and_split_by_container() -> None:
    """Two cores on two pods: 0.75 and 0.25 for their containers, sampled within the last scrape interval."""
    world, workload = steady()
    usage = world.metrics.cpu_usage(asked(workload), world.now, 300)
    assert usage.containers == ["app", "side"] * 2
    assert usage.cores.tolist() == pytest.approx([0.75, 0.25] * 2)
    ages = world.now - usage.sampled_at
    assert (ages >= world.settings.scrape_delay_seconds).all()
    assert (ages <= world.settings.scrape_interval_seconds + world.settings.scrape_delay_seconds).all()
    assert len(set(usage.sampled_at.tolist())) == 2  # each pod has a beat of its own


def test_a_sample_is_seen_only_after_the_scrape_delay() -> None:
    """Twelve seconds here: nothing younger is in any answer."""
    world = World(2, settings=SimSettings(scrape_delay_seconds=12))
    world.add_node("node")
    workload = world.add_workload("shop", "web", replicas=8, template=TWO)
    world.advance(600)
    usage = world.metrics.cpu_usage(asked(workload), world.now, 300)
    assert 12 <= (world.now - usage.sampled_at).min() < 15


@pytest.mark.parametrize(
    ("last", "expected"),
    [(108, (None, 0.0)), (112, (2.0, 12)), (115, (2.0, 15)), (120, (2.0, 15)), (140, (None, 0.0))],
    ids=["too young", "measured from its start", "one interval", "two scrapes", "after it stopped"],
)
def test_metrics_server_knows_a_container_from_its_tenth_second(
    last: float, expected: tuple[float | None, float]
) -> None:
    """Started at 100, scraped every 15 s, stopped at 130: usage, and over how many seconds."""
    counter = CpuCounter(100.0)
    counter.set_rate(100.0, 2.0)
    counter.stopped_at = 130.0
    assert sample(counter, last, 15.0) == expected


def test_a_rate_needs_two_samples() -> None:
    """A new pod is unknown, not idle; a pod that nobody knows has no row."""
    world, workload = steady(seconds=14)
    assert app_cores(world, workload) == {}
    world.advance(60)
    assert len(app_cores(world, workload)) == 2
    assert world.metrics.cpu_usage({"shop": ["nobody"], "no": ["web"]}, world.now, 300).pods == []


def test_a_rate_is_the_mean_over_the_window() -> None:
    """On a ramp it lags by half of the window."""
    world = World(2)
    world.add_node("node")
    start = world.now
    shape = Ramp(0.0, 1.0, start, start + 1000)
    workload = world.add_workload("shop", "web", replicas=1, template=TWO, shape=shape)
    world.advance(900)
    (cores,) = app_cores(world, workload).values()
    assert cores == pytest.approx(0.75 * 0.74, abs=0.02)


def test_the_samples_of_a_gone_pod_are_still_in_the_window() -> None:
    """As in Prometheus: whoever asks by name must know who is alive. Later it is forgotten."""
    world, workload = steady()
    pod = next(iter(workload.pods.values()))
    world.actuator.evict(pod.ref)
    world.advance(60)
    usage = world.metrics.cpu_usage({"shop": [pod.name]}, world.now, 300)
    assert usage.pods == [pod.name] * 2
    assert (world.now - usage.sampled_at > 50).all()
    world.advance(900)
    assert world.metrics.cpu_usage({"shop": [pod.name]}, world.now, 300).pods == []


def test_a_gap_makes_samples_old_and_then_unknown() -> None:
    """For one pod, or for a whole workload."""
    world, workload = steady()
    first, second = workload.pods.values()
    world.faults.add(FaultKind.METRICS_GAP, seconds=1000, target=str(first.ref))
    world.advance(200)
    usage = world.metrics.cpu_usage(asked(workload), world.now, 300)
    ages = dict(zip(usage.pods, (world.now - usage.sampled_at).tolist(), strict=True))
    assert ages[first.name] > 190
    assert ages[second.name] < 20
    world.advance(200)
    assert set(app_cores(world, workload)) == {second.name}
    world.faults.add(FaultKind.METRICS_GAP, seconds=1000, target="shop/web")
    world.advance(400)
    assert app_cores(world, workload) == {}


def test_an_empty_store_covers_the_window_only_after_a_while() -> None:
    """Whatever was scraped before is lost; the rate is marked until the samples reach back far enough."""
    world, workload = steady()
    world.faults.add(FaultKind.METRICS_GAP, seconds=10_000, starts_at=world.now - 10_000)
    covered = []
    for _ in range(10):
        world.advance(30)
        usage = world.metrics.cpu_usage(asked(workload), world.now, 300)
        assert usage.is_covered is not None
        covered.append(usage.is_covered.all() and len(usage.pods) == 4)
    assert covered == [False] * 9 + [True]


def test_a_node_that_was_away_left_a_gap() -> None:
    """Nothing is known of its pods for that time, also when it is back."""
    world, workload = steady()
    node = world.state.nodes["node"]
    world.kubelet.kill_node(node)
    world.advance(35)
    world.kubelet.revive_node(node)
    world.advance(5)
    usage = world.metrics.cpu_usage(asked(workload), world.now, 300)
    assert (world.now - usage.sampled_at > 30).any()
    world.advance(30)
    usage = world.metrics.cpu_usage(asked(workload), world.now, 300)
    assert (world.now - usage.sampled_at < 20).all()


def test_nan_is_left_out_with_a_warning() -> None:
    """As the adapter does where metrics enter."""
    world, workload = steady()
    first, second = workload.pods.values()
    world.faults.add(FaultKind.METRICS_NAN, seconds=30, target=str(first.ref))
    world.advance(60)
    usage = world.metrics.cpu_usage(asked(workload), world.now, 300)
    assert set(usage.pods) == {second.name}
    assert usage.warnings == ("the usage of 2 containers was ignored: it is NaN",)


def test_an_outage_raises_and_a_stale_answer_is_old_and_a_late_one_takes_its_time() -> None:
    """Time passes while a loop waits for an answer."""
    world, workload = steady()
    world.faults.add(FaultKind.METRICS_OUTAGE, seconds=10)
    with pytest.raises(WorldFailed):
        app_cores(world, workload)
    with pytest.raises(WorldFailed):
        world.metrics.scalar("lag", world.now)
    world.advance(11)
    world.faults.add(FaultKind.METRICS_STALE, seconds=10, value=100)
    usage = world.metrics.cpu_usage(asked(workload), world.now, 300)
    assert (world.now - usage.sampled_at >= 100).all()
    world.advance(11)
    world.faults.add(FaultKind.METRICS_LATE, seconds=10, value=25)
    before = world.now
    assert len(app_cores(world, workload)) == 2
    assert world.now == before + 25


def test_a_late_answer_inside_a_cycle_lets_the_rest_of_the_world_go_on() -> None:
    """A loop that runs on the timeline waits, and nothing is left out or done twice."""
    world, workload = steady()
    world.faults.add(FaultKind.METRICS_LATE, seconds=1000, value=40)
    cycles: list[float] = []
    beats: list[float] = []

    def cycle() -> None:
        app_cores(world, workload)
        cycles.append(world.now)

    world.every(60, cycle)
    world.every(10, lambda: beats.append(world.now))
    start = world.now
    world.advance(300)
    assert [moment - start for moment in cycles] == [100, 160, 220, 280, 340]
    assert [moment - start for moment in beats] == [10 * number for number in range(1, 35)]


def test_queries_that_the_test_knows_are_answered() -> None:
    """Any other has no answer."""
    world, _ = steady()
    world.metrics.scalars["lag"] = lambda at: at - world.now + 5
    assert world.metrics.scalar("lag", world.now) == 5
    assert world.metrics.scalar("other", world.now) is None


def test_a_restart_is_seen_as_a_counter_reset() -> None:
    """What was used between the last sample and the restart is lost, and never counted as negative."""
    world, workload = steady(replicas=1, cores=1.0)
    (pod,) = workload.pods.values()
    world.kubelet.crash(pod)
    world.advance(200)
    (cores,) = app_cores(world, workload).values()
    assert 0.5 < cores < 0.75  # it served nothing for a while
    assert pod.restarts == 1
    assert pod.counter is not None
    assert pod.counter.resets == [pod.restarted_at]


def test_what_was_used_between_a_sample_and_a_restart_is_lost() -> None:
    """One core, a reading every 10 s, a restart at second 37: seven core-seconds are never read."""
    counter = CpuCounter(0.0)
    counter.set_rate(0.0, 1.0)
    counter.reset(37.0)
    assert counter.rate([10.0 * number for number in range(11)]) == pytest.approx(0.93)


@given(
    st.lists(st.tuples(st.floats(1, 50), st.floats(0, 4)), min_size=1, max_size=20),
    st.lists(st.floats(0, 900), max_size=3),
)
def test_rates_without_resets_are_exact_and_with_resets_never_more(
    pieces: list[tuple[float, float]], resets: list[float]
) -> None:
    """Against a plain sum over the pieces."""
    counter, at, expected = CpuCounter(0.0), 0.0, 0.0
    for seconds, cores in pieces:
        counter.set_rate(at, cores)
        expected += seconds * cores
        at += seconds
    assert counter.total(at) == pytest.approx(expected)
    samples = [at * share / 10 for share in range(11)]
    assert counter.rate(samples) == pytest.approx(expected / at)
    for reset in sorted(resets):
        counter.reset(reset)
    assert -1e-9 <= counter.rate(samples) <= expected / at + 1e-9


def test_a_counter_forgets_what_no_window_reaches() -> None:
    """A week of changes is not kept; the last hours are exact."""
    counter = CpuCounter(0.0)
    for number in range(5000):
        counter.set_rate(number * 60.0, number % 7)
    for number in range(4600, 5000):
        assert counter.mean_cores(number * 60.0, number * 60.0 + 30) == pytest.approx(number % 7)
    assert counter.started_at > 0


def _work(pods: Sequence[PodState]) -> list[float]:
    return [pod.work_cores for pod in pods]


def test_noisy_nodes_cost_more_for_the_same_work() -> None:
    """Half as much again on one of two nodes."""
    world = World(2)
    world.add_node("calm", cpu_cores=4)
    world.add_node("loud", cpu_cores=4, cpu_factor=1.5)
    workload = world.add_workload("shop", "web", replicas=4, template=TWO, shape=Constant(2.0))
    world.advance(600)
    assert _work(list(workload.pods.values())) == [0.5] * 4
    found = app_cores(world, workload)
    by_node = {pod.node.name: found[pod.name] for pod in workload.pods.values() if pod.node}
    assert by_node == pytest.approx({"calm": 0.375, "loud": 0.5625})
