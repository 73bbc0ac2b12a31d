"""Which pods move to which tier: the seed's algorithm, pure.

    diff   = assigned - target, for each tier of the chain
    over   = the tiers with diff > 0, under = those with diff < 0
    move   = from each tier over its target, in order, idle pods in ordinal order until the excess is gone,
             each to the first tier under its target that still needs one

Nothing moves unless there are tiers over and tiers under. Busy, leased and draining pods stay.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from equipoise.core.decision import Decision, MovePod
from equipoise.core.reason import Code, Reason
from equipoise.pools.observation import Observation, PodInTier, Stay
from equipoise.pools.policy import TierPolicy


class _Balance(msgspec.Struct):
    """How far the tiers are from their targets."""

    over: dict[str, int]
    under: dict[str, int]
    stays: Counter[Stay]


def decide(policy: TierPolicy, seen: Observation) -> Decision:
    """Decide which pods move, in order."""
    diffs = {tier.name: len(tier.pods) - policy.tiers[tier.name].target for tier in seen.tiers}
    balance = _Balance(
        over={name: diff for name, diff in diffs.items() if diff > 0},
        under={name: -diff for name, diff in diffs.items() if diff < 0},
        stays=Counter(),
    )
    moves = tuple(_moves(seen, balance)) if balance.over and balance.under else ()
    numbers = _numbers(policy, seen, balance)
    code, sentence = _judged(balance, moves)
    if numbers["missing"]:
        sentence += f" The targets demand {numbers['missing']} more pods than there are."
    return Decision(seen.subject, Reason(code, sentence, numbers), moves)


def _moves(seen: Observation, balance: _Balance) -> Iterator[MovePod]:
    needs = dict(balance.under)
    for tier in seen.tiers:
        excess = balance.over.get(tier.name, 0)
        for pod in tier.pods:
            destination = next((name for name, needed in needs.items() if needed), None)
            if not excess or destination is None:
                break
            balance.stays[pod.stay] += 1
            if pod.stay is Stay.IDLE:
                yield MovePod(pod.name, tier.name, destination, uid=pod.uid)
                excess -= 1
                needs[destination] -= 1


def busy_excess(policy: TierPolicy, seen: Observation) -> Iterator[tuple[PodInTier, str, str]]:
    """Name busy pods that could be marked to move once they are released, where idle ones do not suffice."""
    decision = decide(policy, seen)
    over = Counter(decision.reason.numbers["over"])
    needs = Counter(decision.reason.numbers["under"])
    for move in decision.actions:
        assert isinstance(move, MovePod), "pools only move"
        over[move.source] -= 1
        needs[move.destination] -= 1
    for tier in seen.tiers:
        for pod in tier.pods:
            destination = next((name for name in needs if needs[name] > 0), None)
            if over[tier.name] <= 0 or destination is None:
                break
            if pod.stay in {Stay.BUSY, Stay.LEASED}:
                yield pod, tier.name, destination
                over[tier.name] -= 1
                needs[destination] -= 1


def _numbers(policy: TierPolicy, seen: Observation, balance: _Balance) -> dict[str, Any]:
    pods = sum(len(tier.pods) for tier in seen.tiers)
    return {
        "pods": pods,
        "targets": {name: policy.tiers[name].target for name in policy.chain},
        "assigned": {tier.name: len(tier.pods) for tier in seen.tiers},
        "over": balance.over,
        "under": balance.under,
        "skipped_busy": balance.stays[Stay.BUSY],
        "skipped_leased": balance.stays[Stay.LEASED],
        "skipped_draining": balance.stays[Stay.DRAINING],
        "missing": max(0, policy.pods_wanted - pods),
    }


def _judged(balance: _Balance, moves: tuple[MovePod, ...]) -> tuple[Code, str]:
    over, under = _counted(balance.over), _counted(balance.under)
    if not balance.over and not balance.under:
        return Code.BALANCED, "Every tier has its target."
    if not balance.under:
        return Code.NOWHERE_TO_MOVE, f"Over target: {over}. No tier is under its target, so all pods stay."
    if not balance.over:
        return Code.NOTHING_TO_TAKE, f"Under target: {under}. No tier is over its target to take pods from."
    if not moves:
        return (
            Code.ALL_BUSY,
            f"Over target: {over}; under target: {under}. Every pod there is busy, leased or draining.",
        )
    pods = "1 pod moves" if len(moves) == 1 else f"{len(moves)} pods move"
    return Code.REBALANCE, f"Over target: {over}; under target: {under}. {pods}."


def _counted(tiers: dict[str, int]) -> str:
    return ", ".join(f"{name} by {pods}" for name, pods in tiers.items())
