"""One rebalancing, through the port: look, decide, move, and look again where a pod became busy meanwhile."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from equipoise.core.decision import Action, Decision, Held, MovePod, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.pools import PoolCode, PoolsSeen
from equipoise.core.reason import Code, Reason
from equipoise.pools.decide import busy_excess, decide
from equipoise.pools.invariants import odd_epoch
from equipoise.pools.observation import Observation, Stay, TierSeen, observe
from equipoise.pools.policy import read_policy
from equipoise.ports import PoolsUpkeep

ROUNDS = 5
"""How often what became busy, or changed, is planned anew in one cycle; the next cycle goes on."""
DONE = {PoolCode.MOVED, PoolCode.ALREADY_THERE}
RETRIED = {
    *(PoolCode.FENCED, PoolCode.EPOCH_UNREADABLE, PoolCode.CONFIG_CHANGED),
    *(PoolCode.SOURCE_NOT_OVER, PoolCode.DESTINATION_FULL),
}
"""The plan was old, and the pod is not to blame."""
LOST = {PoolCode.FAILED, PoolCode.UNANSWERED}
"""The server did not answer, so there is no use in asking for more."""
SAID: dict[str, str] = {
    PoolCode.FAILED: "It was not moved, since the server failed.",
    PoolCode.UNANSWERED: "Nobody knows whether it was moved; the next look will tell.",
    PoolCode.EPOCH_UNREADABLE: "The epoch in Redis is none; `equipoise pools fsck` tells.",
}
HELD: dict[str, Code] = {
    PoolCode.FENCED: Code.HELD_BY_LEADER,
    PoolCode.EPOCH_UNREADABLE: Code.HELD_BY_LEADER,
    PoolCode.BUSY: Code.ALL_BUSY,
    PoolCode.LEASED: Code.ALL_BUSY,
    PoolCode.DRAINING: Code.ALL_BUSY,
}


class Rebalanced(msgspec.Struct, frozen=True):
    """What was decided and done; the decision's actions are the moves that happened."""

    decision: Decision
    outcomes: tuple[Outcome, ...]
    seen: PoolsSeen
    """The last look before the last moves."""
    failure: str = ""
    """Why it ended early; what is known to have been done is told all the same."""


def plan(pools: PoolsUpkeep) -> Decision:
    """Look and decide. Changes nothing."""
    return _plan_without(pools, set())[0]


def rebalance(pools: PoolsUpkeep, epoch: int | None = None, *, marks_busy: bool = False) -> Rebalanced:
    """Move what the plan says. Without an epoch of one's own, the current one is taken.

    A server that fails before anything was done is raised; from then on, what is known is told.
    """
    decision, seen = _plan_without(pools, set())
    before = decision.reason
    outcomes: list[Outcome] = []
    left: list[Outcome] = []
    failure = ""
    try:
        for _ in range(ROUNDS):
            moves = moves_of(decision)
            came = move(pools, moves, seen, epoch) if moves else []
            outcomes += came
            left = [outcome for outcome in came if outcome.result not in DONE]
            failure = next((outcome.detail for outcome in left if outcome.result in LOST), "")
            if failure or not left:
                break
            decision, seen = _plan_without(pools, stuck_in(outcomes))
        if marks_busy and not failure:
            outcomes += mark(pools, epoch)
    except WorldFailed as error:
        if not outcomes:
            raise
        failure = str(error)
    done = [outcome.action for outcome in outcomes if outcome.result in DONE]
    return Rebalanced(_told(decision, before, done, left), tuple(outcomes), seen, failure)


def moves_of(decision: Decision) -> list[MovePod]:
    """Return the moves of a plan."""
    return [action for action in decision.actions if isinstance(action, MovePod)]


def stuck_in(outcomes: Iterable[Outcome]) -> set[str]:
    """Name the pods that refused to move although they looked idle; an old plan is not their fault."""
    return {outcome.action.pod for outcome in outcomes if outcome.result not in DONE | RETRIED}


def without(seen: Observation, stuck: Collection[str]) -> Observation:
    """Take the pods that are stuck for busy."""
    if not stuck:
        return seen
    tiers = []
    for tier in seen.tiers:
        pods = (
            msgspec.structs.replace(pod, stay=Stay.BUSY) if pod.name in stuck else pod for pod in tier.pods
        )
        tiers.append(TierSeen(tier.name, tuple(pods)))
    return msgspec.structs.replace(seen, tiers=tuple(tiers))


def _plan_without(pools: PoolsUpkeep, stuck: Collection[str]) -> tuple[Decision, PoolsSeen]:
    seen = pools.snapshot()
    policy = read_policy(seen.config, f"{seen.prefix}:tier:config")
    return decide(policy, without(observe(policy, seen), stuck)), seen


def _told(decision: Decision, before: Reason, done: Sequence[Action], left: Sequence[Outcome]) -> Decision:
    """Return what was done, from where, and what was held, and why."""
    held = tuple(
        Held(
            outcome.action,
            HELD.get(outcome.result, Code.HELD_BY_HEALTH),
            SAID.get(outcome.result, "") or f"It answered {outcome.result}.",
        )
        for outcome in left
    )
    reason = decision.reason
    if done:
        pods = "1 pod was moved" if len(done) == 1 else f"{len(done)} pods were moved"
        reason = Reason(Code.REBALANCE, f"{pods}. Before: {before.sentence}", before.numbers)
    elif held:
        reason = Reason(held[0].reason, f"{held[0].action.pod}: {held[0].sentence}", reason.numbers)
    return msgspec.structs.replace(decision, actions=tuple(done), held=held, reason=reason)


def move(
    pools: PoolsUpkeep,
    moves: Sequence[MovePod],
    seen: PoolsSeen,
    epoch: int | None,
    *,
    marks_busy: bool = False,
) -> list[Outcome]:
    """Move these pods, planned from what was seen; each answers for itself."""
    if epoch is None and seen.odd_epoch is not None:
        raise WorldFailed(
            f"{seen.prefix}:epoch: {odd_epoch(seen.odd_epoch)}; `equipoise pools fsck --repair` forgets it"
        )
    chosen = seen.epoch if epoch is None else epoch
    answers = pools.move(moves, seen.version, chosen, marks_busy=marks_busy)
    return [
        Outcome(move, answer.code.value, answer.detail) for move, answer in zip(moves, answers, strict=True)
    ]


def mark(pools: PoolsUpkeep, epoch: int | None, odd: Collection[str] = ()) -> list[Outcome]:
    """Mark busy pods of tiers over their targets, but for the odd ones: their release delivers them."""
    seen = pools.snapshot()
    policy = read_policy(seen.config, f"{seen.prefix}:tier:config")
    chosen = [one for one in busy_excess(policy, observe(policy, seen, odd)) if one[0].name not in odd]
    moves = [MovePod(pod.name, source, to, uid=pod.uid) for pod, source, to in chosen]
    moves = [one for one in moves if seen.pending.get(one.pod) != one.destination]
    return move(pools, moves, seen, epoch, marks_busy=True) if moves else []
