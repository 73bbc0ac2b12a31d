"""What is seen of a node before a decision: its usage, and its pods with theirs.

CPU is whole nanocores, memory whole bytes, so that nothing is lost through JSON and no float is compared.
Usage of the node is text, as exact as it was read: millicores, bytes, percent, load.
"""

from collections.abc import Mapping

import msgspec

PERIOD_US = 100_000
UNLIMITED = -1


def quota_of(limit_nanos: int, period_us: int) -> int:
    """Give the quota that a limit means, rounded up; unlimited without one."""
    return UNLIMITED if limit_nanos <= 0 else -(-limit_nanos * period_us // 10**9)


class ContainerSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """One container; what is None is unknown, never zero."""

    name: str
    cpu_nanos: int | None = None
    memory_bytes: int | None = None
    reclaimable_bytes: int = 0
    """What the kernel could take back without stopping it."""
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
        """The quota that its limit means."""
        return quota_of(self.cpu_limit_nanos, self.period_us)


class PodSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pod on the node."""

    namespace: str
    name: str
    qos_class: str = "BestEffort"
    priority: int = 0
    started_at: float | None = None
    containers: tuple[ContainerSeen, ...] = ()
    uid: str = ""
    labels: Mapping[str, str] = {}
    ext_cpu_limit_nanos: int = 0
    """The limit of extended CPU; 0 uses none."""
    protection: str = ""
    """Why it is never acted on, such as `it is a static pod`."""
    is_daemon: bool = False
    """Of a DaemonSet, which would start it on the same node again."""
    is_terminating: bool = False
    """On its way out: what it uses counts as released."""
    refusal: str = ""
    """Why it can't be evicted for now; it may be throttled all the same."""

    @property
    def key(self) -> str:
        """How actions name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def cpu_nanos(self) -> int | None:
        """What it uses, or None where a container is unknown."""
        return _sum([container.cpu_nanos for container in self.containers])

    @property
    def memory_bytes(self) -> int | None:
        """What it uses, or None where a container is unknown."""
        return _sum([container.memory_bytes for container in self.containers])

    @property
    def is_evictable(self) -> bool:
        """Whether sending it away can be asked for, and would be of use."""
        return not self.is_daemon and not self.refusal

    @property
    def is_throttled(self) -> bool:
        """Whether a quota of it is one that we wrote."""
        return any(container.is_throttled for container in self.containers)


def _sum(parts: list[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if parts and len(known) == len(parts) else None


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One look at a node."""

    node: str
    at: float
    cpu_nanos: int
    """How large it is."""
    memory_bytes: int
    usage: Mapping[str, str]
    """By metric; what is absent could not be read, or not over an interval wholly after the last action."""
    fresh: Mapping[str, str | None] | None = None
    """The second reading, just before acting; null could not be read. None is the same as `usage`."""
    pods: tuple[PodSeen, ...] = ()
    labels: Mapping[str, str] = {}
    is_scheduling_disabled: bool = False
    """Whether we let no new pod come to it."""
    released_cpu_nanos: int = 0
    """CPU that is in the usage and yet gone: of pods that ended meanwhile, of quotas lowered since."""
