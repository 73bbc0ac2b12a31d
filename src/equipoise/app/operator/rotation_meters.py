"""The rotation's metrics under the seed's names, fed from the numbers of its decisions."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from equipoise.model.decision import Decision

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
        "Improvement that the last rotation brought, in percent.",
    ),
    "rebalancer_safety_threshold_current": (
        "threshold_cores",
        "Above this many cores a pod is hot: target times tolerance.",
    ),
}
"""Each gauge, the number that it shows, and what that is."""

Workload = tuple[str, str]


class RotationMeters:
    """Five gauges and a counter for each workload that is looked after, and none for one that is not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            number: Gauge(name, what, LABELS, registry=registry) for name, (number, what) in GAUGES.items()
        }
        self._decisions = Counter(
            "rebalancer_rotation_decisions",
            "Decisions by reason and workload.",
            ("reason", *LABELS),
            registry=registry,
        )
        self._reasons: dict[Workload, set[str]] = {}

    def take(self, decisions: Iterable[Decision]) -> None:
        """Show the decisions of a whole cycle; a number that is missing is no series, never a zero."""
        seen: set[Workload] = set()
        for decision in decisions:
            namespace, _, name = decision.subject.rpartition("/")
            workload = (namespace, name)
            seen.add(workload)
            for number, gauge in self._gauges.items():
                value = decision.reason.numbers.get(number)
                if value is None:
                    gauge.remove(*workload)
                else:
                    gauge.labels(*workload).set(value)
            code = decision.reason.code.value
            self._reasons.setdefault(workload, set()).add(code)
            self._decisions.labels(code, *workload).inc()
        for workload in self._reasons.keys() - seen:
            self._forget(workload)

    def _forget(self, workload: Workload) -> None:
        for gauge in self._gauges.values():
            gauge.remove(*workload)
        for code in self._reasons.pop(workload):
            self._decisions.remove(code, *workload)
