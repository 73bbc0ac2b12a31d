"""What we change in a cluster: one thing at a time, each with what it must not surprise.

What proportional scaling needs of the world, beside the common ports. Adapters stand behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from equipoise.core.cluster import ObjectRef, PodRef, Workload, WorkloadRef

if TYPE_CHECKING:
    from equipoise.core.cluster import ObjectRef, PodRef


class EvictionResult(StrEnum):
    """What the API server said to an eviction."""

    ACCEPTED = "Accepted"
    BLOCKED = "Blocked"
    """A PodDisruptionBudget forbids it now (429): wait, never delete."""
    GONE = "Gone"
    """No pod of that name and UID is there any more."""
    REFUSED = "Refused"
    """It will not be allowed however often it is asked (several budgets on one pod, bad request)."""
    FORBIDDEN = "Forbidden"
    """We have no right to (403)."""


@dataclass(frozen=True, slots=True)
class EvictionAnswer:
    """The answer to one eviction. Silence is no answer: it raises, and the outcome is unknown."""

    result: EvictionResult
    detail: str = ""
    retry_after_seconds: float | None = None


class Actuator(Protocol):
    """Changes to a cluster: one at a time, each with what it must not surprise."""

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        """Evict exactly this incarnation of a pod; without a grace period, its own."""
        ...

    def record_event(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        """Attach one sentence to an object, where `kubectl describe` shows it."""
        ...


class ApplyResult(StrEnum):
    """What became of an object that was to be as we want it."""

    CREATED = "Created"
    CHANGED = "Changed"
    UNCHANGED = "Unchanged"
    """It was so already."""
    NOT_OURS = "NotOurs"
    """It, or a field of it, or the workload's scaling, is somebody else's: nothing was changed."""
    GONE = "Gone"
    """What it is about is not there, or has been replaced since."""
    REFUSED = "Refused"
    """It will not be taken however often it is asked (bad request, an admission webhook)."""
    FORBIDDEN = "Forbidden"
    """We have no right to (403)."""
    LATE = "Late"
    """The look before it took so long that nothing was sent: whether it may be done has to be asked anew."""


@dataclass(frozen=True, slots=True)
class ApplyAnswer:
    """The answer to one apply. Silence is no answer: it raises, and the outcome is unknown."""

    result: ApplyResult
    detail: str = ""
    """What was in the way, as a clause: `HorizontalPodAutoscaler shop/web belongs to Helm`."""
    owner: str = ""
    """Whose it is where it is not ours: an owner, a tool or a field manager."""


class Applier(Protocol):
    """Objects that we make and keep as advised, and never take from anybody."""

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        """Make this HPA, or bring the one that we made to it; one that somebody else made is left alone.

        So is a workload that another HPA or a KEDA ScaledObject scales, and a field that another manager
        has set since. `metadata.name`, `metadata.namespace` and `spec.scaleTargetRef` must be there.
        """
        ...

    def annotate(
        self, workload: WorkloadRef, annotations: Mapping[str, str], *, is_dry_run: bool = False
    ) -> ApplyAnswer:
        """Set these annotations of a workload, and touch nothing else of it, its pods' template included."""
        ...


Values = Mapping[str, Mapping[str, Mapping[str, str]]]
"""By container: `{"dns": {"requests": {"cpu": "300m"}}}`."""


class ResizeResult(StrEnum):
    """What the API server said to other requests and limits."""

    ACCEPTED = "Accepted"
    """It is asked for from now on; whether the node can give it, the pod's own state tells later."""
    UNSUPPORTED = "Unsupported"
    """The server can't change pods in place."""
    REFUSED = "Refused"
    """It will not be taken as it is: another QoS class, a quota, a LimitRange, a limit below its request."""
    OUTDATED = "Outdated"
    """The object has changed since it was looked at."""
    GONE = "Gone"
    """No object of that name and UID is there any more."""
    FORBIDDEN = "Forbidden"
    """We have no right to (403)."""


@dataclass(frozen=True, slots=True)
class ResizeAnswer:
    """The answer to one change. Silence is no answer: it raises, and a later look tells."""

    result: ResizeResult
    detail: str = ""


def every_workload(namespace: str) -> WorkloadRef:
    """Return the key that stands for all workloads of a namespace."""
    return WorkloadRef("", "", namespace, "")


class Sizes(Protocol):
    """Whose requests and limits can be set: reads beside those of `Cluster`, and the deeds."""

    def workload(self, ref: WorkloadRef) -> Workload | None:
        """Return a workload with its template's containers, DaemonSets included; None when there is none."""
        ...

    def advised(self) -> Mapping[WorkloadRef, str]:
        """Return whose requests a VerticalPodAutoscaler sets, and which; not knowing raises.

        The words are part of a sentence: `VerticalPodAutoscaler shop/web (Auto)`. The key
        `every_workload` of a namespace stands for all of its workloads: it is not known which one is meant.
        """
        ...

    def offers_resize(self) -> bool:
        """Return whether the server can change pods in place."""
        ...

    def resize(
        self,
        pod: PodRef,
        values: Values,
        *,
        sidecars: Collection[str] = (),
        version: str = "",
        is_dry_run: bool = False,
    ) -> ResizeAnswer:
        """Change exactly this incarnation of a pod in place; with a version, only that of it."""
        ...

    def set_template(
        self,
        workload: ObjectRef,
        values: Values,
        *,
        sidecars: Collection[str] = (),
        version: str = "",
        is_dry_run: bool = False,
    ) -> ResizeAnswer:
        """Change what a workload's pods are made from; nothing else of it."""
        ...

    def setter_of(self, about: ObjectRef, container: str, section: str, resource: str) -> str:
        """Name who of all field managers set this value of a pod or a template last, or nothing."""
        ...
