"""The node agent: runs the loop of one node until a signal says stop, then restores what is throttled.

An agent that ends otherwise would leave containers throttled until its successor has read the state file. So
they are restored on every way out, a failed start and a bug included.
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
from equipoise.adapters.kubernetes import Client, KubernetesActuator, NamespacePauses, connect
from equipoise.core.decision import Outcome
from equipoise.core.errors import EquipoiseError, WorldFailed
from equipoise.engine.recording import record
from equipoise.ports import CycleReport
from equipoise.qos.execute import BALANCER
from equipoise.qos.loop import NodeCycleReport, QosLoop
from equipoise.qos.policy import QosPolicy, policy_json
from equipoise.runtime.agent.enforcement import PREVIEW, EnforcementGate
from equipoise.runtime.agent.node_api import WatchedNode, ledger_evictor
from equipoise.runtime.agent.reporting import AgentMetrics, EventReporter
from equipoise.runtime.agent.state import Recovery, StateFile
from equipoise.runtime.http import HttpServer, make_app
from equipoise.runtime.logs import Log, log_failure, make_log
from equipoise.runtime.runner import HeartbeatRegistry, LoopRunner, SystemClock, on_signals
from equipoise.runtime.settings import Logs

BYTES_MAX = 32 * 1024 * 1024
AGE_MAX_SECONDS = 7 * 86400.0


class AgentJournal:
    """Keeps rounds; without a file it keeps none. Losing it changes no decision."""

    def __init__(self, file: str) -> None:
        self._journal: SqliteJournal | None = None
        if file:
            with contextlib.suppress(OSError):  # the journal itself says what is wrong
                Path(file).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._journal = SqliteJournal(
                file, age_max_seconds=AGE_MAX_SECONDS, bytes_max=BYTES_MAX, clock=SystemClock()
            )
        self._ids = RecordIds(secrets.randbits(WRITER_BITS))
        self._asked: tuple[QosPolicy | None, dict[str, Any]] = (None, {})

    def append(self, done: NodeCycleReport) -> None:
        """Record a cycle: whole where something was done or its reason is new."""
        if self._journal is None:
            return
        if self._asked[0] is not done.policy:
            self._asked = (done.policy, policy_json(done.policy))
        seen = done.observation
        name = self._ids.next(seen.at)
        self._journal.append(
            record(BALANCER, self._asked[1], seen, done.memory, done.decision, seen.at, name, done.outcomes)
        )

    @property
    def error(self) -> str:
        return "" if self._journal is None else self._journal.unwell

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


FAILURES_MAX = 5
"""So many rounds in a row that fail make the agent unready."""
PAUSES_SECONDS_MAX = 10.0
"""How long the first list of namespaces is waited for; until it is there, everything is held anyway."""
RESTORE_SECONDS = 60.0
"""How often it is tried again to give back what could not be, where nothing else may be done."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent was started with."""

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
    """Where decisions are kept; nowhere when empty."""
    logs: Logs = field(default_factory=Logs)


class Agent:
    """One node's agent and its surroundings."""

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
        host = connect_host(
            settings.cgroups, settings.proc, settings.cgroup_parent, is_of_pods=settings.is_of_pods
        )
        self.host = host
        self.file = StateFile(settings.state_file, host.boot_id())
        self.loop = QosLoop(
            node_name=settings.node,
            node=host,
            node_api=self.node_api,
            actuator=self.actuator,
            pauses=self.pauses,
            state_store=self.file,
            is_enforced=False,  # until the mandate says otherwise, before each round
            home=settings.home,
            interval_seconds=settings.interval_seconds,
            on_progress=self._heartbeat,
            evictor=ledger_evictor(client, self.actuator),
        )
        self.gate = EnforcementGate(client, is_enforced=settings.is_enforced, takes_over=settings.takes_over)
        self.reporter = EventReporter(log, self.actuator, self.node_api)
        self.recovery = Recovery(self.file, self.loop, self.reporter, self.metrics)
        self.journal = AgentJournal(settings.journal)
        self.runner = LoopRunner(
            self,
            self,
            clock=SystemClock(),
            heartbeats=HeartbeatRegistry(),
            log=log,
            stopping=self.stopping,
        )
        self._cpu_seconds = 0.0
        self._denial: str | None = None
        self._restored_at = float("-inf")

    def hold(self) -> None:
        """Be the only agent of this machine and of this file, until the process ends."""
        self.file.hold()
        self.host.hold()

    def start(self) -> bool:
        """Begin to watch, live but not ready; False when a stop was asked for meanwhile.

        It refuses to start beside Crane's own agent. Each wait is bounded and renews the heartbeat once:
        one that lasts longer than it may counts as stalled.
        """
        try:
            self.node_api.start(self._waited)
        except WorldFailed:
            if self.stopping.is_set():
                return False
            raise
        beside = self.node_api.crane_agent()
        if beside:
            raise WorldFailed(
                f"node {self.settings.node}: pod {beside} is Crane's own agent, and both would write "
                "the same quotas; remove one of them"
            )
        self.pauses.start()
        self._waited(self.pauses.reflector.synced, PAUSES_SECONDS_MAX)
        return not self.stopping.is_set()

    def _heartbeat(self) -> None:
        self.runner.heartbeat.renew()

    def _waited(self, event: threading.Event, seconds: float) -> bool:
        """Wait for something that a stop ends, and return whether it has come."""
        self._heartbeat()
        until = time.monotonic() + seconds
        while not (self.stopping.is_set() or event.wait(0.1) or time.monotonic() > until):
            continue
        return event.is_set()

    def run(self) -> None:
        """Answer from the beginning, run cycles until a stop is asked for, then restore everything.

        That is done on every way out: also when the start failed, as far as the pods are known then.
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
                self.log.info("the agent begins", node=self.settings.node, enforced=self.settings.is_enforced)
                self.runner.run()
        finally:
            try:
                self.restore("the agent ends")
            finally:
                server.stop(2.0)
                self.stop()
                self.journal.close()

    def stop(self) -> None:
        self.node_api.stop()
        self.pauses.stop(1.0)

    def restore(self, why: str) -> list[Outcome]:
        """Restore what is throttled and take our taint off, at once; whatever fails is logged."""
        try:
            self._recover(is_last=True)
        except Exception as error:  # noqa: BLE001 - what is known is given back all the same
            log_failure(self.log, "what is throttled could not be looked for", error)
        try:
            outcomes = self.loop.restore_all()
        except Exception as error:  # noqa: BLE001 - the way out goes on, and the next agent tries again
            log_failure(self.log, "not everything could be given back", error)
            return []
        for outcome in outcomes:
            self.log.info(
                "given back",
                why=why,
                pod=outcome.action.pod or self.settings.node,
                result=outcome.result,
                detail=outcome.detail,
            )
        return outcomes

    def clean_up(self) -> list[Outcome]:
        """Restore what an agent has left throttled; return the outcomes, of what is left as it is last."""
        if not self.recovery.is_over:
            other_agent = self.gate.other_agent(self.node_api.crane_agent())
            self.recovery.search(self.node_api.pods(), other_agent, is_preview=False)
        return [*self.loop.restore_all(), *self.recovery.outcomes()]

    def cycle(self, at: float) -> NodeCycleReport:
        """Look for what is throttled, ask whether anything may be changed, and run the balancer's cycle."""
        self._cpu_seconds = time.thread_time()
        try:
            self._recover()
        except Exception as error:  # noqa: BLE001 - the cycle goes on with what is known
            self._report_failure(error)
        self._ask_permission()
        assert self.settings.is_enforced or not self.loop.is_enforced, "Preview changes nothing"
        return self.loop.cycle(at)

    def observe_cycle(self, report: CycleReport, took_seconds: float) -> None:
        del took_seconds
        assert isinstance(report, NodeCycleReport), "the runner reports our own cycles"
        error_before = self.journal.error
        self.journal.append(report)
        if self.journal.error not in {"", error_before}:
            self.log.warning("decisions are not kept", error=self.journal.error)
        cpu_seconds = time.thread_time() - self._cpu_seconds
        self.metrics.observe_cycle(report, len(self.loop.state.throttled), cpu_seconds)
        self.metrics.left_out.set(len(self.node_api.problems))
        self.reporter.report(report)

    def observe_failure(self, error: Exception, took_seconds: float) -> None:
        """Count and log a cycle that failed; the next one tries again."""
        del took_seconds
        self.metrics.failures.inc()
        self._report_failure(error)

    def _report_failure(self, error: Exception) -> None:
        self.metrics.bugs.inc(not isinstance(error, EquipoiseError))
        self.reporter.report_failure(error)

    def _recover(self, *, is_last: bool = False) -> None:
        """Look for what is throttled where the state does not tell, once the pods are listed."""
        if self.recovery.is_over or self.node_api.waiting_for():
            return
        other_agent = self.gate.other_agent(self.node_api.crane_agent())
        is_preview = not self.settings.is_enforced
        self.recovery.search(self.node_api.pods(), other_agent, is_preview=is_preview, is_last=is_last)

    def _ask_permission(self) -> None:
        """Ask whether anything may be changed; where it may not any more, restore what was throttled."""
        denial = self.gate.denial(self.node_api.crane_agent(), lambda: bool(self.node_api.policy().policies))
        self.loop.is_enforced = not denial
        self.metrics.enforcing.set(not denial)
        is_news, self._denial = denial != self._denial, denial
        if denial and not self.gate.is_unknown and (is_news or self._may_retry_restore()):
            self.restore(denial)
            self._restored_at = time.monotonic()
        if is_news and denial not in {"", PREVIEW}:
            self.reporter.warn("NothingIsChanged", denial)

    def _may_retry_restore(self) -> bool:
        return time.monotonic() - self._restored_at >= RESTORE_SECONDS and self.loop.has_throttled

    def liveness_errors(self) -> list[str]:
        """Return what only a restart can mend: a loop that stalls.

        Cycles that fail are none of it: a restart mends neither an API server nor a disk, and restores
        everything.
        """
        error = self.runner.liveness_error()
        return [] if error is None else [error]

    def readiness_errors(self) -> list[str]:
        """Return what is missing before it can be relied on."""
        if self.runner.failures >= FAILURES_MAX:
            error = self.runner.last_error
            is_expected = isinstance(error, EquipoiseError)
            why = str(error) if is_expected else f"unexpected {type(error).__name__}: {error}"
            return [f"the last {self.runner.failures} rounds failed: {why}"]
        if self.runner.has_succeeded:
            return []
        return [self.node_api.waiting_for() or "no round has been decided yet"]


def run_agent(settings: AgentSettings) -> None:
    """Run until SIGTERM or SIGINT; a second one ends the process at once."""
    agent = Agent(settings, make_log(settings.logs))
    on_signals(agent.stopping)
    agent.run()


def clean_up(settings: AgentSettings) -> list[Outcome]:
    """Restore everything that an agent has left throttled, and end."""
    agent = Agent(settings, make_log(settings.logs))
    agent.hold()
    agent.recovery.load()
    agent.node_api.start()
    try:
        return agent.clean_up()
    finally:
        agent.node_api.stop()
