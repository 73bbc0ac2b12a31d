"""Neighbours that fail in the middle: late, silent, forgetful, in conflict; the bounds hold all the same."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code
from equipoise.sim.faults import FaultKind
from tests.support.rotation.running import Killed, Run, run_in
from tests.support.sim.scenes import six_pods

POLICY: dict[str, Any] = {"cooldown": "5m", "rotationsPerHour": 4}
FAULTS: dict[FaultKind, float] = {
    FaultKind.API_UNAVAILABLE: 0.0,
    FaultKind.EVICTION_ANSWER_LOST: 0.0,
    FaultKind.WATCH_LAG: 75.0,
    FaultKind.METRICS_OUTAGE: 0.0,
    FaultKind.METRICS_GAP: 0.0,
    FaultKind.METRICS_NAN: 0.0,
    FaultKind.METRICS_STALE: 90.0,
    FaultKind.METRICS_LATE: 8.0,
    FaultKind.STORE_UNAVAILABLE: 0.0,
    FaultKind.STORE_CONFLICT: 0.0,
    FaultKind.STORE_ANSWER_LOST: 0.0,
}


def _bursts(run: Run, chance: Random, kinds: list[FaultKind], seconds: float) -> None:
    """Let each kind happen again and again, for a while each."""
    for kind in kinds:
        at = run.world.now + chance.uniform(0, 300)
        while at < run.world.now + seconds:
            lasts = chance.uniform(20, 240)
            run.world.faults.add(kind, seconds=lasts, starts_at=at, value=FAULTS[kind])
            at += lasts + chance.uniform(120, 600)


def _go(run: Run, cycles: int) -> int:
    """Do so many cycles as the operator does: one that fails is one that is tried again."""
    failed = 0
    for _ in range(cycles):
        try:
            run.cycle()
        except WorldFailed:
            failed += 1
        run.rest()
    return failed


def _check(run: Run) -> None:
    assert run.fewest >= 5
    assert len(run.evictions) == len(set(run.evictions))
    gone = [entry.uid for entry in run.gone]
    assert len(gone) == len(set(gone)) >= len(run.evictions)
    for name, entries in run.rounds.items():
        assert len(entries) <= run.planned.get(name, 4)
    rounds = list(run.rounds.values())
    assert all(later[0].at - earlier[-1].at >= 300 for earlier, later in pairwise(rounds))
    begins = [entries[0].at for entries in rounds]
    assert all(sum(at - 3600 < other <= at for other in begins) <= 4 for at in begins)


@pytest.mark.parametrize(("seed", "kind"), list(enumerate(FAULTS)))
def test_no_fault_breaks_a_bound(seed: int, kind: FaultKind) -> None:
    """Two hours with bursts of one kind: nobody twice, one at a time, budgets kept; and it goes on."""
    run = run_in(six_pods(seed), POLICY)
    _bursts(run, Random(seed), [kind], 7200)
    _go(run, 240)
    run.rest(300)
    _check(run)
    assert len(run.evictions) >= 2


@pytest.mark.parametrize("seed", range(4))
def test_all_faults_together_break_no_bound_and_neither_do_dying_leaders(seed: int) -> None:
    """Leaders die at random steps, successors come, everything fails at times; what was begun is ended."""
    chance = Random(seed)
    run = run_in(six_pods(seed), POLICY)
    _bursts(run, chance, chance.sample(list(FAULTS), 5), 7200)

    def die(step: str) -> None:
        del step
        if chance.random() < 0.2:
            raise Killed

    for epoch in range(1, 9):
        run.start(epoch, on_step=die)
        try:
            _go(run, 30)
        except Killed:
            run.rest()
    run.start(9)
    for _ in range(150):
        _go(run, 1)
    _check(run)
    assert run.memory.run is None or run.world.now - run.memory.run.wave_at < 3700
    assert run.reports[-1].decisions[0].reason.code in Code


def test_a_lost_answer_of_the_store_leaves_an_intent_that_time_settles() -> None:
    """The intent was written and nobody heard: nothing was sent, and two minutes later it is given back."""
    scene = six_pods(1)
    run = run_in(scene, POLICY)
    scene.world.faults.add(FaultKind.STORE_ANSWER_LOST, seconds=5)
    run.cycle()
    assert [outcome.result for outcome in run.reports[-1].outcomes] == ["Fenced"]
    assert run.evictions == []
    run.rest(150)
    run.cycle()
    assert [entry.state.value for entry in run.ledger.entries] == ["Failed", "Done"]


def test_no_event_is_told_twice() -> None:
    """A rotation's end and a changed reason at once are one event."""
    run = run_in(six_pods(1), POLICY)
    _go(run, 240)
    events = [(event.at, event.about, event.reason, event.sentence) for event in run.world.actuator.events]
    assert len(events) == len(set(events))
