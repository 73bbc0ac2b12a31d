"""How fast an HPA may move: policies and stabilization, with the numbers of Kubernetes' documentation."""

from collections.abc import Sequence
from typing import Any

import pytest

from equipoise.sim.hpa import (
    DOWN_BY_DEFAULT,
    UP_BY_DEFAULT,
    Behavior,
    HpaMemory,
    HpaScalingRules,
    ScalingPolicy,
    limited,
)

PODS_4 = ScalingPolicy("Pods", 4, 60)
PERCENT_10 = ScalingPolicy("Percent", 10, 60)


def follow(
    behavior: Behavior | None,
    proposals: Sequence[int],
    *,
    start: int,
    step_seconds: float = 15.0,
    **options: Any,
) -> list[int]:
    """Give the replicas after each sync, one proposal a sync, all of them set at once."""
    memory = HpaMemory()
    current, found = start, []
    for number, proposed in enumerate(proposals):
        at = 1000.0 + number * step_seconds
        memory = memory.begun(at, current)
        wanted, memory = limited(
            memory,
            behavior,
            at=at,
            current=current,
            proposed=proposed,
            bounds=options.get("bounds", (1, 1000)),
            down_window_seconds=options.get("down_window_seconds", 300.0),
        )
        if behavior is not None and wanted != current:
            memory = memory.scaled(at, current, wanted, behavior)
        current = wanted
        found.append(current)
    return found


def down(*policies: ScalingPolicy, **options: Any) -> Behavior:
    return Behavior(UP_BY_DEFAULT, HpaScalingRules(policies, **({"stabilization_seconds": 0.0} | options)))


def up(*policies: ScalingPolicy, **options: Any) -> Behavior:
    return Behavior(HpaScalingRules(policies, **options), DOWN_BY_DEFAULT)


def test_the_documentations_example_scales_down_by_percent_then_by_pods() -> None:
    """80 pods, 4 pods or 10 % a minute: 8 go in the first minute, then 10 % of 72 (down to 64), and so on."""
    found = follow(down(PODS_4, PERCENT_10), [10] * 9, start=80, step_seconds=60.5)
    assert found == [72, 64, 57, 51, 45, 40, 36, 32, 28]


def test_a_period_counts_from_its_own_start() -> None:
    """Four syncs a minute do not take four times as much."""
    found = follow(down(PODS_4), [10] * 9, start=80, step_seconds=15.0)
    assert found == [76, 76, 76, 76, 72, 72, 72, 72, 68]


def test_the_smaller_change_wins_with_min() -> None:
    """Of 4 pods and 10 %: 4 pods from 80, 10 % from 20."""
    assert follow(down(PODS_4, PERCENT_10, select="Min"), [1], start=80) == [76]
    assert follow(down(PODS_4, PERCENT_10, select="Min"), [1], start=20) == [18]


def test_a_disabled_direction_stays() -> None:
    """Neither down nor up."""
    assert follow(down(PODS_4, select="Disabled"), [1, 1], start=80) == [80, 80]
    assert follow(up(PODS_4, select="Disabled"), [99, 99], start=80) == [80, 80]


@pytest.mark.parametrize(
    ("policies", "start", "expected"),
    [
        ((PODS_4,), 1, [5, 5, 5, 5, 9]),
        ((PERCENT_10,), 1, [2, 2, 2, 2, 3]),
        ((PODS_4, PERCENT_10), 100, [111, 111, 111, 111, 123]),
    ],
    ids=["pods", "percent is rounded up, or one pod would never become two", "the greater change wins"],
)
def test_growth_is_limited_per_period(
    policies: tuple[ScalingPolicy, ...], start: int, expected: list[int]
) -> None:
    """Counted from where the period began. 100 x 1.1 is a hair above 110 in floats: Kubernetes gives 111."""
    found = follow(up(*policies), [1000] * 5, start=start)
    assert found == expected


def test_a_recent_scale_down_gives_its_pods_back_at_once() -> None:
    """The period began with 10 pods: 4 more than that are allowed, whatever went in between."""
    behavior = Behavior(
        HpaScalingRules((PODS_4,)), HpaScalingRules(DOWN_BY_DEFAULT.policies, stabilization_seconds=0.0)
    )
    assert follow(behavior, [2, 50], start=10) == [2, 14]


def test_scale_down_waits_for_the_highest_of_the_window() -> None:
    """300 s by default: 21 syncs after the last high proposal."""
    found = follow(None, [10, *[4] * 25], start=10)
    assert found.index(4) == 21
    assert found[:21] == [10] * 21


def test_a_behaviors_window_replaces_the_controllers() -> None:
    """60 s: the proposal of exactly 60 s ago no longer counts."""
    found = follow(
        down(PODS_4, ScalingPolicy("Percent", 100, 15), stabilization_seconds=60.0), [10, *[4] * 5], start=10
    )
    assert found == [10, 10, 10, 10, 4, 4]


def test_scale_down_goes_to_the_highest_recent_proposal() -> None:
    """Not to the newest."""
    found = follow(
        down(ScalingPolicy("Percent", 100, 15), stabilization_seconds=30.0), [10, 7, 3, 3, 3], start=10
    )
    assert found == [10, 10, 7, 3, 3]


def test_scale_up_can_wait_too_for_the_lowest_of_its_window() -> None:
    """A spike shorter than the window is not followed; the replicas at the start count as a proposal."""
    behavior = up(ScalingPolicy("Percent", 100, 15), stabilization_seconds=60.0)
    assert follow(behavior, [8, 8, 5, 8, 8, 8, 8], start=5) == [5, 5, 5, 5, 5, 5, 8]


def test_a_restarted_controller_scales_nothing_down_at_once() -> None:
    """It begins with what it finds, for one window."""
    assert follow(None, [1] * 22, start=9)[-2:] == [9, 1]


def test_the_bounds_hold() -> None:
    """Whatever is proposed."""
    for behavior in (None, Behavior()):
        assert follow(behavior, [99], start=5, bounds=(3, 6)) == [6]
        assert follow(behavior, [1] * 22, start=5, bounds=(3, 6))[-1] == 3
