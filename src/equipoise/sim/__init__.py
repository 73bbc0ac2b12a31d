"""A whole cluster behind the ports, seeded, on simulated time."""

from equipoise.sim.faults import FaultKind
from equipoise.sim.state import Settings
from equipoise.sim.template import Delay, Template
from equipoise.sim.world import World

__all__ = ["Delay", "FaultKind", "Settings", "Template", "World"]
