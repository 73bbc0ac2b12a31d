"""What is seen of one workload before its rotation is decided.

What a file does not say counts as harmless.
"""

import msgspec

from equipoise.model.cluster import TOLERANCE, HpaMetric

CORES_MAX = 1e12
"""More is a mistake, and its sums would leave the floats."""


class PodLoad(msgspec.Struct, frozen=True, gc=False):
    """One pod: what it uses, what it asks for, and whether it can be judged."""

    name: str
    cpu_cores: float | None
    """None: no fresh sample, or none of a part of the window. Missing is never zero."""
    request_cores: float | None
    is_ready: bool = True
    """Ready, running and not terminating."""
    age_seconds: float | None = None
    """None counts as old enough."""
    has_restarted: bool = False
    """Restarted inside the metrics window."""
    node: str = ""
    uid: str = ""
    ready_seconds: float | None = None
    """For how long it has been ready; None counts as long enough."""
    protection: str = ""
    """Why it is never evicted, or nothing."""
    is_leaving: bool = False
    """Terminating."""
    revision: str = ""
    """The UID of what made it: two among the pods of a workload are two versions of it."""


class HpaSeen(msgspec.Struct, frozen=True):
    """An HPA whose `scaleTargetRef` names the workload."""

    name: str
    metrics: tuple[HpaMetric, ...]
    replicas_min: int | None = None
    replicas_max: int | None = None
    replicas_current: int | None = None
    replicas_desired: int | None = None
    scaled_seconds: float | None = None
    """How long ago it last scaled."""
    tolerance_up: float = TOLERANCE
    tolerance_down: float = TOLERANCE


class WorkloadSeen(msgspec.Struct, frozen=True):
    """The controller of the pods."""

    kind: str
    replicas_wanted: int
    replicas_seen: int
    replicas_updated: int
    """Of the newest version, among those seen."""
    is_observed: bool = True
    """Whether its controller has seen the newest spec."""
    opt_out: str = ""
    """The annotation that asks to leave it alone."""
    autoscaler_pause: str = ""
    """Who paused its autoscaler, and how."""
    is_protected: bool = False
    """Whether it lives where nothing is ever evicted."""


class Observation(msgspec.Struct, frozen=True):
    """One workload at one moment."""

    subject: str
    at: float
    hpas: tuple[HpaSeen, ...]
    pods: tuple[PodLoad, ...]
    namespace: str = ""
    workload: WorkloadSeen | None = None
    """None: from a file, where only the algorithm decides."""
    metrics_partial: str = ""
    """Why the source of the usage could not answer in full, in its words."""
