"""A pod of this node as the API server tells it: what the agent joins with the kernel's counters."""

import msgspec

from equipoise.model.cluster import Owner

TOO_LATE_SECONDS = 30.0
"""How long after its grace period a terminating pod still counts as released."""


class ContainerTold(msgspec.Struct, frozen=True, gc=False):
    """One running container; requests and limits are those in force now."""

    name: str
    id: str
    cpu_request_nanos: int = 0
    cpu_limit_nanos: int = 0


class PodTold(msgspec.Struct, frozen=True, gc=False):
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
    containers: tuple[ContainerTold, ...] = ()
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
