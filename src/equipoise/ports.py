"""What we need of the world. Adapters and the simulator stand behind these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from equipoise.model.cluster import Hpa, Node, Pdb, Pod, Workload
    from equipoise.model.references import WorkloadRef


class Clock(Protocol):
    """The time, as an argument to whoever needs it."""

    def now(self) -> float:
        """Give the Unix time in seconds."""
        ...


class Cluster(Protocol):
    """Reads of a Kubernetes cluster. A namespace of None means all namespaces."""

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        """List the pods."""
        ...

    def nodes(self) -> Sequence[Node]:
        """List the nodes."""
        ...

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        """List the Deployments, StatefulSets and ReplicaSets without an owner."""
        ...

    def workload(self, ref: WorkloadRef) -> Workload | None:
        """Read one workload of any kind through its `scale`, or None when there is none."""
        ...

    def hpas(self, namespace: str | None = None) -> Sequence[Hpa]:
        """List the HorizontalPodAutoscalers."""
        ...

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]:
        """List the PodDisruptionBudgets."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class CpuUsage:
    """CPU usage per container as parallel columns: one row for each series that answered.

    A container that is not here is unknown, never zero.
    """

    namespaces: Sequence[str]
    pods: Sequence[str]
    containers: Sequence[str]
    cores: NDArray[np.float64]
    sampled_at: NDArray[np.float64]
    window_seconds: float
    source: str
    warnings: tuple[str, ...] = ()


class Metrics(Protocol):
    """Usage of pods from whatever measures it."""

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        """Read the CPU usage of all these pods, in as few queries as the source's limits allow."""
        ...

    def scalar(self, query: str, at: float) -> float | None:
        """Ask for one number; None when the answer is empty or not one number."""
        ...


__all__ = ["Clock", "Cluster", "CpuUsage", "Metrics"]
