"""What proportional scaling needs of the world, beside the common ports. Adapters stand behind it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from equipoise.model.cluster import Workload
from equipoise.model.references import ObjectRef, PodRef, WorkloadRef

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
        """Give a workload with its template's containers, DaemonSets included; None when there is none."""
        ...

    def advised(self) -> Mapping[WorkloadRef, str]:
        """Tell whose requests a VerticalPodAutoscaler sets, and which; not knowing raises.

        The words are part of a sentence: `VerticalPodAutoscaler shop/web (Auto)`. The key
        `every_workload` of a namespace stands for all of its workloads: it is not known which one is meant.
        """
        ...

    def offers_resize(self) -> bool:
        """Tell whether the server can change pods in place."""
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
