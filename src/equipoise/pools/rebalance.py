"""One rebalancing, through the port: look, decide, move, and look again where a pod became busy meanwhile."""

from collections.abc import Sequence

import msgspec

from equipoise.model.decision import Decision, Held, MovePod, Outcome
from equipoise.model.pools import PoolCode, PoolsSeen
from equipoise.model.reason import Code, Reason
from equipoise.pools.decide import busy_excess, decide
from equipoise.pools.observation import Stay, TierSeen, observe
from equipoise.pools.policy import read_policy
from equipoise.ports import Pools

ROUNDS = 5
"""How often what became busy, or changed, is planned anew in one cycle; the next cycle goes on."""
DONE = {PoolCode.MOVED, PoolCode.ALREADY_THERE}
RETRIED = {PoolCode.FENCED, PoolCode.CONFIG_CHANGED, PoolCode.SOURCE_NOT_OVER, PoolCode.DESTINATION_FULL}
"""The plan was old, and the pod is not to blame."""
HELD: dict[str, Code] = {
    PoolCode.FENCED: Code.HELD_BY_LEADER,
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


def plan(pools: Pools) -> Decision:
    """Look and decide. Changes nothing."""
    return _plan_without(pools, set())[0]


def rebalance(pools: Pools, epoch: int | None = None, *, marks_busy: bool = False) -> Rebalanced:
    """Move what the plan says. Without an epoch of one's own, the current one is taken."""
    outcomes: list[Outcome] = []
    done: list[MovePod] = []
    stuck: set[str] = set()
    for _ in range(ROUNDS):
        decision, seen = _plan_without(pools, stuck)
        moves = [action for action in decision.actions if isinstance(action, MovePod)]
        came = _move(pools, moves, seen, epoch) if moves else []
        outcomes += came
        done += [move for move, outcome in zip(moves, came, strict=True) if outcome.result in DONE]
        left = [outcome for outcome in came if outcome.result not in DONE]
        stuck |= {outcome.action.pod for outcome in left if outcome.result not in RETRIED}
        if not left:
            break
    if marks_busy:
        outcomes += _mark(pools, epoch)
    return Rebalanced(_told(decision, done, left), tuple(outcomes), seen)


def _plan_without(pools: Pools, stuck: set[str]) -> tuple[Decision, PoolsSeen]:
    """Plan, and leave out pods that refused to move although they looked idle."""
    seen = pools.snapshot()
    policy = read_policy(seen.config, f"{seen.prefix}:tier:config")
    observation = observe(policy, seen)
    if stuck:
        observation = msgspec.structs.replace(
            observation,
            tiers=tuple(
                TierSeen(
                    tier.name,
                    tuple(
                        msgspec.structs.replace(pod, stay=Stay.BUSY) if pod.name in stuck else pod
                        for pod in tier.pods
                    ),
                )
                for tier in observation.tiers
            ),
        )
    return decide(policy, observation), seen


def _told(decision: Decision, done: Sequence[MovePod], left: Sequence[Outcome]) -> Decision:
    """Say what was done, and what was held, and why."""
    held = tuple(
        Held(outcome.action, HELD.get(outcome.result, Code.HELD_BY_HEALTH), f"It answered {outcome.result}.")
        for outcome in left
    )
    reason = decision.reason
    if done:
        pods = "1 pod was moved" if len(done) == 1 else f"{len(done)} pods were moved"
        reason = Reason(Code.REBALANCE, f"{pods}. Before: {reason.sentence}", reason.numbers)
    elif held:
        reason = Reason(held[0].reason, f"{held[0].action.pod}: {held[0].sentence}", reason.numbers)
    return msgspec.structs.replace(decision, actions=tuple(done), held=held, reason=reason)


def _move(
    pools: Pools, moves: Sequence[MovePod], seen: PoolsSeen, epoch: int | None, *, marks_busy: bool = False
) -> list[Outcome]:
    chosen = seen.epoch if epoch is None else epoch
    answers = pools.move(moves, seen.version, chosen, marks_busy=marks_busy)
    return [
        Outcome(move, answer.code.value, answer.detail) for move, answer in zip(moves, answers, strict=True)
    ]


def _mark(pools: Pools, epoch: int | None) -> list[Outcome]:
    """Mark busy pods of tiers over their targets: their release delivers them to their new tier."""
    seen = pools.snapshot()
    policy = read_policy(seen.config, f"{seen.prefix}:tier:config")
    chosen = busy_excess(policy, observe(policy, seen))
    moves = [MovePod(pod.name, source, to, uid=pod.uid) for pod, source, to in chosen]
    return _move(pools, moves, seen, epoch, marks_busy=True) if moves else []
