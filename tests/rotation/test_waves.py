"""Rotations in small simulated worlds, of every cause: what is never broken, and what comes of each wave."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from equipoise.core.decision import Record
from equipoise.core.reason import Code
from equipoise.rotation.balancer import redecide
from equipoise.rotation.policy import RotationPolicyStatus
from equipoise.sim.experiment import IMBALANCES, unbalanced
from equipoise.sim.faults import FaultKind
from equipoise.sim.load import Constant, Partitions
from equipoise.sim.state import WorkloadState
from equipoise.sim.world import World
from tests.support.rotation.running import Killed, Run, run_in
from tests.support.rotation.tenants import ENFORCE, Diary, Policies, loop_in
from tests.support.sim.scenes import SIX_LOADS, six_pods

SEEDS = range(2)
COOLDOWN_SECONDS = 600.0
BRISK: dict[str, Any] = {"cooldown": "10m", "rotationsPerHour": 3}


def _free(seed: int) -> tuple[World, WorkloadState]:
    """The example's pods without a budget of Kubernetes' own."""
    world = World(seed)
    for number in range(3):
        world.add_node(f"node-{number}")
    workload = world.add_workload(
        "shop", "web", replicas=6, shape=Constant(sum(SIX_LOADS)), sharing=Partitions(SIX_LOADS)
    )
    world.add_hpa(workload, replicas_min=6, replicas_max=12)
    world.advance(1200)
    return world, workload


def _check(run: Run, unavailable_max: int, rounds_max: int) -> None:
    """What holds after any run, whatever happened in it."""
    assert run.fewest >= run.workload.replicas - unavailable_max
    assert len(run.evictions) == len(set(run.evictions)) <= len(run.gone)
    for name, entries in run.rounds.items():
        assert len(entries) <= run.planned[name]
        waves = sorted({entry.at for entry in entries})
        assert all(later - earlier >= 300 for earlier, later in pairwise(waves))
        assert all(sum(entry.at == at for entry in entries) <= unavailable_max for at in waves)
    times = [(entries[0].at, entries[-1].at) for entries in run.rounds.values()]
    assert all(begin - end >= COOLDOWN_SECONDS for (_, end), (begin, _) in pairwise(times))
    begins = [begin for begin, _ in times]
    assert all(sum(at - 3600 < other <= at for other in begins) <= rounds_max for at in begins)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cause", ["example", *IMBALANCES])
def test_hours_keep_every_bound(cause: str, seed: int) -> None:
    """Whole but for one pod, never more than planned, cooldown and budget kept; and every record replays."""
    scene: Any = six_pods(seed) if cause == "example" else unbalanced(seed, cause)
    run = run_in(scene, BRISK, is_debounced=True)
    run.run(200)
    _check(run, 1, 3)
    assert len(run.verdicts) >= len(run.rounds) - 1
    assert [entry.state for entry in run.ledger.entries] == ["Done"] * len(run.ledger.entries)
    for kept in run.diary.records:
        assert redecide(Record.from_json(kept.to_json())) == kept.decision
    RotationPolicyStatus.model_validate(run.policies.status())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("unavailable_max", [2, 3, 6])
def test_a_wave_takes_as_many_as_may_be_away(seed: int, unavailable_max: int) -> None:
    """Without a budget of Kubernetes' own, `maxUnavailable` is the bound of a wave of four."""
    world, workload = _free(seed)
    run = Run(world, workload, BRISK | {"maxUnavailable": unavailable_max})
    run.run(60)
    _check(run, unavailable_max, 3)
    first = next(iter(run.rounds.values()))
    sizes = [sum(entry.at == at for entry in first) for at in sorted({entry.at for entry in first})]
    assert sizes[0] == min(unavailable_max, 4)
    assert sum(sizes) <= 4


def test_waves_follow_each_other_without_a_cooldown_and_rotations_do_not() -> None:
    """A cooldown of two hours holds the next rotation, and none of the four waves of this one."""
    run = run_in(six_pods(1), {"cooldown": "2h"})
    run.run(200)
    (entries,) = run.rounds.values()
    assert len(entries) == 4
    assert entries[-1].at - entries[0].at < 3600
    (verdict,) = run.verdicts
    assert (verdict["ending"], verdict["waves"], verdict["evicted"]) == ("UsedUp", 4, 4)


def test_an_hours_budget_is_of_rotations_and_not_of_waves() -> None:
    """One rotation an hour has all its waves; the next begins when the last wave is an hour ago."""
    run = run_in(six_pods(1), {"cooldown": "0s", "rotationsPerHour": 1})
    decisions = run.run(230)
    first, second, *_ = run.rounds.values()
    assert len(first) == 4
    assert second[0].at - first[-1].at >= 3600
    assert Code.HELD_BY_BUDGET in {decision.reason.code for decision in decisions}


def test_a_rotation_that_helps_is_balanced_and_says_so_everywhere() -> None:
    """Status, events of workload and pod, numbers for the meters: predicted and realised side by side."""
    scene = unbalanced(0, "stale counts")
    run = run_in(scene, is_debounced=True)
    run.run(30)
    (verdict,) = run.verdicts
    assert verdict["ending"] == "NothingLeft"
    assert verdict["realisedPercent"] > 10
    status = run.policies.status()
    assert status["realisedImprovementPercent"] == round(verdict["realisedPercent"], 2)
    assert status["predictedImprovementPercent"] == round(verdict["predictedPercent"], 2)
    assert status["rotatedAt"].endswith("Z")
    events = scene.world.actuator.events
    (entry,) = run.gone
    sent = [event for event in events if event.sentence.startswith(f"Evicted {entry.pod}. ")]
    assert [event.about.kind for event in sent] == ["Deployment", "Pod"]
    assert sent[1].about.uid == entry.uid
    assert {event.reason for event in sent} == {"Rotate"}
    assert not any(event.is_warning for event in sent)
    (over,) = [
        event for event in events if event.sentence.startswith("The rotation of 1 pod in 1 wave ended")
    ]
    assert over.about.kind == "Deployment"
    numbers = run.reports[-1].decisions[0].reason.numbers
    assert numbers["realised_improvement_percent"] == verdict["realisedPercent"]
    RotationPolicyStatus.model_validate(status)


def test_three_failures_are_futile_and_nobody_goes_for_an_hour() -> None:
    """The load follows its partition: three rotations, an hour of nothing, and one more try."""
    run = run_in(six_pods(2), {"cooldown": "1m", "rotationsPerHour": 10, "topK": 1})
    for _ in range(400):
        decision = run.cycle()
        run.rest()
        if decision.reason.code is Code.FUTILE:
            break
    assert len(run.rounds) == 3
    assert [verdict.get("realisedPercent", 0) < 10 for verdict in run.verdicts] == [True] * 3
    began = run.memory.futile_until
    assert began is not None
    quiet = run.run(115)
    assert len(run.rounds) == 3
    assert {decision.reason.code for decision in quiet} <= {Code.FUTILE, Code.NO_HOT_PODS}
    run.run(60)
    assert len(run.rounds) == 4
    fourth = list(run.rounds.values())[3]
    assert fourth[0].at >= began
    assert run.memory.failures == 4
    assert run.memory.futile_until == pytest.approx(run.verdicts[-1]["endedAt"] + 7200)


def test_three_cycles_in_a_row_come_before_the_first_eviction_and_none_before_the_next_wave() -> None:
    """Debounce is for the first; the reason counts."""
    run = run_in(six_pods(1), is_debounced=True)
    first, second, third = run.run(3)
    assert [first.reason.code, second.reason.code] == [Code.HELD_BY_THRESHOLD] * 2
    assert first.reason.sentence.endswith("has been hot for 1 cycle in a row; 3 are required.")
    assert third.reason.code is Code.ROTATE
    assert len(run.gone) == 1
    run.until_evicted(2)
    told = [report.decisions[0].reason.code for report in run.reports]
    assert told.count(Code.HELD_BY_THRESHOLD) == 2


def test_a_new_leader_in_the_middle_of_a_rotation_does_not_wait_for_a_streak() -> None:
    """The pods were hot for long enough when it began; the next wave waits for its measurement only."""
    run = run_in(six_pods(1), is_debounced=True)
    run.until_evicted(1)
    run.rest(400)
    run.start(2, is_debounced=True)
    assert run.cycle().reason.code is Code.ROTATE
    assert len(run.gone) == 2


def test_a_look_without_a_hot_pod_begins_the_count_anew() -> None:
    """Lost metrics are no hot pod."""
    scene = six_pods(1)
    run = run_in(scene, is_debounced=True)
    run.run(2)
    scene.world.faults.add(FaultKind.METRICS_GAP, seconds=140, target="shop/web")
    run.rest(130)
    assert run.cycle().reason.code is Code.METRICS_INCOMPLETE
    run.rest(330)
    codes = [decision.reason.code for decision in run.run(3)]
    assert codes == [Code.HELD_BY_THRESHOLD, Code.HELD_BY_THRESHOLD, Code.ROTATE]


@pytest.mark.parametrize("lost_seconds", [150.0, 3600.0], ids=["an outage", "an empty store"])
def test_a_gap_in_the_metrics_delays_the_verdict_and_does_not_change_it(lost_seconds: float) -> None:
    """Lost from before the end of the last wave's window, or everything: unknown, until a window is whole."""
    plain = run_in(six_pods(1), {"cooldown": "2h"})
    plain.run(80)
    run = run_in(six_pods(1), {"cooldown": "2h"})
    run.until_evicted(4)
    lost_until = run.world.now + 200
    run.world.faults.add(
        FaultKind.METRICS_GAP, seconds=lost_seconds, starts_at=lost_until - lost_seconds, target="shop/web"
    )
    decisions = run.run(60)
    assert Code.METRICS_INCOMPLETE in {decision.reason.code for decision in decisions}
    (verdict,), (expected,) = run.verdicts, plain.verdicts
    assert verdict["ending"] == expected["ending"] == "UsedUp"
    assert verdict["realisedPercent"] == pytest.approx(expected["realisedPercent"], abs=2)
    assert verdict["endedAt"] >= expected["endedAt"]
    if lost_seconds > 300:
        assert verdict["endedAt"] >= lost_until + 0.7 * 300


@pytest.mark.parametrize("is_same_process", [True, False])
def test_whoever_begins_to_lead_begins_to_count(is_same_process: bool) -> None:
    """A new process, or one that did not lead for a cycle."""
    run = run_in(six_pods(1), is_debounced=True)
    run.run(2)
    if is_same_process:
        lease: Any = run.loop.ports.leadership
        lease.held = None
        assert run.loop.cycle(run.world.now).decisions == ()
        lease.held = 3
    else:
        run.start(2, is_debounced=True)
    codes = [decision.reason.code for decision in run.run(3)]
    assert codes == [Code.HELD_BY_THRESHOLD, Code.HELD_BY_THRESHOLD, Code.ROTATE]


@pytest.mark.parametrize("step", ["intent", "deed", "outcome"])
@pytest.mark.parametrize("wave", [1, 2, 3, 4])
def test_wherever_a_leader_dies_its_successor_ends_what_it_began(wave: int, step: str) -> None:
    """At each step of each wave: no pod twice, no budget forgotten, and the verdict is the successor's."""
    run = run_in(six_pods(1), BRISK)
    passed = {"count": 0}

    def die(at_step: str) -> None:
        passed["count"] += at_step == step
        if passed["count"] == wave and at_step == step:
            raise Killed

    run.start(on_step=die)
    with pytest.raises(Killed):
        run.run(200)
    assert run.verdicts == []
    known = run.memory.run
    assert known is not None
    run.planned[known.round] = known.planned
    run.start(2)
    while not run.verdicts:
        run.cycle()
        run.rest()
        assert len(run.reports) < 300
    _check(run, 1, 3)
    (verdict,) = run.verdicts
    if len(run.rounds) == 1:
        assert verdict["evicted"] == len(run.gone) == len(run.evictions)
    assert verdict["ending"] == "UsedUp"


@pytest.mark.parametrize("step", ["intent", "deed"])
def test_a_wave_that_died_before_anything_went_is_given_back(step: str) -> None:
    """After the intent nothing had gone, and two minutes later all is as before; after the deed it counts."""
    run = run_in(six_pods(1), BRISK)

    def die(at_step: str) -> None:
        if at_step == step:
            raise Killed

    run.start(on_step=die)
    with pytest.raises(Killed):
        run.cycle()
    run.start(2)
    run.run(6)
    states = [entry.state.value for entry in run.ledger.entries]
    if step == "intent":
        assert states == ["Failed", "Done"]
        assert len(run.rounds) == 1
    else:
        assert states == ["Done"]


def test_nothing_is_written_while_nothing_changes() -> None:
    """Between two waves, in a cooldown and at rest: no status, no ledger, no event."""
    run = run_in(six_pods(1), {"cooldown": "2h"})
    run.run(100)
    writes, events = run.policies.writes, len(run.world.actuator.events)
    stored = run.world.store.read_all()
    run.run(60)
    codes = {report.decisions[0].reason.code for report in run.reports[-60:]}
    assert codes <= {Code.HELD_BY_COOLDOWN}
    assert (run.policies.writes, len(run.world.actuator.events)) == (writes, events)
    assert run.world.store.read_all() == stored


def test_a_preview_of_hours_writes_no_ledger() -> None:
    """It is asked every guard, and touches nothing but the status."""
    run = run_in(six_pods(1), {"mode": "Preview"}, is_debounced=True)
    decisions = run.run(100)
    assert [decision.reason.code for decision in decisions[:3]] == [Code.HELD_BY_THRESHOLD] * 2 + [
        Code.ROTATE
    ]
    assert run.world.store.read_all() == {}
    assert run.evictions == []
    assert all(not report.outcomes for report in run.reports)
    assert "rotatedAt" not in run.policies.status()


def test_a_longer_sync_period_looks_less_often_and_keeps_what_it_said() -> None:
    """A policy of two minutes under an operator of half a minute: three of four cycles carry the decision."""
    scene = six_pods(1)
    diary = Diary()
    loop = loop_in(scene.world, Policies(ENFORCE | {"mode": "Preview", "syncPeriod": "2m"}), journal=diary)
    for turn in range(8):
        report = loop.cycle(scene.world.now)
        decided, carried = (1, 0) if turn % 4 == 0 else (0, 1)
        assert (len(report.decisions), len(report.carried)) == (decided, carried)
        scene.world.advance(30)
    assert len(diary.records) == 2


def test_a_clock_that_was_set_back_leaves_no_workload_unseen() -> None:
    """An hour back: the next cycle looks, and does not wait for the hour to come again."""
    scene = six_pods(1)
    loop = loop_in(scene.world, Policies(ENFORCE | {"mode": "Preview", "syncPeriod": "10m"}))
    assert len(loop.cycle(scene.world.now).decisions) == 1
    assert len(loop.cycle(scene.world.now - 3600).decisions) == 1
    assert loop.cycle(scene.world.now - 3570).decisions == []


def test_a_changed_policy_is_looked_at_at_once() -> None:
    """Whoever edits a policy does not wait for its period."""
    scene = six_pods(1)
    policies = Policies(ENFORCE | {"mode": "Preview", "syncPeriod": "1h"})
    loop = loop_in(scene.world, policies)
    assert len(loop.cycle(scene.world.now).decisions) == 1
    assert loop.cycle(scene.world.now + 30).decisions == []
    old = policies.objects["policy-0"]
    policies.objects["policy-0"] = replace(old, spec={**old.spec, "topK": 1})
    assert len(loop.cycle(scene.world.now + 60).decisions) == 1
