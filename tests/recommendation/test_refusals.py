"""Every refusal: when, in which order, and with both numbers in its sentence."""

from typing import Any

import pytest
from pydantic import ValidationError

from equipoise.core.errors import BadInput
from equipoise.core.reason import Code
from equipoise.recommendation.settings import RecommendationPolicy, read_policy
from tests.support.recommendation.worlds import NAN, advised, observation, policy


@pytest.mark.parametrize(
    ("settings", "seen", "numbers", "code", "sentence"),
    [
        (
            {"deployment_min_replicas": "3"},
            {"replicas": 2},
            {},
            Code.TOO_FEW_REPLICAS,
            "The Deployment has 2 replicas; advice needs at least 3 (ehpa.deployment-min-replicas).",
        ),
        (
            {"statefulset_min_replicas": "2", "deployment_min_replicas": "9"},
            {"replicas": 1, "kind": "StatefulSet"},
            {},
            Code.TOO_FEW_REPLICAS,
            "The StatefulSet has 1 replica; advice needs at least 2 (ehpa.statefulset-min-replicas).",
        ),
        (
            {"workload_min_replicas": "5", "deployment_min_replicas": "9"},
            {"replicas": 4, "kind": "Rollout"},
            {},
            Code.TOO_FEW_REPLICAS,
            "The Rollout has 4 replicas; advice needs at least 5 (ehpa.workload-min-replicas).",
        ),
        (
            {},
            {"replicas": 0},
            {},
            Code.TOO_FEW_REPLICAS,
            "The Deployment has 0 replicas; advice needs at least 1 (ehpa.workload-min-replicas).",
        ),
        ({}, {"pods": 0}, {}, Code.NO_PODS, "The workload has 0 pods; advice needs at least 1."),
        (
            {},
            {"available": 4},
            {},
            Code.TOO_FEW_AVAILABLE_PODS,
            "4 of 10 pods are available, which is 40%; advice needs at least 50% (ehpa.pod-available-ratio).",
        ),
        (
            {"pod_available_ratio": "0.667"},
            {"pods": 3, "available": 2},
            {},
            Code.TOO_FEW_AVAILABLE_PODS,
            (
                "2 of 3 pods are available, which is 66.67%; advice needs at least 66.7% "
                "(ehpa.pod-available-ratio)."
            ),
        ),
        (
            {},
            {"replicas": 1, "available": 0},
            {},
            Code.TOO_FEW_AVAILABLE_PODS,
            "0 of 1 pod is available, which is 0%; advice needs at least 50% (ehpa.pod-available-ratio).",
        ),
        (
            {},
            {},
            {"p99": NAN},
            Code.NO_SAMPLES,
            "The past seven days have 0 samples of single pods; advice needs at least 1.",
        ),
        (
            {},
            {},
            {"samples": 0, "p99": NAN, "lowest": NAN, "highest": NAN, "p95": NAN, "peak": NAN},
            Code.NO_SAMPLES,
            "The past seven days have 0 of 10,080 samples; advice needs at least 1.",
        ),
        (
            {},
            {},
            {"peak": 9.99},
            Code.LOW_USAGE,
            (
                "The workload used at most 9.99 cores in the past seven days; HPA advice needs a peak of at "
                "least 10 cores (ehpa.min-cpu-usage-threshold)."
            ),
        ),
        (
            {},
            {},
            {"lowest": 8.0, "highest": 11.6},
            Code.LOW_FLUCTUATION,
            (
                "The busiest hour of the day uses 1.45 times as much CPU as the quietest (11.6 cores and 8 "
                "cores); HPA advice needs at least 1.5 times (ehpa.fluctuation-threshold)."
            ),
        ),
        (
            {"min_cpu_usage_threshold": "250m"},
            {},
            {"peak": 0.24999},
            Code.LOW_USAGE,
            (
                "The workload used at most 0.24999 cores in the past seven days; HPA advice needs a peak of "
                "at least 0.25 cores (ehpa.min-cpu-usage-threshold)."
            ),
        ),
        (
            {},
            {},
            {"lowest": 8.0, "highest": 11.9999},
            Code.LOW_FLUCTUATION,
            (
                "The busiest hour of the day uses 1.49999 times as much CPU as the quietest (12 cores and 8 "
                "cores); HPA advice needs at least 1.5 times (ehpa.fluctuation-threshold)."
            ),
        ),
        (
            {},
            {"request": NAN},
            {},
            Code.NO_REQUEST,
            (
                "The pods request 0 cores of CPU; an HPA's target is a percentage of the request, which must "
                "be more than 0."
            ),
        ),
        (
            {},
            {"request": 0.0},
            {},
            Code.NO_REQUEST,
            (
                "The pods request 0 cores of CPU; an HPA's target is a percentage of the request, which must "
                "be more than 0."
            ),
        ),
    ],
)
def test_a_refusal_says_what_was_seen_and_what_was_asked_for(
    settings: dict[str, str], seen: dict[str, Any], numbers: dict[str, float], code: Code, sentence: str
) -> None:
    """One reason, one sentence, no advice."""
    decision = advised(policy(**settings), observation(**seen), **numbers)
    assert decision.reason.code is code
    assert decision.reason.sentence == sentence
    assert decision.extra["recommended"] is None
    assert decision.extra["prediction"]["predictable"] is False


@pytest.mark.parametrize(
    ("settings", "seen", "numbers"),
    [
        ({"deployment_min_replicas": "10"}, {}, {}),
        ({"workload_min_replicas": "10"}, {}, {}),
        ({}, {"available": 5}, {}),
        ({"pod_available_ratio": "0"}, {"available": 0}, {}),
        ({"pod_available_ratio": "0.3"}, {"available": 3}, {}),
        ({}, {}, {"peak": 10.0}),
        ({"min_cpu_usage_threshold": "250m"}, {}, {"peak": 0.25}),
        ({}, {}, {"lowest": 8.0, "highest": 12.0}),
        ({}, {}, {"lowest": 0.2, "highest": 0.3}),  # 0.3 / 0.2 is 1.4999999999999998
        ({}, {}, {"lowest": 0.0, "highest": 0.0}),
        ({}, {}, {"lowest": 0.0, "highest": 12.0}),
    ],
)
def test_what_is_just_enough_passes(
    settings: dict[str, str], seen: dict[str, Any], numbers: dict[str, float]
) -> None:
    """Comparisons are strict, and an idlest hour of 0 fluctuates without bounds."""
    assert advised(policy(**settings), observation(**seen), **numbers).reason.code is Code.RECOMMEND


def test_an_infinite_fluctuation_is_null() -> None:
    """JSON has no infinity."""
    assert advised(lowest=0.0).reason.numbers["fluctuation"] is None


def test_the_first_refusal_in_the_seeds_order_is_given() -> None:
    """Mend one after the other, and meet them all."""
    everything: dict[str, Any] = {"replicas": 0, "pods": 0, "request": NAN}
    unknown: dict[str, Any] = {
        "samples": 0,
        "p99": NAN,
        "lowest": NAN,
        "highest": NAN,
        "p95": NAN,
        "peak": NAN,
    }
    low: dict[str, Any] = {"lowest": 1.0, "highest": 1.0, "peak": 1.0}
    met = [
        advised(seen=observation(**everything), **unknown),
        advised(seen=observation(**everything | {"replicas": 4}), **unknown),
        advised(seen=observation(replicas=4, available=1, request=NAN), **unknown),
        advised(seen=observation(replicas=4, request=NAN), **unknown),
        advised(seen=observation(replicas=4, request=NAN), **low),
        advised(seen=observation(replicas=4, request=NAN), **low | {"peak": 20.0}),
        advised(seen=observation(replicas=4, request=NAN)),
        advised(seen=observation(replicas=4)),
    ]
    assert [decision.reason.code for decision in met] == [
        Code.TOO_FEW_REPLICAS,
        Code.NO_PODS,
        Code.TOO_FEW_AVAILABLE_PODS,
        Code.NO_SAMPLES,
        Code.LOW_USAGE,
        Code.LOW_FLUCTUATION,
        Code.NO_REQUEST,
        Code.RECOMMEND,
    ]


def test_refusals_still_show_what_was_measured() -> None:
    """So that a user sees how far away advice is."""
    numbers = advised(peak=3.0).reason.numbers
    assert numbers["peak_cores"] == 3.0
    assert numbers["fluctuation"] == 3.0


def test_the_defaults_are_the_seeds() -> None:
    """Its table, key by key."""
    assert RecommendationPolicy().model_dump(by_alias=True, exclude={"resource"}) == {
        "deployment-min-replicas": 1,
        "statefulset-min-replicas": 1,
        "workload-min-replicas": 1,
        "pod-min-ready-seconds": 30,
        "pod-available-ratio": 0.5,
        "default-min-replicas": 2,
        "max-replicas-factor": 3,
        "min-cpu-usage-threshold": 10,
        "fluctuation-threshold": 1.5,
        "min-cpu-target-utilization": 30,
        "max-cpu-target-utilization": 75,
        "reference-hpa": True,
        "time-zone": "UTC",
    }


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"ehpa.nonsense": "1"}, "ehpa.nonsense: unknown key"),
        ({"replicas.x": "1"}, "replicas.x: expected a key that starts with ehpa."),
        ({"ehpa.fluctuation-threshold": "x"}, "ehpa.fluctuation-threshold: "),
        ({"ehpa.pod-available-ratio": "2"}, "ehpa.pod-available-ratio: "),
        ({"ehpa.max-replicas-factor": "0"}, "ehpa.max-replicas-factor: "),
        ({"ehpa.max-replicas-factor": "nan"}, "ehpa.max-replicas-factor: "),
        ({"ehpa.min-cpu-usage-threshold": "5 cores"}, "ehpa.min-cpu-usage-threshold: expected cores such as"),
        ({"ehpa.min-cpu-usage-threshold": "1Gi"}, "got '1Gi', which is an amount of memory"),
        (
            {"ehpa.max-cpu-target-utilization": "20"},
            "expected ehpa.min-cpu-target-utilization (30) at or below",
        ),
        ({"ehpa.time-zone": "Mars/Olympus"}, "ehpa.time-zone: expected a time zone"),
        ({"ehpa.time-zone": "../../etc/passwd"}, "ehpa.time-zone: expected a time zone"),
    ],
)
def test_a_bad_setting_is_named(config: dict[str, str], message: str) -> None:
    """By its whole key."""
    with pytest.raises(BadInput, match=r"^here: ") as caught:
        read_policy(config, "here")
    assert message in str(caught.value)


def test_a_policy_is_frozen() -> None:
    """As every noun is."""
    with pytest.raises(ValidationError):
        RecommendationPolicy().fluctuation_min = 3  # type: ignore[misc]
