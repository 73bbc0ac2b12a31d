"""A whole cluster behind the ports, seeded, on simulated time."""

from equipoise.sim.faults import FaultKind
from equipoise.sim.state import SimSettings
from equipoise.sim.template import RandomDelay, Template
from equipoise.sim.world import World

__all__ = ["FaultKind", "RandomDelay", "SimSettings", "Template", "World"]
