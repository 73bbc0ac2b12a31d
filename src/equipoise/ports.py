"""What we need of the world. Adapters and the simulator stand behind these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from equipoise.model.errors import WorldFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from equipoise.model.cluster import Hpa, HpaSpec, Node, Pdb, Pod, Workload
    from equipoise.model.decision import Attendance, Decision, MovePod, Outcome, Record
    from equipoise.model.history import Grouping, Measure, UsageHistory
    from equipoise.model.pools import PoolAnswer, PoolsSeen
    from equipoise.model.references import ObjectRef, PodRef, StoreKey, WorkloadRef


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
        """Tell whose autoscaling somebody has paused, and by what; not knowing raises.

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
        """Give the histories lot by lot, whole namespaces in each, so that a lot can be reduced and dropped.

        A lot has the measures in the given order. A namespace too large for one lot is cut into whole groups of
        pods, where somebody says which belong together. An error ends it; what came before is right. A container
        that is not in its lot is unknown.
        """
        ...


class Owners(Protocol):
    """Who made what is gone, from whatever remembers it."""

    def replica_sets(self, namespaces: Sequence[str], at: float) -> Mapping[tuple[str, str], tuple[str, str]]:
        """Give the kind and name of the owner by namespace and ReplicaSet; what nobody knows is absent."""
        ...


class Autoscalers(Protocol):
    """What HPAs say word for word, where the few numbers of `Cluster.hpas` are not enough."""

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        """List what every HorizontalPodAutoscaler asks for."""
        ...


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


class StoreConflict(Exception):  # noqa: N818 - reads as a fact
    """Somebody else wrote in between: read again, decide again."""


class NotInstalled(WorldFailed):
    """The place where memory is kept has not been made yet: nothing was ever remembered."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds under a key. The version of an absent entry is empty."""

    data: Mapping[str, Any]
    version: str = ""


class Store(Protocol):
    """Memory that outlives us: small documents, written by compare-and-swap."""

    def read(self, key: StoreKey) -> Stored:
        """Read an entry; an absent one is empty, with an empty version."""
        ...

    def read_all(self, room: str, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        """Read every entry of a room at once; None means all namespaces.

        An entry whose content makes no sense is given as it is, for its reader to judge.
        """
        ...

    def write(self, key: StoreKey, data: Mapping[str, Any], version: str) -> Stored:
        """Write an entry if it still has this version, else raise StoreConflict."""
        ...


class Leadership(Protocol):
    """Whether we, and nobody else, may act."""

    def epoch(self) -> int | None:
        """Give the Lease transition that we lead in, or None when we do not lead or can't be sure.

        It is asked right before every action, and is answered from the monotonic time since the last
        renewal: a process that was stopped for longer than the lease gets None, not an old belief.
        """
        ...


class Pauses(Protocol):
    """Where people have said stop."""

    def pause_of(self, namespace: str) -> str | None:
        """Say who or what paused this namespace, or None; not knowing raises, and nothing is done."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyObject:
    """A policy as it stands in the cluster: what was asked, and what we last said about it."""

    ref: ObjectRef
    generation: int
    version: str
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: float = 0.0


class Policies(Protocol):
    """The custom resources of one kind of policy."""

    def policies(self) -> Sequence[PolicyObject]:
        """List them."""
        ...

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace what we say about a policy; StoreConflict when it has changed since it was read."""
        ...


class NoHistory(WorldFailed):
    """There is nothing that remembers weeks of usage: somebody has to say where it is, or install it."""


class Unanswered(WorldFailed):
    """It was asked for, and nobody knows whether it happened: the third value beside yes and no."""


class PoolsUpkeep(Protocol):
    """What keeping the tiers in order needs of them."""

    def snapshot(self, *, is_thorough: bool = False, also: Sequence[str] = ()) -> PoolsSeen:
        """Read everything at one moment; thoroughly also looks for keys that no set leads to.

        `also` are pods that are looked at too, whether a tier has them or not.
        """
        ...

    def attend(self, actions: Sequence[Attendance], epoch: int | None) -> Sequence[PoolAnswer]:
        """Register, unregister, suspend and resume pods, in this order; each answers for itself."""
        ...

    def move(
        self, moves: Sequence[MovePod], version: str, epoch: int | None, *, marks_busy: bool = False
    ) -> Sequence[PoolAnswer]:
        """Move idle pods, planned from this version of the config; busy ones can be marked instead."""
        ...

    def recover(self, pods: Sequence[str], epoch: int | None) -> Sequence[PoolAnswer]:
        """Put back pods that nobody holds, once two looks a lease apart saw them so."""
        ...


class Pools(PoolsUpkeep, Protocol):
    """Pods in tiers. Each writer is one step: all of it happens, or nothing.

    Every one may be asked again: what has happened already is answered, not done twice. An epoch of None
    is a caller without a leader. WorldFailed means that nothing was changed, Unanswered that nobody knows.
    """

    def register(self, pod: str, uid: str, epoch: int | None, metadata: str = "") -> PoolAnswer:
        """Take a pod into a tier."""
        ...

    def unregister(self, pod: str, uid: str, epoch: int | None) -> PoolAnswer:
        """Forget a pod that is gone, its calls with it."""
        ...

    def allocate(self, call: str, tier: str = "") -> PoolAnswer:
        """Give a free pod to a call; the same call gets the same pod."""
        ...

    def release(self, call: str, pod: str = "") -> PoolAnswer:
        """End a call; with a pod, only when it is the one that has it."""
        ...

    def heartbeat(self, call: str) -> PoolAnswer:
        """Say that a call goes on."""
        ...

    def drain(self, pod: str, uid: str = "") -> PoolAnswer:
        """Give the pod no more calls."""
        ...

    def undrain(self, pod: str, uid: str = "") -> PoolAnswer:
        """Give it calls again."""
        ...

    def set_config(self, text: str, version: str, emptied: Sequence[str] = ()) -> PoolAnswer:
        """Write the tiers over this version; those that are taken away must be empty."""
        ...

    def mend(self, pod: str, epoch: int | None) -> PoolAnswer:
        """Repair what the keys of a pod contradict, where only one end is right."""
        ...


class Journal(Protocol):
    """The diary. Losing it changes no decision, so it never raises."""

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Keep these."""
        ...


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What one cycle decided for everything it looks after, and what came of it.

    A subject that was in the last report and is not in this one has vanished.
    """

    decisions: Sequence[Decision]
    outcomes: Sequence[Outcome]
    warnings: Sequence[str] = ()
    failure: str = ""
    """What of the world could not be seen, so that this was no good cycle although it decided."""
    carried: Sequence[Decision] = ()
    """Decided in an earlier cycle and standing still, since it is not time to look again."""


__all__ = [
    "Actuator",
    "Applier",
    "ApplyAnswer",
    "ApplyResult",
    "Autoscalers",
    "Clock",
    "Cluster",
    "CpuUsage",
    "CycleReport",
    "EvictionAnswer",
    "EvictionResult",
    "History",
    "Journal",
    "Leadership",
    "Metrics",
    "NoHistory",
    "NotInstalled",
    "Owners",
    "Pauses",
    "Policies",
    "PolicyObject",
    "Pools",
    "PoolsUpkeep",
    "Store",
    "StoreConflict",
    "Stored",
    "Unanswered",
]
