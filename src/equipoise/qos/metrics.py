"""The metrics that a waterline can be drawn for: one table. A new metric needs one entry.

An entry says what is acted on for it, how pods are sorted by it, and what acting on a pod releases; without
the last it can't be quantified, and all eligible pods are acted on. The order is that of acting: what can't
be compressed comes first.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from equipoise.qos.observation import Observation, PodSeen

NANOS_PER_MILLI = 10**6
PERCENT = 100


class Resource(StrEnum):
    """What is throttled for a metric; gaps are in millicores or bytes."""

    MEMORY = "memory"
    CPU = "cpu"


Release = Callable[[PodSeen], Fraction | None]


class Metric(NamedTuple):
    """One metric of a node."""

    name: str
    resource: Resource
    usage_comparator: str = ""
    """How its consumers are told apart; the rest of the chain is the same for all."""
    releases: Release | None = None
    """What evicting a pod releases, or None where that is unknown."""
    is_share: bool = False
    """Whether it is in percent of the node's size."""
    window_seconds: int = 0
    """Over how long the kernel takes its mean; 0 where it is of now, or of the interval between two looks."""

    @property
    def is_quantifiable(self) -> bool:
        """Whether acting on a pod has a size that can be foreseen."""
        return self.releases is not None

    @property
    def chain(self) -> tuple[str, ...]:
        """The comparators that sort pods for it."""
        if not self.is_quantifiable:
            return ("classAndPriority", "runningTime", "name")
        return ("classAndPriority", self.usage_comparator, "extCpuUsage", "runningTime", "name")

    def amount(self, value: Fraction, seen: Observation) -> Fraction:
        """Give a value in the unit of gaps: percent become millicores or bytes."""
        return value * size_of(self.resource, seen) / PERCENT if self.is_share else value


def size_of(resource: Resource, seen: Observation) -> Fraction:
    """Give how large the node is, in the unit of gaps."""
    if resource is Resource.MEMORY:
        return Fraction(seen.memory_bytes)
    return Fraction(seen.cpu_nanos, NANOS_PER_MILLI)


def millicores_of(pod: PodSeen) -> Fraction | None:
    """Give the CPU that a pod uses."""
    nanos = pod.cpu_nanos
    return None if nanos is None else Fraction(nanos, NANOS_PER_MILLI)


def bytes_of(pod: PodSeen) -> Fraction | None:
    """Give the memory that a pod uses."""
    used = pod.memory_bytes
    return None if used is None else Fraction(used)


PRESSURES = {
    "pressure": 10,
    **{f"pressure_{who}_avg{n}": n for who in ("some", "full") for n in (10, 60, 300)},
}
"""As the kernel tells them, and over how many seconds; without more it is `some avg10`."""


def _pressures(of: str, resource: Resource) -> list[Metric]:
    return [Metric(f"{of}_{name}", resource, window_seconds=span) for name, span in PRESSURES.items()]


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("memory_total_usage", Resource.MEMORY, "memoryUsage", bytes_of),
        Metric("memory_total_utilization", Resource.MEMORY, "memoryUsage", bytes_of, is_share=True),
        Metric("cpu_total_usage", Resource.CPU, "cpuUsage", millicores_of),
        Metric("cpu_total_utilization", Resource.CPU, "cpuUsage", millicores_of, is_share=True),
        *_pressures("memory", Resource.MEMORY),
        *(Metric(f"cpu_load_{n}_min", Resource.CPU, window_seconds=60 * n) for n in (1, 5, 15)),
        *_pressures("cpu", Resource.CPU),
        *_pressures("io", Resource.CPU),
    )
}
ORDER: Mapping[str, int] = {name: place for place, name in enumerate(METRICS)}
DERIVED = {"memory_total_utilization": "memory_total_usage", "cpu_total_utilization": "cpu_total_usage"}
"""What can be told from another metric and the node's size."""


def with_shares(usage: Mapping[str, Fraction | None], seen: Observation) -> dict[str, Fraction | None]:
    """Add the shares that are not given; an amount that could not be read gives none."""
    found = dict(usage)
    for share, amount in DERIVED.items():
        size = size_of(METRICS[share].resource, seen)
        if share not in found and amount in found and size > 0:
            value = found[amount]
            found[share] = None if value is None else value * PERCENT / size
    return found
