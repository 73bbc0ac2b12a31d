"""The seed's formulas: each clamp, each ceil, each bound, from numbers that one can check by hand."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.cluster import Container
from equipoise.core.reason import Code
from equipoise.recommendation.observe import Containers, Inherited, Observation
from equipoise.recommendation.sentences import TIMES
from equipoise.recommendation.settings import AdviceType
from equipoise.stats.ranks import rounded_up
from tests.support.recommendation.worlds import NAN, advised, decisions, observation, policy

OPEN = {"min_cpu_usage_threshold": "0", "fluctuation_threshold": "0"}


@pytest.mark.parametrize(
    ("p99", "request_cores", "target"),
    [
        (0.60, 1.0, 60),
        (0.601, 1.0, 61),
        (0.69, 1.0, 69),  # 0.69 x 100 is 68.99999999999999
        (0.57, 1.0, 57),  # 0.57 x 100 is 56.99999999999999
        (0.5500000001, 1.0, 55),
        (0.550001, 1.0, 56),
        (0.07, 0.1, 70),  # 0.07 / 0.1 is 0.7000000000000001
        (0.30, 1.0, 30),
        (0.29, 1.0, 30),
        (0.0, 1.0, 30),
        (0.75, 1.0, 75),
        (0.751, 1.0, 75),
        (5.0, 1.0, 75),
        (0.1, 0.25, 40),
    ],
)
def test_the_target_is_the_p99_in_percent_of_the_request(
    p99: float, request_cores: float, target: int
) -> None:
    """Rounded up to a whole percent, then held between 30 and 75."""
    decision = advised(seen=observation(request=request_cores), p99=p99)
    assert decision.extra["recommended"]["targetUtilization"] == target


@pytest.mark.parametrize(
    ("low", "high", "p99", "target"),
    [
        ("30", "75", 0.5, 50),
        ("60", "75", 0.5, 60),
        ("10", "40", 0.5, 40),
        ("50", "50", 0.9, 50),
        ("80", "120", 1.1, 110),
    ],
)
def test_the_targets_bounds_are_settings(low: str, high: str, p99: float, target: int) -> None:
    """Both ends, and above 100 where somebody wants that."""
    settings = policy(min_cpu_target_utilization=low, max_cpu_target_utilization=high)
    assert advised(settings, p99=p99).extra["recommended"]["targetUtilization"] == target


@pytest.mark.parametrize(
    ("lowest", "request_cores", "settings", "replicas"),
    [
        (4.0, 1.0, {}, 6),  # 4 / 0.75 = 5.33
        (3.75, 1.0, {}, 5),
        (3.7500001, 1.0, {}, 5),
        (3.7501, 1.0, {}, 6),
        (0.5, 1.0, {}, 2),
        (0.0, 1.0, {}, 2),
        (0.5, 1.0, {"default_min_replicas": "1"}, 1),
        (0.0, 1.0, {"default_min_replicas": "0"}, 1),
        (0.5, 1.0, {"default_min_replicas": "4"}, 4),
        (4.0, 1.0, {"max_cpu_target_utilization": "40"}, 10),
        (4.0, 0.5, {}, 11),  # 4 / 0.375 = 10.67
    ],
)
def test_min_replicas_carry_the_idlest_hour_at_the_highest_target(
    lowest: float, request_cores: float, settings: dict[str, str], replicas: int
) -> None:
    """Rounded up, never below the default, never below 1."""
    decision = advised(policy(**settings), observation(request=request_cores), lowest=lowest)
    assert decision.extra["recommended"]["minReplicas"] == replicas


@pytest.mark.parametrize(
    ("p95", "settings", "replicas"),
    [
        (11.0, {}, 55),  # 11 / (1 x 0.6) x 3 = 55 exactly
        (11.001, {}, 56),
        (11.0, {"max_replicas_factor": "1"}, 19),
        (11.0, {"max_replicas_factor": "1.5"}, 28),
        (0.1, {}, 6),  # never below minReplicas
        (1e12, {}, 2**31 - 1),  # what the API can hold
    ],
)
def test_max_replicas_carry_the_p95_times_the_factor(
    p95: float, settings: dict[str, str], replicas: int
) -> None:
    """At the target that is advised, rounded up, never below minReplicas."""
    decision = advised(policy(**settings), p95=p95)
    assert decision.extra["recommended"]["maxReplicas"] == replicas


@given(st.floats(1e-4, 1e5), st.floats(1e-3, 100), st.floats(1e-4, 1e5))
def test_advice_agrees_with_exact_arithmetic(p99: float, request: float, lowest: float) -> None:
    """Within the six digits that count before a ceil."""
    recommended = advised(policy(**OPEN), observation(request=request), p99=p99, lowest=lowest).extra[
        "recommended"
    ]
    percent = Fraction(p99) / Fraction(request) * 100
    assert recommended["targetUtilization"] in {min(max(value, 30), 75) for value in _ceils(percent)}
    least = Fraction(lowest) / (Fraction(request) * 3 / 4)
    assert recommended["minReplicas"] in {min(max(value, 2), 2**31 - 1) for value in _ceils(least)}


def _ceils(value: Fraction) -> set[int]:
    slack = Fraction(1, 100_000)
    return {math.ceil(value * (1 - slack)), math.ceil(value), math.ceil(value * (1 + slack))} | {
        math.ceil(round(float(value), 5 - math.floor(math.log10(float(value)))))
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (69.00000000000001, 69),
        (69.00001, 69),
        (69.001, 70),
        (0, 0),
        (1e-9, 1),
        (1e-310, 1),
        (1234567.0, 1234570),
        (999999.9, 1000000),
    ],
)
def test_six_digits_count_before_a_ceil(value: float, expected: int) -> None:
    """Float noise never becomes a replica."""
    assert rounded_up(np.array([value]))[0] == expected


def test_advice_has_the_shape_that_scripts_rely_on() -> None:
    """Recommended, prediction, numbers; no actions, for advice changes nothing."""
    decision = advised()
    assert decision.reason.code is Code.RECOMMEND
    assert (decision.actions, decision.held) == ((), ())
    assert decision.extra["recommended"] == {
        "minReplicas": 6,
        "maxReplicas": 55,
        "targetUtilization": 60,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
            }
        ],
        "behavior": None,
    }
    assert set(decision.extra["prediction"]) == {
        "predictable",
        "period_seconds",
        "model",
        "error",
        "baseline_error",
    }
    assert {
        "pod_p99_cores": 0.6,
        "lowest_median_cores": 4.0,
        "highest_median_cores": 12.0,
        "p95_cores": 11.0,
        "peak_cores": 20.0,
        "fluctuation": 3.0,
        "coverage": 1.0,
        "confidence": "high",
    }.items() <= decision.reason.numbers.items()
    assert decision.reason.sentence == (
        "The HPA should keep 6 to 55 replicas at 60% of the CPU request. A pod requests 1 core and uses 0.6 "
        "cores at P99; the workload uses 4 cores in its quietest hour and 11 cores at P95 of the past week; "
        f"the maximum is 3 {TIMES} 11 cores ÷ 0.6 cores per pod."
    )


@pytest.mark.parametrize(
    ("samples", "confidence"), [(10080, "high"), (5040, "high"), (5039, "low"), (1, "low")]
)
def test_short_history_gives_advice_of_low_confidence(samples: int, confidence: str) -> None:
    """Half a week is the line."""
    decision = advised(samples=samples)
    assert decision.reason.code is Code.RECOMMEND
    assert decision.extra["confidence"] == decision.reason.numbers["confidence"] == confidence
    assert decision.reason.numbers["coverage"] == samples / 10080
    assert ("past seven days are known" in decision.reason.sentence) == (samples < 10080)


OTHERS: list[dict[str, Any]] = [
    {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 80}},
    },
    {
        "type": "Pods",
        "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "100"}},
    },
    {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "2"}},
    },
]
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
BEHAVIOR = {"scaleDown": {"stabilizationWindowSeconds": 600}}


def test_other_metrics_and_the_whole_behavior_are_inherited() -> None:
    """In order, after the CPU's own; the old CPU utilisation gives way."""
    kept = Inherited([OTHERS[0], CPU, OTHERS[1], OTHERS[2]], BEHAVIOR)
    recommended = advised(seen=observation(inherited=kept)).extra["recommended"]
    assert recommended["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
    assert recommended["metrics"][1:] == OTHERS
    assert recommended["behavior"] == BEHAVIOR


def test_nothing_is_inherited_when_the_user_says_so() -> None:
    """`reference-hpa` is a setting."""
    seen = observation(inherited=Inherited(OTHERS, BEHAVIOR))
    recommended = advised(policy(reference_hpa="false"), seen).extra["recommended"]
    assert len(recommended["metrics"]) == 1
    assert recommended["behavior"] is None


def test_a_maximum_that_is_raised_to_the_minimum_is_explained() -> None:
    """Else the factor in the sentence would give another number."""
    sentence = advised(p95=0.1).reason.sentence
    assert f"the maximum is the minimum, since 3 {TIMES} 0.1 cores ÷ 0.6 cores per pod is less." in sentence


def test_resource_advice_is_by_container() -> None:
    """P99 and the memory's peak, 15 % more; memory that was not measured is left out."""
    seen = observation(request=NAN)
    containers = Containers(
        np.array([0, 0]),
        [Container("app"), Container("proxy")],
        np.array([0.2, 0.0101]),
        np.array([1000.0, NAN]),
        np.array([False, False]),
    )
    whole = Observation(
        **{name: getattr(seen, name) for name in Observation.__slots__} | {"containers": containers}
    )
    history = np.tile([4.0, 20.0], 5040)
    whole = Observation(
        **{name: getattr(whole, name) for name in Observation.__slots__}
        | {"history": history[None], "interval_seconds": 60}
    )
    (decision,) = decisions(policy(**OPEN), whole, None, AdviceType.RESOURCE)
    assert decision.reason.code is Code.RECOMMEND
    assert decision.extra["recommended"] == {
        "containers": [
            {"name": "app", "requests": {"cpu": "230m", "memory": "1150"}},
            {"name": "proxy", "requests": {"cpu": "12m"}},
        ]
    }
    assert decision.reason.sentence == (
        "Container app should request 0.23 cores of CPU (P99 of 0.2 cores + 15%) and 1.12 KiB of memory "
        "(peak of 1000 bytes + 15%); container proxy should request 0.012 cores of CPU (P99 of 0.0101 cores "
        "+ 15%)."
    )
