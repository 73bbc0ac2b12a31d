"""The agent's round: look, join, decide, ask the guards, act, remember. It never waits for the world.

What is about to be throttled is on the disk before the quota is written. An eviction that was refused
releases nothing, so the rest is decided anew without that pod. After a quota has changed, CPU is counted from
there: a metric is judged only on an interval that lies wholly after it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from equipoise.guard.pause import held_by_pause
from equipoise.model.decision import (
    Action,
    Decision,
    DisableScheduling,
    EnableScheduling,
    EvictPod,
    Held,
    Outcome,
    RestorePod,
    ThrottlePod,
)
from equipoise.model.errors import WorldFailed
from equipoise.model.reason import Reason
from equipoise.model.references import PodRef
from equipoise.ports import Actuator, Clock, EvictionResult, Pauses
from equipoise.qos.decide import decide
from equipoise.qos.keep import AgentState, Keep
from equipoise.qos.memory import QosMemory
from equipoise.qos.node import ContainerRef, Node, NodeCounters
from equipoise.qos.observation import UNLIMITED, Observation
from equipoise.qos.pods import PodTold
from equipoise.qos.policy import QosPolicy
from equipoise.qos.see import Look, Marks, refs_of, see, usage_between
from equipoise.qos.waterlines import State, judge

REFUSED_SECONDS = 30.0
"""How long an eviction that was refused is not asked for again."""
NEWS_SECONDS = 60.0
"""How seldom counts alone are written to the disk."""


class Surroundings(Protocol):
    """What the API server tells of this node."""

    def pods(self) -> Sequence[PodTold]:
        """Give the pods of this node; raise where they were never listed."""
        ...

    def policy(self) -> QosPolicy:
        """Give all that is asked for, as one."""
        ...

    def labels(self) -> Mapping[str, str]:
        """Give the node's labels."""
        ...

    def is_scheduling_disabled(self) -> bool:
        """Tell whether our own taint is on the node."""
        ...

    def set_scheduling(self, *, is_disabled: bool, sentence: str) -> None:
        """Put our taint and condition on the node, or take them off."""
        ...


class Round(NamedTuple):
    """What one round decided and came to."""

    decision: Decision
    outcomes: Sequence[Outcome]
    warnings: Sequence[str] = ()


@dataclass(slots=True)
class QosLoop:
    """One node's loop."""

    name: str
    node: Node
    around: Surroundings
    actuator: Actuator
    pauses: Pauses
    keep: Keep
    clock: Clock
    is_enforced: bool
    """Whether anything is changed; otherwise it only says what it would do."""
    home: str = "equipoise-system"
    """The namespace whose pause stops what is done to the node itself."""
    on_progress: Callable[[], object] = lambda: None
    _state: AgentState | None = None
    _saved_at: float = float("-inf")
    _before: Look | None = None
    _evicted: dict[str, float] = field(default_factory=dict)
    _refused: dict[str, tuple[float, str]] = field(default_factory=dict)
    _warnings: list[str] = field(default_factory=list)

    @property
    def state(self) -> AgentState:
        """What is throttled now; read once, when the agent begins."""
        if self._state is None:
            self._state = self.keep.load()
        return self._state

    def round(self) -> Round:
        """Do one round."""
        self._warnings = []
        at = self.clock.now()
        pods = list(self.around.pods())
        policy = self.around.policy()
        self._tidy(pods, at)
        after = self._look(policy, pods)
        self._forget(after)
        decision = self._decide(policy, pods, after, at, is_fresh=False)
        outcomes: list[Outcome] = []
        if decision.actions and self.is_enforced:
            decision, outcomes = self._act(policy, pods, after, at)
        elif decision.actions:
            decision = _previewed(decision)
        self._remember(decision, at, is_news=bool(outcomes))
        has_changed = any(isinstance(one.action, ThrottlePod | RestorePod) for one in outcomes)
        self._before = self._look(policy, pods) if has_changed else after
        return Round(decision, outcomes, tuple(self._warnings))

    def restore_all(self) -> list[Outcome]:
        """Give every pod what it may use now, at once: the way out, and `--cleanup`."""
        pods = {pod.uid: pod for pod in self.around.pods()}
        counters = self.node.read(
            [
                ContainerRef(part.pod_uid, id_, pods[part.pod_uid].qos_class)
                for id_, part in self.state.throttled.items()
                if part.pod_uid in pods
            ],
            is_deep=True,
        )
        self._put(self.state.without(self.state.gone_or_foreign(dict(counters))))
        outcomes = []
        for id_, part in list(self.state.throttled.items()):
            pod = pods[part.pod_uid]
            limit = next((one.cpu_limit_nanos for one in pod.containers if one.id == id_), 0)
            quota = UNLIMITED if limit <= 0 else -(-limit * counters[id_].period_us // 10**9)
            action = RestorePod(pod.key, uid=pod.uid, quota={part.container: quota})
            outcomes.append(self._raise(action, pod, {part.container: id_}))
        if self.around.is_scheduling_disabled():
            outcomes.append(self._schedule(EnableScheduling(self.name), "The agent ends."))
        return outcomes

    def _look(self, policy: QosPolicy, pods: Sequence[PodTold]) -> Look:
        """Look at the machine and its containers; at memory and quotas only where they may matter."""
        node = self.node.read_node()
        self.on_progress()
        is_deep = bool(self.state.throttled) or self._is_crossed(policy, node)
        return Look(node, self.node.read(refs_of(pods), is_deep=is_deep))

    def _is_crossed(self, policy: QosPolicy, node: NodeCounters) -> bool:
        before = self._before.node if self._before is not None else None
        size = (node.cpus * 10**9, node.memory_total_bytes or 0)
        seen = Observation(self.name, 0.0, *size, usage_between(before, node), labels=self.around.labels())
        return any(line.state is State.CROSSED for line in judge(policy, seen, QosMemory()))

    def _tidy(self, pods: Sequence[PodTold], at: float) -> None:
        """Forget what has come to pass."""
        known = {pod.uid for pod in pods if pod.deletion_at is None}
        self._evicted = {uid: until for uid, until in self._evicted.items() if uid in known and at < until}
        self._refused = {uid: said for uid, said in self._refused.items() if at < said[0] and uid in known}

    def _forget(self, after: Look) -> None:
        gone = self.state.gone_or_foreign(dict(after.containers))
        if gone:
            self._put(self.state.without(gone))

    def _marks(self) -> Marks:
        return Marks(
            frozenset(self.state.throttled),
            frozenset(self._evicted),
            {uid: why for uid, (_, why) in self._refused.items()},
        )

    def _decide(
        self, policy: QosPolicy, pods: Sequence[PodTold], after: Look, at: float, *, is_fresh: bool
    ) -> Decision:
        fresh: NodeCounters | bool | None = False
        if is_fresh:
            try:
                fresh = self.node.read_node()
            except WorldFailed as error:
                self._warnings.append(str(error))
                fresh = None
        seen = see(
            self.name,
            at,
            (self._before, after),
            pods,
            self._marks(),
            labels=self.around.labels(),
            is_scheduling_disabled=self.around.is_scheduling_disabled(),
            fresh=fresh,
        )
        return self._guarded(decide(policy, seen, self.state.memory))

    def _guarded(self, decision: Decision) -> Decision:
        """Hold what somebody has paused, giving back included: stop means stop."""
        kept: list[Action] = []
        held: list[Held] = []
        reasons: dict[str, Reason | None] = {}
        for action in decision.actions:
            namespace = action.pod.partition("/")[0] or self.home
            if namespace not in reasons:
                reasons[namespace] = held_by_pause(self.pauses, namespace)
            reason = reasons[namespace]
            if reason is None:
                kept.append(action)
            else:
                held.append(Held(action, reason.code, reason.sentence))
        if not held:
            return decision
        why = decision.reason
        if not kept:
            why = Reason(held[0].reason, held[0].sentence, decision.reason.numbers)
        return msgspec.structs.replace(
            decision, reason=why, actions=tuple(kept), held=(*held, *decision.held)
        )

    def _act(
        self, policy: QosPolicy, pods: list[PodTold], after: Look, at: float
    ) -> tuple[Decision, list[Outcome]]:
        """Act in order, and decide the rest anew where an action did not release what was foreseen.

        That is an eviction that was refused, and a reclaim: what it released is what is measured then. A pod
        is acted on once.
        """
        outcomes: list[Outcome] = []
        decision = self._decide(policy, pods, after, at, is_fresh=True)
        budget = decision.reason.numbers["budget"]
        left = decision
        while True:
            for action in left.actions:
                outcomes.append(self._deed(action, pods, decision.reason.sentence, at))
                self.on_progress()
                if _is_unforeseen(outcomes[-1]):
                    break
            else:
                return decision, outcomes
            acted = {one.action.uid for one in outcomes if not isinstance(one.action, EvictPod)}
            others = [pod for pod in pods if pod.uid not in acted]
            rest = max(0, budget - _accepted(outcomes))
            asked = policy.model_copy(update={"evictions_per_round": rest})
            left = self._decide(asked, others, after, at, is_fresh=True)

    def _deed(self, action: Action, pods: list[PodTold], sentence: str, at: float) -> Outcome:
        if isinstance(action, DisableScheduling | EnableScheduling):
            return self._schedule(action, sentence)
        pod = next(one for one in pods if one.uid == action.uid)
        ids = {part.name: part.id for part in pod.containers}
        match action:
            case EvictPod():
                return self._evict(action, pod, at)
            case ThrottlePod() if action.reclaim:
                return self._reclaim(action, pod, ids)
            case ThrottlePod():
                return self._lower(action, pod, ids)
            case RestorePod():
                return self._raise(action, pod, ids)
        raise TypeError(f"{type(action).__name__} is no action on a node")

    def _evict(self, action: EvictPod, pod: PodTold, at: float) -> Outcome:
        try:
            answer = self.actuator.evict(
                PodRef(pod.namespace, pod.name, pod.uid), grace_seconds=action.grace_seconds
            )
        except WorldFailed as error:
            # Nobody knows whether it goes: it counts as going, so that nobody else goes for it.
            self._evicted[pod.uid] = at + REFUSED_SECONDS
            return Outcome(action, "Unknown", str(error))
        if answer.result in {EvictionResult.ACCEPTED, EvictionResult.GONE}:
            self._evicted[pod.uid] = at + REFUSED_SECONDS
        else:
            self._refused[pod.uid] = (at + REFUSED_SECONDS, f"its eviction was refused: {answer.detail}")
        return Outcome(action, answer.result.value, answer.detail)

    def _lower(self, action: ThrottlePod, pod: PodTold, ids: dict[str, str]) -> Outcome:
        quotas = action.quota or {}
        self._put(self.state.intending(pod, ids, quotas))
        return self._write(action, pod, ids, quotas)

    def _raise(self, action: RestorePod, pod: PodTold, ids: dict[str, str]) -> Outcome:
        quotas = action.quota or {}
        self._put(self.state.intending(pod, ids, quotas))
        outcome = self._write(action, pod, ids, quotas)
        limits = {part.name: part.cpu_limit_nanos for part in pod.containers}
        whole = {ids[name] for name, quota in quotas.items() if quota < 0 or quota >= _quota(limits[name])}
        if outcome.result == "Done" and whole:
            self._put(self.state.without(whole))
        return outcome

    def _write(
        self, action: ThrottlePod | RestorePod, pod: PodTold, ids: dict[str, str], quotas: dict[str, int]
    ) -> Outcome:
        gone = []
        try:
            for name, quota in quotas.items():
                if not self.node.set_quota(ContainerRef(pod.uid, ids[name], pod.qos_class), quota):
                    gone.append(name)
        except WorldFailed as error:
            return Outcome(action, "Failed", str(error))
        return Outcome(action, "Gone", f"{', '.join(gone)} has vanished") if gone else Outcome(action, "Done")

    def _reclaim(self, action: ThrottlePod, pod: PodTold, ids: dict[str, str]) -> Outcome:
        released = 0
        try:
            for name, amount in (action.reclaim or {}).items():
                got = self.node.reclaim(ContainerRef(pod.uid, ids[name], pod.qos_class), amount)
                released += got or 0
        except WorldFailed as error:
            return Outcome(action, "Failed", str(error))
        return Outcome(action, "Done", f"{released} bytes were released")

    def _schedule(self, action: DisableScheduling | EnableScheduling, sentence: str) -> Outcome:
        try:
            self.around.set_scheduling(is_disabled=isinstance(action, DisableScheduling), sentence=sentence)
        except WorldFailed as error:
            return Outcome(action, "Failed", str(error))
        return Outcome(action, "Done")

    def _remember(self, decision: Decision, at: float, *, is_news: bool) -> None:
        """Keep counts and times in mind; on the disk seldom, unless something was done."""
        state = msgspec.structs.replace(self.state, memory=decision.memory)
        has_news = state.memory.get("lastTrigger") != self.state.memory.get("lastTrigger")
        if is_news or (has_news and at - self._saved_at >= NEWS_SECONDS):
            self._put(state)
            self._saved_at = at
        self._state = state

    def _put(self, state: AgentState) -> None:
        self.keep.save(state)
        self._state = state


def _quota(limit_nanos: int) -> float:
    return float("inf") if limit_nanos <= 0 else limit_nanos * 100_000 / 10**9


def _is_unforeseen(outcome: Outcome) -> bool:
    """Tell whether the rest of the plan was made from what did not come true, or from a guess."""
    if isinstance(outcome.action, EvictPod):
        return outcome.result != EvictionResult.ACCEPTED.value
    return isinstance(outcome.action, ThrottlePod) and outcome.action.reclaim is not None


def _accepted(outcomes: Sequence[Outcome]) -> int:
    return sum(
        isinstance(one.action, EvictPod) and one.result in {EvictionResult.ACCEPTED.value, "Unknown"}
        for one in outcomes
    )


def _previewed(decision: Decision) -> Decision:
    """Say what would be done, and do nothing."""
    return msgspec.structs.replace(
        decision,
        reason=Reason(decision.reason.code, f"Preview: {decision.reason.sentence}", decision.reason.numbers),
    )
