"""The rotation's metrics under the seed's names, fed from the numbers of its decisions."""

from collections.abc import Iterable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from equipoise.guard.isolation import Isolation
from equipoise.model.decision import Decision, Outcome
from equipoise.ports import CycleReport

LABELS = ("namespace", "workload")
GAUGES = {
    "rebalancer_current_cpu_average": ("average_hot_cores", "Average of the hot pods, in cores."),
    "rebalancer_predicted_cpu_average": (
        "average_rotated_cores",
        "Average of the hot and the coldest pods, in cores: what a rotation is predicted to bring.",
    ),
    "rebalancer_improvement_calculated": ("improvement_percent", "Predicted improvement, in percent."),
    "rebalancer_improvement_realised": (
        "realised_improvement_percent",
        "By how much the hottest pod fell in the last rotation that was verified, in percent.",
    ),
    "rebalancer_safety_threshold_current": (
        "threshold_cores",
        "Above this many cores a pod is hot: target times tolerance.",
    ),
}
"""Each gauge, the number that it shows, and what that is."""
COUNTERS = {
    "rebalancer_rotation_decisions": ("Decisions by reason and workload.", ("reason",)),
    "rebalancer_evictions": ("Evictions by what came of them.", ("result",)),
    "rebalancer_waves": ("Waves in which at least one pod went.", ()),
}

Workload = tuple[str, str]


class RotationMeters:
    """Gauges and counters for each workload that is looked after, and none for one that is not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            number: Gauge(name, what, LABELS, registry=registry) for name, (number, what) in GAUGES.items()
        }
        self._futile = Gauge(
            "rebalancer_futile",
            "1 while rotation is given up for some time, since it did not help.",
            LABELS,
            registry=registry,
        )
        self._decisions, self._evictions, self._waves = (
            Counter(name, what, (*more, *LABELS), registry=registry)
            for name, (what, more) in COUNTERS.items()
        )
        self._series: dict[Workload, set[tuple[Counter, tuple[str, ...]]]] = {}

    def take(self, report: CycleReport, isolation: Isolation) -> None:
        """Show a whole cycle; a number that is missing is no series, never a zero."""
        whose = {action.uid: _workload(each) for each in report.decisions for action in each.actions}
        seen: set[Workload] = {_workload(decision) for decision in report.carried}
        for decision in report.decisions:
            workload = _workload(decision)
            seen.add(workload)
            isolation.attempt(decision.subject, partial(self._show, workload, decision))
            self._count(self._decisions, workload, decision.reason.code.value)
        self._take_outcomes(report.outcomes, whose)
        for workload in self._series.keys() - seen:
            self._forget(workload)

    def _show(self, workload: Workload, decision: Decision) -> None:
        for number, gauge in self._gauges.items():
            value = decision.reason.numbers.get(number)
            if value is None:
                gauge.remove(*workload)
            else:
                gauge.labels(*workload).set(value)
        self._futile.labels(*workload).set("futile_until" in decision.reason.numbers)

    def _take_outcomes(self, outcomes: Iterable[Outcome], whose: Mapping[str, Workload]) -> None:
        waves: set[Workload] = set()
        for outcome in outcomes:
            workload = whose.get(outcome.action.uid)
            if workload is None:
                continue
            self._count(self._evictions, workload, outcome.result)
            if outcome.result == "Accepted":
                waves.add(workload)
        for workload in waves:
            self._count(self._waves, workload)

    def _count(self, counter: Counter, workload: Workload, *labels: str) -> None:
        self._series.setdefault(workload, set()).add((counter, labels))
        counter.labels(*labels, *workload).inc()

    def _forget(self, workload: Workload) -> None:
        for gauge in (*self._gauges.values(), self._futile):
            gauge.remove(*workload)
        for counter, labels in self._series.pop(workload):
            counter.remove(*labels, *workload)


def _workload(decision: Decision) -> Workload:
    namespace, _, name = decision.subject.rpartition("/")
    return namespace, name
