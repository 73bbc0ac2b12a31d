"""Runs the loop of one node until a signal says stop, then gives everything back.

The agent's diary: its decisions on the host's disk, bounded, to be looked at and replayed.
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
from equipoise.adapters.journal.records import CHANCE_BITS
from equipoise.adapters.kubernetes import Client, KubernetesActuator, NamespacePauses, connect
from equipoise.core.decision import Outcome
from equipoise.core.errors import EquipoiseError, WorldFailed
from equipoise.engine.recording import record
from equipoise.qos.execute import BALANCER
from equipoise.qos.loop import NodeCycleReport, QosLoop
from equipoise.qos.policy import QosPolicy
from equipoise.qos.record import policy_json
from equipoise.runtime.agent.cluster import EventReporter, NodeSurroundings
from equipoise.runtime.agent.enforcement import PREVIEW, EnforcementGate, ledgered
from equipoise.runtime.agent.metrics import AgentMetrics
from equipoise.runtime.agent.recovery import Recovery
from equipoise.runtime.agent.state_file import StateFile
from equipoise.runtime.http import HttpServer, make_app
from equipoise.runtime.logs import Log, log_failure, make_log
from equipoise.runtime.runner import Heartbeat, on_signals
from equipoise.runtime.settings import Logs

BYTES_MAX = 32 * 1024 * 1024
AGE_MAX_SECONDS = 7 * 86400.0


class SystemClock:
    """The time."""

    def now(self) -> float:
        """Return the Unix time in seconds."""
        return time.time()


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
        self._ids = RecordIds(secrets.randbits(CHANCE_BITS))
        self._asked: tuple[QosPolicy | None, dict[str, Any]] = (None, {})

    def keep(self, done: NodeCycleReport) -> None:
        """Write a round down: whole where something was done or its reason is new."""
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
    def trouble(self) -> str:
        """Return why nothing can be kept, or nothing."""
        return "" if self._journal is None else self._journal.unwell

    def close(self) -> None:
        """Write down what is left."""
        if self._journal is not None:
            self._journal.close()


FAILURES_MAX = 5
"""So many rounds in a row that fail make the agent unready."""
PAUSES_SECONDS_MAX = 10.0
"""How long the first list of namespaces is waited for; until it is there, everything is held anyway."""
GIVE_BACK_SECONDS = 60.0
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
        self.settings = settings
        self.log = log
        self.stopping = threading.Event()
        self.heart = Heartbeat("qos", settings.interval_seconds)
        self.registry = CollectorRegistry()
        self.meters = AgentMetrics(self.registry)
        client: Client = connect(settings.kubeconfig, settings.context)
        self.actuator = KubernetesActuator(client, component="equipoise-agent", instance=settings.node)
        self.pauses = NamespacePauses(client, operator_namespace=settings.home)
        self.around = NodeSurroundings(
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
        self.clock = SystemClock()
        self.loop = QosLoop(
            node_name=settings.node,
            node=host,
            node_api=self.around,
            actuator=self.actuator,
            pauses=self.pauses,
            state_store=self.file,
            is_enforced=False,  # until the mandate says otherwise, before each round
            home=settings.home,
            interval_seconds=settings.interval_seconds,
            on_progress=self.heart.renew,
            evictor=ledgered(client, self.actuator),
        )
        self.mandate = EnforcementGate(
            client, is_enforced=settings.is_enforced, takes_over=settings.takes_over
        )
        self.teller = EventReporter(log, self.actuator, self.around)
        self.recovery = Recovery(self.file, self.loop, self.teller, self.meters)
        self._diary = AgentJournal(settings.journal)
        self._failures, self._why_failed = 0, ""
        self._rounds = 0
        self._objection: str | None = None
        self._gave_back_at = float("-inf")

    def hold(self) -> None:
        """Be the only agent of this machine and of this file, until the process ends."""
        self.file.hold()
        self.host.hold()

    def start(self) -> bool:
        """Begin to watch, live but not ready; False when told to stop meanwhile.

        It refuses to start beside Crane's own agent. Each wait is bounded, and the heart beats once for each:
        one that lasts longer than it may makes the agent ill.
        """
        try:
            self.around.start(self._waited)
        except WorldFailed:
            if self.stopping.is_set():
                return False
            raise
        beside = self.around.crane_agent()
        if beside:
            raise WorldFailed(
                f"node {self.settings.node}: pod {beside} is Crane's own agent, and both would write "
                "the same quotas; remove one of them"
            )
        self.pauses.start()
        self._waited(self.pauses.reflector.synced, PAUSES_SECONDS_MAX)
        return not self.stopping.is_set()

    def _waited(self, event: threading.Event, seconds: float) -> bool:
        """Wait for something that a stop ends; tell whether it has come."""
        self.heart.renew()
        until = time.monotonic() + seconds
        while not (self.stopping.is_set() or event.wait(0.1) or time.monotonic() > until):
            continue
        return event.is_set()

    def run(self) -> None:
        """Answer from the beginning, do rounds until told to stop, then give everything back.

        That is done on every way out: also when the start failed, as far as the pods are known then.
        """
        self.hold()
        self.recovery.load()
        door = HttpServer(
            self.settings.http_address,
            make_app(self.liveness_errors, self.unready, self.registry),
            name="--http-address",
        )
        door.start()
        try:
            if self.start():
                self._keep_watch()
        finally:
            try:
                self.give_back("the agent ends")
            finally:
                door.stop(2.0)
                self.stop()
                self._diary.close()

    def _keep_watch(self) -> None:
        self.log.info("the agent begins", node=self.settings.node, enforced=self.settings.is_enforced)
        while not self.stopping.is_set():
            began_at = time.monotonic()
            self.one_round()
            self.heart.renew()
            rest = self.settings.interval_seconds - (time.monotonic() - began_at)
            self.stopping.wait(max(0.1, rest))

    def stop(self) -> None:
        """End the watches."""
        self.around.stop()
        self.pauses.stop(1.0)

    def give_back(self, why: str) -> list[Outcome]:
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
            other_agent = self.mandate.other_agent(self.around.crane_agent())
            self.recovery.look(self.around.pods(), other_agent, is_preview=False)
        return [*self.loop.restore_all(), *self.recovery.outcomes()]

    def one_round(self) -> None:
        """Do one round; whatever fails is logged, and the next one tries again."""
        spent = time.thread_time()
        try:
            self._recover()
        except Exception as error:  # noqa: BLE001 - the round goes on with what is known
            self._tell_failure(error)
        try:
            self._ask_leave()
            self._tell(self.loop.cycle(self.clock.now()), spent)
        except Exception as error:  # noqa: BLE001 - one bad round must not end the loop
            is_expected = isinstance(error, EquipoiseError)
            self._why_failed = str(error) if is_expected else f"unexpected {type(error).__name__}: {error}"
            self._failures += 1
            self.meters.failures.inc()
            self._tell_failure(error)
        else:
            self._failures, self._rounds = 0, self._rounds + 1

    def _tell_failure(self, error: Exception) -> None:
        self.meters.bugs.inc(not isinstance(error, EquipoiseError))
        self.teller.tell_failure(error)

    def _tell(self, done: NodeCycleReport, spent: float) -> None:
        was = self._diary.trouble
        self._diary.keep(done)
        if self._diary.trouble not in {"", was}:
            self.log.warning("decisions are not kept", error=self._diary.trouble)
        self.meters.tell(done, len(self.loop.state.throttled), time.thread_time() - spent)
        self.meters.left_out.set(len(self.around.problems))
        self.teller.tell(done)

    def _recover(self, *, is_last: bool = False) -> None:
        """Look for what is throttled where the state does not tell, once the pods are listed."""
        if self.recovery.is_over or self.around.waiting_for():
            return
        other_agent = self.mandate.other_agent(self.around.crane_agent())
        is_preview = not self.settings.is_enforced
        self.recovery.look(self.around.pods(), other_agent, is_preview=is_preview, is_last=is_last)

    def _ask_leave(self) -> None:
        """Look whether anything may be changed; where it may not any more, give back what was taken."""
        objection = self.mandate.objection(
            self.around.crane_agent(), lambda: bool(self.around.policy().policies)
        )
        self.loop.is_enforced = not objection
        self.meters.enforcing.set(not objection)
        is_news, self._objection = objection != self._objection, objection
        if objection and not self.mandate.is_unknown and (is_news or self._has_waited()):
            self.give_back(objection)
            self._gave_back_at = time.monotonic()
        if is_news and objection not in {"", PREVIEW}:
            self.teller.warn("NothingIsChanged", objection)

    def _has_waited(self) -> bool:
        """Whether to try again to give back what could not be."""
        return time.monotonic() - self._gave_back_at >= GIVE_BACK_SECONDS and self.loop.has_throttled

    def liveness_errors(self) -> list[str]:
        """Return what makes the agent ill: a loop that stalls.

        Rounds that fail do not: a restart mends neither an API server nor a disk, and gives everything back.
        """
        return [liveness_error] if (liveness_error := self.heart.liveness_error()) else []

    def unready(self) -> list[str]:
        """Return what is missing before it can be relied on."""
        if self._failures >= FAILURES_MAX:
            return [f"the last {self._failures} rounds failed: {self._why_failed}"]
        if self._rounds:
            return []
        return [self.around.waiting_for() or "no round has been decided yet"]


def run_agent(settings: AgentSettings) -> None:
    """Run until SIGTERM or SIGINT; a second one ends the process at once."""
    agent = Agent(settings, make_log(settings.logs))
    on_signals(agent.stopping)
    agent.run()


def clean_up(settings: AgentSettings) -> list[Outcome]:
    """Give everything back that an agent has left, and end."""
    agent = Agent(settings, make_log(settings.logs))
    agent.hold()
    agent.recovery.load()
    agent.around.start()
    try:
        return agent.clean_up()
    finally:
        agent.around.stop()
