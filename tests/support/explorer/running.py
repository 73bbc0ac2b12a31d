"""Explores worlds, and prints what was found."""

import sys
from typing import Any

from tests.support.explorer.invariants import AtRest, always, between, between_seed
from tests.support.explorer.machine import Explored, Machine, World


def explore(client: Any, world: World, *, is_seed: bool = False, stops_early: bool = False) -> Explored:
    """Go every way through a world, or until something breaks; the line is for whoever reads the log."""
    machine = Machine(client, world, always, between_seed if is_seed else between, AtRest(client))
    found = machine.explore(stops_early=stops_early)
    print(found, file=sys.stderr, flush=True)
    return found
