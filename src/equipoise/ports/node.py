"""What the agent needs of the machine it runs on: counters out, quotas in. Only this balancer asks for it.

A pod of this node as the API server tells it: what the agent joins with the kernel's counters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from equipoise.core.cluster import Owner


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


class Host(Protocol):
    """The machine: cgroups and /proc. What has vanished is None; what can't be read at all raises."""

    def boot_id(self) -> str:
        """Return the ID of this boot: cgroups do not outlive it."""
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


class NodeReading(NamedTuple):
    """One look: the machine's counters and those of its containers, by id."""

    node: NodeCounters
    containers: Mapping[str, Counters]


TOO_LATE_SECONDS = 30.0
"""How long after its grace period a terminating pod still counts as released."""


class NodeContainer(msgspec.Struct, frozen=True, gc=False):
    """One running container; requests and limits are those in force now."""

    name: str
    id: str
    cpu_request_nanos: int = 0
    cpu_limit_nanos: int = 0


class NodePod(msgspec.Struct, frozen=True, gc=False):
    """One pod."""

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    phase: str = "Running"
    qos_class: str = "BestEffort"
    priority: int = 0
    priority_class: str = ""
    started_at: float | None = None
    deletion_at: float | None = None
    """When its grace period ends by the server's clock, for one that is terminating."""
    grace_seconds: int | None = None
    """How long that period is."""
    owner: str = ""
    is_mirror: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    containers: tuple[NodeContainer, ...] = ()
    ext_cpu_limit_nanos: int = 0
    controller: Owner | None = None
    """Who made it, and makes another when it goes."""
    unclear: tuple[tuple[str, str], ...] = ()
    """Containers, by id, whose quota by the kubelet is not clear, and why."""

    @property
    def key(self) -> str:
        """How actions name it."""
        return f"{self.namespace}/{self.name}"

    def is_leaving(self, at: float) -> bool:
        """Whether it is on its way out, and not too late."""
        return self.deletion_at is not None and at < self.deletion_at + TOO_LATE_SECONDS
