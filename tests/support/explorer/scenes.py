"""The small worlds: who works at the same time."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.support.explorer.actors import Caller, Configurer, Once, Rebalancer, sweeps
from tests.support.explorer.foreign import (
    ForeignCaller,
    SeedDrain,
    SeedRebalancer,
    SeedZombieSweep,
    SharedForeignCaller,
)
from tests.support.explorer.machine import World
from tests.support.pools.worlds import write


def _pods(pools: dict[str, Sequence[str]], **targets: int) -> Callable[[Any], None]:
    def setup(client: Any) -> None:
        write(client, pools, targets)
        client.delete("voice:pod:metadata")  # what it holds is tested elsewhere, and it makes states large

    return setup


ONE_EXCLUSIVE = _pods({"gold": ["a-0"], "silver": []}, gold=0, silver=1)
ONE_TIER = _pods({"gold": ["a-0"]}, gold=1)
TWO_OF_ONE_TIER = _pods({"gold": ["a-0", "a-1"]}, gold=2)
ONE_SHARED_TIER = _pods({"basic": ["a-0"]}, basic=1)
TWO_EXCLUSIVE = _pods({"gold": ["a-0", "a-1"], "silver": []}, gold=1, silver=1)
ONE_SHARED = _pods({"basic": ["a-0"], "gold": []}, basic=0, gold=1)
SHARED_TO_SHARED = _pods({"basic": ["a-0", "a-1"], "economy": []}, basic=1, economy=1)
GOLD_TO_BASIC = _pods({"gold": ["a-0", "a-1"], "basic": []}, gold=1, basic=1)

SMALL = (
    World("move, allocate", ONE_EXCLUSIVE, (Rebalancer("leader", "1"), Caller("c1"))),
    World("move, two calls", ONE_EXCLUSIVE, (Rebalancer("leader", "1"), Caller("c1"), Caller("c2"))),
    World("move, allocate, shared", ONE_SHARED, (Rebalancer("leader", "1"), Caller("c1"), Caller("c2"))),
    World(
        "two leaders",
        TWO_EXCLUSIVE,
        (Rebalancer("old", "1"), Rebalancer("new", "2"), Caller("c1", "gold")),
    ),
    World(
        "move, drain, undrain",
        ONE_EXCLUSIVE,
        (
            Rebalancer("leader", "1"),
            Once("drain", ("drain", "a-0", ""), ("undrain", "a-0", "")),
            Caller("c1"),
        ),
    ),
    World(
        "suspend, a person's drain",
        ONE_TIER,
        (
            Once("loop", ("drain", "a-0", "", "unready", "1"), ("undrain", "a-0", "", "unready", "1")),
            Once("person", ("drain", "a-0", ""), ("undrain", "a-0", "")),
            Caller("c1"),
        ),
    ),
    World(
        "suspend, move, shared",
        ONE_SHARED,
        (
            Once("loop", ("drain", "a-0", "", "unready", "1"), ("undrain", "a-0", "", "unready", "1")),
            Rebalancer("leader", "1", marks_busy=True),
            Caller("c1"),
        ),
    ),
    World(
        "move, config",
        TWO_EXCLUSIVE,
        (Rebalancer("leader", "1"), Configurer("config", gold=2, silver=0), Caller("c1", "gold")),
    ),
    World(
        "move, allocate, sweeps, expiry",
        ONE_EXCLUSIVE,
        (Rebalancer("leader", "1"), Caller("c1"), sweeps("recover", "a-0")),
        leases_expire=1,
    ),
    World(
        "pending",
        ONE_EXCLUSIVE,
        (Rebalancer("leader", "1", marks_busy=True), Caller("c1"), Caller("c2")),
    ),
    World(
        "pending, config",
        ONE_EXCLUSIVE,
        (Rebalancer("leader", "1", marks_busy=True), Caller("c1"), Configurer("config", gold=1, silver=0)),
    ),
    World(
        "the record runs out, the same call comes again, the pod is replaced",
        TWO_OF_ONE_TIER,
        (
            Caller("c1"),
            Caller("c1 again", call="c1"),
            Once("cluster", ("register", "a-0", "u1", "1", ""), ("register", "a-0", "u2", "1", "")),
        ),
        leases_expire=1,
        records_expire=1,
        losses=0,
        replaces=True,
    ),
    World(
        "the record runs out, the same call comes again to the same pod",
        ONE_SHARED_TIER,
        (Caller("c1"), Caller("c1 again", call="c1")),
        leases_expire=1,
        records_expire=1,
        losses=1,
    ),
)

LARGE = (
    World(
        "pending, shared, drain",
        SHARED_TO_SHARED,
        (
            Rebalancer("leader", "1", marks_busy=True),
            Caller("c1", "basic"),
            Caller("c2", "basic"),
            Once("drain", ("drain", "a-0", ""), ("undrain", "a-0", "")),
        ),
        losses=1,
    ),
    World(
        "everything, exclusive",
        TWO_EXCLUSIVE,
        (
            Rebalancer("old", "1"),
            Rebalancer("new", "2"),
            Caller("c1"),
            Once("drain", ("drain", "a-0", ""), ("undrain", "a-0", "")),
            sweeps("recover", "a-0"),
        ),
        leases_expire=1,
        losses=0,
    ),
    World(
        "everything, exclusive to shared",
        GOLD_TO_BASIC,
        (
            Rebalancer("leader", "1", marks_busy=True),
            Configurer("config", gold=2, basic=0),
            Caller("c1"),
            Caller("c2"),
        ),
        leases_expire=1,
        losses=1,
    ),
    World(
        "everything, shared to exclusive",
        ONE_SHARED,
        (
            Rebalancer("old", "1", marks_busy=True),
            Rebalancer("new", "2"),
            Caller("c1"),
            Caller("c2"),
            sweeps("recover", "a-0"),
        ),
        leases_expire=1,
        losses=0,
    ),
    World(
        "register, replace, drain",
        ONE_EXCLUSIVE,
        (
            Rebalancer("leader", "2"),
            Once("cluster", ("register", "a-0", "u1", "2", ""), ("register", "a-0", "u2", "2", "")),
            Caller("c1"),
            Once("drain", ("drain", "a-0", "")),
        ),
        losses=1,
        crashes=2,
    ),
    World(
        "the record runs out, the same call comes again, exclusive, sweeps",
        TWO_OF_ONE_TIER,
        (
            Caller("c1"),
            Caller("c1 again", call="c1"),
            Caller("c2"),
            Once("cluster", ("register", "a-0", "u1", "1", ""), ("register", "a-0", "u2", "1", "")),
            sweeps("recover", "a-1"),
        ),
        leases_expire=1,
        records_expire=1,
        losses=0,
        replaces=True,
    ),
    World(
        "the record runs out, the same call comes again, shared, sweeps",
        ONE_SHARED_TIER,
        (Caller("c1"), Caller("c1 again", call="c1"), Caller("c2"), sweeps("recover", "a-0")),
        leases_expire=1,
        records_expire=1,
        losses=1,
    ),
)

FOREIGN = (
    World(
        "foreign allocator, move",
        ONE_EXCLUSIVE,
        (Rebalancer("leader", "1"), ForeignCaller("f1", "gold"), Caller("c1", "silver")),
        is_foreign=True,
    ),
    World(
        "foreign shared allocator, move",
        ONE_SHARED,
        (Rebalancer("leader", "1"), SharedForeignCaller("f1", "basic", "a-0"), Caller("c1", "gold")),
        is_foreign=True,
        heals=False,  # a foreign call that dies leaves its count behind, and only its owner knows
    ),
    World(
        "two foreign allocators, move, sweeps",
        ONE_EXCLUSIVE,
        (
            Rebalancer("leader", "1"),
            ForeignCaller("f1", "gold"),
            ForeignCaller("f2", "silver"),
            sweeps("recover", "a-0"),
        ),
        is_foreign=True,
        crashes=0,
    ),
    World(
        "foreign allocators, one tier, sweeps",
        ONE_TIER,
        (ForeignCaller("f1", "gold"), ForeignCaller("f2", "gold"), sweeps("recover", "a-0"), Caller("c1")),
        is_foreign=True,
    ),
)

ORIGIN_ORDER = World(
    "the origin's release order, sweeps",
    ONE_TIER,
    (
        ForeignCaller("f1", "gold", releases_first=True),
        ForeignCaller("f2", "gold", releases_first=True),
        sweeps("recover", "a-0"),
        Caller("c1", "gold"),
    ),
    is_foreign=True,
    crashes=0,
    heals=False,
)
"""A stale DEL takes the next caller's lease away: what remains of the origin's race, whoever recovers."""

SEED = (
    World(
        "seed: crash", ONE_EXCLUSIVE, (SeedRebalancer("seed", "gold", "silver", (0, 1), "a-0"),), heals=False
    ),
    World(
        "seed: two leaders",
        _pods({"gold": ["a-0", "a-1"], "silver": []}, gold=0, silver=1),
        (
            SeedRebalancer("old", "gold", "silver", (0, 1), "a-0", "a-1"),
            SeedRebalancer("new", "gold", "silver", (0, 1), "a-1", "a-0"),
        ),
        crashes=0,
        heals=False,
    ),
    World(
        "seed: drain",
        ONE_EXCLUSIVE,
        (SeedRebalancer("seed", "gold", "silver", (0, 1), "a-0"), SeedDrain("drain", "a-0")),
        crashes=0,
        heals=False,
    ),
    World(
        "seed: zombie sweep",
        ONE_EXCLUSIVE,
        (
            SeedRebalancer("seed", "gold", "silver", (0, 1), "a-0"),
            SeedZombieSweep("zombie", "gold", "a-0"),
            ForeignCaller("f1", "gold"),
            ForeignCaller("f2", "silver"),
        ),
        crashes=0,
        is_foreign=True,
        heals=False,
    ),
)
