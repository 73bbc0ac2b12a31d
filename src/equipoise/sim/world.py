"""A whole cluster behind the ports, on simulated time: the same seed gives the same history, to the byte."""

from equipoise.core.cluster import HpaMetric, Requirement, Selector, WorkloadRef
from equipoise.sim import template as names
from equipoise.sim.actions import SimActuator, SimSizes
from equipoise.sim.autoscaling import Autoscaling, SimApplier
from equipoise.sim.cluster import SimCluster
from equipoise.sim.controllers import Kubelet, Replication, Scheduler, Serving
from equipoise.sim.faults import Happening, Timeline
from equipoise.sim.hpa import Behavior, SimulatedHpaSpec
from equipoise.sim.invariants import Invariants
from equipoise.sim.load import Constant, Even, Shape, Sharing
from equipoise.sim.metrics import SimMetrics
from equipoise.sim.state import (
    HpaState,
    NodeState,
    PdbState,
    PodState,
    SimSettings,
    SimState,
    WorkloadState,
)
from equipoise.sim.store import SimPauses, SimPolicies, SimStore
from equipoise.sim.template import Budget, Portion, Template

UTILIZATION_70 = HpaMetric("Resource", "cpu", "Utilization", 70)


class SimClock:
    """Simulated time, as the port `Clock`."""

    def __init__(self, state: SimState) -> None:
        self._state = state

    def now(self) -> float:
        return self._state.now


class World:
    """A seeded cluster. Fill it, `advance` it, and hand its ports to the production loops."""

    def __init__(
        self,
        seed: int,
        *,
        started_at: float = 1_750_000_000.0,  # a Sunday in June 2025
        settings: SimSettings | None = None,
        is_checked: bool = True,
    ) -> None:
        self.settings = settings or SimSettings()
        self._timeline = Timeline(started_at)
        self.state = SimState(seed, self._timeline, self.settings)
        self.kubelet = Kubelet(self.state)
        self._scheduler = Scheduler(self.state, self.kubelet)
        self.actuator = SimActuator(self.state, self.kubelet)
        serving = Serving(self.state)
        Replication(self.state, self.kubelet, self._scheduler)
        self._autoscaling = Autoscaling(self.state)
        self.faults = self.state.faults
        self.clock = SimClock(self.state)
        self.cluster = SimCluster(self.state)
        self.metrics = SimMetrics(self.state, self.advance)
        self.applier = SimApplier(self.state, self._autoscaling)
        self.sizes = SimSizes(self.state, self.roll_out, self.kubelet.crash)
        self.store = SimStore(self.state)
        self.policies = SimPolicies(self.state)
        self.pauses = SimPauses(self.state)
        self.invariants = Invariants(self.state, self.store)
        self._is_checked = is_checked
        self.every(self.settings.load_step_seconds, serving.step)

    @property
    def now(self) -> float:
        return self._timeline.now

    def advance(self, seconds: float) -> None:
        self.run_until(self.now + seconds)

    def run_until(self, when: float) -> None:
        self._timeline.run_until(when, self._settled)
        if self._is_checked:
            self.invariants.check_nodes()

    def _settled(self) -> None:
        self.cluster.remember()
        if self._is_checked:
            self.invariants.check()

    def every(self, seconds: float, happening: Happening) -> None:
        """Call something at this interval, such as one cycle of a production loop."""
        self._timeline.every(seconds, happening, first_at=self.now + seconds)

    def at(self, when: float, happening: Happening) -> None:
        self._timeline.at(when, happening)

    def add_node(
        self,
        name: str,
        *,
        cpu_cores: float = 16.0,
        memory_bytes: float = 64 * 2.0**30,
        pods_max: int = 110,
        cpu_factor: float = 1.0,
        labels: tuple[tuple[str, str], ...] = (),
    ) -> NodeState:
        """Add a node; a `cpu_factor` above 1 makes it noisy: work costs more CPU there."""
        labels = tuple(sorted({"kubernetes.io/hostname": name, **dict(labels)}.items()))
        uid = names.uid(self.state.rng)
        node = NodeState(name, uid, cpu_cores, memory_bytes, pods_max, cpu_factor, labels)
        node.version = self.state.next_version()
        self.state.nodes[name] = node
        self._scheduler.retry_soon()
        return node

    def add_workload(
        self,
        namespace: str,
        name: str,
        *,
        replicas: int,
        kind: str = "Deployment",
        template: Template | None = None,
        shape: Shape | None = None,
        sharing: Sharing | None = None,
        labels: tuple[tuple[str, str], ...] | None = None,
        max_surge: Portion = "25%",
        max_unavailable: Portion = "25%",
        annotations: tuple[tuple[str, str], ...] = (),
    ) -> WorkloadState:
        """Add a Deployment, or a StatefulSet, whose pods are created as time advances."""
        template = template or Template()
        labels = labels or (("app", name),)
        workload = WorkloadState(
            ref=WorkloadRef("apps/v1", kind, namespace, name),
            uid=names.uid(self.state.rng),
            template=template,
            revision=names.template_hash(template, 1),
            replicas=replicas,
            shape=shape or Constant(0.0),
            sharing=sharing or Even(),
            labels=labels,
            selector=_selector(labels),
            max_surge=max_surge,
            max_unavailable=max_unavailable,
            annotations=annotations,
            rng=names.seeded(self.state.seed, f"{namespace}/{name}"),
        )
        workload.sharing.begin(names.seeded(self.state.seed, f"{namespace}/{name} sharing"))
        workload.owner_uids.setdefault(workload.revision, names.uid(workload.rng))
        for pdb in self.state.pdbs:
            _join(pdb, workload)
        self.state.workloads[workload.ref] = workload
        self.state.namespaces.setdefault(namespace, []).append(workload)
        self.state.workload_changed(workload)
        return workload

    def add_hpa(
        self,
        workload: WorkloadState,
        *,
        replicas_min: int,
        replicas_max: int,
        metrics: tuple[HpaMetric, ...] = (UTILIZATION_70,),
        behavior: Behavior | None = None,
        name: str = "",
    ) -> HpaState:
        spec = SimulatedHpaSpec(metrics, replicas_min, replicas_max, behavior)
        return self._autoscaling.add(name or workload.ref.name, workload, spec)

    def add_pdb(
        self, namespace: str, name: str, budget: Budget, *, labels: tuple[tuple[str, str], ...] | None = None
    ) -> PdbState:
        """Guard the workloads that carry these labels (by default `app: NAME`)."""
        uid = names.uid(self.state.rng)
        pdb = PdbState(namespace, name, uid, _selector(labels or (("app", name),)), budget)
        pdb.version = self.state.next_version()
        self.state.pdbs.append(pdb)
        for workload in self.state.namespaces.get(namespace, ()):
            _join(pdb, workload)
        self.actuator.sync_soon(pdb)
        return pdb

    def scale(self, workload: WorkloadState, replicas: int) -> None:
        """Set the number of replicas, as `kubectl scale` does."""
        self.state.log("ScaledByHand", workload.ref, replicas)
        workload.replicas = replicas
        workload.generation += 1
        self.state.workload_changed(workload)

    def roll_out(self, workload: WorkloadState, template: Template) -> None:
        """Set a new template, which starts a rollout."""
        workload.template = template
        workload.generation += 1
        workload.revisions += 1
        workload.revision = names.template_hash(template, workload.revisions)
        workload.owner_uids.setdefault(workload.revision, names.uid(workload.rng))
        self.state.log("RolledOut", workload.ref, workload.revision)
        self.state.workload_changed(workload)

    def remove_node(self, node: NodeState) -> None:
        """Remove an empty node, as a cluster autoscaler does after it has drained the node."""
        if node.pods:
            raise ValueError(f"node {node.name} still has {len(node.pods)} pods")
        del self.state.nodes[node.name]
        self.state.next_version()
        self.state.log("NodeRemoved", node.name)

    def pods_of(self, workload: WorkloadState) -> list[PodState]:
        """Return the pods of a workload, oldest first, terminating ones included."""
        return list(workload.pods.values())


def _selector(labels: tuple[tuple[str, str], ...]) -> Selector:
    return Selector(tuple(Requirement(key, "In", (value,)) for key, value in labels))


def _join(pdb: PdbState, workload: WorkloadState) -> None:
    if pdb.namespace == workload.ref.namespace and pdb.selector.matches(dict(workload.labels)):
        pdb.workloads.append(workload)
        workload.pdbs.append(pdb)
