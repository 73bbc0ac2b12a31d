"""Others at work on the same workload: rollouts, autoscalers, budgets, writers of the ledger, people."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from equipoise.core.cluster import WorkloadRef
from equipoise.core.ledger import EntryState, Ledger
from equipoise.core.reason import Code
from equipoise.ports import EvictionResult, Stored
from equipoise.sim.faults import FaultKind
from equipoise.sim.load import Constant, Partitions
from equipoise.sim.template import Budget, Delay, Template
from equipoise.sim.world import World
from tests.support.rotation.running import Run, run_in
from tests.support.rotation.tenants import ENFORCE, NoBudgets, Policies, RefusingActuator, loop_in
from tests.support.sim.autoscalers import pause_autoscaler, resume_autoscaler
from tests.support.sim.scenes import SIX_LOADS, six_pods


def test_a_rollout_in_the_middle_ends_a_rotation_and_holds_the_next() -> None:
    """Nothing can be compared: interrupted, no failure is counted, and nobody goes while it lasts."""
    run = run_in(six_pods(1), {"cooldown": "1m"})
    run.until_evicted(1)
    run.rest(60)
    run.world.roll_out(run.workload, Template())
    gone = len(run.gone)
    run.rest(10)
    run.cycle()
    (verdict,) = run.verdicts
    assert verdict["ending"] == "Interrupted"
    assert "realisedPercent" not in verdict
    assert run.memory.failures == 0
    for _ in range(30):
        is_rolling = len({pod.revision for pod in run.workload.pods.values()}) > 1
        run.cycle()
        if is_rolling:
            assert len(run.gone) == gone
        run.rest(10)


def test_a_rollout_holds_a_hot_workload() -> None:
    """Pods of two versions, the old ones still hot: the reason is the rollout."""
    run = run_in(six_pods(1))
    run.world.roll_out(run.workload, Template())
    codes = []
    for _ in range(12):
        codes.append(run.cycle().reason.code)
        run.rest(5)
    assert Code.HELD_BY_ROLLOUT in codes
    assert Code.ROTATE not in codes
    assert run.gone == []


def test_an_autoscaler_in_the_middle_ends_a_rotation() -> None:
    """Twice the load comes, the HPA scales: before and after are two workloads."""
    run = run_in(six_pods(1), {"cooldown": "1m"})
    run.until_evicted(1)
    run.workload.shape = Constant(2 * sum(SIX_LOADS))
    codes = []
    while not run.verdicts:
        codes.append(run.cycle().reason.code)
        run.rest()
        assert len(codes) < 60
    (verdict,) = run.verdicts
    assert verdict["ending"] == "Interrupted"
    assert run.memory.failures == 0
    assert len(run.gone) == 1


def test_a_paused_autoscaler_holds_until_it_goes_on() -> None:
    """Somebody is at work on this workload: not ours to disturb."""
    run = run_in(six_pods(1))
    pause_autoscaler(run.world, run.workload, "ScaledObject web: paused=true")
    decision = run.cycle()
    assert decision.reason.code is Code.HELD_BY_PAUSE
    assert "ScaledObject web" in decision.reason.sentence
    resume_autoscaler(run.world, run.workload)
    assert run.cycle().reason.code is Code.ROTATE


@pytest.mark.parametrize(
    ("annotation", "is_held"),
    [
        (("equipoise.dev/rotate", "false"), True),
        (("karpenter.sh/do-not-disrupt", "true"), True),
        (("equipoise.dev/rotate", "true"), False),
    ],
    ids=str,
)
def test_an_annotation_on_the_workload_is_heard(annotation: tuple[str, str], is_held: bool) -> None:
    """From the object to the decision."""
    world = World(1)
    world.add_node("node-1")
    workload = world.add_workload(
        *("shop", "web"),
        replicas=6,
        shape=Constant(sum(SIX_LOADS)),
        sharing=Partitions(SIX_LOADS),
        annotations=(annotation,),
    )
    world.add_hpa(workload, replicas_min=6, replicas_max=12)
    world.advance(1200)
    decision = Run(world, workload).cycle()
    assert decision.reason.code is (Code.OPTED_OUT if is_held else Code.ROTATE)


@pytest.mark.parametrize("place", ["kube-system", "shop"])
def test_nothing_is_rotated_where_the_cluster_and_we_live(place: str) -> None:
    """kube-system always; our own namespace as the operator says."""
    world = World(1)
    world.add_node("node-1")
    workload = world.add_workload(
        place, "web", replicas=6, shape=Constant(sum(SIX_LOADS)), sharing=Partitions(SIX_LOADS)
    )
    world.add_hpa(workload, replicas_min=6, replicas_max=12)
    world.advance(1200)
    loop = loop_in(world, Policies(ENFORCE, namespace=place), namespaces_protected={"kube-system", "shop"})
    (decision,) = loop.cycle(world.now).decisions
    assert decision.reason.code is Code.OPTED_OUT
    assert decision.reason.sentence == f"Pods in namespace {place} are never evicted."


def test_a_budget_that_forbids_blocks_before_anything_is_asked() -> None:
    """The reason is the budget's, nothing is written, nobody is asked."""
    scene = six_pods(1)
    scene.world.add_pdb("shop", "strict", Budget(max_unavailable=0), labels=(("app", "web"),))
    world, workload = scene.world, scene.workload
    world.state.pdbs[0].workloads.clear()
    workload.pdbs.remove(world.state.pdbs.pop(0))
    world.advance(60)
    run = Run(world, workload)
    for decision in run.run(5):
        assert decision.reason.code is Code.PDB_BLOCKED
        assert len(decision.held) == 4
    assert run.evictions == []
    assert run.ledger == Ledger()


NEXT = {EvictionResult.REFUSED: Code.PDB_BLOCKED, EvictionResult.FORBIDDEN: Code.OPTED_OUT}
"""What is said after an eviction that is refused for good, until it is asked for again."""


@pytest.mark.parametrize(
    "result", [EvictionResult.BLOCKED, EvictionResult.REFUSED, EvictionResult.FORBIDDEN, EvictionResult.GONE]
)
def test_a_refused_eviction_is_told_and_uses_no_budget(result: EvictionResult) -> None:
    """One is asked for, the rest of the wave stays, and what surely did not happen starts no cooldown."""
    scene = six_pods(1)
    refusing = RefusingActuator(scene.world, result)
    run = run_in(scene, {"maxUnavailable": 3}, actuator=refusing, cluster=NoBudgets(scene.world.cluster))
    run.cycle()
    (outcome,) = run.reports[-1].outcomes
    assert (outcome.result, refusing.asked) == (result.value, 1)
    (entry,) = run.ledger.entries
    assert entry.state is EntryState.FAILED
    assert {event.is_warning for event in scene.world.actuator.events} == {True}
    run.rest()
    assert run.cycle().reason.code is NEXT.get(result, Code.ROTATE)
    assert run.verdicts == []


def test_what_is_forbidden_is_asked_for_seldom() -> None:
    """Without the right to evict, `Enforce` is a preview: in two hours a handful of tries, not 240."""
    scene = six_pods(1)
    refusing = RefusingActuator(scene.world, EvictionResult.FORBIDDEN)
    run = run_in(scene, actuator=refusing, cluster=NoBudgets(scene.world.cluster))
    for decision in run.run(240):
        assert decision.reason.code in {Code.ROTATE, Code.OPTED_OUT}
    assert 2 <= refusing.asked <= 6
    assert len(run.ledger.entries) == refusing.asked


def test_a_refused_next_wave_is_no_wave_and_the_rotation_stays_open() -> None:
    """The budget is taken by somebody else for ten minutes: the count of waves is of those that went."""
    scene = six_pods(1)
    run = run_in(scene, {"cooldown": "2h"})
    run.until_evicted(1)
    run.rest(400)
    run.start(
        actuator=RefusingActuator(scene.world, EvictionResult.BLOCKED), cluster=NoBudgets(scene.world.cluster)
    )
    run.run(10)
    assert len(run.gone) == 1
    assert len(run.ledger.entries) > 5
    run.start()
    run.run(120)
    (verdict,) = run.verdicts
    assert (verdict["waves"], verdict["evicted"]) == (4, 4)


class Meddling:
    """A store in which somebody else writes right after we have read, so often."""

    def __init__(self, world: World, key: WorkloadRef, times: int) -> None:
        self._inner, self._key, self._times = world.store, key, times

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        found = self._inner.read_all(namespace)
        if self._times > 0:
            self._times -= 1
            now = self._inner.read(self._key)
            theirs = Ledger.from_data(now.data).remembering("qos", {"left": self._times})
            self._inner.write(self._key, theirs.to_data(), now.version)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("times", [1, 3])
def test_another_writer_between_look_and_deed_fences(times: int) -> None:
    """The guards have seen another ledger: nobody goes, and the next cycle looks again."""
    scene = six_pods(1)
    store = Meddling(scene.world, scene.workload.ref, times)
    run = run_in(scene, store=store)
    for _ in range(times):
        run.cycle()
        assert [outcome.result for outcome in run.reports[-1].outcomes] == ["Fenced"]
        assert run.evictions == []
        assert run.ledger.entries == ()
    run.cycle()
    assert [outcome.result for outcome in run.reports[-1].outcomes] == ["Accepted"]
    assert run.ledger.memory["qos"] == {"left": 0}


def test_another_writer_while_a_verdict_is_written_costs_a_cycle_and_no_verdict() -> None:
    """It is decided again from what is there then."""
    scene = six_pods(1)
    run = run_in(scene, {"cooldown": "2h"})
    run.until_evicted(4)
    run.start(store=Meddling(scene.world, scene.workload.ref, 30))
    run.run(60)
    (verdict,) = run.verdicts
    assert (verdict["ending"], verdict["evicted"]) == ("UsedUp", 4)
    assert run.ledger.memory["qos"] == {"left": 0}


def test_a_pause_between_two_waves_holds_the_next_and_keeps_the_rotation() -> None:
    """Stop means stop; what was begun is still measured."""
    run = run_in(six_pods(1), {"cooldown": "2h"})
    run.until_evicted(2)
    run.pauses.who = "alice"
    codes = {decision.reason.code for decision in run.run(40)}
    assert Code.HELD_BY_PAUSE in codes
    assert len(run.gone) == 2
    run.pauses.who = None
    run.run(60)
    (verdict,) = run.verdicts
    assert verdict["evicted"] == 4


def test_a_rotation_that_nobody_goes_on_with_is_left_open() -> None:
    """Held for more than an hour: over, without a verdict on whether it helped."""
    run = run_in(six_pods(1), {"cooldown": "4h"})
    run.until_evicted(2)
    run.pauses.who = "alice"
    run.run(130)
    (verdict,) = run.verdicts
    assert verdict["ending"] == "LeftOpen"
    assert "realisedPercent" not in verdict
    assert run.memory.failures == 0


def test_a_replacement_that_never_comes_ends_the_rotation_in_time() -> None:
    """It starts and starts: nobody else goes, and after half an hour it is over without a verdict on it."""
    scene = six_pods(1)
    scene.workload.template = replace(scene.workload.template, start_up=Delay(1e6))
    scene.world.faults.add(FaultKind.RESOURCE_METRICS_OUTAGE, seconds=1e6)
    run = run_in(scene, {"cooldown": "1m"})
    run.run(75)
    assert len(run.gone) == 1
    (verdict,) = run.verdicts
    assert verdict["ending"] == "TimedOut"
    assert verdict["endedAt"] - verdict["rotatedAt"] == pytest.approx(1800, abs=31)
    assert run.memory.failures == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": (("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),)},
        {"priority": 2_000_000_000},
        {"priority_class": "system-cluster-critical"},
        {"has_local_storage": True},
    ],
    ids=str,
)
def test_a_template_that_protects_its_pods_keeps_them(changes: dict[str, Any]) -> None:
    """From the pods' own fields to the decision: hot, counted, and never evicted."""
    world = World(1)
    world.add_node("node-1")
    workload = world.add_workload(
        *("shop", "web"),
        replicas=6,
        template=replace(Template(), **changes),
        shape=Constant(sum(SIX_LOADS)),
        sharing=Partitions(SIX_LOADS),
    )
    world.add_hpa(workload, replicas_min=6, replicas_max=12)
    world.advance(1200)
    run = Run(world, workload)
    for decision in run.run(3):
        assert decision.reason.code is Code.OPTED_OUT
        assert decision.reason.numbers["pods_protected"] == 6
        assert "never evicted because" in decision.reason.sentence
    assert run.evictions == []
    if "has_local_storage" in changes:
        assert Run(world, workload, {"includeLocalStorage": True}).cycle().reason.code is Code.ROTATE
