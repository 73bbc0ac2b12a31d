"""What is kept, what is rebuilt and what is refused when leaders die and a server forgets."""

from pathlib import Path
from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools
from equipoise.core.errors import BadInput
from equipoise.pools.invariants import violations
from equipoise.pools.loop import PoolsLoop
from equipoise.pools.policy import read_policy
from tests.support.pools.fleet import UIDS, World, make_loop, pod
from tests.support.pools.killed_leaders import storm

KILLS = 12
CONFIG = '{"gold": 5, "silver": 4}'


def test_leaders_killed_at_random_points_leave_no_state_in_between(url: str, tmp_path: Path) -> None:
    """Pods come and go, lists are empty, scripts are forgotten; `tests.soak.pools_faults` kills many more."""
    report = storm(url, tmp_path, KILLS)
    assert report.kills == KILLS
    assert report.served > KILLS
    assert (report.broken, report.given_twice, report.missing, report.late_deeds) == ([], [], [], [])


@pytest.fixture
def world() -> World:
    return World([pod(name) for name in UIDS])


@pytest.fixture
def loop(world: World, pools: RedisPools, client: Any) -> PoolsLoop:
    client.set("voice:tier:config", CONFIG)
    made = make_loop(world, pools)
    made.cycle(0.0)
    return made


def test_a_server_that_forgot_everything_is_not_guessed_at(
    client: Any, pools: RedisPools, world: World, loop: PoolsLoop
) -> None:
    """FLUSHALL: without a config nothing is written; with one the tiers are built anew, without calls."""
    held = pools.allocate("c1").pod
    client.flushall()
    with pytest.raises(BadInput, match="voice:tier:config: missing"):
        loop.cycle(60.0)
    assert client.keys("*") == []
    client.set("voice:tier:config", CONFIG)
    report = loop.cycle(120.0)
    assert [outcome.result for outcome in report.outcomes] == ["Registered"] * 9
    assert pools.heartbeat("c1").code == "UnknownCall"
    assert pools.release("c1").code == "UnknownCall"
    seen = pools.snapshot()
    assert {pool.tier: len(pool.assigned) for pool in seen.pools} == {"gold": 5, "silver": 4}
    assert seen.pods[held].uid == UIDS[held]
    assert client.get("voice:epoch") == "5"
    assert violations(read_policy(seen.config, "config"), seen) == []


def test_forgotten_scripts_are_sent_again(
    client: Any, pools: RedisPools, world: World, loop: PoolsLoop
) -> None:
    """SCRIPT FLUSH: nobody notices."""
    client.script_flush()
    world.listed = world.listed[:-1]
    world.gone = {"agent-8"}
    assert [decision.reason.code for decision in loop.cycle(60.0).decisions] == ["InStep", "Balanced"]
    client.script_flush()
    assert pools.allocate("c1").code == "Allocated"
    client.script_flush()
    assert pools.release("c1").code == "Released"


def test_a_config_that_makes_no_sense_changes_nothing(
    client: Any, world: World, pools: RedisPools, loop: PoolsLoop
) -> None:
    """The tiers stay as they are until somebody mends it."""
    from tests.support.pools.worlds import dump

    client.set("voice:tier:config", '{"gold": "five"}')
    before = dump(client)
    world.listed = world.listed[:5]
    with pytest.raises(BadInput, match="gold"):
        loop.cycle(60.0)
    assert dump(client) == before
