"""One node's cycle: read counters, join the pods, decide, guard, execute, save the state. It never waits.

A quota is in the state on disk before it is written to the cgroup. A refused eviction releases nothing, so
the rest is decided again without that pod. After a quota has changed, CPU is measured from that time on: a
metric is used only if its whole interval is after the change.

An error is as large as its cause: a pod about which no decision can be made stays unchanged, an action that
raises has failed, and the cycle goes on.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from equipoise.core.decision import (
    Action,
    Decided,
    Decision,
    DisableScheduling,
    EnableScheduling,
    EvictPod,
    Outcome,
    RestorePod,
    ThrottlePod,
)
from equipoise.core.errors import EquipoiseError, WorldFailed
from equipoise.engine.guards import held_by_pause
from equipoise.engine.isolation import Isolation
from equipoise.ports import Actuator, CycleReport, FailedTurn, Pauses
from equipoise.ports.node import ContainerRef, Counters, Host, NodeCounters, NodePod, NodeReading
from equipoise.qos import execute
from equipoise.qos.decide import decide
from equipoise.qos.execute import LedgerEvictor
from equipoise.qos.explain import QosDetails
from equipoise.qos.observation import Observation
from equipoise.qos.observe import (
    NodeContext,
    PendingEffects,
    observe,
    rates_of,
    refs_of,
    terminating_since,
    usage_between,
    without_failing_pods,
)
from equipoise.qos.policy import QosPolicy
from equipoise.qos.state import AgentState, StateStore
from equipoise.qos.waterlines import QosMemory, WaterlineState, judge_rules

EVICTED_SECONDS = 30.0
"""How long a pod counts as terminating after its eviction was accepted, or had no answer."""
REFUSALS_MAX = 10
"""Refused evictions after which no other pod is evicted until the next cycle."""
FAILURES_MAX = 10
"""Failed quota writes after which the rest of a cycle is skipped: it would fail too."""
COUNTS_SECONDS = 60.0
"""The minimum interval between writes of the state in which only counts differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCycleReport(CycleReport):
    """A cycle of one node, with the inputs of its decision, so that it can be made again."""

    policy: QosPolicy
    observation: Observation
    memory: Mapping[str, Any]
    details: QosDetails

    @property
    def decision(self) -> Decision:
        assert len(self.decisions) == 1, "one node, one decision"
        return self.decisions[0]


@dataclass(slots=True)
class QosLoop:
    """The loop of one node."""

    node_name: str
    node: Host
    node_api: NodeContext
    actuator: Actuator
    pauses: Pauses
    state_store: StateStore
    is_enforced: bool
    """Whether anything is changed; otherwise decisions are previews."""
    home: str = "equipoise-system"
    """The namespace whose pause holds actions on the node itself."""
    name: str = "qos"
    interval_seconds: float = 10.0
    on_progress: Callable[[], object] = lambda: None
    evictor: LedgerEvictor | None = None
    """Evicts pods; by default the actuator does, without a ledger."""
    _state: AgentState | None = None
    _saved_at: float = float("-inf")
    _before: NodeReading | None = None
    _evicted: dict[str, float] = field(default_factory=dict)
    """Until when each pod that this agent evicted counts as terminating, by UID."""
    _terminating_since: dict[str, float] = field(default_factory=dict)
    _rates: dict[str, tuple[str, int]] = field(default_factory=dict)
    _warnings: list[str] = field(default_factory=list)
    _isolation: Isolation = field(default_factory=Isolation)

    @property
    def state(self) -> AgentState:
        """The containers throttled now, and the memory; loaded once, when the agent starts.

        Counts of rounds start at 0: rounds before and after a restart are not consecutive.
        """
        if self._state is None:
            loaded = self.state_store.load()
            memory = QosMemory(last_trigger=QosMemory.from_data(loaded.memory).last_trigger)
            self._state = replace(loaded, memory=memory.to_data())
        return self._state

    @property
    def has_throttled(self) -> bool:
        """Whether a quota or the scheduling must be restored."""
        return bool(self.state.throttled) or self.node_api.is_scheduling_disabled()

    def cycle(self, at: float) -> NodeCycleReport:
        """Run one cycle; WorldFailed ends this one only."""
        self._warnings = []
        self._isolation.begin(at)
        pods, policy = list(self.node_api.pods()), self.node_api.policy()
        self._drop_expired(pods, at)
        after = self._read(policy, pods)
        self._terminating_since = terminating_since(pods, self._terminating_since, after.node.read_at)
        self._settle(after.containers, pods)
        memory = self.state.memory
        observation, decided = self._decide(policy, pods, after, at, is_fresh=False)
        outcomes: list[Outcome] = []
        if decided.decision.actions and self.is_enforced:
            observation, decided, outcomes = self._execute(policy, pods, after, at)
        elif decided.decision.actions:
            decided = decided._replace(decision=execute.previewed(decided.decision))
        assert self.is_enforced or not outcomes, "a preview changes nothing"
        self._rates = rates_of(observation, self._rates)
        self._before = after
        if any(execute.affects_usage(one) for one in outcomes):
            self._begin_interval(policy, pods, outcomes)
        self._remember(decided.decision, at, is_changed=bool(outcomes))
        return NodeCycleReport(
            decisions=(decided.decision,),
            outcomes=outcomes,
            warnings=tuple(self._warnings),
            failed_turns=self._isolation.failed,
            policy=policy,
            observation=observation,
            memory=memory,
            details=decided.details,
        )

    def _begin_interval(self, policy: QosPolicy, pods: Sequence[NodePod], outcomes: list[Outcome]) -> None:
        """Start a new interval, so that metrics after the actions do not include the time before them."""
        assert self._before is not None, "a cycle has read the node"
        changed_at = self._before.node.read_at
        if any(not isinstance(one.action, EvictPod) for one in outcomes):
            try:
                self._before = self._read(policy, pods)
                changed_at = self._before.node.read_at
            except WorldFailed as error:
                self._warnings.append(str(error))
                self._before = None
        self._state = replace(self.state, changed_at=changed_at)

    def restore_all(self) -> list[Outcome]:
        """Restore every pod and the scheduling at once, when the agent ends and for `--cleanup`.

        The state is saved last: a quota equal to the limit is restored, whatever the state has. So a full or
        slow disk leaves no pod throttled.
        """
        pods = self.node_api.pods()
        counters: Mapping[str, Counters] = {}
        try:
            counters = self.node.read(self._refs([]), is_deep=True)
            self._settle(counters, pods)
        except Exception as error:  # noqa: BLE001 - the limits are known without it
            self._warnings.append(str(error))
        running = {part.id: (pod, part) for pod in pods for part in pod.containers}
        outcomes = [
            execute.restore_container(self.node, part, running.get(id_), counters.get(id_))
            for id_, part in list(self.state.throttled.items())
        ]
        if outcomes:
            self._settle_after(self._refs([]), pods)
        if self.node_api.is_scheduling_disabled():
            action = EnableScheduling(self.node_name)
            outcomes.append(execute.set_scheduling(self.node_api, action, "The agent is stopping."))
        return outcomes

    def _read(self, policy: QosPolicy, pods: Sequence[NodePod]) -> NodeReading:
        """Read the machine and its containers; memory and quotas only if a decision may need them."""
        node = self.node.read_node()
        self.on_progress()
        is_deep = bool(self.state.throttled) or self._is_crossed(policy, node)
        return NodeReading(node, self.node.read(self._refs(pods), is_deep=is_deep))

    def _refs(self, pods: Sequence[NodePod]) -> list[ContainerRef]:
        """Return the containers of these pods, and all throttled ones, running or not."""
        found = {ref.id: ref for ref in refs_of(pods)}
        for id_, part in self.state.throttled.items():
            found.setdefault(id_, ContainerRef(part.pod_uid, id_))
        return list(found.values())

    def _is_crossed(self, policy: QosPolicy, node: NodeCounters) -> bool:
        before = None if self._before is None else self._before.node
        usage = usage_between(before, node, self.state.changed_at)
        size = (node.cpus * 10**9, node.memory_total_bytes or 0)
        observation = Observation(self.node_name, 0.0, *size, usage, labels=self.node_api.labels())
        return any(line.state is WaterlineState.CROSSED for line in judge_rules(policy, observation))

    def _drop_expired(self, pods: Sequence[NodePod], at: float) -> None:
        """Drop evictions and refusals that have expired, or whose pod no longer exists."""
        uids = {pod.uid for pod in pods if pod.deletion_at is None}
        latest = at + EVICTED_SECONDS  # later only if the clock was set back
        unexpired = ((uid, until) for uid, until in self._evicted.items() if uid in uids and at < until)
        self._evicted = {uid: min(until, latest) for uid, until in unexpired}
        self._state = self.state.with_recent_refusals(uids, at)

    def _settle(
        self, counters: Mapping[str, Counters], pods: Sequence[NodePod], among: Collection[str] | None = None
    ) -> None:
        """Drop containers, of these or of all, that are no longer throttled, and intents never written."""
        limits = {part.id: part.cpu_limit_nanos for pod in pods for part in pod.containers}
        ended = self.state.not_throttled(counters, limits)
        ended = ended if among is None else ended & set(among)
        if ended:
            self.adopt(self.state.without(ended))
        self._state = self.state.with_settled(counters)

    def _decide(
        self,
        policy: QosPolicy,
        pods: Sequence[NodePod],
        after: NodeReading,
        at: float,
        *,
        is_fresh: bool,
        released_cpu_nanos: int = 0,
    ) -> tuple[Observation, Decided[QosDetails]]:
        """Observe and decide; `is_fresh` reads the node again, right before the actions."""
        fresh: NodeCounters | None = None
        if is_fresh:
            try:
                fresh = self.node.read_node()
            except WorldFailed as error:
                self._warnings.append(str(error))
        memory = QosMemory.from_data(self.state.memory)
        effects = PendingEffects(
            throttled=frozenset(self.state.throttled),
            evicted=frozenset(self._evicted),
            refused=self.state.refusals_in_force(at),
            rates=self._rates,
            changed_at=self.state.changed_at,
            released_cpu_nanos=released_cpu_nanos,
            terminating_since=self._terminating_since,
        )

        def decide_on(some: Sequence[NodePod]) -> tuple[Observation, Decided[QosDetails]]:
            observation = observe(
                self.node_name,
                at,
                (self._before, after),
                some,
                effects,
                labels=self.node_api.labels(),
                is_scheduling_disabled=self.node_api.is_scheduling_disabled(),
                is_fresh=is_fresh,
                fresh=fresh,
            )
            return observation, decide(policy, observation, memory)

        observation, decided = without_failing_pods(decide_on, pods, self._isolation)
        held = execute.hold_paused(
            decided.decision, lambda name: held_by_pause(self.pauses, name or self.home)
        )
        return observation, decided._replace(decision=held)

    def _execute(
        self, policy: QosPolicy, pods: list[NodePod], after: NodeReading, at: float
    ) -> tuple[Observation, Decided[QosDetails], list[Outcome]]:
        """Execute in order, and decide the rest again after an action that did not release what was planned.

        These are refused and failed actions, and reclaims, whose release is only measured afterwards. A pod
        is acted on once; what lowered quotas release is not in any reading yet, and counts as released.
        """
        outcomes: list[Outcome] = []
        observation, decided = self._decide(policy, pods, after, at, is_fresh=True)
        rest, sentence = decided.decision, decided.decision.reason.sentence
        while True:
            for action in rest.actions:
                outcomes.append(self._attempt(action, pods, sentence, at))
                self.on_progress()
                if execute.is_unforeseen(outcomes[-1]):
                    break
            else:
                return observation, decided, outcomes
            tally = execute.tally(outcomes)
            if tally.throttles_failed >= FAILURES_MAX:
                return observation, decided, outcomes
            acted = {one.action.uid for one in outcomes if not isinstance(one.action, EvictPod)}
            others = [pod for pod in pods if pod.uid not in acted]
            budget = max(0, decided.details.budget - tally.evictions_accepted)
            budget = budget if tally.evictions_refused < REFUSALS_MAX else 0
            remaining = policy.model_copy(update={"evictions_per_round": budget})
            nanos = execute.throttled_nanos(outcomes)
            _, (rest, _) = self._decide(remaining, others, after, at, is_fresh=True, released_cpu_nanos=nanos)

    def _attempt(self, action: Action, pods: list[NodePod], sentence: str, at: float) -> Outcome:
        """Return the outcome of an action; an error fails only this one, `Unknown` for an eviction."""
        act = partial(self._act, action, pods, sentence, at)
        result = self._isolation.attempt(action.pod, act, (EquipoiseError,))
        if isinstance(result, FailedTurn):
            return Outcome(action, "Unknown" if isinstance(action, EvictPod) else "Failed", result.error)
        return result

    def _act(self, action: Action, pods: list[NodePod], sentence: str, at: float) -> Outcome:
        if isinstance(action, DisableScheduling | EnableScheduling):
            return execute.set_scheduling(self.node_api, action, sentence)
        pod = next(one for one in pods if one.uid == action.uid)
        assert action.pod == pod.key, "an action names the pod that it was decided for"
        ids = {part.name: part.id for part in pod.containers}
        match action:
            case EvictPod():
                return self._evict(action, pod, at)
            case ThrottlePod() if action.reclaim:
                return execute.reclaim_memory(self.node, action, pod, ids)
            case ThrottlePod():
                return self._write_quotas(action, pod, ids)
            case RestorePod():
                outcome = self._write_quotas(action, pod, ids)
                refs = [ContainerRef(pod.uid, ids[name], pod.qos_class) for name in action.quota or {}]
                self._settle_after(refs, [pod])
                return outcome
        raise TypeError(f"{type(action).__name__} is not an action on a node")

    def _evict(self, action: EvictPod, pod: NodePod, at: float) -> Outcome:
        # Unless its eviction is refused it counts as terminating, so that no other pod is evicted instead.
        self._evicted[pod.uid] = at + EVICTED_SECONDS
        try:
            if self.evictor is None:
                outcome = execute.evict_directly(self.actuator, action, pod)
            else:
                outcome = self.evictor.evict(action, pod, at)
        except WorldFailed as error:
            return Outcome(action, "Unknown", str(error))
        if outcome.result in {execute.ACCEPTED, execute.GONE}:
            self._state = self.state.without_refusal(pod.uid)
        else:
            del self._evicted[pod.uid]
            self._state = self.state.with_refusal(pod.uid, at, outcome.detail or outcome.result)
        return outcome

    def _write_quotas(self, action: ThrottlePod | RestorePod, pod: NodePod, ids: dict[str, str]) -> Outcome:
        """Write quotas, to the state on disk first; without that, they are not written."""
        try:
            state = self.state.with_intended(pod, ids, action.quota or {})
            self.state_store.save(state)
            self._state = state
        except WorldFailed as error:
            return Outcome(action, "Failed", str(error))
        return execute.set_quotas(self.node, action, pod, ids)

    def _settle_after(self, refs: Sequence[ContainerRef], pods: Sequence[NodePod]) -> None:
        """Drop the containers that were restored; after an error the next cycle does so."""
        try:
            self._settle(self.node.read(refs, is_deep=True), pods, {ref.id for ref in refs})
        except Exception as error:  # noqa: BLE001 - the action itself is done
            self._warnings.append(str(error))

    def _remember(self, decision: Decision, at: float, *, is_changed: bool) -> None:
        """Update counts and triggers; on disk at most once a minute, unless an action was sent."""
        state = replace(self.state, memory=decision.memory)
        before, after = (QosMemory.from_data(one.memory) for one in (self.state, state))
        has_triggered = before.last_trigger != after.last_trigger
        if is_changed or (has_triggered and at - self._saved_at >= COUNTS_SECONDS):
            self.adopt(state)
            self._saved_at = at
        self._state = state

    def adopt(self, state: AgentState) -> None:
        """Replace the state, and save it; a failed save is a warning."""
        self._state = state
        try:
            self.state_store.save(state)
        except WorldFailed as error:
            self._warnings.append(str(error))
