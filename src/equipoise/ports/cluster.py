"""What balancers observe: the cluster's objects, the present usage, and the usage of weeks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from equipoise.core.errors import WorldFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from equipoise.core.cluster import Hpa, HpaSpec, Node, Pdb, Pod, Workload, WorkloadRef


class Clock(Protocol):
    """The time, passed as an argument."""

    def now(self) -> float:
        """Return the Unix time in seconds."""


class Cluster(Protocol):
    """Reads of a Kubernetes cluster. A namespace of None means all namespaces."""

    def pods(self, namespace: str | None = None) -> Sequence[Pod]: ...

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        """Read the pods of one workload from the server, past every cache: the re-check before an action."""

    def nodes(self) -> Sequence[Node]: ...

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        """List the Deployments, StatefulSets and ReplicaSets without an owner."""

    def workload(self, ref: WorkloadRef) -> Workload | None:
        """Read one workload of any kind through its `scale`; None when it does not exist."""

    def hpas(self, namespace: str | None = None) -> Sequence[Hpa]: ...

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]: ...

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        """Return the workloads whose autoscaling is paused, and by what; raise when that is unknown.

        A value is part of a sentence: `ScaledObject shop/web is paused by autoscaling.keda.sh/paused`.
        """


@dataclass(frozen=True, slots=True, eq=False)
class CpuUsage:
    """CPU usage per container as parallel columns: one row for each series in the answer.

    The usage of a container without a row is unknown, never zero.
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
    """Whether the samples cover the whole window; where they do not, `cores` is too low.

    None: the source has a window of its own and always covers it.
    """
    partial: tuple[str, ...] = ()
    """Why rows may be missing: the source's own warnings that its answer is partial."""


class Metrics(Protocol):
    """The present usage of pods, from Prometheus or the metrics API."""

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        """Read the CPU usage of all these pods, in as few queries as the source's limits allow."""

    def scalar(self, query: str, at: float) -> float | None:
        """Evaluate a query; None when its answer is empty or more than one number."""


class NoHistory(WorldFailed):
    """No source of past usage is configured or found."""


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
        """Yield the histories in batches of whole namespaces, so that each can be reduced and dropped.

        A batch has the measures in the order of the argument. A namespace too large for one batch is cut
        into whole groups of pods, where `grouping` names them. An error ends the iteration; the batches
        before it are valid. The usage of a container without a row in its batch is unknown.
        """


class Owners(Protocol):
    """What kube-state-metrics recorded: owners of objects that no longer exist, and OOM kills."""

    def replica_sets(self, namespaces: Sequence[str], at: float) -> Mapping[tuple[str, str], tuple[str, str]]:
        """Return the owner's kind and name by namespace and ReplicaSet, without those that are unknown."""

    def oom_killed(self, at: float, span_seconds: float) -> Collection[tuple[str, str, str]]:
        """Return the namespace, pod and container of each container that ran out of memory in the span."""


class Autoscalers(Protocol):
    """HPAs with their whole spec, where the few numbers of `Cluster.hpas` are not enough."""

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]: ...


class Reduction(StrEnum):
    """How the samples of a window become one number."""

    RATE = "rate"
    LAST = "last"
    HIGHEST = "highest"
    """The maximum of all samples from the start to the end: one number, at the end."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of containers."""

    name: str
    metric: str
    reduction: Reduction


CPU = Measure("cpu", "container_cpu_usage_seconds_total", Reduction.RATE)
"""Cores."""
MEMORY = Measure("memory", "container_memory_working_set_bytes", Reduction.HIGHEST)
"""Bytes at their peak: recommendations need no more."""


Grouping = Callable[[str, Sequence[str]], Sequence[object]]
"""Returns the group of each of a namespace's pods; None for pods that are not needed."""


@dataclass(frozen=True, slots=True, eq=False)
class UsageHistory:
    """Usage as a matrix: a row for each container, a column for each time, NaN where it is unknown."""

    measure: str
    scope: tuple[str, ...] | None
    """The namespaces that are complete in this batch; None means all namespaces."""
    namespaces: Sequence[str]
    pods: Sequence[str]
    containers: Sequence[str]
    timestamps: NDArray[np.float64]
    values: NDArray[np.float64]
    window_seconds: float
    """The window before each column's time that its value covers."""
    source: str
    warnings: tuple[str, ...] = ()
    groups: frozenset[object] | None = None
    """For a namespace too large for one batch, the groups that are complete in this one; None means all."""
    partial: tuple[str, ...] = ()
    """Why samples may be missing: the source's own warnings that its answer is partial."""
