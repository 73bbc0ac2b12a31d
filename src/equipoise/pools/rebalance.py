"""One rebalancing through the port: decide on a snapshot, move, and plan again where a pod became busy."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from equipoise.core.decision import Action, Decided, Decision, Held, MovePod, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.pools import PoolCode, PoolsSnapshot
from equipoise.core.quantity import print_count
from equipoise.core.reason import Code, Reason
from equipoise.pools.decide import TierBalance, busy_excess, decide, moves_of
from equipoise.pools.invariants import unreadable_epoch
from equipoise.pools.observe import Activity, Observation, TierPods, observe
from equipoise.pools.policy import TierPolicy, read_policy
from equipoise.ports import PoolsUpkeep

ROUNDS = 5
"""How often one cycle plans again after pods became busy or changed."""
DONE = {PoolCode.MOVED, PoolCode.ALREADY_THERE}
REFUSED = {PoolCode.FENCED, PoolCode.EPOCH_UNREADABLE}
"""Refusals of this replica's epoch, which no other plan can avoid."""
RETRIED = {*REFUSED, PoolCode.CONFIG_CHANGED, PoolCode.SOURCE_NOT_OVER, PoolCode.DESTINATION_FULL}
"""Answers that mean an outdated plan; the pod may move in the next one."""
LOST = {PoolCode.FAILED, PoolCode.UNANSWERED}
"""Answers after which nothing more is sent: the server failed, or did not answer."""
SENTENCES: dict[str, str] = {
    PoolCode.FAILED: "It was not moved because Redis failed.",
    PoolCode.UNANSWERED: "It is unknown whether it was moved; the next cycle shows it.",
    PoolCode.FENCED: "Another leader has taken over.",
    PoolCode.BUSY: "It is busy now.",
    PoolCode.LEASED: "It has a lease now.",
    PoolCode.DRAINING: "It is draining now.",
    PoolCode.EPOCH_UNREADABLE: "The epoch in Redis is invalid; run `equipoise pools fsck` for details.",
}
HELD_CODES: dict[str, Code] = {
    **dict.fromkeys((PoolCode.FENCED, PoolCode.EPOCH_UNREADABLE), Code.HELD_BY_LEADER),
    **dict.fromkeys((PoolCode.BUSY, PoolCode.LEASED, PoolCode.DRAINING), Code.ALL_BUSY),
}


class Rebalanced(msgspec.Struct, frozen=True):
    """The decision, whose actions are the moves that happened, and the outcomes."""

    decision: Decision
    details: TierBalance
    outcomes: tuple[Outcome, ...]
    failure: str = ""
    """Why it ended early, empty if it did not; the outcomes until then are reported."""


def plan(pools: PoolsUpkeep) -> Decided[TierBalance]:
    """Take a snapshot and decide. Changes nothing."""
    return _plan(pools, set())[0]


def rebalance(pools: PoolsUpkeep, epoch: int | None = None, *, marks_busy: bool = False) -> Rebalanced:
    """Execute the plan; without an epoch, with the current one.

    Raises where the server fails before the first move; after it, returns the outcomes so far.
    """
    (decision, details), snapshot = _plan(pools, set())
    before = decision.reason
    outcomes: list[Outcome] = []
    left: list[Outcome] = []
    failure = ""
    try:
        for _ in range(ROUNDS):
            moves = moves_of(decision)
            moved = move(pools, moves, snapshot, epoch) if moves else []
            outcomes += moved
            left = [outcome for outcome in moved if outcome.result not in DONE]
            failure = next((outcome.detail for outcome in left if outcome.result in LOST), "")
            if failure or not left:
                break
            (decision, details), snapshot = _plan(pools, refusing_pods(outcomes))
        if marks_busy and not failure:
            outcomes += mark(pools, epoch)
    except WorldFailed as error:
        if not outcomes:
            raise
        failure = str(error)
    done = [outcome.action for outcome in outcomes if outcome.result in DONE]
    return Rebalanced(_summary(decision, before, done, left), details, tuple(outcomes), failure)


def refusing_pods(outcomes: Iterable[Outcome]) -> set[str]:
    """Return the pods that refused to move for another reason than an outdated plan."""
    return {outcome.action.pod for outcome in outcomes if outcome.result not in DONE | RETRIED}


def with_busy(observation: Observation, pods: Collection[str]) -> Observation:
    if not pods:
        return observation
    replace = msgspec.structs.replace
    tiers = []
    for tier in observation.tiers:
        own = [replace(pod, activity=Activity.BUSY) if pod.name in pods else pod for pod in tier.pods]
        tiers.append(TierPods(tier.name, tuple(own)))
    return replace(observation, tiers=tuple(tiers))


def policy_of(snapshot: PoolsSnapshot) -> TierPolicy:
    return read_policy(snapshot.config, f"{snapshot.prefix}:tier:config")


def _plan(pools: PoolsUpkeep, refusing: Collection[str]) -> tuple[Decided[TierBalance], PoolsSnapshot]:
    snapshot = pools.snapshot()
    policy = policy_of(snapshot)
    return decide(policy, with_busy(observe(policy, snapshot), refusing)), snapshot


def _summary(decision: Decision, before: Reason, done: Sequence[Action], left: Sequence[Outcome]) -> Decision:
    """Return the decision with the moves that happened as actions, and the others as held."""
    assert not any(outcome.result in DONE for outcome in left), "what was moved is not held"
    held = []
    for outcome in left:
        sentence = SENTENCES.get(outcome.result, "") or f"Redis answered {outcome.result}."
        held.append(Held(outcome.action, HELD_CODES.get(outcome.result, Code.HELD_BY_HEALTH), sentence))
    reason = decision.reason
    if done:
        pods = f"{print_count(len(done), 'pod')} {'was' if len(done) == 1 else 'were'} moved"
        reason = Reason(Code.REBALANCE, f"{pods}. Plan: {before.sentence}", before.numbers)
    elif held:
        reason = Reason(held[0].reason, f"{held[0].action.pod}: {held[0].sentence}", reason.numbers)
    return msgspec.structs.replace(decision, actions=tuple(done), held=tuple(held), reason=reason)


def move(
    pools: PoolsUpkeep,
    moves: Sequence[MovePod],
    snapshot: PoolsSnapshot,
    epoch: int | None,
    *,
    marks_busy: bool = False,
) -> list[Outcome]:
    """Move these pods, planned from this snapshot; return one outcome per pod."""
    if epoch is None and snapshot.unreadable_epoch is not None:
        raise WorldFailed(epoch_error(snapshot, snapshot.unreadable_epoch))
    chosen = snapshot.epoch if epoch is None else epoch
    answers = pools.move(moves, snapshot.version, chosen, marks_busy=marks_busy)
    return [
        Outcome(each, answer.code.value, answer.detail) for each, answer in zip(moves, answers, strict=True)
    ]


def epoch_error(snapshot: PoolsSnapshot, text: str) -> str:
    """Return why the scripts refuse every epoch, and how to repair it."""
    return f"{snapshot.prefix}:epoch: {unreadable_epoch(text)}; run `equipoise pools fsck --repair`"


def mark(pools: PoolsUpkeep, epoch: int | None, failing: Collection[str] = ()) -> list[Outcome]:
    """Mark busy pods of tiers over their targets to be moved on release; failing ones are left out."""
    snapshot = pools.snapshot()
    policy = policy_of(snapshot)
    moves = [
        MovePod(pod.name, source, destination, uid=pod.uid)
        for pod, source, destination in busy_excess(policy, observe(policy, snapshot, failing))
        if pod.name not in failing and snapshot.pending.get(pod.name) != destination
    ]
    return move(pools, moves, snapshot, epoch, marks_busy=True) if moves else []
