"""The contracts of sources of usage have teeth: metrics that are wrong on purpose, and who finds them out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from equipoise.ports import CpuUsage, Metrics
from tests.support.contracts import metrics_facts
from tests.support.contracts.simulated import SimulatedMetrics


class MissingIsZero:
    """Invents a row for whoever has none."""

    def __init__(self, metrics: Metrics) -> None:
        self._right = metrics

    def cpu_usage(self, pods_by_namespace: Mapping[str, Any], at: float, window_seconds: float) -> CpuUsage:
        answer = self._right.cpu_usage(pods_by_namespace, at, window_seconds)
        missing = [
            (ns, pod) for ns, pods in pods_by_namespace.items() for pod in pods if pod not in answer.pods
        ]
        zeros = np.zeros(len(missing))
        return CpuUsage(
            [*answer.namespaces, *(ns for ns, _ in missing)],
            [*answer.pods, *(pod for _, pod in missing)],
            [*answer.containers, *("app" for _ in missing)],
            np.concatenate([answer.cores, zeros]),
            np.concatenate([answer.sampled_at, zeros + at]),
            answer.window_seconds,
            answer.source,
        )

    def scalar(self, query: str, at: float) -> float | None:
        return self._right.scalar(query, at) or 0.0


@pytest.mark.parametrize(
    "fact",
    [
        metrics_facts.an_unknown_pod_has_no_row,
        metrics_facts.a_pod_of_another_namespace_is_another_pod,
        metrics_facts.a_query_without_an_answer_gives_none,
    ],
    ids=lambda part: part.__name__,
)
def test_metrics_that_invent_zeros_are_found_out(fact: Callable[[SimulatedMetrics], None]) -> None:
    """Missing is never zero."""
    world = SimulatedMetrics()
    world.metrics = MissingIsZero(world.metrics)
    with pytest.raises(AssertionError):
        fact(world)


class CoversEverything:
    """Takes any samples for the whole of the window."""

    def __init__(self, metrics: Metrics) -> None:
        self._right = metrics

    def cpu_usage(self, pods_by_namespace: Mapping[str, Any], at: float, window_seconds: float) -> CpuUsage:
        answer = self._right.cpu_usage(pods_by_namespace, at, window_seconds)
        assert answer.is_covered is not None
        return replace(answer, is_covered=answer.is_covered | True)

    def scalar(self, query: str, at: float) -> float | None:
        return self._right.scalar(query, at)


def test_metrics_that_take_a_part_for_the_whole_are_found_out() -> None:
    """A rate over a part of the window looks like a low usage."""
    world = SimulatedMetrics()
    world.metrics = CoversEverything(world.metrics)
    with pytest.raises(AssertionError):
        metrics_facts.a_window_that_began_before_the_samples_is_not_covered(world)
