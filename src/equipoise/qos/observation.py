"""What is observed of a node before a decision, and the tables of metrics and comparators that read it. Pure.

CPU is whole nanocores, memory whole bytes, so that nothing is lost through JSON and no float is compared.
Usage of the node is text, as exact as it was read: millicores, bytes, percent, load.

`COMPARATORS` sort pods, chained: each returns a key that is smaller for the pod to act on first. An unknown
value comes last among its equals, but for a start time: a pod without one has hardly begun.

`METRICS` are the metrics of waterlines, in the order of acting: memory, which is not compressible, comes
first. An entry has the resource, the comparator of its consumers, and the amount that evicting a pod
releases; without the last it can't be quantified, and all eligible pods are acted on.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

PERIOD_US = 100_000
UNLIMITED = -1
QUOTA_MIN_US = 1000
"""The kernel's minimum."""


def quota_of(limit_nanos: int, period_us: int) -> int:
    """Return the quota of a limit, rounded up; unlimited without a limit."""
    return UNLIMITED if limit_nanos <= 0 else -(-limit_nanos * period_us // 10**9)


class ObservedContainer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One container; what is None is unknown, never zero."""

    name: str
    cpu_nanos: int | None = None
    memory_bytes: int | None = None
    reclaimable_bytes: int = 0
    """The memory that the kernel can reclaim."""
    quota_us: int = UNLIMITED
    period_us: int = PERIOD_US
    cpu_request_nanos: int = 0
    cpu_limit_nanos: int = 0
    """0 is no limit."""
    is_throttled: bool = False
    """Whether its quota is one that we wrote."""
    id: str = ""

    @property
    def limit_us(self) -> int:
        return quota_of(self.cpu_limit_nanos, self.period_us)


class ObservedPod(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pod on the node."""

    namespace: str
    name: str
    qos_class: str = "BestEffort"
    priority: int = 0
    started_at: float | None = None
    containers: tuple[ObservedContainer, ...] = ()
    uid: str = ""
    labels: Mapping[str, str] = {}
    ext_cpu_limit_nanos: int = 0
    """The limit of extended CPU; 0 uses none."""
    protection: str = ""
    """Why it is never acted on, such as `it is a static pod`."""
    is_daemon: bool = False
    """Of a DaemonSet, which would start it on the same node again."""
    is_terminating: bool = False
    """Whether it is terminating: its usage counts as released."""
    refusal: str = ""
    """Why it can't be evicted now; it may still be throttled."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def cpu_nanos(self) -> int | None:
        """Its usage; None where that of a container is unknown."""
        return _sum([container.cpu_nanos for container in self.containers])

    @property
    def memory_bytes(self) -> int | None:
        """Its usage; None where that of a container is unknown."""
        return _sum([container.memory_bytes for container in self.containers])

    @property
    def is_evictable(self) -> bool:
        """Whether it may be evicted: not of a DaemonSet, and not in backoff after a refusal."""
        return not self.is_daemon and not self.refusal

    @property
    def is_throttled(self) -> bool:
        """Whether a quota of it is one that we wrote."""
        return any(container.is_throttled for container in self.containers)


def _sum(parts: list[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if parts and len(known) == len(parts) else None


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a node at one moment."""

    node: str
    at: float
    cpu_nanos: int
    """The size of the node."""
    memory_bytes: int
    usage: Mapping[str, str]
    """By metric; what is absent could not be read, or not over an interval wholly after the last action."""
    fresh: Mapping[str, str | None] | None = None
    """The second reading, just before acting; null could not be read. None is the same as `usage`."""
    pods: tuple[ObservedPod, ...] = ()
    labels: Mapping[str, str] = {}
    is_scheduling_disabled: bool = False
    released_cpu_nanos: int = 0
    """CPU in the usage that is already released: of pods that ended meanwhile, of quotas lowered since."""


CLASSES = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
TIE_BREAK = "name"
ALL_CHAIN = ("classAndPriority", "runningTime", "name")
"""The comparators that sort pods where no amount is known."""


def _largest_first(used: int | Fraction | None) -> tuple[bool, Any]:
    return (True, 0) if used is None else (False, -used)


def _class_and_priority(pod: ObservedPod) -> tuple[int, int]:
    return CLASSES.get(pod.qos_class, 0), pod.priority


def _ext_cpu_usage(pod: ObservedPod) -> tuple[bool, Any]:
    """Return the share of its extended CPU that a pod uses; 0 for a pod that has none."""
    if pod.ext_cpu_limit_nanos <= 0 or pod.cpu_nanos is None:
        return _largest_first(0)
    return _largest_first(Fraction(pod.cpu_nanos, pod.ext_cpu_limit_nanos))


COMPARATORS: Mapping[str, Callable[[ObservedPod], Any]] = {
    "classAndPriority": _class_and_priority,
    "cpuUsage": lambda pod: _largest_first(pod.cpu_nanos),
    "memoryUsage": lambda pod: _largest_first(pod.memory_bytes),
    "extCpuUsage": _ext_cpu_usage,
    "runningTime": lambda pod: -math.inf if pod.started_at is None else -pod.started_at,
    TIE_BREAK: lambda pod: (pod.namespace, pod.name),
}


def sorted_by(chain: Sequence[str], pods: Iterable[ObservedPod]) -> list[ObservedPod]:
    """Sort pods, the one to act on first at the front; equals by name, so that a plan is reproducible."""
    keys = [COMPARATORS[name] for name in (*chain, TIE_BREAK)]
    return sorted(pods, key=lambda pod: tuple(key(pod) for key in keys))


NANOS_PER_MILLI = 10**6
PERCENT = 100


class NodeResource(StrEnum):
    """What is throttled for a metric; gaps are in millicores or bytes."""

    MEMORY = "memory"
    CPU = "cpu"


Release = Callable[[ObservedPod], Fraction | None]


class Metric(NamedTuple):
    """One metric of a node."""

    name: str
    resource: NodeResource
    usage_comparator: str = ""
    """Sorts its consumers; the rest of the chain is the same for all."""
    releases: Release | None = None
    """What evicting a pod releases, or None where that is unknown."""
    is_share: bool = False
    """Whether it is in percent of the node's size."""
    window_seconds: int = 0
    """The seconds of the kernel's mean; 0 where it is of now, or of the interval between two readings."""

    @property
    def is_quantifiable(self) -> bool:
        """Whether acting on a pod has a size that can be foreseen."""
        return self.releases is not None

    @property
    def chain(self) -> tuple[str, ...]:
        """The comparators that sort pods for it."""
        if not self.is_quantifiable:
            return ALL_CHAIN
        return ("classAndPriority", self.usage_comparator, "extCpuUsage", "runningTime", "name")

    def amount(self, value: Fraction, observation: Observation) -> Fraction:
        """Return a value in the unit of gaps: percent become millicores or bytes."""
        return value * size_of(self.resource, observation) / PERCENT if self.is_share else value


def size_of(resource: NodeResource, observation: Observation) -> Fraction:
    """Return the size of the node in the unit of gaps."""
    if resource is NodeResource.MEMORY:
        return Fraction(observation.memory_bytes)
    return Fraction(observation.cpu_nanos, NANOS_PER_MILLI)


def millicores_of(pod: ObservedPod) -> Fraction | None:
    nanos = pod.cpu_nanos
    return None if nanos is None else Fraction(nanos, NANOS_PER_MILLI)


def bytes_of(pod: ObservedPod) -> Fraction | None:
    used = pod.memory_bytes
    return None if used is None else Fraction(used)


PRESSURES = {
    "pressure": 10,
    **{f"pressure_{who}_avg{n}": n for who in ("some", "full") for n in (10, 60, 300)},
}
"""The kernel's names, and the seconds of each mean; the first is `some avg10`."""


def _pressures(of: str, resource: NodeResource) -> list[Metric]:
    return [Metric(f"{of}_{name}", resource, window_seconds=span) for name, span in PRESSURES.items()]


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("memory_total_usage", NodeResource.MEMORY, "memoryUsage", bytes_of),
        Metric("memory_total_utilization", NodeResource.MEMORY, "memoryUsage", bytes_of, is_share=True),
        Metric("cpu_total_usage", NodeResource.CPU, "cpuUsage", millicores_of),
        Metric("cpu_total_utilization", NodeResource.CPU, "cpuUsage", millicores_of, is_share=True),
        *_pressures("memory", NodeResource.MEMORY),
        *(Metric(f"cpu_load_{n}_min", NodeResource.CPU, window_seconds=60 * n) for n in (1, 5, 15)),
        *_pressures("cpu", NodeResource.CPU),
        *_pressures("io", NodeResource.CPU),
    )
}
ORDER: Mapping[str, int] = {name: place for place, name in enumerate(METRICS)}
DERIVED = {"memory_total_utilization": "memory_total_usage", "cpu_total_utilization": "cpu_total_usage"}
"""Shares, each derived from an amount and the node's size."""


def with_shares(usage: Mapping[str, Fraction | None], observation: Observation) -> dict[str, Fraction | None]:
    """Return usage with the shares that were not read; the share of an unknown amount is unknown."""
    found = dict(usage)
    for share, amount in DERIVED.items():
        size = size_of(METRICS[share].resource, observation)
        if share not in found and amount in found and size > 0:
            value = found[amount]
            found[share] = None if value is None else value * PERCENT / size
    return found


CRITICAL_PRIORITY_MIN = 2_000_000_000
"""Kubernetes reserves priorities from this value on for its own critical classes."""
CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})


def protection_of(owner: str, priority: int, priority_class: str, *, is_mirror: bool = False) -> str:
    """Return why no action is taken on a pod, or nothing; the owner is the kind of its controller."""
    if is_mirror or owner == "Node":
        return "it is a static pod"
    if priority >= CRITICAL_PRIORITY_MIN or priority_class in CRITICAL_CLASSES:
        return "its priority class is critical"
    return ""
