"""What holds of every election."""

import random

from equipoise.ports import Leadership
from tests.support.contracts.contract import Contract
from tests.support.contracts.worlds import ElectionWorld

LEADERSHIP: Contract[ElectionWorld] = Contract("Leadership")


def _led(world: ElectionWorld) -> tuple[Leadership, Leadership, int]:
    """Let `a` lead and `b` stand beside; give both and the epoch."""
    a = world.join("a")
    world.pass_seconds(1)
    epoch = a.epoch()
    assert epoch is not None
    b = world.join("b")
    world.pass_seconds(1)
    return a, b, epoch


@LEADERSHIP.fact
def nobody_leads_before_the_first_turn(world: ElectionWorld) -> None:
    """Not knowing is not leading."""
    assert world.join("a").epoch() is None


@LEADERSHIP.fact
def the_first_leads_and_the_second_does_not(world: ElectionWorld) -> None:
    """One leader."""
    a, b, _ = _led(world)
    assert (a.epoch() is None, b.epoch() is None) == (False, True)


@LEADERSHIP.fact
def a_leader_that_renews_keeps_its_epoch(world: ElectionWorld) -> None:
    """For longer than any lease."""
    a, b, epoch = _led(world)
    for _ in range(10):
        world.pass_seconds(world.lease_seconds / 2)
        assert (a.epoch(), b.epoch()) == (epoch, None)


@LEADERSHIP.fact
def a_dead_leader_is_succeeded_in_the_next_epoch(world: ElectionWorld) -> None:
    """Not before its lease is over, and soon after."""
    a, b, epoch = _led(world)
    world.stop("a")
    world.pass_seconds(world.renew_seconds)
    assert b.epoch() is None
    world.pass_seconds(world.lease_seconds)
    assert a.epoch() is None
    assert b.epoch() == epoch + 1


@LEADERSHIP.fact
def a_leader_that_was_stopped_for_long_has_no_epoch_from_the_first_moment(world: ElectionWorld) -> None:
    """Before it has taken any turn, and after it has."""
    a, b, epoch = _led(world)
    world.stop("a")
    world.pass_seconds(world.lease_seconds * 2)
    world.go_on("a")
    assert a.epoch() is None
    world.pass_seconds(world.lease_seconds)
    assert (a.epoch(), b.epoch()) == (None, epoch + 1)


@LEADERSHIP.fact
def a_leader_that_was_stopped_for_a_moment_still_leads(world: ElectionWorld) -> None:
    """Within its belief nothing was lost."""
    a, b, epoch = _led(world)
    world.stop("a")
    world.pass_seconds(world.renew_seconds / 4)
    world.go_on("a")
    assert a.epoch() == epoch
    world.pass_seconds(world.lease_seconds)
    assert (a.epoch(), b.epoch()) == (epoch, None)


@LEADERSHIP.fact
def a_leader_that_is_cut_off_stops_believing_before_another_begins(world: ElectionWorld) -> None:
    """It runs, it asks, and it knows that it does not know."""
    a, b, epoch = _led(world)
    world.cut_off("a")
    world.pass_seconds(world.renew_seconds)
    assert (a.epoch(), b.epoch()) == (None, None)
    world.pass_seconds(world.lease_seconds)
    assert (a.epoch(), b.epoch()) == (None, epoch + 1)
    world.reconnect("a")
    world.pass_seconds(world.lease_seconds)
    assert (a.epoch(), b.epoch()) == (None, epoch + 1)


@LEADERSHIP.fact
def a_lapse_of_our_own_begins_a_new_epoch(world: ElectionWorld) -> None:
    """Nobody else led, and yet what was begun before is not of now."""
    a = world.join("a")
    world.pass_seconds(1)
    epoch = a.epoch()
    assert epoch is not None
    world.cut_off("a")
    world.pass_seconds(world.renew_seconds)
    assert a.epoch() is None
    world.reconnect("a")
    world.pass_seconds(world.retry_seconds)
    assert a.epoch() == epoch + 1


@LEADERSHIP.fact
def a_polite_leader_hands_over_at_once(world: ElectionWorld) -> None:
    """Without anyone waiting for the lease to end, in the next epoch."""
    a, b, epoch = _led(world)
    world.release("a")
    assert a.epoch() is None
    world.pass_seconds(world.retry_seconds)
    assert b.epoch() == epoch + 1


@LEADERSHIP.fact
def two_never_lead_at_one_moment_and_epochs_only_grow(world: ElectionWorld) -> None:
    """Three processes that are stopped, cut off and mended by chance, looked at twice a second."""
    chance = random.Random(7)
    names = ("a", "b", "c")
    members = {name: world.join(name) for name in names}
    highest, leaders = 0, set()
    for _ in range(1200):
        if chance.random() < 0.1:
            mend, harm = (world.go_on, world.reconnect), (world.stop, world.cut_off)
            chance.choice(mend * 3 + harm)(chance.choice(names))
        world.pass_seconds(0.5)
        leading = {name: epoch for name, m in members.items() if (epoch := m.epoch()) is not None}
        assert len(leading) <= 1, leading
        for name, epoch in leading.items():
            assert epoch >= highest, (name, epoch, highest)
            highest = epoch
            leaders.add((name, epoch))
    assert len(leaders) > 8
    assert len({epoch for _, epoch in leaders}) == len(leaders)
