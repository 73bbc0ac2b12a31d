"""What the facts need of a world, beyond its ports: a way to set the scene and to let time pass."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from equipoise.core.cluster import Pod, PodRef, WorkloadRef
from equipoise.ports import Actuator, Applier, Cluster, Leadership, Metrics, Pauses, Policies, Store

T = TypeVar("T")


class StoreWorld(Protocol):
    """A store, and a namespace in it where nobody else writes."""

    @property
    def store(self) -> Store: ...

    @property
    def namespace(self) -> str: ...


class ClusterWorld(Protocol):
    """A cluster with nodes to spare, and a namespace of a fact's own."""

    @property
    def namespace(self) -> str: ...

    @property
    def cluster(self) -> Cluster: ...

    @property
    def actuator(self) -> Actuator: ...

    def add_workload(self, name: str, replicas: int) -> WorkloadRef:
        """Make a Deployment: label `app`, one container `app` that asks for half a core;
        return when all are ready.
        """
        ...

    def add_budget(self, name: str, app: str, max_unavailable: int) -> None:
        """Make a PodDisruptionBudget; return when it is in force."""
        ...

    def add_hpa(self, name: str, target: WorkloadRef, percent: int, replicas_max: int) -> None:
        """Make an HPA on CPU utilization with at least one replica."""
        ...

    def pause_autoscaler(self, target: WorkloadRef, by: str) -> None:
        """Stop whatever scales a workload, by an annotation for KEDA."""
        ...

    def resume_autoscaler(self, target: WorkloadRef) -> None: ...

    def hold_terminating(self, pods: Sequence[Pod]) -> None:
        """Let these pods take their time once they are told to end, and nobody take their place."""
        ...

    def let_go(self, pods: Sequence[Pod]) -> None:
        """Let them end, and others take their place."""
        ...

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Let time pass until a condition holds, within a bound; give what it gave."""
        ...

    def settle(self) -> None:
        """Let as much time pass as anything would need to show that ought not to happen."""
        ...

    def sentences_about(self, workload: WorkloadRef) -> Sequence[tuple[str, str]]:
        """Give the reason and the sentence of every event about a workload."""
        ...


class ApplierWorld(ClusterWorld, Protocol):
    """A cluster in which HPAs are made, by us and by others."""

    @property
    def applier(self) -> Applier: ...

    def edit_hpa(self, name: str, who: str, replicas_max: int) -> None:
        """Change a field of an HPA by hand, under this field manager's name."""
        ...


class OperatorWorld(Protocol):
    """Policies and pauses, and two namespaces that are known."""

    @property
    def policies(self) -> Policies: ...

    @property
    def pauses(self) -> Pauses: ...

    @property
    def namespace(self) -> str: ...

    @property
    def other_namespace(self) -> str: ...

    def add_policy(self, name: str, spec: Mapping[str, Any]) -> None:
        """Create a policy in the namespace, or change what it asks for."""
        ...

    def remove_policy(self, name: str) -> None: ...

    def pause(self, namespace: str | None, who: str) -> None:
        """Say stop, for a namespace or for everything."""
        ...

    def resume(self, namespace: str | None) -> None: ...

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait until a condition holds, within a bound; give what it gave."""
        ...


class MetricsWorld(Protocol):
    """A workload that has been measured for a while: each pod's load is known."""

    @property
    def metrics(self) -> Metrics: ...

    @property
    def namespace(self) -> str: ...

    @property
    def loads(self) -> dict[str, float]:
        """Cores by pod, steady for longer than the window."""
        ...

    @property
    def window_seconds(self) -> float: ...

    def now(self) -> float: ...


class QueryWorld(MetricsWorld, Protocol):
    """A source that also answers questions in words of its own."""

    @property
    def known_query(self) -> tuple[str, float]:
        """A question and its answer."""
        ...


class ElectionWorld(Protocol):
    """Processes that stand for election, on a clock that the fact moves."""

    @property
    def lease_seconds(self) -> float: ...

    @property
    def renew_seconds(self) -> float: ...

    @property
    def retry_seconds(self) -> float:
        """How often everyone takes a turn."""
        ...

    def join(self, name: str) -> Leadership:
        """Start a process that stands for election."""
        ...

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass; everyone who is not stopped takes their turns."""
        ...

    def stop(self, name: str) -> None:
        """Stop a process as SIGSTOP does."""
        ...

    def go_on(self, name: str) -> None:
        """Let it go on; it has not taken a turn yet."""
        ...

    def cut_off(self, name: str) -> None:
        """Cut its link to the server."""
        ...

    def reconnect(self, name: str) -> None: ...

    def release(self, name: str) -> None:
        """Let it leave politely."""
        ...


def ledger(namespace: str, name: str, kind: str = "Deployment") -> WorkloadRef:
    """Name a workload's ledger."""
    return WorkloadRef("apps/v1", kind, namespace, name)


def pods_of(world: ClusterWorld, app: str) -> list[Pod]:
    """Give the pods of a workload that are there and not on their way out, by name."""
    found = [p for p in world.cluster.pods(world.namespace) if ("app", app) in p.labels]
    return sorted((p for p in found if p.deletion_at is None), key=lambda p: p.name)


def ref_of(pod: Pod) -> PodRef:
    """Name this incarnation."""
    return PodRef(pod.namespace, pod.name, pod.uid)


def is_whole(world: ClusterWorld, app: str, replicas: int) -> bool:
    """Whether a workload has all its pods, ready, and none on its way out."""
    found = [p for p in world.cluster.pods(world.namespace) if ("app", app) in p.labels]
    return len(found) == replicas and all(p.is_ready and p.deletion_at is None for p in found)
