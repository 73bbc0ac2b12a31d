"""Which pods move to which tier: the seed's algorithm, pure.

    diff   = assigned - target, for each tier of the chain
    over   = the tiers with diff > 0, under = those with diff < 0
    move   = from each tier over its target, in order, idle pods in ordinal order until the excess is gone,
             each to the first tier under its target that still needs one

Nothing moves unless there are tiers over and tiers under. Busy, leased and draining pods stay.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

from equipoise.core.decision import Action, Decided, Decision, MovePod
from equipoise.core.pools import ordinal_of
from equipoise.core.quantity import print_count, print_list
from equipoise.core.reason import Code, Reason
from equipoise.pools.observe import Activity, Observation, PodInTier, TierPods
from equipoise.pools.policy import TierPolicy


class TierBalance(msgspec.Struct, frozen=True):
    """How far the tiers are from their targets, and how many pods were skipped."""

    pods: int
    targets: dict[str, int]
    assigned: dict[str, int]
    over: dict[str, int]
    under: dict[str, int]
    skipped_busy: int
    skipped_leased: int
    skipped_draining: int
    missing: int

    @property
    def can_move(self) -> bool:
        """Whether there are tiers to take pods from and tiers to move them to."""
        return bool(self.over and self.under)


def decide(policy: TierPolicy, observation: Observation) -> Decided[TierBalance]:
    """Return the moves, in order, and the balance of the tiers before them."""
    targets = {name: policy.tiers[name].target for name in policy.chain}
    assigned = {tier.name: len(tier.pods) for tier in observation.tiers}
    diffs = {name: count - targets[name] for name, count in assigned.items()}
    over = {name: diff for name, diff in diffs.items() if diff > 0}
    under = {name: -diff for name, diff in diffs.items() if diff < 0}
    skipped: Counter[Activity] = Counter()
    moves = tuple(_moves(observation, over, under, skipped)) if over and under else ()
    pods = sum(assigned.values())
    balance = TierBalance(
        pods=pods,
        targets=targets,
        assigned=assigned,
        over=over,
        under=under,
        skipped_busy=skipped[Activity.BUSY],
        skipped_leased=skipped[Activity.LEASED],
        skipped_draining=skipped[Activity.DRAINING],
        missing=max(0, policy.pods_targeted - pods),
    )
    taken, given = Counter(move.source for move in moves), Counter(move.destination for move in moves)
    assert taken <= Counter(over), "no tier gives more pods than it has over its target"
    assert given <= Counter(under), "no tier gets more pods than it has under its target"
    code, sentence = _explain(balance, moves)
    if balance.missing:
        sentence += f" The targets require {print_count(balance.missing, 'more pod')} than exist."
    return Decided(Decision(observation.subject, Reason.of(code, sentence, balance), moves), balance)


def _moves(
    observation: Observation, over: dict[str, int], under: dict[str, int], skipped: Counter[Activity]
) -> Iterator[MovePod]:
    needs = dict(under)
    for tier in observation.tiers:
        excess = over.get(tier.name, 0)
        for pod in tier.pods:
            destination = next((name for name, needed in needs.items() if needed), None)
            if not excess or destination is None:
                break
            skipped[pod.activity] += 1
            if pod.activity is Activity.IDLE:
                yield MovePod(pod.name, tier.name, destination, uid=pod.uid)
                excess -= 1
                needs[destination] -= 1


def busy_excess(policy: TierPolicy, observation: Observation) -> Iterator[tuple[PodInTier, str, str]]:
    """Yield busy pods to mark for a move, with source and destination, where idle pods do not suffice."""
    decision, balance = decide(policy, observation)
    over, needs = Counter(balance.over), Counter(balance.under)
    for move in moves_of(decision):
        over[move.source] -= 1
        needs[move.destination] -= 1
    for tier in observation.tiers:
        for pod in tier.pods:
            destination = next((name for name in needs if needs[name] > 0), None)
            if over[tier.name] <= 0 or destination is None:
                break
            if pod.activity in {Activity.BUSY, Activity.LEASED}:
                yield pod, tier.name, destination
                over[tier.name] -= 1
                needs[destination] -= 1


def moves_of(decision: Decision) -> list[MovePod]:
    return [action for action in decision.actions if isinstance(action, MovePod)]


def _explain(balance: TierBalance, moves: tuple[MovePod, ...]) -> tuple[Code, str]:
    over, under = _by_tier(balance.over, "more"), _by_tier(balance.under, "fewer")
    if not balance.over and not balance.under:
        return Code.BALANCED, "Every tier has as many pods as its target."
    if not balance.under:
        return Code.NOWHERE_TO_MOVE, f"{over}. No tier has fewer, so no pod moves."
    if not balance.over:
        return Code.NOTHING_TO_TAKE, f"{under}. No tier has more, so no pod can move."
    targets = f"{over}; {under}."
    if not moves:
        of = print_list(balance.over)
        return Code.ALL_BUSY, f"{targets} No pod moves because all pods of {of} are busy, leased or draining."
    return (
        Code.REBALANCE,
        f"{targets} {print_count(len(moves), 'pod')} {'moves' if len(moves) == 1 else 'move'}.",
    )


def _by_tier(tiers: dict[str, int], side: str) -> str:
    """Return how far tiers are from their targets: `gold has 2 pods more than its target`."""
    return print_list(
        f"{name} has {print_count(pods, 'pod')} {side} than its target" for name, pods in tiers.items()
    )


class LeavingPod(msgspec.Struct, frozen=True):
    """A pod that a smaller StatefulSet deletes."""

    pod: str
    tier: str
    state: Activity


class PlanAfter(msgspec.Struct, frozen=True):
    """The decision for the remaining pods."""

    reason: Code
    sentence: str
    actions: tuple[Action, ...]


class ScaleDown(msgspec.Struct, frozen=True):
    """The pods that a scale-down deletes; by name those with calls, and those to drain."""

    replicas: int
    leaving: list[LeavingPod]
    busy: list[str]
    drain: list[str]
    after: PlanAfter


def plan_scale_down(policy: TierPolicy, observation: Observation, replicas: int) -> Decided[ScaleDown]:
    """Return the current decision, with the pods that a scale-down deletes and the decision after it.

    A StatefulSet deletes its highest ordinals, busy or not, so those with calls are named.
    """
    now, _ = decide(policy, observation)
    leaving = [
        LeavingPod(pod.name, tier.name, pod.activity)
        for tier in observation.tiers
        for pod in tier.pods
        if (ordinal_of(pod.name) or 0) >= replicas
    ]
    names = {each.pod for each in leaving}
    stays = tuple(
        TierPods(tier.name, tuple(pod for pod in tier.pods if pod.name not in names))
        for tier in observation.tiers
    )
    after, _ = decide(policy, Observation(observation.subject, stays))
    details = ScaleDown(
        replicas=replicas,
        leaving=leaving,
        busy=[each.pod for each in leaving if each.state in {Activity.BUSY, Activity.LEASED}],
        drain=[each.pod for each in leaving if each.state is not Activity.DRAINING],
        after=PlanAfter(after.reason.code, after.reason.sentence, after.actions),
    )
    return Decided(msgspec.structs.replace(now, extra=msgspec.to_builtins(details)), details)
