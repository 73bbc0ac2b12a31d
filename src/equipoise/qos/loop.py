"""The agent's round: look, join, decide, ask the guards, act, remember. It never waits for the world.

What is about to be throttled is on the disk before the quota is written. An eviction that was refused
releases nothing, so the rest is decided anew without that pod. After a quota has changed, CPU is counted from
there: a metric is judged only on an interval that lies wholly after it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

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
from equipoise.core.errors import WorldFailed
from equipoise.engine.guards import held_by_pause
from equipoise.engine.isolation import Isolation
from equipoise.ports import Actuator, CycleReport, EvictionResult, Pauses
from equipoise.ports.node import ContainerRef, ContainerTold, Counters, Node, NodeCounters, NodePod, Reading
from equipoise.qos import execute
from equipoise.qos.execute import DirectEvictor, Evictor
from equipoise.qos.explain import QosDetails
from equipoise.qos.observation import PERIOD_US, Observation, quota_of
from equipoise.qos.observe import (
    NodeContext,
    PendingEffects,
    decided_apart,
    done_apart,
    ending_since,
    rates_of,
    refs_of,
    usage_between,
)
from equipoise.qos.policy import QosPolicy
from equipoise.qos.state import (
    AgentState,
    StateStore,
    ThrottledContainer,
    in_force,
    refused_again,
    still_known,
)
from equipoise.qos.waterlines import QosMemory, WaterlineState, judge_rules

ANSWERED_SECONDS = 30.0
"""How long a pod counts as leaving after its eviction was accepted, or had no answer."""
REFUSALS_MAX = 10
"""After so many refusals in one round nobody else is asked for: the next round goes on from there."""
FAILURES_MAX = 10
"""After so many quotas that could not be written, the rest of a round is left: nor could they be."""
NEWS_SECONDS = 60.0
"""How seldom counts alone are written to the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCycleReport(CycleReport):
    """A cycle of one node, with what its decision was made from, so that it can be decided again."""

    policy: QosPolicy
    observation: Observation
    memory: Mapping[str, Any]
    details: QosDetails

    @property
    def decision(self) -> Decision:
        """The decision about the node: there is always one."""
        assert len(self.decisions) == 1, "one node, one decision"
        return self.decisions[0]


@dataclass(slots=True)
class QosLoop:
    """One node's loop."""

    node_name: str
    node: Node
    node_api: NodeContext
    actuator: Actuator
    pauses: Pauses
    state_store: StateStore
    is_enforced: bool
    """Whether anything is changed; otherwise it only says what it would do."""
    home: str = "equipoise-system"
    """The namespace whose pause stops what is done to the node itself."""
    name: str = "qos"
    interval_seconds: float = 10.0
    on_progress: Callable[[], object] = lambda: None
    evictor: Evictor | None = None
    """How pods are sent away; by default the server is asked, and nobody else."""
    _state: AgentState | None = None
    _saved_at: float = float("-inf")
    _before: Reading | None = None
    _evicted: dict[str, float] = field(default_factory=dict)
    _ending: dict[str, float] = field(default_factory=dict)
    _warnings: list[str] = field(default_factory=list)
    _isolation: Isolation = field(default_factory=Isolation)
    _rates: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def state(self) -> AgentState:
        """What is throttled now; read once, when the agent begins.

        Rounds are counted anew: nobody knows what was in between, so they are not in a row.
        """
        if self._state is None:
            left = self.state_store.load()
            kept = QosMemory(last_trigger=QosMemory.from_data(left.memory).last_trigger)
            self._state = msgspec.structs.replace(left, memory=kept.to_data())
        return self._state

    @property
    def has_throttled(self) -> bool:
        """Whether anything is left to give back."""
        return bool(self.state.throttled) or self.node_api.is_scheduling_disabled()

    def cycle(self, at: float) -> NodeCycleReport:
        """Run one cycle; WorldFailed ends this one only."""
        self._warnings = []
        self._isolation.begin(at)
        pods = list(self.node_api.pods())
        policy = self.node_api.policy()
        self._tidy(pods, at)
        after = self._look(policy, pods)
        self._ending = ending_since(pods, self._ending, after.node.read_at)
        self._forget(after.containers, pods)
        memory = self.state.memory
        seen, decided = self._decide(policy, pods, after, at, is_fresh=False)
        outcomes: list[Outcome] = []
        if decided.decision.actions and self.is_enforced:
            seen, decided, outcomes = self._act(policy, pods, after, at)
        elif decided.decision.actions:
            decided = decided._replace(decision=execute.previewed(decided.decision))
        self._rates = rates_of(seen, self._rates)
        self._before = after
        if any(execute.affects_usage(one) for one in outcomes):
            self._look_again(policy, pods, outcomes)
        self._remember(decided.decision, at, is_news=bool(outcomes))
        return NodeCycleReport(
            decisions=(decided.decision,),
            outcomes=outcomes,
            warnings=tuple(self._warnings),
            failed_turns=self._isolation.failed,
            policy=policy,
            observation=seen,
            memory=memory,
            details=decided.details,
        )

    def _look_again(self, policy: QosPolicy, pods: Sequence[NodePod], outcomes: Sequence[Outcome]) -> None:
        """Count from here: what was done is not judged by the time before it."""
        assert self._before is not None, "a round has looked"
        changed_at = self._before.node.read_at
        if any(not isinstance(one.action, EvictPod) for one in outcomes):
            try:
                self._before = self._look(policy, pods)
                changed_at = self._before.node.read_at
            except WorldFailed as error:
                self._warnings.append(str(error))
                self._before = None
        self._state = msgspec.structs.replace(self.state, changed_at=changed_at)

    def restore_all(self) -> list[Outcome]:
        """Return every pod what it may use now, at once: the way out, and `--cleanup`.

        The disk comes last: a quota that is the limit is known to be given back, whatever is kept of it. So
        one that is full or slow keeps nobody throttled.
        """
        pods = self.node_api.pods()
        counters: Mapping[str, Counters] = {}
        try:
            counters = self.node.read(self._refs([]), is_deep=True)
            self._forget(counters, pods)
        except Exception as error:  # noqa: BLE001 - what a container may use is known without it
            self._warnings.append(str(error))
        told = {part.id: (pod, part) for pod in pods for part in pod.containers}
        outcomes = [
            self._restored(part, told.get(id_), counters.get(id_))
            for id_, part in list(self.state.throttled.items())
        ]
        if outcomes:
            self._look_after(self._refs([]), pods)
        if self.node_api.is_scheduling_disabled():
            enable = EnableScheduling(self.node_name)
            outcomes.append(execute.set_scheduling(self.node_api, enable, "The agent ends."))
        return outcomes

    def _restored(
        self, part: ThrottledContainer, told: tuple[NodePod, ContainerTold] | None, seen: Counters | None
    ) -> Outcome:
        """Restore one container; whatever fails, the others are restored all the same."""
        action = RestorePod(f"{part.namespace}/{part.pod}", uid=part.pod_uid)
        if told is None:
            return Outcome(action, "Unknown", f"nobody tells what {part.container} may use now")
        pod, now = told
        try:
            quota = quota_of(now.cpu_limit_nanos, seen.period_us if seen is not None else PERIOD_US)
            action = RestorePod(pod.key, uid=pod.uid, quota={part.container: quota})
            return execute.set_quotas(self.node, action, pod, {part.container: now.id})
        except Exception as error:  # noqa: BLE001 - a bug about one container must not keep the others throttled
            return Outcome(action, "Failed", f"unexpected {type(error).__name__}: {error}")

    def _look(self, policy: QosPolicy, pods: Sequence[NodePod]) -> Reading:
        """Look at the machine and its containers; at memory and quotas only where they may matter."""
        node = self.node.read_node()
        self.on_progress()
        is_deep = bool(self.state.throttled) or self._is_crossed(policy, node)
        return Reading(node, self.node.read(self._refs(pods), is_deep=is_deep))

    def _refs(self, pods: Sequence[NodePod]) -> list[ContainerRef]:
        """Name the containers of these pods, and those that we throttled whatever is told of them."""
        found = {ref.id: ref for ref in refs_of(pods)}
        for id_, part in self.state.throttled.items():
            found.setdefault(id_, ContainerRef(part.pod_uid, id_))
        return list(found.values())

    def _is_crossed(self, policy: QosPolicy, node: NodeCounters) -> bool:
        before = self._before.node if self._before is not None else None
        size = (node.cpus * 10**9, node.memory_total_bytes or 0)
        usage = usage_between(before, node, self.state.changed_at)
        seen = Observation(self.node_name, 0.0, *size, usage, labels=self.node_api.labels())
        return any(line.state is WaterlineState.CROSSED for line in judge_rules(policy, seen, QosMemory()))

    def _tidy(self, pods: Sequence[NodePod], at: float) -> None:
        """Forget what has come to pass."""
        known = {pod.uid for pod in pods if pod.deletion_at is None}
        last = at + ANSWERED_SECONDS  # later only where the clock was set back
        leaving = self._evicted.items()
        self._evicted = {uid: min(until, last) for uid, until in leaving if uid in known and at < until}
        self._state = msgspec.structs.replace(self.state, refused=still_known(self.state.refused, known, at))

    def _forget(
        self, counters: Mapping[str, Counters], pods: Sequence[NodePod], among: Collection[str] | None = None
    ) -> None:
        """Give up what is not ours any more, of these containers or of all, and see what was written."""
        limits = {part.id: part.cpu_limit_nanos for pod in pods for part in pod.containers}
        over = self.state.over(counters, limits)
        over = over if among is None else over & set(among)
        if over:
            self.adopt(self.state.without(over))
        self._state = self.state.settled(counters)

    def _decide(
        self,
        policy: QosPolicy,
        pods: Sequence[NodePod],
        after: Reading,
        at: float,
        *,
        is_fresh: bool,
        released_cpu_nanos: int = 0,
    ) -> tuple[Observation, Decided[QosDetails]]:
        fresh: NodeCounters | bool | None = False
        if is_fresh:
            try:
                fresh = self.node.read_node()
            except WorldFailed as error:
                self._warnings.append(str(error))
                fresh = None
        effects = PendingEffects(
            frozenset(self.state.throttled),
            frozenset(self._evicted),
            in_force(self.state.refused, at),
            self._rates,
            self.state.changed_at,
            released_cpu_nanos,
            self._ending,
        )
        seen, decided = decided_apart(
            (policy, QosMemory.from_data(self.state.memory), self._isolation),
            (self.node_name, at, (self._before, after)),
            pods,
            effects,
            labels=self.node_api.labels(),
            is_scheduling_disabled=self.node_api.is_scheduling_disabled(),
            fresh=fresh,
        )
        decision = execute.guarded(
            decided.decision, lambda namespace: held_by_pause(self.pauses, namespace or self.home)
        )
        return seen, decided._replace(decision=decision)

    def _act(
        self, policy: QosPolicy, pods: list[NodePod], after: Reading, at: float
    ) -> tuple[Observation, Decided[QosDetails], list[Outcome]]:
        """Act in order, and decide the rest anew where an action did not release what was foreseen.

        That is whatever was refused or failed, and a reclaim: what it released is what is measured then. A
        pod is acted on once; what quotas were lowered by is not in any reading yet, and counts as released.
        """
        outcomes: list[Outcome] = []
        seen, decided = self._decide(policy, pods, after, at, is_fresh=True)
        left, sentence = decided.decision, decided.decision.reason.sentence
        while True:
            for action in left.actions:
                outcomes.append(done_apart(self._isolation, self._deed, action, pods, sentence, at))
                self.on_progress()
                if execute.is_unforeseen(outcomes[-1]):
                    break
            else:
                return seen, decided, outcomes
            if execute.failed(outcomes) >= FAILURES_MAX:
                return seen, decided, outcomes
            acted = {one.action.uid for one in outcomes if not isinstance(one.action, EvictPod)}
            others = [pod for pod in pods if pod.uid not in acted]
            rest = (
                max(0, decided.details.budget - execute.accepted(outcomes))
                if execute.refused(outcomes) < REFUSALS_MAX
                else 0
            )
            asked = policy.model_copy(update={"evictions_per_round": rest})
            released = execute.throttled_nanos(outcomes)
            _, rest_decided = self._decide(
                asked, others, after, at, is_fresh=True, released_cpu_nanos=released
            )
            left = rest_decided.decision

    def _deed(self, action: Action, pods: list[NodePod], sentence: str, at: float) -> Outcome:
        if isinstance(action, DisableScheduling | EnableScheduling):
            return execute.set_scheduling(self.node_api, action, sentence)
        pod = next(one for one in pods if one.uid == action.uid)
        ids = {part.name: part.id for part in pod.containers}
        match action:
            case EvictPod():
                return self._evict(action, pod, at)
            case ThrottlePod() if action.reclaim:
                return execute.reclaim_memory(self.node, action, pod, ids)
            case ThrottlePod():
                return self._change(action, pod, ids)
            case RestorePod():
                return self._raise(action, pod, ids)
        raise TypeError(f"{type(action).__name__} is no action on a node")

    def _evict(self, action: EvictPod, pod: NodePod, at: float) -> Outcome:
        # Unless somebody says that it stays, it counts as going, so that nobody else goes for it.
        self._evicted[pod.uid] = at + ANSWERED_SECONDS
        try:
            outcome = (self.evictor or DirectEvictor(self.actuator)).evict(action, pod, at)
        except WorldFailed as error:
            return Outcome(action, "Unknown", str(error))
        known = dict(self.state.refused)
        before = known.pop(pod.uid, None)
        if outcome.result not in {EvictionResult.ACCEPTED.value, EvictionResult.GONE.value}:
            del self._evicted[pod.uid]
            known[pod.uid] = refused_again(before, at, outcome.detail or outcome.result)
        self._state = msgspec.structs.replace(self.state, refused=known)
        return outcome

    def _change(self, action: ThrottlePod | RestorePod, pod: NodePod, ids: dict[str, str]) -> Outcome:
        """Write quotas, on the disk first; what can't be kept there is not done."""
        try:
            intended = self.state.intending(pod, ids, action.quota or {})
            self.state_store.save(intended)
            self._state = intended
        except WorldFailed as error:
            return Outcome(action, "Failed", str(error))
        return execute.set_quotas(self.node, action, pod, ids)

    def _raise(self, action: RestorePod, pod: NodePod, ids: dict[str, str]) -> Outcome:
        outcome = self._change(action, pod, ids)
        refs = [ContainerRef(pod.uid, ids[name], pod.qos_class) for name in action.quota or {}]
        self._look_after(refs, [pod])
        return outcome

    def _look_after(self, refs: Sequence[ContainerRef], pods: Sequence[NodePod]) -> None:
        """Give up those that have all again; what can't be read now, the next round sees."""
        try:
            self._forget(self.node.read(refs, is_deep=True), pods, {ref.id for ref in refs})
        except Exception as error:  # noqa: BLE001 - it comes after the deed, which is done
            self._warnings.append(str(error))

    def _remember(self, decision: Decision, at: float, *, is_news: bool) -> None:
        """Keep counts and times in mind; on the disk seldom, unless something was done."""
        state = msgspec.structs.replace(self.state, memory=decision.memory)
        before, after = (QosMemory.from_data(one.memory) for one in (self.state, state))
        has_news = before.last_trigger != after.last_trigger
        if is_news or (has_news and at - self._saved_at >= NEWS_SECONDS):
            self.adopt(state)
            self._saved_at = at
        self._state = state

    def adopt(self, state: AgentState) -> None:
        """Take this for what is known, and keep it where that is possible: the rest of a round goes on."""
        self._state = state
        try:
            self.state_store.save(state)
        except WorldFailed as error:
            self._warnings.append(str(error))
