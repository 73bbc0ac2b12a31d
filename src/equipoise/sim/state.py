"""The state of a simulated cluster and its settings. Only the controllers of this package change it."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from equipoise.core.cluster import (
    Container,
    Hpa,
    Node,
    Pdb,
    Pod,
    PodRef,
    Resize,
    Selector,
    Workload,
    WorkloadRef,
)
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import BYTES_MAX
from equipoise.sim import template as names
from equipoise.sim.faults import FaultKind, Faults, Timeline
from equipoise.sim.hpa import HpaController, HpaMemory, HpaPod, SimulatedHpaSpec
from equipoise.sim.load import CpuCounter, Shape, Sharing
from equipoise.sim.template import Budget, BudgetStatus, Portion, Template


@dataclass(frozen=True, slots=True)
class SimSettings:
    """How long the parts of the cluster take; the defaults are Kubernetes' own where it has some."""

    controller_delay_seconds: float = 0.1
    """From a change to the ReplicaSet or Deployment controller's answer."""
    scheduler_delay_seconds: float = 0.1
    budget_delay_seconds: float = 0.2
    """From a change of pods to a PodDisruptionBudget's new status."""
    disrupted_seconds: float = 120.0
    """How long an eviction that did not end its pod counts as a disruption."""
    node_grace_seconds: float = 40.0
    """From a node's last heartbeat to `NotReady`."""
    node_eviction_seconds: float = 300.0
    """From `NotReady` to the deletion of its pods."""
    crash_delay_seconds: float = 10.0
    """The first wait of a crash loop; it doubles up to the maximum."""
    crash_delay_max_seconds: float = 300.0
    load_step_seconds: float = 15.0
    """The interval between changes of the demand."""
    scrape_interval_seconds: float = 15.0
    scrape_delay_seconds: float = 1.0
    retention_seconds: float = 900.0
    """How long the samples of a pod that ended can be asked for."""
    resource_interval_seconds: float = 15.0
    """The resolution of metrics-server."""
    resource_delay_seconds: float = 1.0
    resource_phase_seconds: float | None = None
    """When in its interval metrics-server scrapes, after the start; None: by chance."""
    hpa_sync_seconds: float = 15.0
    hpa_phase_seconds: float | None = None
    """When the first sync of an HPA is, after it was made; None: by chance."""
    hpa: HpaController = field(default_factory=HpaController)
    store_bytes_max: int = BYTES_MAX
    """How big one entry of memory may be."""


STATEFUL_SET = "StatefulSet"
PERIOD_US = 100_000
"""The period of a CPU quota."""


@dataclass(slots=True, eq=False)
class NodeState:
    """A node and what is placed on it."""

    name: str
    uid: str
    cpu_cores: float
    memory_bytes: float
    pods_max: int
    cpu_factor: float
    """How much CPU one unit of work costs here: above 1 on a noisy node."""
    labels: tuple[tuple[str, str], ...] = ()
    is_alive: bool = True
    is_ready: bool = True
    is_cordoned: bool = False
    is_closed: bool = False
    """Tainted by its agent: no pod is scheduled to it, as if it were cordoned."""
    died_at: float = 0.0
    pods: dict[str, "PodState"] = field(default_factory=dict)
    crowd: Counter[WorkloadRef] = field(default_factory=Counter)
    """How many pods of each workload are here."""
    cpu_taken_cores: float = 0.0
    memory_taken_bytes: float = 0.0
    version: int = 0
    view: Node | None = None


@dataclass(slots=True, eq=False)
class PodState:
    """One incarnation of a pod."""

    name: str
    uid: str
    workload: "WorkloadState"
    template: Template
    revision: str
    created_at: float
    phase: str = "Pending"
    node: NodeState | None = None
    started_at: float | None = None
    is_ready: bool = False
    ready_changed_at: float = 0.0
    deletion_at: float | None = None
    is_disruption_target: bool = False
    restarts: int = 0
    restarted_at: float | None = None
    counter: CpuCounter | None = None
    """None until its containers run."""
    limit_cores: float = math.inf
    quotas: dict[str, int] = field(default_factory=dict)
    """The quotas in the cgroups of its containers, by name: microseconds per period, -1 for none."""
    scrape_phase: float = 0.0
    """Where in the scrape interval it is scraped, from 0 to 1."""
    work_cores: float = 0.0
    lives: int = 0
    """The number of steps in its life; a step scheduled before the last one is dropped."""
    desired: tuple[Container, ...] | None = None
    """What it asks for, where its node has not given that;"""
    resize: Resize | None = None
    """and why it has not."""
    version: int = 0
    view: Pod | None = None

    @property
    def containers(self) -> tuple[Container, ...]:
        """What it asks for."""
        return self.template.containers if self.desired is None else self.desired

    @property
    def is_serving(self) -> bool:
        """Return whether work reaches it."""
        return self.is_ready and self.deletion_at is None and self.node is not None and self.node.is_alive

    @property
    def rate_cores(self) -> float:
        """How fast its counter grows now; 0 before its containers run."""
        return 0.0 if self.counter is None else self.counter.rate_cores

    @property
    def usage_cores(self) -> float:
        """What it uses: work times its node's factor, within its limit and the quotas of its cgroups."""
        if self.node is None or not self.node.is_alive:
            return 0.0
        if self.is_serving:
            wanted = self.template.idle_cores + self.work_cores * self.node.cpu_factor
        else:
            wanted = self.template.start_cores if self.deletion_at is None else self.template.idle_cores
        used = min(wanted, self.limit_cores)
        # The container that is at its quota slows the whole pod: they work together.
        for name, part in self.template.parts if self.quotas else ():
            quota_us = self.quotas.get(name, -1)
            if quota_us >= 0 and part > 0:
                used = min(used, quota_us / PERIOD_US / part)
        return used

    @property
    def ref(self) -> PodRef:
        return PodRef(self.workload.ref.namespace, self.name, self.uid)


@dataclass(slots=True, eq=False)
class WorkloadState:
    """A Deployment or a StatefulSet."""

    ref: WorkloadRef
    uid: str
    template: Template
    revision: str
    replicas: int
    shape: Shape
    sharing: Sharing
    labels: tuple[tuple[str, str], ...]
    selector: Selector
    max_surge: Portion
    max_unavailable: Portion
    annotations: tuple[tuple[str, str], ...]
    rng: Random
    revisions: int = 1
    owner_uids: dict[str, str] = field(default_factory=dict)
    pods: dict[str, PodState] = field(default_factory=dict)
    """By UID, oldest first."""
    pdbs: list["PdbState"] = field(default_factory=list)
    generation: int = 1
    generation_observed: int = 0
    is_reconcile_due: bool = False
    serving: tuple[str, ...] = ()
    """The UIDs among which the demand was split."""
    demand_cores: float = 0.0
    unserved_cores: float = 0.0
    spread_at: float = 0.0
    """When a pod or its share last changed."""
    version: int = 0
    view: Workload | None = None

    @property
    def containers(self) -> tuple[Container, ...]:
        return self.template.containers

    def serving_pods(self) -> list[PodState]:
        return [pod for pod in self.pods.values() if pod.is_serving]

    def active(self) -> list[PodState]:
        return [pod for pod in self.pods.values() if pod.deletion_at is None]


@dataclass(slots=True, eq=False)
class HpaState:
    """An HPA and its controller's memory."""

    name: str
    uid: str
    workload: WorkloadState
    spec: SimulatedHpaSpec
    memory: HpaMemory = field(default_factory=HpaMemory)
    desired: int = 0
    scaled_at: float | None = None
    quiet_seen: list[list[HpaPod]] = field(default_factory=list)
    """What the metrics showed of pods that had not changed for two scrapes,"""
    quiet_since: float = -1.0
    """since then: while that holds, they show the same,"""
    quiet_proposal: tuple[int, int | None] | None = None
    """and for so many replicas they propose this, once no pod is new any more."""
    version: int = 0
    view: Hpa | None = None
    manager: str = "kubectl"
    """Who made it."""
    edited_by: str = ""
    """Who else has set a field of it since."""


@dataclass(slots=True, eq=False)
class PdbState:
    """A budget, and what the disruption controller last wrote to its status."""

    namespace: str
    name: str
    uid: str
    selector: Selector
    budget: Budget
    workloads: list[WorkloadState] = field(default_factory=list)
    status: BudgetStatus = field(default_factory=BudgetStatus)
    disrupted: dict[str, float] = field(default_factory=dict)
    """Pods whose eviction was accepted, and which may not have been observed to terminate yet."""
    healthy_seen: frozenset[str] = frozenset()
    evicted_since: set[str] = field(default_factory=set)
    is_current: bool = False
    is_sync_due: bool = False
    version: int = 0
    view: Pdb | None = None

    def pods(self) -> list[PodState]:
        """Return the pods that it counts."""
        return [pod for workload in self.workloads for pod in workload.pods.values()]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line of the history."""

    at: float
    kind: str
    subject: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EvictionRequest:
    """An eviction that was let through, and what a budget had left then; audited apart from the budget."""

    at: float
    pod: PodRef
    budget: str = ""
    healthy_left: int = 0
    lost_unseen: int = 0
    """Pods that became unready since the controller's last sync, which the API cannot count."""
    desired: int = 0
    was_healthy: bool = False


class SimState:
    """All objects of a simulated cluster, and the methods that record their changes."""

    def __init__(self, seed: int, timeline: Timeline, settings: SimSettings) -> None:
        self.seed = seed
        self.timeline = timeline
        self.settings = settings
        self.faults = Faults(timeline)
        self.rng = names.seeded(seed, "cluster")
        self.nodes: dict[str, NodeState] = {}
        self.workloads: dict[WorkloadRef, WorkloadState] = {}
        self.namespaces: dict[str, list[WorkloadState]] = {}
        self.pods: dict[tuple[str, str], PodState] = {}
        self.gone: dict[tuple[str, str], PodState] = {}
        """Pods that ended, as long as a window may reach their samples."""
        self.hpas: list[HpaState] = []
        self.pdbs: list[PdbState] = []
        self.autoscaler_pauses: dict[WorkloadRef, str] = {}
        self.history: list[HistoryEntry] = []
        self.evictions: list[EvictionRequest] = []
        self.touched: set[WorkloadRef] = set()
        """Workloads that the invariants have not been asked about since they changed,"""
        self.reloaded: set[WorkloadRef] = set()
        """and those of which only the load has changed."""
        self.listeners: list[Callable[[WorkloadState], object]] = []
        self.version = 0
        self._hash = hashlib.sha256()

    @property
    def now(self) -> float:
        return self.timeline.now

    def log(self, kind: str, subject: object, detail: object = "") -> None:
        entry = HistoryEntry(self.now, kind, str(subject), str(detail))
        self.history.append(entry)
        self._hash.update(f"{entry.at!r} {entry.kind} {entry.subject} {entry.detail}\n".encode())

    def history_hash(self) -> str:
        """Return a digest of all that happened and of what every pod has used."""
        digest = self._hash.copy()
        for pod in self.pods.values():
            used = pod.counter.total(self.now) if pod.counter else 0.0
            digest.update(f"{pod.uid} {used!r}\n".encode())
        return digest.hexdigest()

    def check_api(self) -> None:
        """Raise WorldFailed while the API server does not answer."""
        if self.faults.now(FaultKind.API_UNAVAILABLE):
            raise WorldFailed("the API server does not answer (simulated)")

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def pod_changed(self, pod: PodState) -> None:
        """Record that a pod was added, changed or removed."""
        pod.version = self.next_version()
        pod.view = None
        self.workload_changed(pod.workload)

    def workload_changed(self, workload: WorkloadState) -> None:
        """Record that a workload, or one of its pods, changed."""
        workload.version = self.next_version()
        workload.view = None
        self.touched.add(workload.ref)
        for listener in self.listeners:
            listener(workload)
