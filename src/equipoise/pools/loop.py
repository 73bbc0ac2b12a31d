"""The pools at work: one cycle takes Kubernetes' pods in and out, puts back who is lost, and rebalances.

What it must remember is in Redis, and is read anew in every cycle. Only since when a pod has been missing
from Kubernetes' list is counted here: whoever begins to lead begins to count. Every write carries the epoch
of the Lease, and the scripts refuse an epoch below the highest that they have seen.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from equipoise.core.cluster import Pod
from equipoise.core.decision import Decision, MovePod, Outcome, RecoverPod, UnregisterPod
from equipoise.core.errors import WorldFailed
from equipoise.core.pools import PoolAnswer, PoolCode, PoolsSeen
from equipoise.core.reason import Reason
from equipoise.engine.guards import held_by_leader, held_by_pause
from equipoise.engine.isolation import Isolation, failed_decision, failed_record
from equipoise.engine.recording import record
from equipoise.pools.decide import decide
from equipoise.pools.invariants import odd_epoch, violations
from equipoise.pools.observation import Observation, observe, tally
from equipoise.pools.policy import TierPolicy, read_policy
from equipoise.pools.rebalance import DONE, LOST, ROUNDS, SAID, mark, move, moves_of, stuck_in, without
from equipoise.pools.record import BALANCER, policy_json
from equipoise.pools.registration import (
    NAMED_MAX,
    Listed,
    Roster,
    RosterRule,
    State,
    attend,
    narrowed,
    roster_of,
)
from equipoise.ports import CycleReport, FailedTurn, Journal, Leadership, Pauses, PoolsUpkeep, Unanswered

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
    _isolation: Isolation = field(default_factory=Isolation)

    def is_woken(self) -> bool:
        """Whether the next cycle should not wait for its time: pods changed, or we lead now."""
        epoch = self.leadership.epoch()
        is_new_leader = epoch is not None and epoch != self._epoch
        return self.has_changed() or is_new_leader

    def cycle(self, at: float) -> CycleReport:
        """Look at both lists, bring them in step, put back who is lost, move who is idle."""
        self._epoch = self.leadership.epoch()
        self._isolation.begin(at, lambda: self.leadership.epoch() == self._epoch)
        self.has_changed()
        pods = self.pods()
        read: dict[str, Listed | FailedTurn] = {
            pod.name: self._isolation.attempt(pod.name, partial(listed_as, pod)) for pod in pods
        }
        listed = [one for one in read.values() if isinstance(one, Listed)]
        seen = self.pools.snapshot(also=[pod.name for pod in pods])
        roster = roster_of(seen, listed, read.keys() - {one.name for one in listed})
        decisions: list[Decision] = []
        outcomes: list[Outcome] = []
        self._part(roster.subject, at, decisions, lambda: self._attend(roster, at, decisions, outcomes))
        self._part(roster.subject, at, decisions, lambda: self._sweep(seen, at, outcomes))
        now = self.pools.snapshot() if outcomes else seen
        self._part(now.prefix, at, decisions, lambda: self._rebalance(now, at, decisions, outcomes))
        failure = next((outcome.detail for outcome in outcomes if outcome.result in LOST), "")
        warnings = self._isolation.attempt(now.prefix, lambda: _warnings(now, self._epoch))
        return CycleReport(
            decisions,
            outcomes,
            () if isinstance(warnings, FailedTurn) else warnings,
            failure,
            failed_turns=self._isolation.failed,
        )

    def _part(self, subject: str, at: float, decisions: list[Decision], work: Callable[[], object]) -> None:
        """Do one part of a cycle; an error that is about no single pod ends this part, and no other."""
        done = self._isolation.attempt(subject, work, (WorldFailed,))
        if isinstance(done, FailedTurn):
            decision = failed_decision(done)
            decisions.append(decision)
            written = failed_record(BALANCER, decision, at, self.new_id(at))
            self._isolation.attempt(subject, lambda: self.journal.append(written), (WorldFailed,))

    def _odd_of(self, pods: Sequence[str], probe: Callable[[Sequence[str]], object]) -> set[str]:
        """Return the pods of which the probe fails, whatever others are looked at with them."""

        def each(some: Sequence[str]) -> list[bool]:
            probe(some)
            return [True] * len(some)

        found = self._isolation.each(pods, each, str, (WorldFailed,))
        return {pod for pod, one in zip(pods, found, strict=True) if isinstance(one, FailedTurn)}

    def _attended(self, roster: Roster, before: dict[str, Any], at: float) -> tuple[Roster, Decision]:
        """Decide on who comes and goes; pods that an error is about are left as they are."""
        try:
            return roster, attend(self.rule, roster, before, at)
        except Exception:
            known = {pod.name for pod in roster.listed} | {pod.name for pod in roster.registered}
            odd = self._odd_of(
                sorted(known), lambda some: attend(self.rule, narrowed(roster, set(some)), before, at)
            )
            if not odd:
                raise
            roster = narrowed(roster, known - odd)
            return roster, attend(self.rule, roster, before, at)

    def _attend(self, roster: Roster, at: float, decisions: list[Decision], outcomes: list[Outcome]) -> None:
        """Register, forget, suspend and resume."""
        before = self._memory
        roster, decision = self._attended(roster, before, at)
        if any(isinstance(held.action, UnregisterPod) for held in decision.held):
            roster, decision = self._attended(self._confirmed(roster, decision), before, at)
        self._memory = decision.memory
        decision = self._guarded(decision)
        came: list[Outcome] = []
        if self.is_acting:
            came = self._in_chunks(
                [action for action in decision.actions if not isinstance(action, MovePod)],
                lambda part: self.pools.attend(part, self._epoch),
            )
        outcomes += came
        decisions.append(decision)
        name = self.new_id(at)
        self.journal.append(
            record(BALANCER, policy_json(self.rule), roster, before, decision, at, name, came)
        )

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

    def _sweep(self, seen: PoolsSeen, at: float, outcomes: list[Outcome]) -> None:
        """Look for pods that nobody holds. The script decides: two sweeps, a lease apart, must see it so."""
        is_held = self._held() is not None or not self.is_acting
        # A clock that was set back is not waited for.
        if is_held or 0 <= at - self._swept_at < self.interval_seconds / 2:
            return
        self._swept_at = at
        pods = [pod for pool in seen.pools for pod in pool.assigned]
        swept = self._in_chunks(
            [RecoverPod(pod) for pod in pods],
            lambda part: self.pools.recover([action.pod for action in part], self._epoch),
        )
        outcomes += [outcome for outcome in swept if outcome.result in {PoolCode.RECOVERED, *LOST}]

    def _planned(
        self, policy: TierPolicy, seen: PoolsSeen, stuck: Collection[str]
    ) -> tuple[Observation, Decision, Collection[str]]:
        """Decide on who moves; pods that an error is about count, stay where they are, and are named."""

        def plan(seen: PoolsSeen, odd: Collection[str] = ()) -> tuple[Observation, Decision, Collection[str]]:
            observation = without(observe(policy, seen, odd), stuck)
            return observation, decide(policy, observation), odd

        try:
            return plan(seen)
        except WorldFailed:
            raise
        except Exception:
            assigned = [pod for pool in seen.pools for pod in pool.assigned]
            odd = self._odd_of(assigned, lambda some: plan(_only(seen, set(some))))
            if not odd:
                raise
            return plan(seen, odd)

    def _rebalance(
        self, seen: PoolsSeen, at: float, decisions: list[Decision], outcomes: list[Outcome]
    ) -> None:
        """Move idle pods, plan anew where one became busy meanwhile, and mark busy ones for their release."""
        moved: list[Outcome] = []
        for _ in range(ROUNDS):
            policy = _policy(seen)
            observation, decision, odd = self._planned(policy, seen, stuck_in(moved))
            decision = self._guarded(decision)
            came = self._move(moves_of(decision), seen) if self.is_acting else []
            moved += came
            outcomes += came
            name = self.new_id(at)
            self.journal.append(
                record(BALANCER, policy_json(policy), observation, {}, decision, at, name, came)
            )
            counted = {"tiers": tally(policy, seen), "pending": len(seen.pending), "epoch": seen.epoch}
            counted["broken"] = len(violations(policy, seen))
            decisions.append(msgspec.structs.replace(decision, extra=counted))
            if all(outcome.result in {*DONE, *LOST, *REFUSED} for outcome in came):
                break
            seen = self.pools.snapshot()
        numbers = decisions[-1].reason.numbers
        is_wanted = self.marks_busy and self.is_acting and numbers["over"] and numbers["under"]
        is_our_turn = self._held() is None and self.leadership.epoch() == self._epoch
        if is_wanted and is_our_turn and not _is_lost(moved):
            outcomes += mark(self.pools, self._epoch, odd)

    def _move(self, moves: Sequence[MovePod], seen: PoolsSeen) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part in _chunks(moves, CHUNK):
            if self.leadership.epoch() != self._epoch or _is_lost(outcomes):
                why = "our turn was over, or the server gone"
                return outcomes + [Outcome(one, PoolCode.FENCED.value, why) for one in part]
            self.beat()
            try:
                outcomes += move(self.pools, part, seen, self._epoch)
            except WorldFailed as error:
                outcomes += _failed(part, error, outcomes)
            except Exception as error:  # noqa: BLE001 - as unknown as a lost answer
                outcomes += self._unanswered(part, error)
        return outcomes

    def _unanswered(self, part: Sequence[Any], error: Exception) -> list[Outcome]:
        """Return what is known of actions whose answer an error kept from us: nothing."""
        failed = self._isolation.take(", ".join(action.pod for action in part[:NAMED_MAX]), error)
        return [Outcome(action, PoolCode.UNANSWERED.value, failed.error) for action in part]

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
            try:
                outcomes += [
                    Outcome(action, answer.code.value, answer.detail or SAID.get(answer.code, answer.tier))
                    for action, answer in zip(part, ask(part), strict=True)
                ]
            except WorldFailed as error:
                outcomes += _failed(part, error, outcomes)
            except Exception as error:  # noqa: BLE001 - as unknown as a lost answer
                outcomes += self._unanswered(part, error)
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


def _failed(part: Sequence[Any], error: WorldFailed, before: Sequence[Outcome]) -> list[Outcome]:
    """Return what came of actions that could not be asked for; those before keep their answers."""
    if not before:
        raise error
    code = PoolCode.UNANSWERED if isinstance(error, Unanswered) else PoolCode.FAILED
    return [Outcome(action, code.value, str(error)) for action in part]


def _is_lost(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.result in LOST for outcome in outcomes)


def _only(seen: PoolsSeen, pods: Collection[str]) -> PoolsSeen:
    """Return a look with these assigned pods only."""
    pools = (
        msgspec.structs.replace(pool, assigned=tuple(pod for pod in pool.assigned if pod in pods))
        for pool in seen.pools
    )
    return msgspec.structs.replace(seen, pools=tuple(pools))


def _policy(seen: PoolsSeen) -> TierPolicy:
    return read_policy(seen.config, f"{seen.prefix}:tier:config")


def _warnings(seen: PoolsSeen, epoch: int | None) -> list[str]:
    """Return how many things are broken (`fsck` says what), and why a leader is refused."""
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
