"""Two balancers with two Leases, an older process of one of them, and agents: one at a time takes a pod."""

from functools import partial
from itertools import pairwise, permutations
from random import Random

import pytest

from equipoise.core.ledger import Entry, EntryState, Fenced, Ledger
from equipoise.engine.guards import OTHERS_SECONDS, RECOVERY_SECONDS, held_by_anyone, held_by_others
from tests.support.guard.two_balancers import NEW, SCALING_EPOCH, Together

NOW = 1_800_000_000.0
STEPS = ("intent", "deed", "outcome")
ACTORS = ("rotation", "old rotation", "proportional", "agent-0", "agent-1")


def _entry(balancer: str, epoch: int = 0, *, at: float = NOW, state: EntryState = EntryState.DONE) -> Entry:
    return Entry(f"{balancer}-{epoch}-{at}", "r", balancer, "EvictPod", "web-1", "u", at, epoch, state)


def _interrupt(scene: Together, where: tuple[str, str], inner: str, came: list[str], *at: str) -> None:
    if at == where and inner not in came:
        came.append(inner)
        scene.act(inner)


@pytest.mark.parametrize(("outer", "inner"), list(permutations(ACTORS, 2)))
def test_whoever_comes_in_the_middle_of_anothers_deed_does_nothing(outer: str, inner: str) -> None:
    """At every step of every one's deed: the pods that are away are never more than one."""
    for step in STEPS:
        scene = Together()
        came: list[str] = []

        scene.on_step = partial(_interrupt, scene, (outer, step), inner, came)
        scene.act(outer)
        scene.rest(60)
        assert came == [inner], "the deed was never done"
        assert scene.most_away == 1
        assert len({entry.uid for entry in scene.entries}) == 1


@pytest.mark.parametrize("seed", range(6))
def test_in_any_order_no_two_pods_of_the_workload_are_ever_away(seed: int) -> None:
    """Hours of turns by chance, each of which may be interrupted by another one's; all get their turn."""
    scene, chance = Together(seed), Random(seed)
    acting: list[str] = []

    def interrupt(who: str, step: str) -> None:
        del step
        others = [name for name in ACTORS if name not in acting and name != who]
        if chance.random() < 0.4 and others:
            turn(chance.choice(others))

    def turn(who: str) -> None:
        acting.append(who)
        scene.act(who)
        acting.remove(who)

    scene.on_step = interrupt
    for number in range(160):
        if number % 20 == 0:
            scene.grow()
        turn(chance.choice(ACTORS))
        scene.rest(chance.uniform(1, 60))
        assert scene.most_away <= 1, (number, [entry.balancer for entry in scene.entries])
    done = sorted(scene.entries, key=lambda entry: entry.at)
    assert {entry.balancer for entry in done} == {"rotation", "proportional", "qos"}
    for before, after in pairwise(done):
        if before.balancer != after.balancer:
            assert after.at - before.at >= OTHERS_SECONDS - 1e-3, (before, after)


def test_one_balancers_epoch_does_not_fence_another() -> None:
    """Each has its own Lease, which counts by itself; an older process of the same balancer is fenced off."""
    ledger = Ledger().with_intent(_entry("proportional", SCALING_EPOCH)).with_intent(_entry("rotation", NEW))
    assert ledger.epochs == {"proportional": SCALING_EPOCH, "rotation": NEW}
    assert ledger.epoch == SCALING_EPOCH
    with pytest.raises(Fenced, match="rotation wrote in epoch 9, but this process leads in epoch 8"):
        ledger.with_intent(_entry("rotation", NEW - 1))
    later = ledger.with_intent(_entry("rotation", NEW, at=NOW + 2 * 86400))
    assert [entry.balancer for entry in later.entries] == ["rotation"]
    with pytest.raises(Fenced):  # also when nothing is left of what the newer one did
        later.with_intent(_entry("proportional", SCALING_EPOCH - 1))
    assert Ledger.from_data(later.to_data()) == later


def test_others_hold_for_a_while_and_what_did_not_happen_holds_nobody() -> None:
    """From the moment of the intent; the sentence says who and when."""
    ledger = Ledger(entries=(_entry("qos", state=EntryState.INTENT),))
    held = held_by_others(ledger, "rotation", NOW + 7)
    assert held is not None
    assert held.sentence.startswith("The balancer qos acted on web-1 of this workload 7s ago (EvictPod)")
    assert held_by_others(ledger, "qos", NOW + 7) is None
    assert held_by_others(ledger, "rotation", NOW + OTHERS_SECONDS) is None
    failed = Ledger(entries=(_entry("qos", state=EntryState.FAILED),))
    assert held_by_others(failed, "rotation", NOW) is None


def test_who_sees_one_node_waits_until_the_workload_is_whole() -> None:
    """An agent does not see the other pods; its own entries do not hold it."""
    entry = _entry("rotation", NEW)
    ledger = Ledger(entries=(entry,))
    late = NOW + OTHERS_SECONDS + 1
    assert held_by_anyone(ledger, (), late, is_whole=True) is None
    assert held_by_anyone(ledger, (), late, is_whole=False) is not None
    assert held_by_anyone(ledger, (entry.id,), late, is_whole=False) is None
    assert held_by_anyone(ledger, (), NOW + RECOVERY_SECONDS, is_whole=False) is None
