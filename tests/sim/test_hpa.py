"""The HPA's algorithm, rule by rule, with numbers worked out by hand from Kubernetes' documentation."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.cluster import HpaMetric
from equipoise.sim.hpa import (
    Behavior,
    HpaController,
    HpaMemory,
    HpaPod,
    HpaScalingRules,
    NoProposal,
    SimulatedHpaSpec,
    milli,
    propose,
)
from tests.support.sim.autoscalers import recommend

CPU_50 = HpaMetric("Resource", "cpu", "Utilization", 50)
CPU_100M = HpaMetric("Resource", "cpu", "AverageValue", 0.1)
CONTROLLER = HpaController()
NOW = 10_000.0


def pod(usage_milli: int | None, request_milli: int | None = 1000, **changes: object) -> HpaPod:
    """Give a pod that is an hour old, ready and just measured."""
    fields: dict[str, object] = {
        "usage_milli": usage_milli,
        "request_milli": request_milli,
        "sampled_at": NOW - 5,
        "window_seconds": 15.0,
        "started_at": NOW - 3600,
        "ready_changed_at": NOW - 3590,
    }
    return HpaPod(**(fields | changes))  # type: ignore[arg-type]


def pending() -> HpaPod:
    return pod(None, phase="Pending", is_ready=False, started_at=None)


def young(usage_milli: int) -> HpaPod:
    """Give a pod that is ready, but not yet for one window."""
    return pod(usage_milli, started_at=NOW - 30, ready_changed_at=NOW - 15)


TOLERANCE: list[tuple[str, list[HpaPod], int]] = [
    ("exactly at the target", [pod(500)] * 4, 4),
    ("1.1 is within", [pod(550)] * 4, 4),
    ("1.12 is not: ceil(1.12 x 4)", [pod(560)] * 4, 5),
    ("55.9 % is cut to 55 %, and within", [pod(559)] * 4, 4),
    ("0.9 is within", [pod(450)] * 4, 4),
    ("0.88 is not: ceil(0.88 x 4) is 4 all the same", [pod(440)] * 4, 4),
    ("half", [pod(250)] * 4, 2),
    ("nothing", [pod(0)] * 4, 0),
    ("double", [pod(1000)] * 4, 8),
    ("the sum counts, not the mean of the ratios", [pod(900, 1000), pod(100, 200), pod(200, 800)], 4),
]


@pytest.mark.parametrize(("name", "pods", "expected"), TOLERANCE, ids=[row[0] for row in TOLERANCE])
def test_the_ratio_decides_outside_the_tolerance(name: str, pods: list[HpaPod], expected: int) -> None:
    """The desired count is ceil(ratio x pods), with the ratio from whole percents."""
    del name
    assert propose(CPU_50, pods, len(pods), NOW, CONTROLLER) == expected


INCOMPLETE: list[tuple[str, list[HpaPod], int]] = [
    ("missing, up: it counts as idle; 200 % x 3 of 4 is 75 % of the pods", [pod(1000)] * 3 + [pod(None)], 6),
    ("missing, up: the correction lands in the tolerance", [pod(600)] * 3 + [pod(None)], 4),
    ("missing, up: the correction turns around, so nothing", [pod(560)] * 2 + [pod(None)] * 2, 4),
    ("missing, down: it counts as 100 %; (3 x 10 + 100) / 4 is 32 %", [pod(100)] * 3 + [pod(None)], 3),
    ("missing, down: the correction turns around, so nothing", [pod(400)] * 3 + [pod(None)], 4),
    ("missing, in balance: looked at again with the same result", [pod(500)] * 3 + [pod(None)], 4),
    ("pending, up: it counts as idle", [pod(1000)] * 3 + [pending()], 6),
    ("pending, down: it does not count at all; 0.5 x 3", [pod(250)] * 3 + [pending()], 2),
    ("young, up: idle, however busy it looks", [pod(1000)] * 3 + [young(5000)], 6),
    ("young, down: not counted", [pod(250)] * 3 + [young(5000)], 2),
    ("terminating does not exist", [pod(1000)] * 3 + [pod(9000, is_terminating=True)], 6),
    ("failed does not exist", [pod(1000)] * 3 + [pod(9000, phase="Failed")], 6),
    ("missing and young together, up", [pod(2000)] * 3 + [pod(None), young(0)], 12),
]


@pytest.mark.parametrize(("name", "pods", "expected"), INCOMPLETE, ids=[row[0] for row in INCOMPLETE])
def test_pods_without_a_good_sample_dampen(name: str, pods: list[HpaPod], expected: int) -> None:
    """Idle when the rest asks for more, fully busy when it asks for less; never past the turning point."""
    del name
    current = sum(not each.is_terminating and each.phase != "Failed" for each in pods)
    assert propose(CPU_50, pods, current, NOW, CONTROLLER) == expected


def test_missing_pods_count_as_the_target_when_that_is_above_the_request() -> None:
    """With a target of 150 %, a missing pod counts as 150 % on the way down: (4 x 30 + 600) / 8 is 90 %."""
    metric = HpaMetric("Resource", "cpu", "Utilization", 150)
    assert propose(metric, [pod(300)] * 4 + [pod(None)] * 4, 8, NOW, CONTROLLER) == 5


READINESS: list[tuple[str, HpaPod, bool]] = [
    ("ready for one window inside the first five minutes", young(0), False),
    (
        "sampled a full window after it became ready",
        pod(0, started_at=NOW - 60, ready_changed_at=NOW - 30),
        True,
    ),
    ("unready inside the first five minutes", pod(0, started_at=NOW - 60, is_ready=False), False),
    (
        "unready later, having been ready: its sample counts",
        pod(0, started_at=NOW - 400, is_ready=False, ready_changed_at=NOW - 100),
        True,
    ),
    (
        "unready later, never ready: the change is as old as the start",
        pod(0, started_at=NOW - 400, is_ready=False, ready_changed_at=NOW - 399),
        False,
    ),
]


@pytest.mark.parametrize(("name", "last", "is_counted"), READINESS, ids=[row[0] for row in READINESS])
def test_a_starting_pods_cpu_is_set_aside(name: str, last: HpaPod, is_counted: bool) -> None:
    """Three pods at 50 % and an idle fourth: 37 % when it counts, which asks for 3; else nothing to do."""
    del name
    assert propose(CPU_50, [pod(500)] * 3 + [last], 4, NOW, CONTROLLER) == (3 if is_counted else 4)


def test_memory_has_no_warm_up() -> None:
    """Only CPU samples of starting pods are set aside."""
    memory = HpaMetric("Resource", "memory", "Utilization", 50)
    assert propose(memory, [pod(500)] * 3 + [young(0)], 4, NOW, CONTROLLER) == 3


AVERAGE: list[tuple[str, list[HpaPod], int]] = [
    ("the mean of all pods", [pod(50), pod(250)], 3),
    ("within the tolerance", [pod(110)] * 3, 3),
    ("missing, down: it counts as the target; (3 x 10 + 100) / 4 is 32", [pod(10)] * 3 + [pod(None)], 2),
    ("missing, up: it counts as 0", [pod(200)] * 3 + [pod(None)], 6),
    ("no request is needed", [pod(200, None)] * 2, 4),
]


@pytest.mark.parametrize(("name", "pods", "expected"), AVERAGE, ids=[row[0] for row in AVERAGE])
def test_an_average_value_is_compared_as_it_is(name: str, pods: list[HpaPod], expected: int) -> None:
    """The target is 100m."""
    del name
    assert propose(CPU_100M, pods, len(pods), NOW, CONTROLLER) == expected


@pytest.mark.parametrize(
    "pods",
    [[], [pod(None)], [pending()], [young(100)], [pod(500), pod(500, None)], [pod(500, 0)]],
    ids=["no pods", "no samples", "only pending", "only young", "a pod without request", "requests of zero"],
)
def test_some_pods_say_nothing(pods: list[HpaPod]) -> None:
    """Then the metric proposes nothing."""
    with pytest.raises(NoProposal):
        propose(CPU_50, pods, 3, NOW, CONTROLLER)


def advise(
    spec: SimulatedHpaSpec, pods: Sequence[Sequence[HpaPod]], current: int, memory: HpaMemory | None = None
) -> int:
    return recommend(
        spec, pods, current=current, memory=memory or HpaMemory(), at=NOW, controller=CONTROLLER
    ).replicas


def test_the_highest_of_several_metrics_counts() -> None:
    """One asks for 4, one for 6."""
    side = HpaMetric("ContainerResource", "cpu", "Utilization", 50, "side")
    spec = SimulatedHpaSpec((CPU_50, side), 1, 20)
    assert advise(spec, [[pod(500)] * 4, [pod(700)] * 4], 4) == 6


def test_a_failing_metric_stops_scale_down_but_not_scale_up() -> None:
    """What cannot be seen might be busy. (The memory is old, so that no window holds the replicas.)"""
    old = HpaMemory(((NOW - 1000, 4),))
    assert advise(SimulatedHpaSpec((CPU_50,), 1, 20), [[pod(100)] * 4], 4, old) == 1
    spec = SimulatedHpaSpec((CPU_50, HpaMetric("External", "queue", "Value", 5)), 1, 20)
    assert advise(spec, [[pod(1000)] * 4, []], 4) == 8
    assert advise(spec, [[pod(100)] * 4, []], 4, old) == 4


@pytest.mark.parametrize(("current", "expected"), [(0, 0), (1, 2), (25, 20)])
def test_the_bounds_come_before_the_metrics(current: int, expected: int) -> None:
    """Zero means switched off; outside the bounds, the nearest bound, with no metric asked."""
    assert advise(SimulatedHpaSpec((CPU_50,), 2, 20), [[]], current) == expected


def test_without_a_behavior_growth_is_at_most_the_double_or_four() -> None:
    """And from one pod to four at once."""
    spec = SimulatedHpaSpec((CPU_50,), 1, 100)
    assert advise(spec, [[pod(9000)]], 1) == 4
    assert advise(spec, [[pod(9000)] * 10], 10) == 20
    assert advise(SimulatedHpaSpec((CPU_50,), 1, 13), [[pod(9000)] * 10], 10) == 13


def test_with_a_behavior_the_defaults_are_four_pods_or_the_double() -> None:
    """From one pod to five: the two defaults differ."""
    spec = SimulatedHpaSpec((CPU_50,), 1, 100, Behavior())
    assert advise(spec, [[pod(9000)]], 1) == 5
    assert advise(spec, [[pod(9000)] * 10], 10) == 20


def test_a_tolerance_of_ones_own() -> None:
    """Up by 5 %, down by 30 %."""
    rules = Behavior()
    behavior = Behavior(
        HpaScalingRules(rules.up.policies, tolerance=0.05),
        HpaScalingRules(rules.down.policies, stabilization_seconds=0, tolerance=0.3),
    )
    spec = SimulatedHpaSpec((CPU_50,), 1, 100, behavior)
    assert advise(spec, [[pod(540)] * 10], 10) == 11
    assert advise(spec, [[pod(370)] * 10], 10) == 10
    assert advise(spec, [[pod(340)] * 10], 10) == 7


def test_quantities_are_rounded_up_to_thousandths_without_floats_noise() -> None:
    """0.07 cores are 70m, although 0.07 x 1000 is a hair more."""
    assert [milli(value) for value in (0.07, 0.0701, 0.29, 1.0, 0.0)] == [70, 71, 290, 1000, 0]


@given(
    st.lists(st.integers(0, 4000), min_size=1, max_size=30),
    st.integers(1, 10),
    st.integers(0, 20),
    st.integers(1, 40),
)
def test_advice_is_always_within_the_bounds(usages: list[int], least: int, more: int, current: int) -> None:
    """Whatever the usage: between min and max, and never more than the double or four at once."""
    spec = SimulatedHpaSpec((CPU_50,), least, least + more)
    wanted = advise(spec, [[pod(usage) for usage in usages]], current)
    assert least <= wanted <= least + more
    if least <= current <= least + more:
        assert wanted <= max(2 * current, 4)
