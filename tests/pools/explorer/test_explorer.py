"""Every interleaving of small worlds, on a real server. The whole of it runs under `make e2e`."""

from typing import Any

import pytest

from tests.support.explorer.machine import World
from tests.support.explorer.running import explore
from tests.support.explorer.scenes import FOREIGN, ORIGIN_ORDER, SEED, SMALL


@pytest.mark.parametrize("world", SMALL, ids=lambda world: world.name)
def test_no_interleaving_of_our_scripts_breaks_an_invariant(client: Any, world: World) -> None:
    """Answers lost after the deed, deaths after any command, leases that run out: all included."""
    found = explore(client, world)
    assert not found.violations, found.example
    assert found.interleavings > 100


@pytest.mark.parametrize("world", FOREIGN[:3], ids=lambda world: world.name)
def test_allocators_of_the_seeds_flow_can_work_beside_us(client: Any, world: World) -> None:
    """They take and give back pods command by command; no pod is lost, none is given twice."""
    found = explore(client, world)
    assert not found.violations, found.example


EXPECTED = {
    "seed: crash": {"I9 a pod is lost"},
    "seed: two leaders": {"I8 a move filled a tier beyond its target"},
    "seed: drain": {"I6 draining yet available"},
    "seed: zombie sweep": {"I2 available elsewhere", "I11 two calls on an exclusive pod"},
}


@pytest.mark.parametrize("world", SEED, ids=lambda world: world.name)
def test_the_explorer_finds_the_races_of_the_seeds_own_commands(client: Any, world: World) -> None:
    """So it would find ours."""
    found = explore(client, world, is_seed=True)
    assert EXPECTED[world.name] <= set(found.violations), str(found)


def test_the_origins_release_order_keeps_its_race(client: Any) -> None:
    """Its late DEL takes away the next caller's lease, and no sweep can know; docs/limits.md says so."""
    found = explore(client, ORIGIN_ORDER)
    assert set(found.violations) == {"I11 two calls on an exclusive pod"}
    way = found.example["I11 two calls on an exclusive pod"]
    assert way.index("f1: SADD") < way.index("f2: SET lease") < way.index("f1: DEL lease")
