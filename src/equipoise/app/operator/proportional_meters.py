"""The metrics of proportional scaling, fed from the numbers of its decisions."""

from collections.abc import Iterator
from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from equipoise.guard.isolation import Isolation
from equipoise.model.decision import Decision
from equipoise.model.quantity import parse_bytes
from equipoise.ports import CycleReport

LABELS = ("namespace", "workload")
SLOT_LABELS = (*LABELS, "container", "section", "resource")
GAUGES = {
    "target": ("equipoise_scaling_target", "What the cluster asks for, in cores or bytes."),
    "current": ("equipoise_scaling_in_force", "What is in force, in cores or bytes."),
}
"""The numbers that are shown, each with its gauge and what that is."""
PODS = {
    "pods": ("equipoise_scaling_pods", "Pods of the workload."),
    "pods_behind": ("equipoise_scaling_pods_behind", "Pods that do not have what is in force."),
}

Series = tuple[Gauge, tuple[str, ...]]


class ProportionalMeters:
    """Gauges for each workload that is scaled, and none for one that is not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._by_slot = {
            number: Gauge(name, what, SLOT_LABELS, registry=registry)
            for number, (name, what) in GAUGES.items()
        }
        self._pods = {
            number: Gauge(name, what, LABELS, registry=registry) for number, (name, what) in PODS.items()
        }
        self._shown: set[Series] = set()

    def take(self, report: CycleReport, isolation: Isolation) -> None:
        """Show a whole cycle; a number that is missing is no series, never a zero."""
        shown: set[Series] = set()
        for decision in report.decisions:
            isolation.attempt(decision.subject, partial(self._show, decision, shown))
        for gauge, labels in self._shown - shown:
            gauge.remove(*labels)
        self._shown = shown

    def _show(self, decision: Decision, shown: set[Series]) -> None:
        for gauge, labels, value in self._series(decision):
            gauge.labels(*labels).set(value)
            shown.add((gauge, labels))

    def _series(self, decision: Decision) -> Iterator[tuple[Gauge, tuple[str, ...], float]]:
        namespace, _, workload = decision.subject.rpartition("/")
        numbers = decision.reason.numbers
        for number, gauge in self._by_slot.items():
            for slot, text in numbers.get(number, {}).items():
                if text is not None:
                    container, section, resource = slot.rsplit(".", 2)
                    yield gauge, (namespace, workload, container, section, resource), parse_bytes(text)
        for number, gauge in self._pods.items():
            if numbers.get(number) is not None:
                yield gauge, (namespace, workload), float(numbers[number])
