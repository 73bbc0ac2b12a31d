"""The rebalancing plan: the seed's examples, every reason, and properties that always hold."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.decision import MovePod, plan_document
from equipoise.core.pools import by_ordinal
from equipoise.pools.decide import busy_excess, decide, plan_scale_down
from equipoise.pools.observe import Activity, Observation, PodInTier, TierPods
from equipoise.pools.policy import TierPolicy, policy_from
from tests.support.pools.worlds import WALK_THROUGH, config


def _policy(**targets: int) -> TierPolicy:
    return policy_from(config(**targets), "test")


def _seen(tiers: Mapping[str, str], stays: Mapping[str, Activity] | None = None) -> Observation:
    return Observation(
        "voice",
        tuple(
            TierPods(
                name,
                tuple(
                    PodInTier(pod, (stays or {}).get(pod, Activity.IDLE))
                    for pod in sorted(pods.split(), key=by_ordinal)
                ),
            )
            for name, pods in tiers.items()
        ),
    )


SEED = {name: " ".join(pods) for name, pods in WALK_THROUGH.items()}


def test_the_seeds_walk_through_moves_agent_2() -> None:
    """Basic is over by one, gold is under by one, and agent-2 is the first of basic."""
    decision = decide(_policy(gold=4, standard=3, basic=2), _seen(SEED)).decision
    assert plan_document("pools", [decision])["decisions"][0]["actions"] == [
        {"kind": "MovePod", "pod": "agent-2", "from": "basic", "to": "gold"}
    ]
    assert decision.reason.code == "Rebalance"
    assert decision.reason.numbers["over"] == {"basic": 1}
    assert decision.reason.numbers["under"] == {"gold": 1}


@pytest.mark.parametrize("activity", [Activity.BUSY, Activity.LEASED, Activity.DRAINING])
def test_nothing_moves_while_all_are_busy(activity: Activity) -> None:
    """The next cycle tries again."""
    stays = dict.fromkeys(WALK_THROUGH["basic"], activity)
    decision = decide(_policy(gold=4, standard=3, basic=2), _seen(SEED, stays)).decision
    assert (decision.reason.code, decision.actions) == ("AllBusy", ())
    assert decision.reason.numbers[f"skipped_{activity}"] == 3


def test_nothing_moves_without_a_tier_over_and_a_tier_under() -> None:
    """And it is said which of them is missing."""
    assert decide(_policy(gold=3, standard=3, basic=3), _seen(SEED)).decision.reason.code == "Balanced"
    assert decide(_policy(gold=2, standard=3, basic=3), _seen(SEED)).decision.reason.code == "NowhereToMove"
    short = decide(_policy(gold=5, standard=3, basic=3), _seen(SEED)).decision.reason
    assert (short.code, short.numbers["missing"]) == ("NothingToTake", 2)


def test_pods_go_in_ordinal_order_to_the_first_tier_that_still_needs_one() -> None:
    """agent-2 before agent-10; tiers in the order of the chain; not one more than the excess."""
    policy = _policy(gold=1, standard=1, basic=1)
    decision = decide(
        policy, _seen({"gold": "", "standard": "", "basic": "agent-10 agent-2 agent-1 agent-33"})
    ).decision
    assert [(a.pod, a.destination) for a in decision.actions if isinstance(a, MovePod)] == [
        ("agent-1", "gold"),
        ("agent-2", "standard"),
    ]


def test_busy_pods_are_marked_only_where_idle_ones_do_not_suffice() -> None:
    """A mark is a promise for later; an idle pod goes now."""
    policy = _policy(gold=2, basic=1)
    seen = _seen({"gold": "", "basic": "a-0 a-1 a-3"}, {"a-1": Activity.BUSY, "a-3": Activity.DRAINING})
    assert [(pod.name, to) for pod, _, to in busy_excess(policy, seen)] == [("a-1", "gold")]
    assert list(busy_excess(policy, _seen({"gold": "", "basic": "a-0 a-1 a-3"}))) == []


def test_a_scale_down_names_who_leaves_and_what_is_left_to_move() -> None:
    """The highest ordinals go, busy or not."""
    policy = _policy(gold=2, basic=2)
    seen = _seen({"gold": "a-4 a-5", "basic": "a-0 a-1 a-2 a-3"}, {"a-5": Activity.LEASED})
    decision, details = plan_scale_down(policy, seen, 4)
    assert decision.reason.code == "NowhereToMove"
    assert decision.extra == msgspec.to_builtins(details)
    assert [pod.pod for pod in details.leaving] == ["a-4", "a-5"]
    assert details.busy == ["a-5"]
    after = [(action["pod"], action["to"]) for action in decision.extra["after"]["actions"]]
    assert after == [("a-0", "gold"), ("a-1", "gold")]


TIERS = ("gold", "standard", "basic", "economy")
worlds = st.fixed_dictionaries(
    {
        "targets": st.tuples(*[st.integers(0, 5)] * len(TIERS)),
        "homes": st.lists(st.sampled_from(TIERS), max_size=14),
        "stays": st.lists(st.sampled_from(list(Activity)), min_size=14, max_size=14),
    }
)


@given(worlds)
def test_a_plan_never_overshoots_and_never_touches_who_must_stay(world: dict[str, list[str]]) -> None:
    """Whatever the pools are: counts come closer to targets, and nobody moves twice."""
    targets = dict(zip(TIERS, world["targets"], strict=True))
    policy = policy_from(config(**{tier: int(target) for tier, target in targets.items()}), "test")
    pods = {f"a-{number}": home for number, home in enumerate(world["homes"])}
    stays = {pod: Activity(activity) for pod, activity in zip(pods, world["stays"], strict=False)}
    tiers = {tier: " ".join(pod for pod in pods if pods[pod] == tier) for tier in TIERS}
    seen = _seen(tiers, stays)
    decision = decide(policy, seen).decision
    moves = [action for action in decision.actions if isinstance(action, MovePod)]
    assert len({move.pod for move in moves}) == len(moves)
    assert all(stays[move.pod] is Activity.IDLE and pods[move.pod] == move.source for move in moves)
    before = {tier: list(pods.values()).count(tier) for tier in TIERS}
    after = dict(before)
    for move in moves:
        after[move.source] -= 1
        after[move.destination] += 1
    for tier in TIERS:
        target = policy.tiers[tier].target
        assert min(before[tier], target) <= after[tier] <= max(before[tier], target)
    assert bool(moves) == (decision.reason.code == "Rebalance")
    idle_over = any(
        stays[pod] is Activity.IDLE and before[home] > policy.tiers[home].target for pod, home in pods.items()
    )
    needed = any(after[tier] < policy.tiers[tier].target for tier in TIERS)
    if idle_over and any(before[tier] < policy.tiers[tier].target for tier in TIERS):
        assert moves or not needed
    assert decide(policy, _seen(tiers, dict(reversed(stays.items())))).decision == decision
