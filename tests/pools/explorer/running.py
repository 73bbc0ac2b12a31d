"""Explores worlds, and prints what was found."""

import sys
from typing import Any

from tests.pools.explorer.invariants import AtRest, always, between, between_seed
from tests.pools.explorer.machine import Explored, Machine, World


def explore(client: Any, world: World, *, is_seed: bool = False) -> Explored:
    """Go every way through a world; the line is for whoever reads the log."""
    found = Machine(client, world, always, between_seed if is_seed else between, AtRest(client)).explore()
    print(found, file=sys.stderr, flush=True)
    return found
