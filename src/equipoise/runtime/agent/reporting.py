"""Reports the agent's cycles: metrics without pod names, log lines, and events on the node and its pods.

An event is written only when something changes: a new reason, an action done, or a new failure.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from msgspec import structs
from prometheus_client import CollectorRegistry, Counter, Gauge

from equipoise.adapters.kubernetes import ApiError, KubernetesActuator
from equipoise.adapters.kubernetes.actions import HEARTBEAT_SECONDS
from equipoise.core.cluster import ObjectRef, RulesCondition
from equipoise.core.decision import DisableScheduling, EnableScheduling, Outcome
from equipoise.core.errors import EquipoiseError
from equipoise.ports import Clock
from equipoise.qos.execute import SUCCEEDED, deviation
from equipoise.qos.explain import RuleDetails
from equipoise.qos.loop import NodeCycleReport
from equipoise.qos.state import QuotaSearch
from equipoise.qos.waterlines import WaterlineState
from equipoise.runtime.agent.node_api import WatchedNode
from equipoise.runtime.logs import FailedTurnLines, Log, description_of, log_failure

PROBLEM_EVENTS_MAX = 5
FOUND_EVENTS_MAX = 20
"""The maximum number of quotas found by one search that get an event; the log has all."""
AGAIN_SECONDS = 600.0
"""The minimum interval between two reports of the same failure, or of a bug's traceback."""


class EventReporter:
    """Reports cycles in the log, and as events on the node and its pods."""

    def __init__(
        self,
        log: Log,
        actuator: KubernetesActuator,
        node_api: WatchedNode,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failed_turns = FailedTurnLines(log, monotonic)
        self._log, self._actuator, self._node_api, self._monotonic = log, actuator, node_api, monotonic
        self._code = ""
        self._problems: tuple[str, ...] = ()
        self._failures: dict[tuple[object, ...], float] = {}
        self._reported_quotas: dict[str, str] = {}

    def report(self, done: NodeCycleReport) -> None:
        self._report_problems()
        decision = done.decision
        code = decision.reason.code.value
        sentence = decision.reason.sentence + deviation(decision, done.outcomes)
        new_outcomes = self._unreported(done.outcomes)
        has_changed = code != self._code or bool(new_outcomes)
        self._code = code
        (self._log.info if has_changed else self._log.debug)(sentence, reason=code, node=decision.subject)
        for warning in done.warnings:
            self._log.warning(warning)
        self._failed_turns.log(done.failed_turns)
        if has_changed:
            self._actuator.record_event(self._node(), code, sentence)
        for outcome in new_outcomes:
            self._report_pod(outcome, code, sentence)

    def warn(self, reason: str, sentence: str) -> None:
        self._log.warning(sentence)
        self._actuator.record_event(self._node(), reason, sentence, is_warning=True)

    def report_failure(self, error: Exception) -> None:
        """Log that a cycle failed; a bug's traceback at most every ten minutes."""
        if isinstance(error, EquipoiseError):
            self._log.warning("the cycle failed", error=str(error))
            return
        if self._is_new((type(error).__name__, str(error))):
            log_failure(self._log, "the cycle failed", error)
        else:
            self._log.error("the cycle failed", error=description_of(error))

    def report_state(self, lost: str, unlocked: str, *, is_damaged: bool) -> None:
        if unlocked:
            self._log.warning("the state file could not be locked", error=unlocked)
        if lost:
            log = self._log.warning if is_damaged else self._log.info
            log("searching the cgroups for throttled containers", reason=lost)

    def report_damage(self, sentence: str) -> None:
        """Record an event on the node that the state file was damaged; `report_state` has logged it."""
        message = f"{sentence}. The agent searches the cgroups for throttled containers."
        self._actuator.record_event(self._node(), "StateFileDamaged", message, is_warning=True)

    def report_found(self, found: QuotaSearch) -> None:
        """Log each quota that is lower than its container's limit, and record an event, once each."""
        quotas = [("ThrottleFound", one) for one in found.ours]
        quotas += [("QuotaUnclear", one) for one in found.unclear]
        reported = self._reported_quotas
        new_quotas = [(why, one) for why, one in quotas if reported.get(one.container.id) != one.sentence]
        for place, (reason, one) in enumerate(new_quotas):
            reported[one.container.id] = one.sentence
            self._log.warning(one.sentence, pod=one.pod.key, reason=reason)
            if place < FOUND_EVENTS_MAX:
                pod = ObjectRef("v1", "Pod", one.pod.namespace, one.pod.name, one.pod.uid)
                self._actuator.record_event(pod, reason, one.sentence, is_warning=bool(one.why_left))

    def _report_problems(self) -> None:
        """Report the invalid policies on a change; as events on the node, since no status is written."""
        problems = self._node_api.problems
        if problems == self._problems:
            return
        self._problems = problems
        for place, problem in enumerate(problems):
            sentence = f"the policy is ignored: {problem}"
            if place < PROBLEM_EVENTS_MAX:
                self.warn("PolicyLeftOut", sentence)
            else:
                self._log.warning(sentence)

    def _unreported(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Return the outcomes, without failures that were already reported in the last ten minutes."""
        found = []
        for outcome in outcomes:
            key = (type(outcome.action), outcome.action.pod, outcome.action.uid, outcome.result)
            if outcome.result in SUCCEEDED or self._is_new(key):
                found.append(outcome)
        return found

    def _is_new(self, failure: tuple[object, ...]) -> bool:
        """Return whether a failure was not reported in the last ten minutes; it counts as reported now."""
        now = self._monotonic()
        self._failures = {key: at for key, at in self._failures.items() if now - at < AGAIN_SECONDS}
        is_new = failure not in self._failures
        self._failures.setdefault(failure, now)
        return is_new

    def _report_pod(self, outcome: Outcome, code: str, sentence: str) -> None:
        action = outcome.action
        if isinstance(action, DisableScheduling | EnableScheduling):
            if outcome.result not in SUCCEEDED:
                self.warn("NotScheduled", f"{type(action).__name__}: {outcome.result} ({outcome.detail})")
            return
        namespace, _, name = action.pod.partition("/")
        detail = f" ({outcome.detail})" if outcome.detail else ""
        pod = ObjectRef("v1", "Pod", namespace, name, action.uid)
        message = f"{type(action).__name__}: {outcome.result}{detail}. {sentence}"
        self._actuator.record_event(pod, code, message, is_warning=outcome.result not in SUCCEEDED)

    def _node(self) -> ObjectRef:
        return ObjectRef("v1", "Node", "", self._node_api.node, self._node_api.uid())


REPORT_SECONDS = 30.0
"""The minimum interval between writes of the node's condition about its rules."""
FORBIDDEN = 403
FORBIDDEN_SECONDS = 600.0
"""The interval between attempts while the right to write it is missing."""
UNKNOWN_ROUNDS = 3
"""Rounds in a row without any usage before the condition is Unknown: the first one never has one."""


class RulesReporter:
    """Writes which rules are crossed into a condition of the node, which the operator's leader counts.

    It is written when it has changed, and every few minutes so that its age shows whether there still is an
    agent. A node that has never had a rule has no such condition.
    """

    def __init__(
        self, log: Log, node_api: WatchedNode, clock: Clock, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._node_api, self._clock, self._monotonic = log, node_api, clock, monotonic
        self._due_at = float("-inf")
        self._unknown_rounds = 0
        self._error = ""

    def report(self, rules: Mapping[str, RuleDetails]) -> None:
        """Write the condition if it is due; a failure is logged once."""
        crossed = {
            name: None if rule.state == WaterlineState.UNKNOWN else rule.state == WaterlineState.CROSSED
            for name, rule in rules.items()
        }
        wanted = RulesCondition.of(crossed)
        self._unknown_rounds = self._unknown_rounds + 1 if wanted.status == "Unknown" else 0
        if 0 < self._unknown_rounds < UNKNOWN_ROUNDS or not self._is_due(wanted):
            return
        self._write(wanted)

    def end(self) -> None:
        """Write that nobody looks any more, if the node has the condition."""
        if self._node_api.reported_rules() is not None:
            self._write(RulesCondition("Unknown", "AgentStopped", "the node agent has stopped"))

    def _is_due(self, wanted: RulesCondition) -> bool:
        before = self._node_api.reported_rules()
        if self._monotonic() < self._due_at or (before is None and wanted.reason == "NoRules"):
            return False
        if before is None or before != structs.replace(wanted, reported_at=before.reported_at):
            return True
        return before.reported_at is None or self._clock.now() - before.reported_at >= HEARTBEAT_SECONDS

    def _write(self, wanted: RulesCondition) -> None:
        wait = REPORT_SECONDS
        try:
            self._node_api.report_rules(wanted)
        except EquipoiseError as error:
            is_forbidden = isinstance(error, ApiError) and error.status == FORBIDDEN
            wait = FORBIDDEN_SECONDS if is_forbidden else REPORT_SECONDS
            if str(error) != self._error:
                self._log.info("the node's condition is not written", type=wanted.TYPE, error=str(error))
            self._error = str(error)
        else:
            self._error = ""
        self._due_at = self._monotonic() + wait


class AgentMetrics:
    """The agent's Prometheus metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"equipoise_agent_{name}", what, labels, registry=registry)

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(f"equipoise_agent_{name}", what, labels, registry=registry)

        self.rounds = counter("rounds", "Number of cycles, by the reason of the decision.", "reason")
        self.failures = counter("round_failures", "Number of cycles that failed.")
        self.bugs = counter(
            "round_bugs", "Number of unexpected errors in cycles, which are bugs of Equipoise."
        )
        self.state_damaged = gauge(
            "state_file_damaged", "1 if the state file could not be read when the agent started."
        )
        self.unclear = gauge(
            "unclear_quotas",
            "Containers whose CPU quota is below their limit for an unknown reason and is not changed.",
        )
        self.actions = counter("actions", "Number of actions, by kind and result.", "kind", "result")
        self.failed_turns = counter(
            "failed_turns", "Number of pods and actions that were skipped because of an error."
        )
        self.held = counter("held", "Number of actions held by guards, by kind and reason.", "kind", "reason")
        self.seconds = gauge("round_cpu_seconds", "CPU time of the last cycle, in seconds.")
        self.usage = gauge(
            "usage", "Usage of each rule's metric, in the unit of the metric.", "rule", "metric"
        )
        self.waterline = gauge(
            "waterline", "Waterline of each rule, in the unit of the metric.", "rule", "metric"
        )
        self.gap = gauge("gap", "Gap between usage and waterline, in millicores or bytes.", "side", "metric")
        self.throttled = gauge("throttled_containers", "Containers that the agent throttles.")
        self.pods = gauge("pods", "Running pods on the node.")
        self.refused = gauge("refused_pods", "Pods whose eviction was refused and is in backoff.")
        self.left_out = gauge("policies_left_out", "Policies that are ignored because they are not valid.")
        self.enforcing = gauge("enforcing", "1 if the agent may change pods and the node now, otherwise 0.")

    def observe_cycle(self, done: NodeCycleReport, throttled: int, cpu_seconds: float) -> None:
        """Set the metrics from one cycle; series of rules that no longer exist are removed."""
        assert throttled >= 0 <= cpu_seconds, "a count or a time went backwards"
        decision, details = done.decision, done.details
        self.rounds.labels(decision.reason.code.value).inc()
        for outcome in done.outcomes:
            self.actions.labels(type(outcome.action).__name__, outcome.result).inc()
        self.failed_turns.inc(len(done.failed_turns))
        for held in decision.held:
            self.held.labels(type(held.action).__name__, held.reason.value).inc()
        self.seconds.set(cpu_seconds)
        self.throttled.set(throttled)
        self.pods.set(details.pods)
        self.refused.set(details.refused)
        for gauge in (self.usage, self.waterline, self.gap):
            gauge.clear()
        for key, rule in details.rules.items():
            self.waterline.labels(key, rule.metric).set(rule.waterline)
            if rule.usage is not None:
                self.usage.labels(key, rule.metric).set(rule.usage)
        gaps = details.gaps
        sides = {"evict": gaps.evict, "throttleDown": gaps.throttle_down, "throttleUp": gaps.throttle_up}
        for side, by_metric in sides.items():
            for metric, gap_now in by_metric.items():
                if gap_now is not None:
                    self.gap.labels(side, metric).set(gap_now)
