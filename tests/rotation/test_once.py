"""Rotation by a person's command: a plan changes nothing, and an apply verifies what it began."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from equipoise.core.cluster import WorkloadRef
from equipoise.core.decision import Decision, Record
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import GUEST_EPOCH
from equipoise.core.reason import Code
from equipoise.engine.executor import LeaselessLeadership
from equipoise.engine.isolation import ignore
from equipoise.ports import EvictionResult, Stored
from equipoise.rotation.balancer import redecide
from equipoise.rotation.command import RotateCommand, plan
from equipoise.rotation.policy import RotationPolicy
from equipoise.sim.experiment import unbalanced
from equipoise.sim.faults import FaultKind
from equipoise.sim.world import World
from tests.support.rotation.running import Run, run_in, serving
from tests.support.rotation.tenants import Diary, FrozenPods, NoBudgets, RefusingActuator, ports_in
from tests.support.sim.scenes import SixPods, six_pods


def _plan(scene: SixPods, **changes: Any) -> tuple[Decision, list[str]]:
    world = scene.world
    warned: list[str] = []
    ports = ports_in(world, **changes)
    (decision,) = plan(RotationPolicy(), ports, world.now, "shop", ["web"], warn=warned.append)
    return decision, warned


def test_a_plan_asks_the_server_once_and_changes_nothing() -> None:
    """A dry run for the first pod, arithmetic for the rest; no ledger, no event, no eviction."""
    scene, diary = six_pods(1), Diary()
    decision, warned = _plan(scene, journal=diary)
    assert (decision.reason.code, len(decision.actions), len(decision.held)) == (Code.ROTATE, 1, 3)
    asked = [entry.detail for entry in scene.world.state.history if entry.kind == "EvictionAsked"]
    assert asked == ["Accepted dry=True"]
    assert warned == []
    assert scene.world.store.read_all() == {}
    assert scene.world.actuator.events == []
    (kept,) = diary.records
    assert redecide(Record.from_json(kept.to_json())) == decision


@pytest.mark.parametrize(
    ("result", "code", "words"),
    [
        (EvictionResult.BLOCKED, Code.PDB_BLOCKED, "The API server would refuse"),
        (EvictionResult.REFUSED, Code.PDB_BLOCKED, "The API server would refuse"),
        (EvictionResult.GONE, Code.HELD_BY_HEALTH, "no longer exists"),
    ],
)
def test_what_the_server_would_refuse_is_held(result: EvictionResult, code: Code, words: str) -> None:
    """All of it: what follows waits for the first."""
    scene, diary = six_pods(1), Diary()
    decision, warned = _plan(scene, actuator=RefusingActuator(scene.world, result), journal=diary)
    assert decision.reason.code is code
    assert words in decision.reason.sentence
    assert (decision.actions, len(decision.held), warned) == ((), 4, [])
    assert redecide(diary.records[0]) == decision


def test_without_the_right_to_evict_a_plan_counts_and_says_so() -> None:
    """Arithmetic alone, and a warning."""
    scene = six_pods(1)
    decision, warned = _plan(scene, actuator=RefusingActuator(scene.world, EvictionResult.FORBIDDEN))
    assert decision.reason.code is Code.ROTATE
    assert warned == [
        "the right to evict is missing, so only the status of the PodDisruptionBudgets was used"
    ]


def test_a_plan_knows_of_the_operators_rotation() -> None:
    """The cooldown and the wave under way are in the ledger."""
    scene = six_pods(1)
    run = run_in(scene)
    run.cycle()
    run.rest(200)
    decision, _ = _plan(scene)
    assert decision.actions == ()
    assert decision.reason.numbers["wave"] == 1
    assert decision.reason.numbers["planned"] == 4


def test_a_plan_without_metrics_fails() -> None:
    """Nobody can say what to rotate."""
    scene = six_pods(1)
    scene.world.faults.add(FaultKind.METRICS_OUTAGE, seconds=60)
    with pytest.raises(WorldFailed, match="the CPU usage over 5m is unknown"):
        _plan(scene)


def _command(run: Run, policy: RotationPolicy | None = None) -> tuple[RotateCommand, list[Any]]:
    """A person's command beside the operator of a run."""
    world = run.world
    reported: list[Any] = []
    ports = ports_in(world, new_id=lambda at: f"hand-{at}-{len(reported)}")
    leadership = LeaselessLeadership(lambda: world.now)

    def wait() -> None:
        run.cycle()
        run.rest(15)

    rotating = RotateCommand(
        ports, leadership, policy or RotationPolicy(), "shop", ["web"], wait, report=reported.append
    )
    return rotating, reported


@pytest.mark.parametrize("seed", range(4))
def test_a_command_beside_an_operator_never_takes_one_too_many(seed: int) -> None:
    """Both want the same pods at the same time: one rotation between them, one pod at a time."""
    run = run_in(six_pods(seed), {"cooldown": "30m"})
    rotating, _ = _command(run)
    (done,) = rotating.run(7200)
    assert run.fewest >= 5
    assert len(run.rounds) == 1
    (entries,) = run.rounds.values()
    assert len(entries) == 4
    assert len({entry.uid for entry in entries}) == 4
    assert {entry.epoch for entry in entries} <= {GUEST_EPOCH, 1}
    assert done.decision.reason.code in {Code.ROTATE, Code.HELD_BY_COOLDOWN}
    assert run.memory.last is not None
    assert run.memory.last.evicted == 4


@pytest.mark.parametrize("step", ["intent", "deed", "outcome"])
def test_a_command_that_begins_in_the_middle_of_an_eviction_waits(step: str) -> None:
    """At any step of the operator's, the command's guards see the intent."""
    scene = six_pods(1)
    run = run_in(scene)
    results: list[Any] = []

    def begin(at_step: str) -> None:
        if at_step == step and not results:
            rotating, _ = _command(run)
            rotating._cycle(None)
            results.extend(rotating.results.values())

    run.start(on_step=begin)
    run.cycle()
    (done,) = results
    assert done.outcomes == []
    assert done.last.reason.code in {Code.HELD_BY_COOLDOWN, Code.HELD_BY_HEALTH, Code.NO_HOT_PODS}
    assert len(run.evictions) == 1
    run.rest(120)
    assert run.fewest >= 5


class Stale:
    """A store that was read a moment ago."""

    def __init__(self, world: World) -> None:
        self._inner = world.store
        self._found = world.store.read_all()

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        return self._found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_command_that_looked_before_the_operator_acted_is_fenced() -> None:
    """The compare-and-swap keeps them apart, without a lease."""
    scene = six_pods(1)
    run = run_in(scene)
    rotating, _ = _command(run)
    stale = NoBudgets(FrozenPods(scene.world))
    rotating.rotator.ports = replace(rotating.rotator.ports, store=Stale(scene.world), cluster=stale)
    run.cycle()
    rotating._cycle(None)
    (done,) = rotating.results.values()
    assert [outcome.result for outcome in done.outcomes] == ["Fenced"]
    assert len(run.evictions) == 1
    run.rest(60)
    assert serving(scene.workload) >= 5


def _alone(scene: Any, **changes: Any) -> tuple[RotateCommand, Diary]:
    """A command without an operator."""
    world, diary = scene.world, Diary()
    numbers = iter(range(10**6))
    ports = ports_in(world, journal=diary, new_id=lambda _: f"hand-{next(numbers)}")
    leadership = LeaselessLeadership(lambda: world.now)
    options: dict[str, Any] = {"wait": lambda: world.advance(10), "report": ignore} | changes
    return RotateCommand(ports, leadership, RotationPolicy(), "shop", [], **options), diary


def test_a_command_goes_on_until_its_rotation_is_verified() -> None:
    """It says what went, and what came of it; its records replay."""
    scene = unbalanced(0, "stale counts")
    told: list[str] = []
    rotating, diary = _alone(scene, report=lambda turn: told.append(turn.decision.reason.code.value))
    (done,) = rotating.run(3600)
    assert done.decision.reason.code is Code.ROTATE
    assert [action.pod for action in done.decision.actions] == [done.outcomes[0].action.pod]
    assert [outcome.result for outcome in done.outcomes] == ["Accepted"]
    assert "ended because no pod needs to be rotated any more" in done.decision.reason.sentence
    assert done.decision.reason.numbers["realised_improvement_percent"] > 10
    assert told[0] == "Rotate"
    assert len(told) == len(diary.records)
    for kept in diary.records:
        assert redecide(Record.from_json(kept.to_json())) == kept.decision


def test_a_command_with_nothing_to_do_ends_at_once() -> None:
    """One look; the reason is the algorithm's."""
    scene = six_pods(1, loads=(0.7,) * 6)
    rotating, diary = _alone(scene)
    (done,) = rotating.run(3600)
    assert done.decision.reason.code is Code.NO_HOT_PODS
    assert (done.outcomes, len(diary.records)) == ([], 1)


def test_a_command_that_runs_out_of_time_names_what_is_open() -> None:
    """What was done stays in the ledger, and whoever comes next ends it."""
    scene = six_pods(1)
    rotating, _ = _alone(scene)
    with pytest.raises(
        WorldFailed, match=r"shop/web: the rotation did not end within 10m \(HeldBy.+\); run `equipoise"
    ):
        rotating.run(600)
    run = run_in(scene, {"cooldown": "2h"})
    assert run.memory.run is not None
    run.run(120)
    (verdict,) = run.verdicts
    assert verdict["evicted"] == 4


def test_the_verdict_on_an_earlier_rotation_is_not_told_of_this_one() -> None:
    """Stopped after its first wave, it is not verified, however the one before it ended."""
    scene = six_pods(1)
    (earlier,) = _alone(scene)[0].run(7200)
    assert " ended because " in earlier.decision.reason.sentence
    scene.world.advance(1000)
    rotating, _ = _alone(scene)
    with pytest.raises(WorldFailed, match="the rotation did not end within 5m"):
        rotating.run(300)
    (done,) = rotating.results.values()
    assert [outcome.result for outcome in done.outcomes] == ["Accepted"]
    assert (done.result, " ended because " in done.decision.reason.sentence) == ("", False)


def test_an_eviction_whose_answer_is_lost_counts_and_is_verified() -> None:
    """Unknown is not nothing: the pod may have gone, so its rotation is followed to its end."""
    scene = six_pods(1)
    scene.world.faults.add(FaultKind.EVICTION_ANSWER_LOST, seconds=5)
    rotating, _ = _alone(scene)
    (done,) = rotating.run(7200)
    assert done.outcomes[0].result == "Unknown"
    assert len(done.decision.actions) == 4
    assert len({action.uid for action in done.decision.actions}) == 4
    run = run_in(scene)
    assert len(run.evictions) == 4
    assert {entry.state.value for entry in run.ledger.entries} == {"Done"}


def test_slow_metrics_do_not_end_a_commands_turn() -> None:
    """Less than half a minute is no reason to look again."""
    scene = six_pods(1)
    scene.world.faults.add(FaultKind.METRICS_LATE, seconds=60, value=25.0)
    rotating, _ = _alone(scene)
    (done,) = rotating.run(7200)
    assert done.outcomes[0].result == "Accepted"


def test_a_command_that_slept_between_intent_and_deed_does_nothing() -> None:
    """Two minutes after its look its turn is over."""
    scene = six_pods(1)
    rotating, _ = _alone(scene)

    def sleep(step: str) -> None:
        if step == "intent":
            scene.world.advance(130)

    rotating.rotator.ports = replace(rotating.rotator.ports, on_step=sleep)
    (done,) = rotating.run(3600)
    assert [outcome.result for outcome in done.outcomes] == ["Fenced"]
    assert run_in(scene).evictions == []


@pytest.mark.parametrize(
    ("result", "code"),
    [(EvictionResult.FORBIDDEN, Code.OPTED_OUT), (EvictionResult.REFUSED, Code.PDB_BLOCKED)],
)
def test_a_command_that_was_refused_evicted_nothing_and_says_so(result: EvictionResult, code: Code) -> None:
    """No action is listed as done, and the failure names the pod."""
    scene = six_pods(1)
    rotating, _ = _alone(scene)
    refusing = RefusingActuator(scene.world, result)
    rotating.rotator.ports = replace(rotating.rotator.ports, actuator=refusing)
    (done,) = rotating.run(3600)
    assert done.decision.actions == ()
    assert len(done.decision.held) == 4
    assert done.decision.reason.code is code
    is_forbidden = result is EvictionResult.FORBIDDEN
    assert ("the right to evict it is missing" in done.decision.reason.sentence) == is_forbidden
    assert result.value in done.failure
