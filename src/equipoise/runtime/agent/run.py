"""The node agent: runs the loop of one node until a signal, then restores what is throttled.

Containers that a stopped agent leaves throttled stay so until its successor has read the state file. So they
are restored however the agent ends, even by a failed start or a bug.
"""

import contextlib
import secrets
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from equipoise.adapters.cgroups import connect_host
from equipoise.adapters.journal import RecordIds, SqliteJournal
from equipoise.adapters.journal.records import WRITER_BITS
from equipoise.adapters.kubernetes import Client, KubernetesActuator, connect
from equipoise.adapters.kubernetes.pauses import NamespacePauses
from equipoise.core.decision import Outcome
from equipoise.core.errors import EquipoiseError, WorldFailed
from equipoise.engine.recording import record
from equipoise.ports import CycleReport
from equipoise.qos.execute import BALANCER
from equipoise.qos.loop import NodeCycleReport, QosLoop
from equipoise.qos.policy import QosPolicy, policy_json
from equipoise.runtime.agent.node_api import (
    PREVIEW,
    EnforcementGate,
    WatchedNode,
    crane_conflict,
    ledger_evictor,
)
from equipoise.runtime.agent.reporting import AgentMetrics, EventReporter, RulesReporter
from equipoise.runtime.agent.state import Recovery, StateFile
from equipoise.runtime.http import HttpServer, make_app
from equipoise.runtime.logs import Log, description_of, log_failure, make_log
from equipoise.runtime.runner import HeartbeatRegistry, LoopRunner, SystemClock, on_signals
from equipoise.runtime.settings import Logs

BYTES_MAX = 32 * 1024 * 1024
AGE_MAX_SECONDS = 7 * 86400.0


class AgentJournal:
    """Records cycles in a journal; without a file, none. Losing it changes no decision."""

    def __init__(self, file: str) -> None:
        self._journal: SqliteJournal | None = None
        if file:
            with contextlib.suppress(OSError):  # the journal itself reports the error
                Path(file).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._journal = SqliteJournal(
                file, age_max_seconds=AGE_MAX_SECONDS, bytes_max=BYTES_MAX, clock=SystemClock()
            )
        self._ids = RecordIds(secrets.randbits(WRITER_BITS))
        self._policy_json: tuple[QosPolicy | None, dict[str, Any]] = (None, {})

    def append(self, done: NodeCycleReport) -> None:
        """Record a cycle: whole if something was done or its reason is new."""
        if self._journal is None:
            return
        if self._policy_json[0] is not done.policy:
            self._policy_json = (done.policy, policy_json(done.policy))
        inputs = self._policy_json[1], done.observation, done.memory
        at = done.observation.at
        name = self._ids.next(at)
        written = record(
            BALANCER, *inputs, done.decision, at, name, done.outcomes, has_readings=done.details.has_readings
        )
        self._journal.append(written)

    @property
    def error(self) -> str:
        return "" if self._journal is None else self._journal.failure

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


FAILURES_MAX = 5
"""The number of failed rounds in a row after which the agent is not ready."""
PAUSES_SECONDS_MAX = 10.0
"""How long to wait for the first list of namespaces; until it has arrived, everything is held."""
RESTORE_SECONDS = 60.0
"""The interval between attempts to restore what could not be restored, while enforcement is denied."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The agent's settings."""

    node: str
    interval_seconds: float = 10.0
    is_enforced: bool = False
    takes_over: bool = False
    state_file: str = "/var/lib/equipoise/agent/state.json"
    cgroups: str = "/sys/fs/cgroup"
    cgroup_parent: str = ""
    proc: str = "/proc"
    is_of_pods: bool = False
    evictions_per_round: int | None = None
    excess_percent: int = 0
    http_address: str = ":8081"
    home: str = "equipoise-system"
    kubeconfig: str | None = None
    context: str | None = None
    journal: str = ""
    """The path of the journal of decisions; none is kept if it is empty."""
    logs: Logs = field(default_factory=Logs)


class Agent:
    """One node's agent: its loop, and what the loop needs."""

    def __init__(self, settings: AgentSettings, log: Log) -> None:
        self.name, self.interval_seconds = "qos", settings.interval_seconds
        self.settings = settings
        self.log = log
        self.stopping = threading.Event()
        self.registry = CollectorRegistry()
        self.metrics = AgentMetrics(self.registry)
        client: Client = connect(settings.kubeconfig, settings.context)
        self.actuator = KubernetesActuator(client, component="equipoise-agent", instance=settings.node)
        self.pauses = NamespacePauses(client, operator_namespace=settings.home)
        self.node_api = WatchedNode(
            client,
            self.actuator,
            settings.node,
            evictions_per_round=settings.evictions_per_round,
            excess_percent=settings.excess_percent,
        )
        self.host = connect_host(
            settings.cgroups, settings.proc, settings.cgroup_parent, is_of_pods=settings.is_of_pods
        )
        self.file = StateFile(settings.state_file, self.host.boot_id())
        self.loop = QosLoop(
            node_name=settings.node,
            node=self.host,
            node_api=self.node_api,
            actuator=self.actuator,
            pauses=self.pauses,
            state_store=self.file,
            is_enforced=False,  # until the gate allows it, before each round
            home=settings.home,
            interval_seconds=settings.interval_seconds,
            on_progress=self._heartbeat,
            evictor=ledger_evictor(client, self.actuator),
        )
        self.gate = EnforcementGate(client, is_enforced=settings.is_enforced, takes_over=settings.takes_over)
        self.reporter = EventReporter(log, self.actuator, self.node_api)
        self.rules = RulesReporter(log, self.node_api, SystemClock())
        self.recovery = Recovery(self.file, self.loop, self.reporter, self.metrics)
        self.journal = AgentJournal(settings.journal)
        self.runner = LoopRunner(
            self, self, clock=SystemClock(), heartbeats=HeartbeatRegistry(), log=log, stopping=self.stopping
        )
        self._cpu_seconds = 0.0
        self._denial: str | None = None
        self._restored_at = float("-inf")

    def hold(self) -> None:
        """Lock the state file and the host until the process ends; raise if another agent holds them."""
        self.file.hold()
        self.host.hold()

    def start(self) -> bool:
        """Start the watches, live but not ready; return False if a stop was requested meanwhile.

        Raises if Crane's own agent runs on the node. Each wait is bounded and renews the heartbeat once, so
        that a wait past its bound counts as stalled.
        """
        try:
            self.node_api.start(self._wait)
        except WorldFailed:
            if self.stopping.is_set():
                return False
            raise
        crane_pod = self.node_api.crane_agent()
        if crane_pod:
            raise WorldFailed(
                f"node {self.settings.node}: {crane_conflict(crane_pod)}; remove one of the two"
            )
        self.pauses.reflector.start()
        self._wait(self.pauses.reflector.synced, PAUSES_SECONDS_MAX)
        return not self.stopping.is_set()

    def _heartbeat(self) -> None:
        self.runner.heartbeat.renew()

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        self._heartbeat()
        until = time.monotonic() + seconds
        while not (self.stopping.is_set() or event.wait(0.1) or time.monotonic() > until):
            continue
        return event.is_set()

    def run(self) -> None:
        """Serve HTTP, run cycles until a stop is requested, then restore everything.

        It is restored even if the start failed, as far as the pods are known then.
        """
        self.hold()
        self.recovery.load()
        server = HttpServer(
            self.settings.http_address,
            make_app(self.liveness_errors, self.readiness_errors, self.registry),
            name="--http-address",
        )
        server.start()
        try:
            if self.start():
                self.log.info(
                    "the agent has started", node=self.settings.node, enforced=self.settings.is_enforced
                )
                self.runner.run()
        finally:
            try:
                self.restore("the agent is stopping")
                self.rules.end()
            finally:
                server.stop(2.0)
                self.stop()
                self.journal.close()

    def stop(self) -> None:
        self.node_api.stop()
        self.pauses.reflector.stop(1.0)

    def restore(self, why: str) -> list[Outcome]:
        """Restore what is throttled and remove our taint, at once; failures are logged."""
        try:
            self._recover(is_last=True)
        except Exception as error:  # noqa: BLE001 - what is known is restored all the same
            log_failure(self.log, "searching for throttled containers failed", error)
        try:
            outcomes = self.loop.restore_all()
        except Exception as error:  # noqa: BLE001 - the stop goes on, and the next agent retries
            log_failure(self.log, "restoring failed", error)
            return []
        for outcome in outcomes:
            pod = outcome.action.pod or self.settings.node
            self.log.info("restored", why=why, pod=pod, result=outcome.result, detail=outcome.detail)
        return outcomes

    def clean_up(self) -> list[Outcome]:
        """Restore what an agent left throttled; return the outcomes, those of unclear quotas last."""
        if not self.recovery.is_over:
            other_agent = self.gate.other_agent(self.node_api.crane_agent())
            self.recovery.search(self.node_api.pods(), other_agent, is_preview=False)
        return [*self.loop.restore_all(), *self.recovery.outcomes()]

    def cycle(self, at: float) -> NodeCycleReport:
        self._cpu_seconds = time.thread_time()
        try:
            self._recover()
        except Exception as error:  # noqa: BLE001 - the cycle goes on with what is known
            self._report_failure(error)
        self._update_permission()
        assert self.settings.is_enforced or not self.loop.is_enforced, "Preview changes nothing"
        return self.loop.cycle(at)

    def observe_cycle(self, report: CycleReport, took_seconds: float) -> None:
        del took_seconds
        assert isinstance(report, NodeCycleReport), "the runner reports our own cycles"
        error_before = self.journal.error
        self.journal.append(report)
        if self.journal.error not in {"", error_before}:
            self.log.warning("decisions cannot be written to the journal", error=self.journal.error)
        cpu_seconds = time.thread_time() - self._cpu_seconds
        self.metrics.observe_cycle(report, len(self.loop.state.throttled), cpu_seconds)
        self.metrics.left_out.set(len(self.node_api.problems))
        self.reporter.report(report)
        if self._denial in {"", PREVIEW}:  # the policies of another agent are its own to report
            self.rules.report(report.details.rules)

    def observe_failure(self, error: Exception, took_seconds: float) -> None:
        del took_seconds
        self.metrics.failures.inc()
        self._report_failure(error)

    def _report_failure(self, error: Exception) -> None:
        self.metrics.bugs.inc(not isinstance(error, EquipoiseError))
        self.reporter.report_failure(error)

    def _recover(self, *, is_last: bool = False) -> None:
        """Search for throttled containers if the state was lost, once the pods are listed."""
        if self.recovery.is_over or self.node_api.waiting_for():
            return
        other_agent = self.gate.other_agent(self.node_api.crane_agent())
        is_preview = not self.settings.is_enforced
        self.recovery.search(self.node_api.pods(), other_agent, is_preview=is_preview, is_last=is_last)

    def _update_permission(self) -> None:
        """Check whether changes are allowed; once they no longer are, restore what was throttled."""
        denial = self.gate.denial(self.node_api.crane_agent(), lambda: bool(self.node_api.policy().policies))
        self.loop.is_enforced = not denial
        self.metrics.enforcing.set(not denial)
        has_changed, self._denial = denial != self._denial, denial
        if denial and not self.gate.is_unknown:
            is_due = time.monotonic() - self._restored_at >= RESTORE_SECONDS and self.loop.has_throttled
            if has_changed or is_due:
                self.restore(denial)
                self._restored_at = time.monotonic()
        if has_changed and denial not in {"", PREVIEW}:
            self.reporter.warn("NothingIsChanged", denial)

    def liveness_errors(self) -> list[str]:
        """Return an error if the loop has stalled or died.

        Failed cycles do not count: a restart fixes neither an API server nor a disk, and would restore
        everything.
        """
        error = self.runner.liveness_error()
        return [] if error is None else [error]

    def readiness_errors(self) -> list[str]:
        """Return why the agent is not ready: no cycle has succeeded yet, or several failed in a row."""
        if self.runner.failures >= FAILURES_MAX:
            why = description_of(self.runner.last_error)
            return [f"the last {self.runner.failures} cycles failed: {why}"]
        if self.runner.has_succeeded:
            return []
        return [self.node_api.waiting_for() or "no cycle has succeeded yet"]


def run_agent(settings: AgentSettings) -> None:
    """Run until SIGTERM or SIGINT; a second one ends the process at once."""
    agent = Agent(settings, make_log(settings.logs))
    on_signals(agent.stopping)
    agent.run()


def clean_up(settings: AgentSettings) -> list[Outcome]:
    """Restore everything that an agent left throttled, and return the outcomes."""
    agent = Agent(settings, make_log(settings.logs))
    agent.hold()
    agent.recovery.load()
    agent.node_api.start()
    try:
        return agent.clean_up()
    finally:
        agent.node_api.stop()
