"""One look may be a spike: streaks, and what they hold."""

from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.decision import Decision, EvictPod
from equipoise.core.ledger import GUEST_EPOCH
from equipoise.core.reason import Code, Reason
from equipoise.engine.executor import LeaselessLeadership
from equipoise.engine.guards import count_streaks, held_by_leader, hold_spikes

PLAN = Decision(
    "shop/web",
    Reason(Code.ROTATE, "Do."),
    tuple(EvictPod(name, "shop", f"u-{name}") for name in "abfe"),
)


def test_a_streak_grows_and_whoever_was_not_hot_begins_anew() -> None:
    """Absence for one look is the end of it."""
    streaks = count_streaks({}, ["u-a", "u-b"])
    streaks = count_streaks(streaks, ["u-a"])
    assert streaks == {"u-a": 2}
    assert count_streaks(streaks, ["u-a", "u-b"]) == {"u-a": 3, "u-b": 1}
    assert count_streaks(streaks, []) == {}


def test_the_first_hot_pod_that_is_new_holds_those_behind_it() -> None:
    """The order of execution is kept, and the cold ones wait for the hot."""
    held = hold_spikes(PLAN, {"u-a": 3, "u-b": 2}, 3)
    assert [action.pod for action in held.actions] == ["a"]
    assert held.reason.code is Code.ROTATE
    assert [(part.action.pod, part.reason) for part in held.held] == [
        (name, Code.HELD_BY_THRESHOLD) for name in "bfe"
    ]
    assert held.held[0].sentence == "b has been hot for 2 cycles in a row; 3 are required."


def test_a_spike_holds_everything_and_says_how_far_it_is() -> None:
    """All actions held: the reason is the guard's, with its numbers."""
    held = hold_spikes(PLAN, {"u-a": 1, "u-b": 3}, 3)
    assert held.actions == ()
    assert held.reason.code is Code.HELD_BY_THRESHOLD
    assert held.reason.numbers == {"hot_cycles": 1, "debounce_cycles": 3}


@given(st.dictionaries(st.sampled_from(["u-a", "u-b"]), st.integers(1, 6)), st.integers(1, 5))
def test_what_goes_has_been_hot_for_long_enough(streaks: dict[str, int], cycles_min: int) -> None:
    """For every streak: what is left is a prefix without a spike, and nothing is lost."""
    held = hold_spikes(PLAN, streaks, cycles_min)
    assert all(streaks.get(action.uid, cycles_min) >= cycles_min for action in held.actions)
    assert (*held.actions, *(part.action for part in held.held)) == PLAN.actions
    if all(count >= cycles_min for count in streaks.values()):
        assert held == PLAN


def test_a_guests_turn_is_over_when_its_look_is_old() -> None:
    """A command that was stopped between look and deed wakes up without the right to act."""
    now = [100.0]
    guest = LeaselessLeadership(lambda: now[0], valid_seconds=20.0)
    assert guest.epoch() == GUEST_EPOCH
    assert held_by_leader(guest) is None
    now[0] = 119.9
    assert guest.epoch() == GUEST_EPOCH
    now[0] = 120.0
    assert guest.epoch() is None
    reason = held_by_leader(guest)
    assert reason is not None
    assert reason.code is Code.HELD_BY_LEADER
    guest.renew()
    assert guest.epoch() == GUEST_EPOCH
