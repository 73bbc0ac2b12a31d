"""The pools' cycle: reconcile the tiers with Kubernetes' pods, recover lost pods, and rebalance.

The state is in Redis, and is read in every cycle. Only the time since when a pod has been missing from
Kubernetes' list is state of this process: with a new leader it begins again. Every write carries the epoch of
the Lease, and the scripts refuse an epoch below the highest one so far.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from equipoise.core.cluster import FINISHED, Pod
from equipoise.core.decision import Decided, Decision, MovePod, Outcome, RecoverPod, UnregisterPod
from equipoise.core.errors import WorldFailed
from equipoise.core.pools import PoolAnswer, PoolCode, PoolsSnapshot
from equipoise.core.reason import Reason
from equipoise.engine.guards import held_by_leader, held_by_pause
from equipoise.engine.isolation import Isolation, failed_decision, ignore
from equipoise.engine.recording import as_json, failed_record, record
from equipoise.pools.decide import TierBalance, decide, moves_of
from equipoise.pools.invariants import broken_invariants, violations
from equipoise.pools.observe import Observation, count_tiers, observe
from equipoise.pools.policy import BALANCER, TierPolicy
from equipoise.pools.rebalance import (
    DONE,
    LOST,
    REFUSED,
    ROUNDS,
    SENTENCES,
    epoch_error,
    mark,
    move,
    policy_of,
    refusing_pods,
    with_busy,
)
from equipoise.pools.registration import (
    NAMED_MAX,
    ListedPod,
    ListedState,
    PodLists,
    RegistrationRule,
    observe_lists,
    reconcile,
    restricted,
)
from equipoise.ports import CycleReport, FailedTurn, Journal, Leadership, Pauses, PoolsUpkeep, Unanswered

T = TypeVar("T")
CHUNK = 500
"""Actions per request; leadership is checked before each."""
CONFIRMED_MAX = 50
"""How many pods one cycle queries by name."""


@dataclass(slots=True)
class _Cycle:
    """The decisions, outcomes and errors of one cycle so far."""

    at: float
    decisions: list[Decision] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)


@dataclass(slots=True)
class PoolsLoop:
    """Runs the cycles, and holds the state of this process between them."""

    pools: PoolsUpkeep
    pods: Callable[[], Sequence[Pod]]
    """Returns Kubernetes' pods; raises where they are unknown."""
    is_gone: Callable[[str, str], bool]
    """Returns whether the API server has no pod of this name and UID."""
    pauses: Pauses
    leadership: Leadership
    journal: Journal
    new_id: Callable[[float], str]
    namespace: str
    interval_seconds: float = 60.0
    rule: RegistrationRule = field(default_factory=RegistrationRule)
    is_acting: bool = True
    """Whether changes are written; otherwise cycles only decide and record."""
    marks_busy: bool = True
    heartbeat: Callable[[], None] = ignore
    has_changed: Callable[[], bool] = lambda: False
    """Returns whether Kubernetes' pods have changed since the last call."""
    name: str = BALANCER
    _memory: dict[str, Any] = field(default_factory=dict)
    _swept_at: float = float("-inf")
    _epoch: int | None = None
    _isolation: Isolation = field(default_factory=Isolation)

    def is_woken(self) -> bool:
        """Whether the next cycle should run at once: pods changed, or this replica has begun to lead."""
        epoch = self.leadership.epoch()
        return self.has_changed() or (epoch is not None and epoch != self._epoch)

    def cycle(self, at: float) -> CycleReport:
        """Run one cycle: reconcile pods, recover lost ones, move idle ones. Only the leader acts."""
        self._epoch = self.leadership.epoch()
        self._isolation.begin(at, self.leadership)
        self.has_changed()
        pods = self.pods()
        read: dict[str, ListedPod | FailedTurn] = {
            pod.name: self._isolation.attempt(pod.name, partial(listed_pod, pod)) for pod in pods
        }
        listed = [pod for pod in read.values() if isinstance(pod, ListedPod)]
        snapshot = self.pools.snapshot(also=[pod.name for pod in pods])
        lists = observe_lists(snapshot, listed, read.keys() - {pod.name for pod in listed})
        cycle = _Cycle(at)
        self._step(lists.subject, cycle, lambda: self._reconcile(lists, cycle))
        self._step(lists.subject, cycle, lambda: self._recover(snapshot, cycle))
        now = self.pools.snapshot() if cycle.outcomes else snapshot
        self._step(now.prefix, cycle, lambda: self._rebalance(now, cycle))
        failure = next((outcome.detail for outcome in cycle.outcomes if outcome.result in LOST), "")
        warnings = self._isolation.attempt(now.prefix, lambda: _warnings(now, self._epoch))
        return CycleReport(
            cycle.decisions,
            cycle.outcomes,
            () if isinstance(warnings, FailedTurn) else warnings,
            failure,
            failed_turns=self._isolation.failed,
        )

    def _still_leads(self) -> bool:
        return self.leadership.epoch() == self._epoch

    def _step(self, subject: str, cycle: _Cycle, work: Callable[[], object]) -> None:
        """Run one step of a cycle; an error that concerns no single pod ends this step only."""
        done = self._isolation.attempt(subject, work, (WorldFailed,))
        if isinstance(done, FailedTurn):
            decision = failed_decision(done)
            cycle.decisions.append(decision)
            failed = failed_record(BALANCER, decision, cycle.at, self.new_id(cycle.at))
            self._isolation.attempt(subject, lambda: self.journal.append(failed), (WorldFailed,))

    def _failing(self, pods: Sequence[str], probe: Callable[[Sequence[str]], object]) -> set[str]:
        """Return the pods for which the probe fails, found by probing them in groups."""

        def each(some: Sequence[str]) -> list[bool]:
            probe(some)
            return [True] * len(some)

        found = self._isolation.each(pods, each, str, (WorldFailed,))
        return {pod for pod, one in zip(pods, found, strict=True) if isinstance(one, FailedTurn)}

    def _reconciled(self, lists: PodLists, at: float) -> tuple[PodLists, Decision]:
        """Decide on registrations; pods that cause an error are left unchanged."""
        before = self._memory
        try:
            return lists, reconcile(self.rule, lists, before, at).decision
        except Exception:
            names = {pod.name for pod in lists.listed} | {pod.name for pod in lists.registered}
            failing = self._failing(
                sorted(names), lambda some: reconcile(self.rule, restricted(lists, set(some)), before, at)
            )
            if not failing:
                raise
            lists = restricted(lists, names - failing)
            return lists, reconcile(self.rule, lists, before, at).decision

    def _reconcile(self, lists: PodLists, cycle: _Cycle) -> None:
        before = self._memory
        lists, decision = self._reconciled(lists, cycle.at)
        if any(isinstance(held.action, UnregisterPod) for held in decision.held):
            lists, decision = self._reconciled(self._confirmed(lists, decision), cycle.at)
        self._memory = decision.memory
        decision = self._guarded(decision)
        outcomes: list[Outcome] = []
        if self.is_acting:
            actions = [action for action in decision.actions if not isinstance(action, MovePod)]
            outcomes = self._in_chunks(actions, lambda part: self.pools.reconcile(part, self._epoch))
        cycle.outcomes += outcomes
        cycle.decisions.append(decision)
        inputs = as_json(self.rule), lists, before
        self.journal.append(record(BALANCER, *inputs, decision, cycle.at, self.new_id(cycle.at), outcomes))

    def _confirmed(self, lists: PodLists, decision: Decision) -> PodLists:
        """Return the lists with those pods of held actions that, queried by name, do not exist any more."""
        unproven = [held.action for held in decision.held if isinstance(held.action, UnregisterPod)]
        confirmed: list[str] = []
        if self._held() is None:
            with suppress(WorldFailed):
                for action in unproven[:CONFIRMED_MAX]:
                    self.heartbeat()
                    confirmed += [action.pod] if self.is_gone(action.pod, action.uid) else []
        return msgspec.structs.replace(lists, confirmed=tuple(confirmed))

    def _recover(self, snapshot: PoolsSnapshot, cycle: _Cycle) -> None:
        """Recover pods that no allocator holds, as the script finds in two sweeps at least a lease apart."""
        is_held = self._held() is not None or not self.is_acting
        # A clock that was set back causes no delay.
        if is_held or 0 <= cycle.at - self._swept_at < self.interval_seconds / 2:
            return
        self._swept_at = cycle.at
        swept = self._in_chunks(
            [RecoverPod(pod) for pool in snapshot.pools for pod in pool.assigned],
            lambda part: self.pools.recover([action.pod for action in part], self._epoch),
        )
        cycle.outcomes += [outcome for outcome in swept if outcome.result in {PoolCode.RECOVERED, *LOST}]

    def _planned(
        self, policy: TierPolicy, snapshot: PoolsSnapshot, refusing: Collection[str]
    ) -> tuple[Observation, Decided[TierBalance], Collection[str]]:
        """Return the decision on moves and the failing pods, which count in their tiers and stay there."""

        def plan(
            snapshot: PoolsSnapshot, failing: Collection[str] = ()
        ) -> tuple[Observation, Decided[TierBalance], Collection[str]]:
            observation = with_busy(observe(policy, snapshot, failing), refusing)
            return observation, decide(policy, observation), failing

        try:
            return plan(snapshot)
        except WorldFailed:
            raise
        except Exception:
            assigned = [pod for pool in snapshot.pools for pod in pool.assigned]
            failing = self._failing(assigned, lambda some: plan(_only(snapshot, set(some))))
            if not failing:
                raise
            return plan(snapshot, failing)

    def _rebalance(self, snapshot: PoolsSnapshot, cycle: _Cycle) -> None:
        """Move idle pods, plan again where one became busy, and mark busy ones to be moved on release."""
        moved: list[Outcome] = []
        for _ in range(ROUNDS):
            policy = policy_of(snapshot)
            observation, (decision, balance), failing = self._planned(policy, snapshot, refusing_pods(moved))
            decision = self._guarded(decision)
            outcomes = self._move(moves_of(decision), snapshot) if self.is_acting else []
            moved += outcomes
            cycle.outcomes += outcomes
            inputs = as_json(policy.model_dump(by_alias=True)), observation, dict[str, Any]()
            self.journal.append(
                record(BALANCER, *inputs, decision, cycle.at, self.new_id(cycle.at), outcomes)
            )
            extra = {
                "tiers": count_tiers(policy, snapshot),
                "pending": len(snapshot.pending),
                "epoch": snapshot.epoch,
                "broken": len(violations(policy, snapshot)),
            }
            cycle.decisions.append(msgspec.structs.replace(decision, extra=extra))
            if all(outcome.result in {*DONE, *LOST, *REFUSED} for outcome in outcomes):
                break
            snapshot = self.pools.snapshot()
        may_mark = self.marks_busy and self.is_acting and balance.can_move
        if may_mark and self._held() is None and self._still_leads() and not _is_lost(moved):
            cycle.outcomes += mark(self.pools, self._epoch, failing)

    def _move(self, moves: Sequence[MovePod], snapshot: PoolsSnapshot) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part in _chunks(moves, CHUNK):
            if not self._still_leads() or _is_lost(outcomes):
                why = "this process stopped being the leader, or Redis stopped answering"
                return outcomes + [Outcome(each, PoolCode.FENCED.value, why) for each in part]
            outcomes += self._send(part, lambda part: move(self.pools, part, snapshot, self._epoch), outcomes)
        return outcomes

    def _send(
        self, part: Sequence[T], send: Callable[[Sequence[T]], list[Outcome]], before: Sequence[Outcome]
    ) -> list[Outcome]:
        """Send some actions; an error after earlier answers becomes the outcome of these actions."""
        self.heartbeat()
        actions: Sequence[Any] = part
        try:
            return send(part)
        except WorldFailed as error:
            if not before:
                raise
            code = PoolCode.UNANSWERED if isinstance(error, Unanswered) else PoolCode.FAILED
            return [Outcome(action, code.value, str(error)) for action in actions]
        except Exception as error:  # noqa: BLE001 - the result is unknown, as after a lost answer
            failed = self._isolation.take(", ".join(action.pod for action in actions[:NAMED_MAX]), error)
            return [Outcome(action, PoolCode.UNANSWERED.value, failed.error) for action in actions]

    def _guarded(self, decision: Decision) -> Decision:
        """Hold all actions while the namespace is paused, or another replica leads."""
        if not decision.actions:
            return decision
        reason = self._held()
        return decision if reason is None else decision.hold(reason)

    def _held(self) -> Reason | None:
        return held_by_pause(self.pauses, self.namespace) or held_by_leader(self.leadership)

    def _in_chunks(
        self, actions: Sequence[Any], request: Callable[[Sequence[Any]], Sequence[PoolAnswer]]
    ) -> list[Outcome]:
        """Send actions in chunks; stop when this replica leads no more, or the server stops answering."""

        def send(part: Sequence[Any]) -> list[Outcome]:
            return [
                Outcome(action, answer.code.value, answer.detail or SENTENCES.get(answer.code, answer.tier))
                for action, answer in zip(part, request(part), strict=True)
            ]

        outcomes: list[Outcome] = []
        for part in _chunks(actions, CHUNK):
            if not self._still_leads():
                why = "this process stopped being the leader"
                return outcomes + [Outcome(each, PoolCode.FENCED.value, why) for each in part]
            outcomes += self._send(part, send, outcomes)
            if _is_lost(outcomes):
                break
        return outcomes


def listed_pod(pod: Pod) -> ListedPod:
    if pod.phase in FINISHED:
        state = ListedState.ENDED
    elif pod.deletion_at is not None:
        state = ListedState.LEAVING
    else:
        state = ListedState.READY if pod.is_ready else ListedState.UNREADY
    return ListedPod(pod.name, pod.uid, state)


def _chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _is_lost(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.result in LOST for outcome in outcomes)


def _only(snapshot: PoolsSnapshot, pods: Collection[str]) -> PoolsSnapshot:
    """Return the snapshot reduced to these assigned pods."""
    replace = msgspec.structs.replace
    pools = [
        replace(pool, assigned=tuple(pod for pod in pool.assigned if pod in pods)) for pool in snapshot.pools
    ]
    return replace(snapshot, pools=tuple(pools))


def _warnings(snapshot: PoolsSnapshot, epoch: int | None) -> list[str]:
    """Return warnings: how many invariants are violated, and why the scripts refuse this epoch."""
    prefix, warnings = snapshot.prefix, []
    if broken := len(violations(policy_of(snapshot), snapshot)):
        warnings.append(f"{prefix}: {broken_invariants(broken)}")
    if snapshot.unreadable_epoch is not None:
        warnings.append(epoch_error(snapshot, snapshot.unreadable_epoch))
    if epoch is not None and snapshot.epoch is not None and snapshot.epoch > epoch:
        warnings.append(
            f"{prefix}:epoch: the epoch in Redis is {snapshot.epoch}, and this process leads in epoch "
            f"{epoch}, so its writes are refused. Another leader writes to these keys, or the key was set by "
            "hand: then delete it"
        )
    return warnings
