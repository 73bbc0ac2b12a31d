"""Runs the loop of one node until a signal says stop, then gives everything back."""

import threading
import time
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from equipoise.adapters.cgroups import connect_host
from equipoise.adapters.cgroups.state import StateFile
from equipoise.adapters.kubernetes import Client, KubernetesActuator, NamespacePauses, connect
from equipoise.adapters.kubernetes.definitions import look_at
from equipoise.app.agent.diary import Diary, SystemClock
from equipoise.app.agent.meters import AgentMeters
from equipoise.app.agent.surroundings import NodeSurroundings
from equipoise.app.operator.hearts import Heart
from equipoise.app.operator.http import Door, make_app
from equipoise.app.operator.logs import Log, make_log
from equipoise.app.operator.settings import Logs
from equipoise.app.signals import on_signals
from equipoise.model.crd.definition import Standing
from equipoise.model.decision import DisableScheduling, EnableScheduling, Outcome
from equipoise.model.errors import EquipoiseError, WorldFailed
from equipoise.model.references import ObjectRef
from equipoise.qos.kind import GROUP, VERSION
from equipoise.qos.loop import QosLoop, Round

FAILURES_MAX = 5
"""So many rounds in a row that fail make the agent ill."""


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
        self.heart = Heart("qos", settings.interval_seconds)
        self.registry = CollectorRegistry()
        self.meters = AgentMeters(self.registry)
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
        self.file = StateFile(settings.state_file, host.boot_id())
        self.loop = QosLoop(
            name=settings.node,
            node=host,
            around=self.around,
            actuator=self.actuator,
            pauses=self.pauses,
            keep=self.file,
            clock=SystemClock(),
            is_enforced=settings.is_enforced and self._is_ours_to_act(client),
            home=settings.home,
            on_progress=self.heart.beat,
        )
        self._diary = Diary(settings.journal)
        self._failures = 0
        self._rounds = 0
        self._last: tuple[str, tuple[str, ...]] = ("", ())

    def _is_ours_to_act(self, client: Client) -> bool:
        """Leave policies alone whose kind is somebody else's, unless told to take over."""
        found = look_at(client, GROUP, VERSION, "nodeqosensurancepolicies")
        if found.standing is Standing.FOREIGN and not self.settings.takes_over:
            self.log.warning(
                "ForeignController: the kinds of ensurance.crane.io are somebody else's; nothing is changed "
                "until --crane on says to take over"
            )
            return False
        return True

    def start(self) -> None:
        """Begin to watch; refuse to start beside Crane's own agent, or another of ours."""
        self.file.hold()
        self.around.start()
        beside = self.around.crane_agent()
        if beside:
            raise WorldFailed(
                f"node {self.settings.node}: pod {beside} is Crane's own agent, and both would write "
                "the same quotas; remove one of them"
            )
        self.pauses.start()
        self.pauses.wait_until_synced(self.settings.interval_seconds)

    def run(self) -> None:
        """Do rounds until told to stop, then give everything back."""
        door = Door(self.settings.http_address, make_app(self.illnesses, self.unready, self.registry))
        self.start()
        door.start()
        if not self.loop.is_enforced:
            self.give_back("nothing is changed in Preview")
        self.log.info("the agent begins", node=self.settings.node, enforced=self.loop.is_enforced)
        while not self.stopping.is_set():
            began_at = time.monotonic()
            self.one_round()
            self.heart.beat()
            rest = self.settings.interval_seconds - (time.monotonic() - began_at)
            self.stopping.wait(max(0.1, rest))
        self.give_back("the agent ends")
        door.stop(2.0)
        self.stop()
        self._diary.close()

    def stop(self) -> None:
        """End the watches."""
        self.around.stop()
        self.pauses.stop(1.0)

    def give_back(self, why: str) -> list[Outcome]:
        """Restore what is throttled and take our taint off, at once."""
        try:
            outcomes = self.loop.restore_all()
        except EquipoiseError as error:
            self.log.warning("not everything could be given back", error=str(error))
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

    def one_round(self) -> None:
        """Do one round; what fails is said, and the next one tries again."""
        spent = time.thread_time()
        try:
            done = self.loop.round()
        except EquipoiseError as error:
            self._failures += 1
            self.meters.failures.inc()
            self.log.warning("a round failed", error=str(error))
            return
        self._failures, self._rounds = 0, self._rounds + 1
        was = self._diary.trouble
        self._diary.keep(done)
        if self._diary.trouble not in {"", was}:
            self.log.warning("decisions are not kept", error=self._diary.trouble)
        self.meters.tell(done, len(self.loop.state.throttled), time.thread_time() - spent)
        self._tell(done)

    def _tell(self, done: Round) -> None:
        """Say what is news: in the log always, as events where something was done or the reason changed."""
        decision = done.decision
        code, sentence = decision.reason.code.value, decision.reason.sentence
        is_news = (code, self.around.problems) != self._last or bool(done.outcomes)
        self._last = (code, self.around.problems)
        (self.log.info if is_news else self.log.debug)(sentence, reason=code, node=decision.subject)
        for warning in done.warnings:
            self.log.warning(warning)
        if not is_news:
            return
        for problem in self.around.problems:
            self.log.warning("a policy is left out", problem=problem)
        node = ObjectRef("v1", "Node", "", self.settings.node, self.around.uid())
        self.actuator.record_event(node, code, sentence)
        for outcome in done.outcomes:
            action = outcome.action
            if isinstance(action, DisableScheduling | EnableScheduling):
                continue
            namespace, _, name = action.pod.partition("/")
            detail = f" ({outcome.detail})" if outcome.detail else ""
            pod = ObjectRef("v1", "Pod", namespace, name, action.uid)
            said = f"{type(action).__name__}: {outcome.result}{detail}. {sentence}"
            self.actuator.record_event(pod, code, said, is_warning=outcome.result not in {"Done", "Accepted"})

    def illnesses(self) -> list[str]:
        """Say what makes the agent ill: a loop that stalls, or rounds that only fail."""
        found = [illness] if (illness := self.heart.illness()) else []
        if self._failures >= FAILURES_MAX:
            found.append(f"the last {self._failures} rounds failed")
        return found

    def unready(self) -> list[str]:
        """Say what is missing before it can be relied on."""
        return [] if self._rounds else ["no round has been decided yet"]


def run_agent(settings: AgentSettings) -> None:
    """Run until SIGTERM or SIGINT; a second one ends the process at once."""
    agent = Agent(settings, make_log(settings.logs))
    on_signals(agent.stopping)
    agent.run()


def clean_up(settings: AgentSettings) -> list[Outcome]:
    """Give everything back that an agent has left, and end."""
    agent = Agent(settings, make_log(settings.logs))
    agent.file.hold()
    agent.around.start()
    try:
        return agent.loop.restore_all()
    finally:
        agent.around.stop()
