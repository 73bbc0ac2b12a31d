"""Simulated clusters ready to run (six pods with two hot ones, many workloads), and shapes of demand."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from equipoise.core.cluster import Container
from equipoise.sim import template as names
from equipoise.sim.experiment import CAUSES
from equipoise.sim.load import Constant, Diurnal, Partitions, Shape
from equipoise.sim.state import SimSettings, WorkloadState
from equipoise.sim.template import Budget, Delay, Template
from equipoise.sim.world import World


@dataclass(frozen=True, slots=True)
class Ramp:
    """From one level to another, in a straight line between two times."""

    from_cores: float
    to_cores: float
    starts_at: float
    ends_at: float

    def cores(self, at: float) -> float:
        """Return the demand at a Unix time."""
        done = (at - self.starts_at) / (self.ends_at - self.starts_at)
        return self.from_cores + (self.to_cores - self.from_cores) * min(max(done, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Spike:
    """A level, and a higher one for a while."""

    level_cores: float
    spike_cores: float
    starts_at: float
    length_seconds: float

    def cores(self, at: float) -> float:
        """Return the demand at a Unix time."""
        is_spike = self.starts_at <= at < self.starts_at + self.length_seconds
        return self.spike_cores if is_spike else self.level_cores


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded demand: each value holds until the next; the first one holds before it too."""

    times: tuple[float, ...]
    values: tuple[float, ...]

    def cores(self, at: float) -> float:
        return self.values[max(bisect_right(self.times, at) - 1, 0)]


SIX_LOADS = (1.2, 1.1, 0.8, 0.6, 0.4, 0.3)
"""Cores that the pods A to F use in the example that the rotation is explained with."""


_GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class SixPods:
    """The example's world, and which pod is which letter."""

    world: World
    workload: WorkloadState
    letters: dict[str, str]
    """Letters by pod name."""


def six_pods(seed: int, *, loads: Sequence[float] = SIX_LOADS, age_seconds: float = 1200.0) -> SixPods:
    """Make the six pods of the rotation's example, old enough to be judged: A is the hottest.

    Each pod owns one partition, so a replacement takes over its predecessor's load: rotation is futile here.
    """
    world = World(seed)
    for number in (1, 2, 3):
        world.add_node(f"node-{number}")
    workload = world.add_workload(
        "shop", "web", replicas=len(loads), shape=Constant(sum(loads)), sharing=Partitions(loads)
    )
    world.add_pdb("shop", "web", Budget(max_unavailable=1))
    world.add_hpa(workload, replicas_min=len(loads), replicas_max=12, name="keda-hpa-web")
    world.advance(age_seconds)
    hottest = sorted(workload.pods.values(), key=lambda pod: -pod.work_cores)
    letters = {pod.name: chr(ord("A") + rank) for rank, pod in enumerate(hottest)}
    return SixPods(world, workload, letters)


def many_workloads(
    seed: int,
    count: int,
    *,
    replicas: int = 6,
    settings: SimSettings | None = None,
    is_checked: bool = True,
) -> World:
    """Make so many workloads with HPAs and budgets, of all causes and shapes, on enough nodes."""
    world = World(seed, settings=settings, is_checked=is_checked)
    rng = names.seeded(seed, "scene")
    node_count = max(3, count * replicas * 2 // 160)
    for number in range(node_count):
        factor = 1.5 if number % 10 == 0 else 1.0
        world.add_node(
            f"node-{number:04}", cpu_cores=192, memory_bytes=768 * _GIB, pods_max=250, cpu_factor=factor
        )
    for number in range(count):
        _add_one(world, rng, f"team-{number % 10}", f"app-{number:04}", replicas)
    return world


def _add_one(world: World, rng: Random, namespace: str, name: str, replicas: int) -> None:
    cause = rng.choice(list(CAUSES))
    request_cores = rng.choice((0.25, 0.5, 1.0))
    template = Template(
        containers=(Container("app", request_cores, 0.5 * _GIB), Container("side", 0.05, 0.1 * _GIB)),
        split=(0.95, 0.05),
        start_up=Delay(rng.uniform(3, 20), 0.4),
        crash_after=Delay(86400, 1.0) if rng.random() < 0.1 else None,
    )
    workload = world.add_workload(
        namespace,
        name,
        replicas=replicas,
        template=template,
        shape=_shape(rng, 0.7 * request_cores * replicas, world.now),
        sharing=CAUSES[cause](rng.randrange(2**32)),
    )
    world.add_hpa(workload, replicas_min=max(2, replicas // 2), replicas_max=2 * replicas)
    world.add_pdb(namespace, name, Budget(max_unavailable=rng.choice((1, "25%", "34%"))))


def _shape(rng: Random, cores: float, started_at: float) -> Shape:
    match rng.randrange(3):
        case 0:
            return Constant(cores)
        case 1:
            return Diurnal(cores, cores * rng.uniform(0.1, 0.6), rng.uniform(0, 86400))
        case _:
            start = started_at + rng.uniform(600, 7200)
            return Spike(cores * 0.8, cores * 1.6, start, rng.uniform(300, 3600))
