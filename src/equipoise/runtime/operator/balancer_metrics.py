"""The rotation's metrics under the seed's names, fed from the numbers of its decisions.

The pools' metrics, and the log lines of whoever looked after them before, from a cycle's report.

The metrics of proportional scaling, fed from the numbers of its decisions.

The recommendation's metrics: what each workload should have, by the Analytics that asks.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from equipoise.core.decision import Decision, MovePod, Outcome, RecoverPod
from equipoise.core.pools import PoolCode
from equipoise.core.quantity import parse_bytes
from equipoise.core.reason import Code
from equipoise.engine.isolation import Isolation
from equipoise.pools.observe import STATES, TierUnreadable
from equipoise.pools.rebalance import LOST
from equipoise.ports import CycleReport
from equipoise.recommendation.record import FOR
from equipoise.runtime.logs import Log

LABELS = ("namespace", "workload")
ROTATION_GAUGES = {
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


class RotationMetrics:
    """Gauges and counters for each workload that is looked after, and none for one that is not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            number: Gauge(name, what, LABELS, registry=registry)
            for name, (number, what) in ROTATION_GAUGES.items()
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


TIER = ("prefix", "tier")


class PoolsMetrics:
    """Pods, targets and calls of each tier, moves and recoveries; no label names a pod."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pods = Gauge(
            "equipoise_pool_pods", "Pods of a tier by what they do.", [*TIER, "state"], registry=registry
        )
        self._target = Gauge(
            "equipoise_pool_target", "Pods that a tier should have.", TIER, registry=registry
        )
        self._calls = Gauge("equipoise_pool_calls", "Calls that a tier serves.", TIER, registry=registry)
        self._pending = Gauge(
            "equipoise_pool_pending_moves",
            "Busy pods that their release moves.",
            ["prefix"],
            registry=registry,
        )
        self._broken = Gauge(
            "equipoise_pool_violations",
            "What is broken in the tiers; `equipoise pools fsck` lists it.",
            ["prefix"],
            registry=registry,
        )
        self._missing = Gauge(
            "equipoise_pool_missing_pods",
            "Pods that the tiers have and Kubernetes does not.",
            ["prefix"],
            registry=registry,
        )
        self._moves = Counter(
            "equipoise_pool_moves", "Pods moved between tiers.", ["prefix", "from", "to"], registry=registry
        )
        self._recovered = Counter(
            "equipoise_pool_recovered", "Pods that nobody held, put back.", ["prefix"], registry=registry
        )
        self._shown: set[tuple[str, str]] = set()

    def take(self, report: CycleReport, isolation: Isolation) -> None:
        """Show what a cycle saw and did; tiers that are gone have no series."""
        for decision in report.decisions:
            prefix = decision.subject.removesuffix("/pods")
            if "tiers" in decision.extra:
                isolation.attempt(decision.subject, partial(self._show, prefix, decision))
            elif decision.reason.code is not Code.INTERNAL_ERROR:
                self._missing.labels(prefix).set(decision.reason.numbers.get("missing", 0))
        prefix = report.decisions[0].subject.removesuffix("/pods") if report.decisions else ""
        for outcome in report.outcomes:
            action = outcome.action
            if isinstance(action, MovePod) and outcome.result == PoolCode.MOVED:
                self._moves.labels(prefix, action.source, action.destination).inc()
            elif isinstance(action, RecoverPod) and outcome.result == PoolCode.RECOVERED:
                self._recovered.labels(prefix).inc()

    def _show(self, prefix: str, decision: Decision) -> None:
        tiers: dict[str, dict[str, Any]] = decision.extra["tiers"]
        for name, row in tiers.items():
            self._target.labels(prefix, name).set(row["target"])
            self._calls.labels(prefix, name).set(row["calls"])
            for state in STATES:
                self._pods.labels(prefix, name, state).set(row[state])
        self._pending.labels(prefix).set(decision.extra["pending"])
        self._broken.labels(prefix).set(decision.extra.get("broken", 0))
        now = {(prefix, name) for name in tiers}
        for gone in self._shown - now:
            self._target.remove(*gone)
            self._calls.remove(*gone)
            for state in STATES:
                self._pods.remove(*gone, state)
        self._shown = now


def tell_moves(log: Log, report: CycleReport) -> None:
    """Write the log lines that people look for by their words."""
    moved = 0
    for outcome in report.outcomes:
        action = outcome.action
        if isinstance(action, RecoverPod) and outcome.result == PoolCode.RECOVERED:
            log.info("Recovered pod", pod=action.pod)
        if not isinstance(action, MovePod):
            continue
        if outcome.result == PoolCode.MOVED:
            moved += 1
            log.info("Rebalanced pod", pod=action.pod, from_tier=action.source, to_tier=action.destination)
        if outcome.result in {*LOST, PoolCode.WRONG_TYPE}:
            log.warning("rebalance: Lua script failed", pod=action.pod, error=outcome.detail)
    if moved:
        log.info("Rebalancing complete", pods_moved=moved)


def tell_unread(log: Log, error: Exception) -> None:
    """Write the log line for a tier that could not be counted."""
    if isinstance(error, TierUnreadable):
        log.warning("rebalance: failed to get assigned count", tier=error.tier, error=str(error))


SLOT_LABELS = (*LABELS, "container", "section", "resource")
PROPORTIONAL_GAUGES = {
    "target": ("equipoise_scaling_target", "What the cluster asks for, in cores or bytes."),
    "current": ("equipoise_scaling_in_force", "What is in force, in cores or bytes."),
}
"""The numbers that are shown, each with its gauge and what that is."""
PODS = {
    "pods": ("equipoise_scaling_pods", "Pods of the workload."),
    "pods_behind": ("equipoise_scaling_pods_behind", "Pods that do not have what is in force."),
}

Series = tuple[Gauge, tuple[str, ...]]


class ProportionalMetrics:
    """Gauges for each workload that is scaled, and none for one that is not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._by_slot = {
            number: Gauge(name, what, SLOT_LABELS, registry=registry)
            for number, (name, what) in PROPORTIONAL_GAUGES.items()
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


RECOMMENDATION_LABELS = ("namespace", "workload", "analytics")
RECOMMENDATION_GAUGES = {
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


class RecommendationMetrics:
    """Gauges for each workload that gets advice, and none for one that does not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            key: Gauge(name, what, RECOMMENDATION_LABELS, registry=registry)
            for key, (name, what) in RECOMMENDATION_GAUGES.items()
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
    for key in RECOMMENDATION_GAUGES:
        if values.get(key) is not None:
            yield key, values[key]
