"""What must hold holds in random worlds; and when the simulator is broken on purpose, it is noticed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from equipoise.sim import World
from equipoise.sim.actions import SimActuator
from equipoise.sim.invariants import InvariantBroken
from equipoise.sim.load import Constant, Even
from equipoise.sim.store import SimStore
from equipoise.sim.template import Budget
from tests.support.sim.scenes import many_workloads
from tests.support.sim.storm import storm


@pytest.mark.parametrize("seed", range(50))
def test_everything_holds_in_a_storm(seed: int) -> None:
    """Evictions, crashes, dead nodes, rollouts and faults for two hours; checked after every instant."""
    world = storm(seed)
    kinds = {entry.kind for entry in world.state.history}
    assert {"Created", "Ready", "Gone", "Evicted"} <= kinds
    world.state.touched.update(world.state.workloads)
    world.invariants.check()


def test_the_same_seed_gives_the_same_history_to_the_byte() -> None:
    """And another seed gives another."""
    first, second, other = storm(7, 1), storm(7, 1), storm(8, 1)
    assert first.state.history_hash() == second.state.history_hash() != other.state.history_hash()
    assert list(first.state.history) == list(second.state.history)
    assert first.cluster.pods() == second.cluster.pods()


def test_another_process_gives_the_same_history() -> None:
    """Nothing hangs on the order of a set or on an address in memory."""
    program = "from tests.support.sim.storm import storm; print(storm(21, 0.5).state.history_hash())"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert hashes == {storm(21, 0.5).state.history_hash() + "\n"}


def test_how_time_is_cut_changes_nothing() -> None:
    """One long step or many short ones: the same history."""
    whole, cut = many_workloads(9, 3), many_workloads(9, 3)
    whole.advance(3600)
    for _ in range(720):
        cut.advance(5)
    assert whole.state.history_hash() == cut.state.history_hash()


def test_a_new_workload_changes_nothing_for_the_others() -> None:
    """Every workload draws from a chance of its own."""
    alone, together = World(6), World(6)
    for world in (alone, together):
        world.add_node("node", cpu_cores=64)
        world.add_workload("shop", "web", replicas=4)
    together.add_workload("shop", "other", replicas=4)
    for world in (alone, together):
        world.advance(600)
    names = [pod.name for pod in together.cluster.pods() if pod.name.startswith("web")]
    assert names == [pod.name for pod in alone.cluster.pods()]


def test_an_api_that_ignores_budgets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: every eviction passes. The message has the seed."""
    monkeypatch.setattr(SimActuator, "allows", lambda *_args, **_options: True)
    with pytest.raises(InvariantBroken, match=r"seed \d+, at .*left \d+ healthy pods"):
        [storm(seed) for seed in range(5)]


def test_an_api_that_counts_down_only_with_the_controller_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: two evictions in one moment both pass."""
    honest = SimActuator.allows

    def forgetful(self: SimActuator, pdb: Any, pod: Any, *, is_dry_run: bool) -> bool:
        del is_dry_run
        return honest(self, pdb, pod, is_dry_run=True)

    monkeypatch.setattr(SimActuator, "allows", forgetful)
    world = World(11)
    world.add_node("node")
    workload = world.add_workload("shop", "web", replicas=4)
    world.add_pdb("shop", "web", Budget(max_unavailable=1))
    world.advance(60)
    first, second, *_ = workload.pods.values()
    world.actuator.evict(first.ref)
    world.actuator.evict(second.ref)
    with pytest.raises(InvariantBroken, match="seed 11"):
        world.advance(1)


def test_a_store_that_loses_a_compare_and_swap_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: it takes every write for the newest."""
    monkeypatch.setattr(SimStore, "is_newest", lambda *_: True)
    world = World(12)
    workload = world.add_workload("shop", "web", replicas=0)
    key = workload.ref
    world.store.write(key, {"n": 1}, "")
    world.store.write(key, {"n": 2}, "")
    with pytest.raises(InvariantBroken, match=r"seed 12.*replaced"):
        world.invariants.check()


def test_lost_work_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: a sharing that forgets whom it served."""
    monkeypatch.setattr(Even, "shares", lambda _: {"nobody": 1.0})
    world = World(14)
    world.add_node("node")
    world.add_workload("shop", "web", replicas=2, shape=Constant(1.0))
    with pytest.raises(InvariantBroken, match=r"seed 14.*unserved of a demand"):
        world.advance(60)


def test_an_overfull_node_is_caught() -> None:
    """The mutation: a node that shrank without telling anybody."""
    world = World(13)
    node = world.add_node("node", cpu_cores=8)
    world.add_workload("shop", "web", replicas=6)
    world.advance(60)
    node.cpu_cores = 4
    with pytest.raises(InvariantBroken, match=r"6 pods with 6.0 cores on node"):
        world.advance(1)
