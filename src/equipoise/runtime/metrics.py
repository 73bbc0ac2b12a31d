"""Prometheus metrics of the operator: counts and times of its cycles, and the balancers' numbers.

A balancer declares its gauges and counters in its descriptor. No label contains a pod's name, and the series
of a subject that no longer exists are removed.
"""

import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from equipoise import __version__
from equipoise.core.decision import Decision
from equipoise.engine import balancer as balancers
from equipoise.engine.balancer import BALANCERS, Balancer, Labels
from equipoise.engine.isolation import Isolation
from equipoise.ports import CycleReport, FailedTurn

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
READ_GAUGES = {
    "batch_workers_lost": "Number of batch worker processes that died or hung.",
    "journal_bytes": "Size of the journal on disk, in bytes.",
    "journal_records_lost": "Number of records that could not be written to the journal.",
    "lease_failures": "Number of failed attempts to acquire or renew the Lease.",
}
"""The gauges that are read from the operator's parts at each scrape."""


Series = tuple[Gauge | Counter, Labels]


class DecisionMetrics:
    """The gauges and counters of one balancer, as its descriptor declares them."""

    def __init__(self, descriptor: Balancer, registry: CollectorRegistry) -> None:
        self._gauges = [
            (Gauge(spec.name, spec.help, spec.labels, registry=registry), spec.read)
            for spec in descriptor.gauges
        ]
        self._counters = [
            (Counter(spec.name, spec.help, spec.labels, registry=registry), spec.read)
            for spec in descriptor.counters
        ]
        self._series: dict[str, set[Series]] = {}
        self._counted: dict[str, set[Series]] = {}

    def observe(self, report: CycleReport, isolation: Isolation) -> None:
        """Set the series from a cycle; an error in one decision does not affect the others' series."""
        before, self._series = self._series, {}
        for decision in report.carried:
            if decision.subject in before:
                self._series[decision.subject] = before[decision.subject]
            else:
                isolation.attempt(decision.subject, partial(self._set, decision, set()))
        for decision in report.decisions:
            previous = before.get(decision.subject, set())
            isolation.attempt(decision.subject, partial(self._set, decision, previous))
        for counter, count in self._counters:
            for subject, labels in count(report):
                assert subject in self._series, f"{subject} is counted and not in the report"
                self._counted.setdefault(subject, set()).add((counter, labels))
                counter.labels(*labels).inc()
        self._remove_obsolete(before)

    def _set(self, decision: Decision, before: Collection[Series]) -> None:
        series_now = self._series.setdefault(decision.subject, set())
        for gauge, read in self._gauges:
            series = read(decision)
            if series is None:
                series_now.update(each for each in before if each[0] is gauge)
                continue
            for labels, value in series:
                gauge.labels(*labels).set(value)
                series_now.add((gauge, labels))

    def _remove_obsolete(self, before: Mapping[str, set[Series]]) -> None:
        """Remove series that no subject has any more, and the counters of subjects that no longer exist."""
        obsolete = {
            each for subject, series in before.items() for each in series - self._series.get(subject, set())
        }
        if obsolete:
            obsolete = obsolete.difference(*self._series.values())
        for subject in self._counted.keys() - self._series.keys():
            obsolete |= self._counted.pop(subject)
        for metric, labels in obsolete:
            metric.remove(*labels)


class OperatorMetrics:
    """All metrics of the operator, in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the number of series, and have no use
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        build = Info("equipoise_build", "Version of Equipoise.", registry=registry)
        build.info({"version": __version__, "python": platform.python_version()})

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"equipoise_{name}", what, labels, registry=registry)

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(f"equipoise_{name}", what, labels, registry=registry)

        self._decisions = counter("decisions", "Number of decisions, by reason.", "balancer", "reason")
        actions = "Number of actions, by kind and result."
        self._actions = counter("actions", actions, "balancer", "kind", "result")
        self._cycles = counter(
            "cycles", "Number of cycles, by result: done, failed or bug.", "balancer", "result"
        )
        failed_turns = "Number of workloads and policies that failed in a cycle, by cause: bug or world."
        self._failed_turns = counter("failed_turns", failed_turns, "balancer", "cause")
        self._seconds = Histogram(
            "equipoise_cycle_seconds",
            "Duration of cycles, in seconds.",
            ["balancer"],
            registry=registry,
            buckets=BUCKETS,
        )
        succeeded = "Time of the last successful cycle, in Unix seconds."
        self._succeeded = gauge("last_success_timestamp_seconds", succeeded, "balancer")
        self._subjects = gauge("subjects", "Number of subjects in the last successful cycle.", "balancer")
        self._leader = gauge("leader", "1 while this process is the leader, otherwise 0.")
        self._epoch = gauge("lease_epoch", "Last epoch of the Lease in which this process was the leader.")
        transitions = "Number of times that this process became or ceased to be the leader."
        self._transitions = counter("lease_transitions", transitions, "to")
        self._by_balancer = {
            name: DecisionMetrics(balancers.balancer(name), registry)
            for name, registered in BALANCERS.items()
            if registered.interval_seconds is not None
        }

    def observe_cycle(
        self, balancer: str, report: CycleReport, took_seconds: float, at: float
    ) -> Sequence[FailedTurn]:
        """Count a cycle that decided; a cycle that observed only a part of the cluster is no success.

        Returns the decisions whose metrics could not be set.
        """
        assert took_seconds >= 0, f"a cycle of {balancer} ended before it began"
        isolation = Isolation()
        for decision in report.decisions:
            self._decisions.labels(balancer, decision.reason.code.value).inc()
        for outcome in report.outcomes:
            kind = type(outcome.action).__name__
            self._actions.labels(balancer, kind, outcome.result).inc()
        for failed in report.failed_turns:
            self._failed_turns.labels(balancer, "bug" if failed.is_bug else "world").inc()
        self._cycles.labels(balancer, "failed" if report.failure else "done").inc()
        self._seconds.labels(balancer).observe(took_seconds)
        if not report.failure:
            self._succeeded.labels(balancer).set(at)
        self._subjects.labels(balancer).set(len(report.decisions) + len(report.carried))
        if balancer in self._by_balancer:
            self._by_balancer[balancer].observe(report, isolation)
        return isolation.failed

    def observe_failure(self, balancer: str, result: str, took_seconds: float) -> None:
        """Count a cycle that failed; the series of its subjects keep their values."""
        self._cycles.labels(balancer, result).inc()
        self._seconds.labels(balancer).observe(took_seconds)

    def leadership_changed(self, epoch: int | None) -> None:
        """Record that this process began to lead (an epoch) or ceased to (None)."""
        self._leader.set(epoch is not None)
        if epoch is not None:
            self._epoch.set(epoch)
        self._transitions.labels("follower" if epoch is None else "leader").inc()

    def read_gauge(self, name: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read at each scrape."""
        Gauge(f"equipoise_{name}", READ_GAUGES[name], registry=self.registry).set_function(read)


@dataclass(frozen=True, slots=True)
class ReflectorMetrics(Collector):
    """Counters and ages of the caches, read at each scrape."""

    _reflectors: Callable[[], Sequence[Any]]
    _monotonic: Callable[[], float]

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not ask the reflectors yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics by resource, summed over its reflectors: one per watched namespace."""
        lists = _family(CounterMetricFamily, "lists", "Number of full lists of a resource.")
        watches = _family(CounterMetricFamily, "watches", "Number of watches started, reconnects included.")
        failures = _family(CounterMetricFamily, "failures", "Number of lists and watches that failed.")
        silence = _family(
            GaugeMetricFamily, "silence_seconds", "Seconds since the last answer of the API server."
        )
        objects = _family(GaugeMetricFamily, "objects", "Number of objects in the cache.")
        by_resource: dict[str, list[Any]] = {}
        for reflector in self._reflectors():
            by_resource.setdefault(reflector.kind.plural, []).append(reflector)
        now = self._monotonic()
        for resource, group in by_resource.items():
            lists.add_metric([resource], sum(one.counters.lists for one in group))
            watches.add_metric([resource], sum(one.counters.watches for one in group))
            failures.add_metric([resource], sum(one.counters.failures for one in group))
            silence.add_metric([resource], max(one.last_contact_age_seconds(now) for one in group))
            objects.add_metric([resource], sum(len(one.cache) for one in group))
        yield from (lists, watches, failures, silence, objects)


def _family(kind: Any, name: str, what: str) -> Any:
    return kind(f"equipoise_reflector_{name}", what, labels=["resource"])
