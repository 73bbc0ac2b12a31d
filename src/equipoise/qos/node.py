"""What the agent needs of the machine it runs on: counters out, quotas in. Only this balancer asks for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """One incarnation of a container."""

    pod_uid: str
    id: str
    qos_class: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """What the kernel has counted for one container; None could not be read."""

    cpu_nanos: int | None
    """CPU time since it began."""
    read_at: float
    """Monotonic seconds."""
    memory_bytes: int | None = None
    reclaimable_bytes: int = 0
    quota_us: int | None = None
    period_us: int = 100_000


@dataclass(frozen=True, slots=True)
class NodeCounters:
    """What the kernel has counted for the whole machine."""

    cpu_nanos: int | None
    read_at: float
    cpus: int
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    gauges: Mapping[str, str]
    """Load and pressure by metric, as they stand: `{"cpu_load_1_min": "0.52"}`."""


class Node(Protocol):
    """The machine: cgroups and /proc. What has vanished is None; what can't be read at all raises."""

    def boot_id(self) -> str:
        """Tell this boot from the one before: cgroups do not outlive it."""
        ...

    def read_node(self) -> NodeCounters:
        """Read the machine's own counters."""
        ...

    def read(self, containers: Sequence[ContainerRef], *, is_deep: bool) -> Mapping[str, Counters]:
        """Read containers by id; deeply also memory and quotas. One that has vanished is not there."""
        ...

    def set_quota(self, container: ContainerRef, quota_us: int) -> bool:
        """Write a quota, -1 for none; False where the container has vanished."""
        ...

    def reclaim(self, container: ContainerRef, amount_bytes: int) -> int | None:
        """Have the kernel take memory back, and give what was measured to be gone; None where it vanished."""
        ...


class Look(NamedTuple):
    """One look: the machine's counters and those of its containers, by id."""

    node: NodeCounters
    containers: Mapping[str, Counters]
