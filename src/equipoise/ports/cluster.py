"""What we see of the world: the cluster, usage now, usage of weeks.

What is measured of containers over weeks, and how a history of it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from equipoise.core.errors import WorldFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from equipoise.core.cluster import Hpa, HpaSpec, Node, Pdb, Pod, Workload, WorkloadRef


class Clock(Protocol):
    """The time, as an argument to whoever needs it."""

    def now(self) -> float:
        """Return the Unix time in seconds."""
        ...


class Cluster(Protocol):
    """Reads of a Kubernetes cluster. A namespace of None means all namespaces."""

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        """List the pods."""
        ...

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        """Ask for the pods of one workload as they are now, past every cache: the last look before a deed."""
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

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        """Return whose autoscaling somebody has paused, and by what; not knowing raises.

        The words are part of a sentence: `ScaledObject shop/web is paused by autoscaling.keda.sh/paused`.
        """
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
    is_covered: NDArray[np.bool_] | None = None
    """Whether the samples tell about the whole window; where they do not, `cores` is too low.

    Nothing: the source has a window of its own, and always tells about the whole of it.
    """
    partial: tuple[str, ...] = ()
    """Why rows may be missing, in the source's words: it says that its answer is not whole."""


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


class NoHistory(WorldFailed):
    """There is nothing that remembers weeks of usage: somebody has to say where it is, or install it."""


class History(Protocol):
    """Weeks of usage of all containers."""

    def read(
        self,
        measures: Sequence[Measure],
        start: float,
        end: float,
        step_seconds: float,
        *,
        namespaces: Sequence[str] | None = None,
        grouping: Grouping | None = None,
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[UsageHistory]:
        """Yield the histories lot by lot, whole namespaces in each, so that a lot can be reduced and dropped.

        A lot has the measures in the given order. A namespace too large for one lot is cut into whole groups
        of pods, where somebody says which belong together. An error ends it; what came before is right. A
        container that is not in its lot is unknown.
        """
        ...


class Owners(Protocol):
    """Who made what is gone, from whatever remembers it."""

    def replica_sets(self, namespaces: Sequence[str], at: float) -> Mapping[tuple[str, str], tuple[str, str]]:
        """Return the kind and name of the owner by namespace and ReplicaSet; what nobody knows is absent."""
        ...


class Autoscalers(Protocol):
    """What HPAs say word for word, where the few numbers of `Cluster.hpas` are not enough."""

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        """List what every HorizontalPodAutoscaler asks for."""
        ...


class Reduction(StrEnum):
    """How samples become one number for each time."""

    RATE = "rate"
    LAST = "last"
    HIGHEST = "highest"
    """Of all samples from the start to the end: one number, at the end."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of containers."""

    name: str
    metric: str
    reduction: Reduction


CPU = Measure("cpu", "container_cpu_usage_seconds_total", Reduction.RATE)
"""Cores."""
MEMORY = Measure("memory", "container_memory_working_set_bytes", Reduction.HIGHEST)
"""Bytes at their peak, which is all that advice needs of them."""


Grouping = Callable[[str, Sequence[str]], Sequence[object]]
"""Names, for a namespace and some of its pods, the group of each; None are pods that nobody needs."""


@dataclass(frozen=True, slots=True, eq=False)
class UsageHistory:
    """Usage per container: a row for each, a column for each time, NaN where it is unknown."""

    measure: str
    scope: tuple[str, ...] | None
    """The namespaces that are all in here; None are all there are."""
    namespaces: Sequence[str]
    pods: Sequence[str]
    containers: Sequence[str]
    timestamps: NDArray[np.float64]
    values: NDArray[np.float64]
    window_seconds: float
    """How far back each column looks."""
    source: str
    warnings: tuple[str, ...] = ()
    groups: frozenset[object] | None = None
    """Of a namespace too large to be read at once, the groups that are whole in here; None means all."""
    partial: tuple[str, ...] = ()
    """Why samples may be missing, in the source's words: it says that its answer is not whole."""
