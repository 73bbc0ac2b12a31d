"""Changes to a cluster: evictions, events, applied objects, and pods' requests and limits.

Each call changes one object and returns a typed answer. An exception means that the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from equipoise.core.cluster import ObjectRef, PodRef, Workload, WorkloadRef


class EvictionResult(StrEnum):
    """How the API server answered an eviction."""

    ACCEPTED = "Accepted"
    BLOCKED = "Blocked"
    """A PodDisruptionBudget forbids it now (429): wait, never delete."""
    GONE = "Gone"
    """No pod with this name and UID exists any more."""
    REFUSED = "Refused"
    """Retrying does not help (several budgets on one pod, bad request)."""
    FORBIDDEN = "Forbidden"
    """We have no right to (403)."""


@dataclass(frozen=True, slots=True)
class EvictionAnswer:
    """The answer to one eviction. Without an answer, `evict` raises and the outcome is unknown."""

    result: EvictionResult
    detail: str = ""
    retry_after_seconds: float | None = None


class Actuator(Protocol):
    """Evictions and events."""

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        """Evict the pod with this name and UID; without `grace_seconds`, its own grace period applies."""

    def record_event(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        """Record a Kubernetes event about an object; `kubectl describe` shows it."""


class ApplyResult(StrEnum):
    """The result of applying an object or its annotations."""

    CREATED = "Created"
    CHANGED = "Changed"
    UNCHANGED = "Unchanged"
    """The object already had this content."""
    NOT_OURS = "NotOurs"
    """The object, a field of it or the workload's scaling belongs to another owner: nothing was changed."""
    GONE = "Gone"
    """The object does not exist, or another one with its name has replaced it."""
    REFUSED = "Refused"
    """Retrying does not help (bad request, an admission webhook)."""
    FORBIDDEN = "Forbidden"
    """We have no right to (403)."""
    LATE = "Late"
    """The reads before the write took so long that nothing was sent: the guards have to be checked again."""


@dataclass(frozen=True, slots=True)
class ApplyAnswer:
    """The answer to one apply. Without an answer, the call raises and the outcome is unknown."""

    result: ApplyResult
    detail: str = ""
    """Why nothing was changed, as a clause: `HorizontalPodAutoscaler shop/web is managed by Helm`."""
    owner: str = ""
    """The other owner for `NOT_OURS`: an owner reference, a tool or a field manager."""


class Applier(Protocol):
    """Server-side apply of objects that are ours; objects of other owners are never changed."""

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        """Create this HPA, or update the one that we created.

        Nothing is changed where the HPA belongs to another owner, where another HPA or a KEDA ScaledObject
        scales the workload, or where another manager has set one of the fields since. The manifest must have
        `metadata.name`, `metadata.namespace` and `spec.scaleTargetRef`.
        """

    def annotate(
        self, workload: WorkloadRef, annotations: Mapping[str, str], *, is_dry_run: bool = False
    ) -> ApplyAnswer:
        """Set these annotations on a workload; neither its spec nor its pod template changes."""


Values = Mapping[str, Mapping[str, Mapping[str, str]]]
"""By container: `{"dns": {"requests": {"cpu": "300m"}}}`."""


class ResizeResult(StrEnum):
    """How the API server answered a change of requests and limits."""

    ACCEPTED = "Accepted"
    """The spec was changed; the pod's status reports later whether the node has carried it out."""
    UNSUPPORTED = "Unsupported"
    """The server cannot resize pods in place."""
    REFUSED = "Refused"
    """The values are not allowed: another QoS class, a quota, a LimitRange, a limit below its request."""
    OUTDATED = "Outdated"
    """The object has changed since it was read."""
    GONE = "Gone"
    """No object with this name and UID exists any more."""
    FORBIDDEN = "Forbidden"
    """We have no right to (403)."""


@dataclass(frozen=True, slots=True)
class ResizeAnswer:
    """The answer to one change. Without an answer, the call raises; the next read shows the outcome."""

    result: ResizeResult
    detail: str = ""


def every_workload(namespace: str) -> WorkloadRef:
    """Return the key that stands for all workloads of a namespace."""
    return WorkloadRef("", "", namespace, "")


class Sizes(Protocol):
    """Requests and limits: reads that `Cluster` does not offer, and changes."""

    def workload(self, ref: WorkloadRef) -> Workload | None:
        """Return a workload, also a DaemonSet, with its template; None when it does not exist."""

    def advised(self) -> Mapping[WorkloadRef, str]:
        """Return the VerticalPodAutoscaler that sets a workload's requests, by workload; raise when unknown.

        A value is part of a sentence: `VerticalPodAutoscaler shop/web (Auto)`. Where the target of a
        VerticalPodAutoscaler is unknown, its key is `every_workload` of the namespace.
        """

    def offers_resize(self) -> bool:
        """Return whether the server can resize pods in place."""

    def resize(
        self,
        pod: PodRef,
        values: Values,
        *,
        sidecars: Collection[str] = (),
        version: str = "",
        is_dry_run: bool = False,
    ) -> ResizeAnswer:
        """Resize the pod with this name and UID in place; with `version`, only that resource version."""

    def set_template(
        self,
        workload: ObjectRef,
        values: Values,
        *,
        sidecars: Collection[str] = (),
        version: str = "",
        is_dry_run: bool = False,
    ) -> ResizeAnswer:
        """Change the requests and limits in a workload's pod template, and nothing else."""

    def setter_of(self, about: ObjectRef, container: str, section: str, resource: str) -> str:
        """Return the field manager that last set this value of a pod or a template; empty when none did."""
