"""The pools at work: one cycle takes Kubernetes' pods in and out, puts back who is lost, and rebalances.

What it must remember is in Redis, and is read anew in every cycle. Only since when a pod has been missing
from Kubernetes' list is counted here: whoever begins to lead begins to count. Every write carries the epoch
of the Lease, and the scripts refuse an epoch below the highest that they have seen.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from equipoise.guard.leader import held_by_leader
from equipoise.guard.pause import held_by_pause
from equipoise.model.cluster import Pod
from equipoise.model.decision import Decision, MovePod, Outcome, RecoverPod, UnregisterPod
from equipoise.model.errors import WorldFailed
from equipoise.model.pools import PoolAnswer, PoolCode, PoolsSeen
from equipoise.model.reason import Reason
from equipoise.pools.decide import decide
from equipoise.pools.fsck import odd_epoch, violations
from equipoise.pools.observation import observe
from equipoise.pools.policy import TierPolicy, read_policy
from equipoise.pools.rebalance import DONE, LOST, ROUNDS, SAID, mark, move, moves_of, stuck_in, without
from equipoise.pools.record import BALANCER, record
from equipoise.pools.roster import Listed, Roster, RosterRule, State, attend, roster_of
from equipoise.pools.tally import tally
from equipoise.ports import CycleReport, Journal, Leadership, Pauses, PoolsUpkeep

T = TypeVar("T")
CHUNK = 500
"""How much is asked for between two looks at the Lease."""
CONFIRMED_MAX = 50
"""How many pods are asked for by name in one cycle."""
ENDED = {"Succeeded", "Failed"}
REFUSED = {PoolCode.FENCED, PoolCode.EPOCH_UNREADABLE}
"""As long as this holds, no other plan does better."""


def _nothing() -> None:
    return None


@dataclass(slots=True)
class PoolsLoop:
    """All that one cycle needs of the world."""

    pools: PoolsUpkeep
    pods: Callable[[], Sequence[Pod]]
    """The pods that Kubernetes has; not knowing raises."""
    is_gone: Callable[[str, str], bool]
    """Whether the API server, asked by name, does not know this incarnation of a pod."""
    pauses: Pauses
    leadership: Leadership
    journal: Journal
    new_id: Callable[[float], str]
    namespace: str
    interval_seconds: float = 60.0
    rule: RosterRule = field(default_factory=RosterRule)
    is_acting: bool = True
    """Whether anything is written; without, it only looks and says."""
    marks_busy: bool = True
    beat: Callable[[], None] = _nothing
    has_changed: Callable[[], bool] = lambda: False
    """Whether Kubernetes' pods have changed since it was last asked."""
    name: str = BALANCER
    _memory: dict[str, Any] = field(default_factory=dict)
    _swept_at: float = float("-inf")
    _epoch: int | None = None

    def is_woken(self) -> bool:
        """Whether the next cycle should not wait for its time: pods changed, or we lead now."""
        epoch = self.leadership.epoch()
        is_new_leader = epoch is not None and epoch != self._epoch
        return self.has_changed() or is_new_leader

    def cycle(self, at: float) -> CycleReport:
        """Look at both lists, bring them in step, put back who is lost, move who is idle."""
        self._epoch = self.leadership.epoch()
        self.has_changed()
        listed = [listed_as(pod) for pod in self.pods()]
        seen = self.pools.snapshot(also=[pod.name for pod in listed])
        attended, came = self._attend(roster_of(seen, listed), at)
        swept = self._sweep(seen, at)
        if came or swept:
            seen = self.pools.snapshot()
        planned, moved = self._rebalance(seen, at)
        outcomes = [*came, *swept, *moved]
        failure = next((outcome.detail for outcome in outcomes if outcome.result in LOST), "")
        return CycleReport([attended, *planned], outcomes, _warnings(seen, self._epoch), failure)

    def _attend(self, roster: Roster, at: float) -> tuple[Decision, list[Outcome]]:
        """Register, forget, suspend and resume."""
        before = self._memory
        decision = attend(self.rule, roster, before, at)
        if any(isinstance(held.action, UnregisterPod) for held in decision.held):
            roster = self._confirmed(roster, decision)
            decision = attend(self.rule, roster, before, at)
        self._memory = decision.memory
        decision = self._guarded(decision)
        outcomes: list[Outcome] = []
        if self.is_acting:
            outcomes = self._in_chunks(
                [action for action in decision.actions if not isinstance(action, MovePod)],
                lambda part: self.pools.attend(part, self._epoch),
            )
        name = self.new_id(at)
        self.journal.append(record(self.rule, roster, before, decision, at, name, tuple(outcomes)))
        return decision, outcomes

    def _confirmed(self, roster: Roster, decision: Decision) -> Roster:
        """Ask by name for pods that are missing beyond measure, some at a time; no answer is no proof."""
        doubtful = [held.action for held in decision.held if isinstance(held.action, UnregisterPod)]
        confirmed: list[str] = []
        if self._held() is None:
            with suppress(WorldFailed):
                for action in doubtful[:CONFIRMED_MAX]:
                    self.beat()
                    confirmed += [action.pod] if self.is_gone(action.pod, action.uid) else []
        return msgspec.structs.replace(roster, confirmed=tuple(confirmed))

    def _sweep(self, seen: PoolsSeen, at: float) -> list[Outcome]:
        """Look for pods that nobody holds. The script decides: two sweeps, a lease apart, must see it so."""
        is_held = self._held() is not None or not self.is_acting
        # A clock that was set back is not waited for.
        if is_held or 0 <= at - self._swept_at < self.interval_seconds / 2:
            return []
        self._swept_at = at
        pods = [pod for pool in seen.pools for pod in pool.assigned]
        swept = self._in_chunks(
            [RecoverPod(pod) for pod in pods],
            lambda part: self.pools.recover([action.pod for action in part], self._epoch),
        )
        return [outcome for outcome in swept if outcome.result in {PoolCode.RECOVERED, *LOST}]

    def _rebalance(self, seen: PoolsSeen, at: float) -> tuple[list[Decision], list[Outcome]]:
        """Move idle pods, plan anew where one became busy meanwhile, and mark busy ones for their release."""
        decisions: list[Decision] = []
        outcomes: list[Outcome] = []
        for _ in range(ROUNDS):
            policy = _policy(seen)
            observation = without(observe(policy, seen), stuck_in(outcomes))
            decision = self._guarded(decide(policy, observation))
            came = self._move(moves_of(decision), seen) if self.is_acting else []
            outcomes += came
            name = self.new_id(at)
            self.journal.append(record(policy, observation, {}, decision, at, name, tuple(came)))
            counted = {"tiers": tally(policy, seen), "pending": len(seen.pending), "epoch": seen.epoch}
            counted["broken"] = len(violations(policy, seen))
            decisions.append(msgspec.structs.replace(decision, extra=counted))
            if all(outcome.result in {*DONE, *LOST, *REFUSED} for outcome in came):
                break
            seen = self.pools.snapshot()
        numbers = decisions[-1].reason.numbers
        is_wanted = self.marks_busy and self.is_acting and numbers["over"] and numbers["under"]
        is_our_turn = self._held() is None and self.leadership.epoch() == self._epoch
        if is_wanted and is_our_turn and not _is_lost(outcomes):
            outcomes += mark(self.pools, self._epoch)
        return decisions, outcomes

    def _move(self, moves: Sequence[MovePod], seen: PoolsSeen) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part in _chunks(moves, CHUNK):
            if self.leadership.epoch() != self._epoch or _is_lost(outcomes):
                why = "our turn was over, or the server gone"
                return outcomes + [Outcome(one, PoolCode.FENCED.value, why) for one in part]
            self.beat()
            outcomes += move(self.pools, part, seen, self._epoch)
        return outcomes

    def _guarded(self, decision: Decision) -> Decision:
        """Hold everything unless we lead and nobody has said stop."""
        if not decision.actions:
            return decision
        reason = self._held()
        return decision if reason is None else decision.hold(reason)

    def _held(self) -> Reason | None:
        return held_by_pause(self.pauses, self.namespace) or held_by_leader(self.leadership)

    def _in_chunks(
        self, actions: Sequence[Any], ask: Callable[[Sequence[Any]], Sequence[PoolAnswer]]
    ) -> list[Outcome]:
        """Ask for some at a time; what is left when our turn ends, or the server, is not asked for."""
        outcomes: list[Outcome] = []
        for part in _chunks(actions, CHUNK):
            if self.leadership.epoch() != self._epoch:
                return outcomes + [
                    Outcome(action, PoolCode.FENCED.value, "our turn was over") for action in part
                ]
            self.beat()
            outcomes += [
                Outcome(action, answer.code.value, answer.detail or SAID.get(answer.code, answer.tier))
                for action, answer in zip(part, ask(part), strict=True)
            ]
            if _is_lost(outcomes):
                break
        return outcomes


def listed_as(pod: Pod) -> Listed:
    """Take from a pod what the roster needs."""
    if pod.phase in ENDED:
        state = State.ENDED
    elif pod.deletion_at is not None:
        state = State.LEAVING
    else:
        state = State.READY if pod.is_ready else State.UNREADY
    return Listed(pod.name, pod.uid, state)


def _chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _is_lost(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.result in LOST for outcome in outcomes)


def _policy(seen: PoolsSeen) -> TierPolicy:
    return read_policy(seen.config, f"{seen.prefix}:tier:config")


def _warnings(seen: PoolsSeen, epoch: int | None) -> list[str]:
    """Say how many things are broken (`fsck` says what), and why a leader is refused."""
    broken = len(violations(_policy(seen), seen))
    said = [f"{seen.prefix}: {broken} broken; `equipoise pools fsck` lists them"] if broken else []
    if seen.odd_epoch is not None:
        said.append(
            f"{seen.prefix}:epoch: {odd_epoch(seen.odd_epoch)}; `equipoise pools fsck --repair` forgets it"
        )
    if epoch is not None and seen.epoch is not None and seen.epoch > epoch:
        said.append(
            f"{seen.prefix}:epoch: it is {seen.epoch} and ours is {epoch}, so whatever we write is refused: "
            "another leader writes to these keys, or a foreign hand wrote it, and then it has to be deleted"
        )
    return said
