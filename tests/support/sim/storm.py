"""A simulated cluster under faults."""

from random import Random

from equipoise.core.errors import WorldFailed
from equipoise.sim import Delay, FaultKind, SimSettings, Template, World
from equipoise.sim.state import PodState
from tests.support.sim.scenes import many_workloads

HOURS = 2


def disturb(world: World, chance: Random) -> None:
    """Do something that happens in clusters."""
    pods = list(world.state.pods.values())
    nodes = list(world.state.nodes.values())
    workload = chance.choice(list(world.state.workloads.values()))
    pod: PodState | None = chance.choice(pods) if pods else None
    match chance.randrange(9):
        case 0 | 1 | 2 if pod is not None:
            try:
                world.actuator.evict(pod.ref, is_dry_run=chance.random() < 0.2)
            except WorldFailed:
                return
        case 3 if pod is not None:
            world.kubelet.crash(pod)
        case 4:
            world.kubelet.kill_node(chance.choice(nodes))
        case 5:
            for node in nodes:
                world.kubelet.revive_node(node)
        case 6:
            world.roll_out(workload, Template(start_up=Delay(chance.uniform(1, 60), 0.5)))
        case 7:
            world.scale(workload, chance.randrange(1, 9))
        case _:
            kind = chance.choice(list(FaultKind))
            world.faults.add(kind, seconds=chance.uniform(1, 60), value=chance.uniform(1, 30))


def storm(seed: int, hours: float = HOURS) -> World:
    """Run a small world through a storm: something goes wrong about twice a minute."""
    chance = Random(f"storm {seed}")
    world = many_workloads(
        seed, 2, replicas=chance.randrange(1, 6), settings=SimSettings(load_step_seconds=30)
    )

    def next_trouble() -> None:
        disturb(world, chance)
        world.at(world.now + chance.expovariate(1 / 30), next_trouble)

    world.at(world.now + 60, next_trouble)
    world.advance(hours * 3600)
    return world
