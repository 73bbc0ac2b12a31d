"""What is seen of one workload before its rotation is decided."""

import msgspec

from equipoise.model.cluster import HpaMetric


class PodLoad(msgspec.Struct, frozen=True, gc=False):
    """One pod: what it uses, what it asks for, and whether it can be judged."""

    name: str
    cpu_cores: float | None
    """None: no fresh sample. Missing is never zero."""
    request_cores: float | None
    is_ready: bool = True
    """Ready, running and not terminating."""
    age_seconds: float | None = None
    """None counts as old enough."""
    has_restarted: bool = False
    """Restarted inside the metrics window."""
    node: str = ""
    uid: str = ""


class HpaSeen(msgspec.Struct, frozen=True):
    """An HPA whose `scaleTargetRef` names the workload."""

    name: str
    metrics: tuple[HpaMetric, ...]


class Observation(msgspec.Struct, frozen=True):
    """One workload at one moment."""

    subject: str
    at: float
    hpas: tuple[HpaSeen, ...]
    pods: tuple[PodLoad, ...]
    namespace: str = ""
