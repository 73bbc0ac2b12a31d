"""Worlds that are ready to run: six pods with two hot ones, unbalanced workloads, many workloads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from equipoise.core.cluster import Container
from equipoise.sim import template as names
from equipoise.sim.load import Constant, Diurnal, Shape, Spike
from equipoise.sim.sharing import Even, Partitions, Sharing, StickyConnections
from equipoise.sim.state import SimSettings, WorkloadState
from equipoise.sim.template import Budget, Delay, Template
from equipoise.sim.world import World

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


CAUSES: dict[str, Callable[[int], Sharing]] = {
    "even": lambda seed: Even(),  # noqa: ARG005 - one form for all
    "key skew": lambda seed: Partitions.skewed(seed, 64),
    "stale counts": lambda seed: Partitions.stale(24),  # noqa: ARG005
    "connections": lambda seed: StickyConnections(600, renewed_per_second=0.05),  # noqa: ARG005
}
"""What can make the pods of a workload unequal; a noisy node is a matter of the node."""


NOISY_NODE = "noisy node"
IMBALANCES = (*(cause for cause in CAUSES if cause != "even"), NOISY_NODE)
"""Why the pods of one workload can be unequal."""


@dataclass(frozen=True, slots=True)
class Unbalanced:
    """A world with one workload whose pods are unequal."""

    world: World
    workload: WorkloadState


def unbalanced(seed: int, cause: str, *, pods: int = 6, age_seconds: float = 900.0) -> Unbalanced:
    """Make one workload that is unequal for one cause, with its mean at its HPA's target of 70 %.

    Its pods have been under this load for `age_seconds`. Whether one of them is hot is up to the seed.
    """
    world = World(seed)
    rng = names.seeded(seed, "scene")
    _add_unequal_nodes(world, rng, pods, noise=rng.uniform(1.8, 3.0) if cause == NOISY_NODE else 1.0)
    # Little work at first: the autoscaler must not scale before all pods are ready.
    workload = world.add_workload(
        "shop",
        "web",
        replicas=pods,
        shape=Constant(_AT_TARGET_CORES * pods / 10),
        sharing=CAUSES.get(cause, CAUSES["even"])(rng.randrange(2**32)),
    )
    world.add_pdb("shop", "web", Budget(max_unavailable=1))
    if cause == "connections":
        _grow_up(world, workload, rng.randint(max(pods // 3, 1), max(pods // 2, 1)))
    _run_until_whole(world, workload)
    world.add_hpa(workload, replicas_min=pods, replicas_max=2 * pods)
    workload.shape = Constant(workload.demand_cores * _AT_TARGET_CORES * pods / _used_cores(workload))
    world.advance(age_seconds)
    return Unbalanced(world, workload)


_AT_TARGET_CORES = 0.7
"""What a pod of the default template uses when it is as busy as its HPA wants it."""


def _add_unequal_nodes(world: World, rng: Random, pods: int, noise: float) -> None:
    """Add nodes of several sizes, so that a scheduler has a preference; it knows nothing of noise."""
    count = max(3, 2 * pods // 3)
    noisy = rng.randrange(count)
    for number in range(count):
        world.add_node(
            f"node-{number:04}",
            cpu_cores=rng.choice((32, 48, 64)),
            cpu_factor=noise if number == noisy else 1.0,
        )


def _grow_up(world: World, workload: WorkloadState, first: int) -> None:
    """Scale up after a rollout of fewer pods: these get all connections."""
    replicas = workload.replicas
    world.scale(workload, first)
    _run_until_whole(world, workload)
    world.roll_out(workload, Template())
    _run_until_whole(world, workload)
    world.scale(workload, replicas)


def _run_until_whole(world: World, workload: WorkloadState) -> None:
    world.advance(5)
    while not is_whole(workload):
        world.advance(5)


def is_whole(workload: WorkloadState) -> bool:
    """Return whether all pods that are wanted serve, in the newest revision, and no other is there."""
    serving = [pod for pod in workload.pods.values() if pod.is_serving and pod.revision == workload.revision]
    return len(serving) == len(workload.pods) == workload.replicas


def _used_cores(workload: WorkloadState) -> float:
    return sum(pod.counter.rate_cores for pod in workload.pods.values() if pod.counter is not None)


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
        crash_after=Delay(86400, 1.0) if rng.random() < 0.1 else None,  # noqa: PLR2004 - a tenth crashes
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
