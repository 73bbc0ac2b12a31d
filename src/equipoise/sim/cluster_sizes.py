"""Histories of a cluster's size: what updates, flapping nodes and autoscalers make of it. Seeded."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from equipoise.model.quantity import NANO

Inputs = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the history begins with, and how it is looked at."""

    nodes: int = 50
    node_cores: int = 4
    node_memory_bytes: int = 16 * 1024**3
    node_pods: int = 30
    interval_seconds: float = 10.0
    hours: float = 2.0

    @property
    def looks(self) -> int:
        """How often the cluster is looked at."""
        return max(1, round(self.hours * 3600 / self.interval_seconds))

    def sized(self, ready: int) -> dict[str, int]:
        """Give the inputs while so many nodes are ready."""
        return {
            "nodes": ready * NANO,
            "cores": ready * self.node_cores * NANO,
            "memory": ready * self.node_memory_bytes * NANO,
            "pods": ready * self.node_pods * NANO,
        }


@dataclass(frozen=True, slots=True)
class History:
    """A cluster's sizes, look by look."""

    times: list[int]
    """Milliseconds."""
    inputs: list[Inputs]

    @property
    def hours(self) -> float:
        """How long it is: each look stands for the time until the next one."""
        if len(self.times) < 2:  # noqa: PLR2004 - one look has no length
            return 0.0
        span = self.times[-1] - self.times[0]
        return span / 3_600_000 * len(self.times) / (len(self.times) - 1)


Walk = Callable[[Cluster, random.Random], Iterator[int]]
"""Gives how many nodes are ready at each look, for ever."""


def random_walk(cluster: Cluster, chance: random.Random) -> Iterator[int]:
    """Add or remove nodes at every look, as nobody's cluster does: the hardest case."""
    nodes = cluster.nodes
    while True:
        yield nodes
        nodes = max(1, nodes + int(chance.gauss(0, 1)))


def rolling_update(cluster: Cluster, chance: random.Random) -> Iterator[int]:
    """Take one node after the other away for a minute or two, until all have been replaced."""
    yield from _steady(cluster.nodes, 300, cluster)
    for _ in range(cluster.nodes):
        yield from _steady(cluster.nodes - 1, chance.uniform(30, 110), cluster)
        yield from _steady(cluster.nodes, chance.uniform(5, 40), cluster)
    while True:
        yield cluster.nodes


def node_flap(cluster: Cluster, chance: random.Random) -> Iterator[int]:
    """Let one node lose and find its way again and again."""
    while True:
        yield from _steady(cluster.nodes, chance.uniform(20, 240), cluster)
        yield from _steady(cluster.nodes - 1, chance.uniform(20, 120), cluster)


def autoscaler_burst(cluster: Cluster, chance: random.Random) -> Iterator[int]:
    """Add a batch of nodes within minutes, keep it for a while, and give it back node by node."""
    while True:
        yield from _steady(cluster.nodes, chance.uniform(300, 1200), cluster)
        extra = max(1, round(cluster.nodes * chance.uniform(0.2, 0.6)))
        added = 0
        while added < extra:
            added = min(extra, added + chance.randint(1, max(1, cluster.nodes // 8)))
            yield from _steady(cluster.nodes + added, chance.uniform(10, 40), cluster)
        yield from _steady(cluster.nodes + extra, chance.uniform(600, 1800), cluster)
        while added > 0:
            added = max(0, added - chance.randint(1, 3))
            yield from _steady(cluster.nodes + added, chance.uniform(10, 60), cluster)


def _steady(nodes: int, seconds: float, cluster: Cluster) -> Iterator[int]:
    for _ in range(max(1, round(seconds / cluster.interval_seconds))):
        yield max(1, nodes)


WALKS: Mapping[str, Walk] = {
    "random-walk": random_walk,
    "rolling-update": rolling_update,
    "node-flap": node_flap,
    "autoscaler-burst": autoscaler_burst,
}
"""Every generated history, by its name."""


def generate(name: str, cluster: Cluster, seed: int) -> History:
    """Give one history; the same seed gives the same one.

    It begins up to a tenth above or below the cluster's size: what is round in one is not in the next.
    """
    chance = random.Random(f"{name}/{seed}")  # noqa: S311 - a simulation
    spread = cluster.nodes // 10
    begun = replace(cluster, nodes=cluster.nodes + chance.randint(-spread, spread))
    walk = WALKS[name](begun, chance)
    step = round(cluster.interval_seconds * 1000)
    sizes = [cluster.sized(nodes) for nodes in islice(walk, cluster.looks)]
    return History([number * step for number in range(cluster.looks)], list(sizes))
