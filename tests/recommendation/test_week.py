"""The golden week: hour h of every day uses h + 1 cores. Every number of the advice can be found by hand."""

from typing import Any

import numpy as np
import pytest

from equipoise.core.decision import Decision
from equipoise.recommendation.observe import Observation
from equipoise.stats.predict import Algorithm
from equipoise.stats.ranks import Floats, cleaned
from tests.support.recommendation.worlds import decisions, policy

MIDNIGHT = 20_000 * 86_400.0
MINUTES = 7 * 1440
TIMES = MIDNIGHT - 60.0 * np.arange(1, MINUTES + 1)[::-1]
HOURS = (TIMES // 3600 % 24).astype(int)
WEEK = (HOURS + 1).astype(float)
"""Each of 1 to 24 cores 420 times, and 60 minutes of each in every day."""


def _decided(
    values: Floats,
    algorithm: Algorithm | None = None,
    request: float = 4.0,
    settings: dict[str, str] | None = None,
) -> Decision:
    seen = Observation(
        subjects=["shop/web"],
        kinds=["Deployment"],
        replicas=np.array([10]),
        pods=np.array([10]),
        available=np.array([10]),
        request_cores=np.array([request]),
        history=values[None],
        interval_seconds=60.0,
        at=TIMES[-1],
    )
    (decision,) = decisions(policy(**settings or {}), seen, algorithm)
    return decision


def _numbers(decision: Decision) -> dict[str, Any]:
    return decision.reason.numbers


def test_every_number_of_the_week_is_the_one_found_by_hand() -> None:
    """Rank 9,576 of 10,080 is in the 23s, rank 9,980 in the 24s; a pod has a tenth of it."""
    decision = _decided(WEEK)
    assert {
        "lowest_median_cores": 1.0,
        "highest_median_cores": 24.0,
        "fluctuation": 24.0,
        "p95_cores": 23.0,
        "p95_past_cores": 23.0,
        "pod_p99_cores": 2.4,
        "peak_cores": 24.0,
        "coverage": 1.0,
        "samples": MINUTES,
    }.items() <= _numbers(decision).items()
    recommended = decision.extra["recommended"]
    assert recommended["targetUtilization"] == 60, "2.4 of 4"
    assert recommended["minReplicas"] == 2, "1 / 3 rounded up is 1, and the default is 2"
    assert recommended["maxReplicas"] == 29, "23 / 2.4 x 3 is 28.75"


@pytest.mark.parametrize(
    ("request_cores", "settings", "expected"),
    [
        (3.0, {}, (2, 31, 75)),  # 80 % is above 75; 23 / 2.25 x 3 = 30.67
        (10.0, {}, (2, 23, 30)),  # 24 % is below 30; 23 / 3 x 3 = 23 exactly
        (0.1, {}, (14, 920, 75)),  # 1 / 0.075 = 13.33; 23 / 0.075 x 3 = 920
        (4.0, {"max_replicas_factor": "1"}, (2, 10, 60)),  # 9.58
        (4.0, {"max_cpu_target_utilization": "50"}, (2, 35, 50)),  # 23 / 2 x 3 = 34.5
        (4.0, {"min_cpu_target_utilization": "70"}, (2, 25, 70)),  # 23 / 2.8 x 3 = 24.64
        (4.0, {"default_min_replicas": "40"}, (40, 40, 60)),  # maxReplicas is never below
        (4.0, {"default_min_replicas": "0"}, (1, 29, 60)),  # nor minReplicas below 1
    ],
)
def test_each_clamp_and_each_ceil(
    request_cores: float, settings: dict[str, str], expected: tuple[int, int, int]
) -> None:
    """One at a time, from the same week."""
    recommended = _decided(WEEK, request=request_cores, settings=settings).extra["recommended"]
    found = tuple(recommended[name] for name in ("minReplicas", "maxReplicas", "targetUtilization"))
    assert found == expected


@pytest.mark.parametrize(
    ("zone", "lowest", "highest"),
    [
        ("UTC", 1.0, 24.0),
        ("Asia/Tokyo", 1.0, 24.0),  # whole hours off: the same buckets under other names
        ("Asia/Kolkata", 1.5, 23.5),  # half of one hour and half of the next; the wrap has 1 and 24
    ],
)
def test_hours_of_the_day_are_those_of_the_zone(zone: str, lowest: float, highest: float) -> None:
    """A median of an even count is the mean of the two in the middle."""
    numbers = _numbers(_decided(WEEK, settings={"time_zone": zone}))
    assert (numbers["lowest_median_cores"], numbers["highest_median_cores"]) == (lowest, highest)


@pytest.mark.parametrize("bad", [np.nan, -5.0, np.inf])
def test_what_is_no_usage_lowers_the_coverage_and_nothing_else(bad: float) -> None:
    """Every sample of one day is dropped where it enters; it never counts as 0."""
    values = WEEK.copy()
    values[1440:2880] = bad
    values = cleaned(values)
    numbers = _numbers(_decided(values))
    assert numbers["coverage"] == pytest.approx(6 / 7)
    assert (numbers["p95_cores"], numbers["lowest_median_cores"]) == (23.0, 1.0)
    assert "85.7% of the samples of the past seven days are known" in _decided(values).reason.sentence


def test_a_single_missing_sample_is_never_the_whole_week() -> None:
    """Rounding does not make it whole."""
    values = WEEK.copy()
    values[77] = np.nan
    assert "99.9% of the samples of the past seven days are known" in _decided(values).reason.sentence


def test_a_week_that_repeats_itself_has_the_same_p95_with_its_future() -> None:
    """The coming week enters without the margin, and the sentence says so."""
    decision = _decided(WEEK, Algorithm.PROFILE)
    assert decision.extra["prediction"]["predictable"] is True
    assert _numbers(decision)["p95_cores"] == pytest.approx(23.0, rel=0.03)
    assert _numbers(decision)["p95_past_cores"] == 23.0
    assert "at P95 of the past week and the forecast of the next;" in decision.reason.sentence
