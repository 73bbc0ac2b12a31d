"""The recommendation's metrics: what each workload should have, by the Analytics that asks."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from equipoise.guard.isolation import Isolation
from equipoise.model.decision import Decision
from equipoise.ports import CycleReport
from equipoise.recommendation.record import FOR

LABELS = ("namespace", "workload", "analytics")
GAUGES = {
    "minReplicas": ("equipoise_recommended_min_replicas", "The fewest replicas that are advised."),
    "maxReplicas": ("equipoise_recommended_max_replicas", "The most replicas that are advised."),
    "targetUtilization": (
        "equipoise_recommended_target_utilization",
        "The advised target, in percent of the CPU request.",
    ),
    "coverage": ("equipoise_recommendation_coverage", "How much of the past week is known, from 0 to 1."),
}
"""Each number of a decision that is shown, and as what."""

Labels = tuple[str, str, str]


class RecommendationMeters:
    """Gauges for each workload that gets advice, and none for one that does not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            key: Gauge(name, what, LABELS, registry=registry) for key, (name, what) in GAUGES.items()
        }
        self._shown: set[tuple[str, Labels]] = set()
        self._carried = 0

    def take(self, report: CycleReport, isolation: Isolation) -> None:
        """Show a whole cycle; a number that is missing is no series, never a zero."""
        if not report.decisions and len(report.carried) == self._carried:
            return  # at rest: the same as before
        self._carried = len(report.carried) + len(report.decisions)
        shown: set[tuple[str, Labels]] = set()
        for decision in (*report.carried, *report.decisions):
            isolation.attempt(decision.subject, partial(self._show, decision, shown))
        for key, labels in self._shown - shown:
            self._gauges[key].remove(*labels)
        self._shown = shown

    def _show(self, decision: Decision, shown: set[tuple[str, Labels]]) -> None:
        labels = _labels(decision)
        for key, value in _numbers(decision):
            self._gauges[key].labels(*labels).set(value)
            shown.add((key, labels))


def _labels(decision: Decision) -> Labels:
    subject, _, asker = decision.subject.partition(FOR)
    namespace, _, workload = subject.partition("/")
    return namespace, workload, asker


def _numbers(decision: Decision) -> Iterator[tuple[str, float]]:
    recommended: Mapping[str, Any] = decision.extra.get("recommended") or {}
    values = {**recommended, "coverage": decision.reason.numbers.get("coverage")}
    for key in GAUGES:
        if values.get(key) is not None:
            yield key, values[key]
