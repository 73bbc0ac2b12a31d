"""A whole cluster behind the ports, seeded, on simulated time."""

from equipoise.sim.faults import FaultKind
from equipoise.sim.state import SimSettings
from equipoise.sim.template import Delay, Template
from equipoise.sim.world import World

__all__ = ["Delay", "FaultKind", "SimSettings", "Template", "World"]
