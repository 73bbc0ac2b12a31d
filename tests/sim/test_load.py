"""Demand over time, and who gets which part of it."""

import math
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.sim.experiment import CAUSES
from equipoise.sim.load import Constant, Diurnal, Partitions, Sharing, StickyConnections
from tests.support.sim.scenes import Ramp, Spike, Trace


def test_shapes_are_what_they_say() -> None:
    """At their corners."""
    assert Constant(3).cores(7) == 3
    wave = Diurnal(4, 1, peak_second=3600)
    assert wave.cores(3600) == wave.cores(86400 + 3600) == 5
    assert wave.cores(3600 + 43200) == pytest.approx(3)
    assert Diurnal(1, 5, 0).cores(43200) == 0
    ramp = Ramp(1, 3, 100, 200)
    assert [ramp.cores(at) for at in (0, 100, 150, 200, 300)] == [1, 1, 2, 3, 3]
    spike = Spike(1, 9, 100, 10)
    assert [spike.cores(at) for at in (99, 100, 109, 110)] == [1, 9, 9, 1]


def test_a_recorded_trace_holds_each_value_until_the_next() -> None:
    """The first one holds before its time too."""
    trace = Trace((100, 160, 220), (1.5, 2, 0))
    assert [trace.cores(at) for at in (0, 100, 159, 160, 219, 220, 999)] == [1.5, 1.5, 1.5, 2, 2, 0, 0]


_STEPS = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "wait"]), st.integers(0, 10**6)), min_size=1, max_size=25
)


@given(st.sampled_from(sorted(CAUSES)), st.integers(0, 2**32 - 1), _STEPS)
def test_the_shares_of_those_who_serve_always_add_up(
    cause: str, seed: int, steps: Sequence[tuple[str, int]]
) -> None:
    """Whoever comes and goes: exactly the members have a share, none negative, together 1."""
    sharing = CAUSES[cause](seed)
    sharing.begin(Random(seed))
    members: list[str] = []
    for step, number in steps:
        if step == "join":
            members.append(f"pod-{len(members)}-{number}-{seed}-{len(steps)}")
            members = list(dict.fromkeys(members))
        elif step == "leave" and members:
            members.pop(number % len(members))
        sharing.settle(tuple(members), 4)
        sharing.drift(number % 1000)
        shares = sharing.shares() if members else {}
        assert set(shares) == set(members)
        assert all(share >= 0 for share in shares.values())
        if members:
            assert math.fsum(shares.values()) == pytest.approx(1)


def settled(make: Callable[[], Sharing], members: Sequence[str]) -> Sharing:
    sharing = make()
    sharing.begin(Random(5))
    for count in range(1, len(members) + 1):
        sharing.settle(members[:count], len(members))
    return sharing


SIX = tuple("abcdef")


def test_key_skew_follows_the_key_not_the_pod() -> None:
    """Sticky: the replacement takes exactly what its predecessor had."""
    sharing = settled(lambda: Partitions([6, 5, 4, 3, 2, 1]), SIX)
    before = sharing.shares()
    hottest = max(before, key=before.__getitem__)
    rest = tuple(member for member in SIX if member != hottest)
    sharing.settle((*rest, "new"), 6)
    after = sharing.shares()
    assert after["new"] == before[hottest]
    assert all(after[member] == before[member] for member in rest)


def test_stale_counts_are_healed_by_one_replacement() -> None:
    """Unequal at first; equal after any change of members."""
    sharing = settled(lambda: Partitions.stale(24), SIX)
    assert max(sharing.shares().values()) > 4.5 / 24
    sharing.settle((*SIX[1:], "new"), 6)
    assert sharing.shares() == pytest.approx(dict.fromkeys((*SIX[1:], "new"), 4 / 24))


def test_partitions_move_as_little_as_they_can() -> None:
    """Counts stay within one of each other, and who keeps serving keeps what fits."""
    sharing = settled(lambda: Partitions.skewed(3, 64), SIX)
    kept = dict(enumerate(sharing._owners)) if isinstance(sharing, Partitions) else {}
    sharing.settle(SIX[:5], 5)
    assert isinstance(sharing, Partitions)
    counts = [sharing._owners.count(member) for member in SIX[:5]]
    assert max(counts) - min(counts) <= 1
    moved = sum(owner != kept[number] for number, owner in enumerate(sharing._owners))
    assert moved == list(kept.values()).count("f")


def test_new_pods_get_few_long_lived_connections_until_others_are_renewed() -> None:
    """None at all at first; their part comes with time."""
    sharing = settled(lambda: StickyConnections(600, renewed_per_second=1.0), SIX[:2])
    sharing.settle(SIX[:3], 3)
    assert sharing.shares()["c"] == 0
    for _ in range(200):
        sharing.drift(15)
    assert sharing.shares()["c"] == pytest.approx(1 / 3, abs=0.1)


def test_the_connections_of_a_dead_pod_go_to_the_others() -> None:
    """At once, and none is lost."""
    sharing = settled(lambda: StickyConnections(600), SIX[:1])
    sharing.settle(("b", "c"), 2)
    shares = sharing.shares()
    assert sum(shares.values()) == 1
    assert shares["b"] == pytest.approx(0.5, abs=0.1)
