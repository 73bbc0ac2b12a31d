"""The machine that a node agent runs on: the kernel's counters and quotas, and the pods of the node.

The agent joins the counters with the pods as the API server describes them.
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
    """The kernel's counters of one container; None for one that could not be read."""

    cpu_nanos: int | None
    """CPU time since the container started."""
    read_at: float
    """Monotonic time in seconds."""
    memory_bytes: int | None = None
    reclaimable_bytes: int = 0
    quota_us: int | None = None
    period_us: int = 100_000


@dataclass(frozen=True, slots=True)
class NodeCounters:
    """The kernel's counters of the whole machine."""

    cpu_nanos: int | None
    read_at: float
    cpus: int
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    gauges: Mapping[str, str]
    """Load and pressure by metric, as text: `{"cpu_load_1_min": "0.52"}`."""


class Host(Protocol):
    """The machine: cgroups and /proc. A call raises where nothing can be read."""

    def boot_id(self) -> str:
        """Return the ID of this boot; cgroups end with it."""

    def read_node(self) -> NodeCounters:
        """Read the machine's own counters."""

    def read(self, containers: Sequence[ContainerRef], *, is_deep: bool) -> Mapping[str, Counters]:
        """Read counters by container id, with `is_deep` also memory and quotas; vanished ones are absent."""

    def set_quota(self, container: ContainerRef, quota_us: int) -> bool:
        """Write a CPU quota, -1 for none; return False where the container has vanished."""

    def reclaim(self, container: ContainerRef, amount_bytes: int) -> int | None:
        """Have the kernel reclaim memory; return the measured bytes, None for a vanished container."""


class NodeReading(NamedTuple):
    """The counters at one time: the machine's, and its containers' by id."""

    node: NodeCounters
    containers: Mapping[str, Counters]


TOO_LATE_SECONDS = 30.0
"""A terminating pod counts as released until so long after its grace period."""


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
    """When the grace period ends, by the server's clock; None for a pod that is not terminating."""
    grace_seconds: int | None = None
    """The length of the grace period."""
    owner: str = ""
    is_mirror: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    containers: tuple[NodeContainer, ...] = ()
    ext_cpu_limit_nanos: int = 0
    controller: Owner | None = None
    """The controller, which replaces the pod when it ends."""
    unclear: tuple[tuple[str, str], ...] = ()
    """Containers, by id, whose quota the kubelet may be about to change, and why."""

    @property
    def key(self) -> str:
        """Return the pod's name in actions."""
        return f"{self.namespace}/{self.name}"

    def is_leaving(self, at: float) -> bool:
        """Return whether the pod is terminating and not overdue."""
        return self.deletion_at is not None and at < self.deletion_at + TOO_LATE_SECONDS
