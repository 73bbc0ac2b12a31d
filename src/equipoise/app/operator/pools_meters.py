"""The pools' metrics, and the log lines of whoever looked after them before, from a cycle's report."""

from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from equipoise.app.operator.logs import Log
from equipoise.guard.isolation import Isolation
from equipoise.model.decision import Decision, MovePod, RecoverPod
from equipoise.model.pools import PoolCode
from equipoise.model.reason import Code
from equipoise.pools.observation import TierUnreadable
from equipoise.pools.rebalance import LOST
from equipoise.pools.tally import STATES
from equipoise.ports import CycleReport

TIER = ("prefix", "tier")


class PoolsMeters:
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
