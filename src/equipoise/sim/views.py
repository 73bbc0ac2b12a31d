"""The state as the ports show it: the model's own frozen types, made anew only when something changed."""

from dataclasses import dataclass

from equipoise.model.cluster import TOLERANCE, Hpa, Node, Owner, Pdb, Pod, Workload
from equipoise.model.references import WorkloadRef
from equipoise.sim.hpa_behavior import ScalingRules
from equipoise.sim.state import STATEFUL_SET, HpaState, NodeState, PdbState, PodState, State, WorkloadState


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All lists of one moment."""

    at: float
    pods: list[Pod]
    nodes: list[Node]
    workloads: list[Workload]
    hpas: list[Hpa]
    pdbs: list[Pdb]
    pauses: dict[WorkloadRef, str]


class LiveView:
    """All lists as they are whenever they are asked for; each is made only then."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def pods(self) -> list[Pod]:
        """Show the pods."""
        return [pod.view or pod_view(pod) for pod in self._state.pods.values()]

    @property
    def nodes(self) -> list[Node]:
        """Show the nodes."""
        return [node_view(node) for node in self._state.nodes.values()]

    @property
    def workloads(self) -> list[Workload]:
        """Show the workloads."""
        return [workload.view or workload_view(workload) for workload in self._state.workloads.values()]

    @property
    def hpas(self) -> list[Hpa]:
        """Show the HPAs."""
        return [hpa_view(hpa) for hpa in self._state.hpas]

    @property
    def pdbs(self) -> list[Pdb]:
        """Show the budgets."""
        return [pdb_view(pdb) for pdb in self._state.pdbs]

    @property
    def pauses(self) -> dict[WorkloadRef, str]:
        """Show whose autoscaling is paused."""
        return dict(self._state.autoscaler_pauses)


def cluster_view(state: State) -> ClusterView:
    """Show everything as it is now."""
    live = LiveView(state)
    return ClusterView(state.now, live.pods, live.nodes, live.workloads, live.hpas, live.pdbs, live.pauses)


def pod_view(pod: PodState) -> Pod:
    """Show a pod."""
    if pod.view is None:
        pod.view = _pod(pod)
    return pod.view


def _pod(pod: PodState) -> Pod:
    workload, template = pod.workload, pod.template
    return Pod(
        namespace=workload.ref.namespace,
        name=pod.name,
        uid=pod.uid,
        resource_version=str(pod.version),
        node=pod.node.name if pod.node else "",
        phase=pod.phase,
        is_ready=pod.is_ready,
        ready_since=pod.ready_changed_at if pod.is_ready else None,
        created_at=pod.created_at,
        deletion_at=pod.deletion_at,
        owner=_owner(pod),
        labels=tuple(sorted((*workload.labels, (_hash_label(workload), pod.revision)))),
        annotations=template.annotations,
        containers=pod.containers,
        restarts=pod.restarts,
        restarted_at=pod.restarted_at,
        priority=template.priority,
        priority_class=template.priority_class,
        qos_class=template.qos_class,
        has_local_storage=template.has_local_storage,
        is_mirror=False,
        is_disruption_target=pod.is_disruption_target,
        resize=pod.resize,
    )


def _owner(pod: PodState) -> Owner:
    ref = pod.workload.ref
    if ref.kind == STATEFUL_SET:
        return Owner("apps/v1", STATEFUL_SET, ref.name, pod.workload.uid)
    return Owner("apps/v1", "ReplicaSet", f"{ref.name}-{pod.revision}", pod.workload.owner_uids[pod.revision])


def _hash_label(workload: WorkloadState) -> str:
    return "controller-revision-hash" if workload.ref.kind == STATEFUL_SET else "pod-template-hash"


def node_view(node: NodeState) -> Node:
    """Show a node."""
    if node.view is None:
        node.view = Node(
            name=node.name,
            uid=node.uid,
            resource_version=str(node.version),
            is_ready=node.is_ready,
            is_cordoned=node.is_cordoned,
            cpu_cores=node.cpu_cores,
            memory_bytes=node.memory_bytes,
            pods_max=node.pods_max,
            labels=node.labels,
        )
    return node.view


def workload_view(workload: WorkloadState) -> Workload:
    """Show a workload."""
    if workload.view is None:
        active = workload.active()
        workload.view = Workload(
            ref=workload.ref,
            uid=workload.uid,
            resource_version=str(workload.version),
            replicas_wanted=workload.replicas,
            replicas_seen=len(active),
            replicas_ready=sum(pod.is_ready for pod in active),
            replicas_updated=sum(pod.revision == workload.revision for pod in active),
            generation=workload.generation,
            generation_observed=workload.generation_observed,
            selector=workload.selector,
            annotations=workload.annotations,
            labels=workload.labels,
            containers=workload.template.containers,
        )
    return workload.view


def hpa_view(hpa: HpaState) -> Hpa:
    """Show an HPA. How many replicas there are changes without it, so that is looked up each time."""
    current, behavior = hpa.workload.replicas, hpa.spec.behavior
    if hpa.view is None or hpa.view.replicas_current != current:
        hpa.view = Hpa(
            namespace=hpa.workload.ref.namespace,
            name=hpa.name,
            uid=hpa.uid,
            resource_version=str(hpa.version),
            target=hpa.workload.ref,
            replicas_min=hpa.spec.replicas_min,
            replicas_max=hpa.spec.replicas_max,
            replicas_current=current,
            replicas_desired=hpa.desired,
            scaled_at=hpa.scaled_at,
            metrics=hpa.spec.metrics,
            annotations=(),
            tolerance_up=_tolerance(behavior.up if behavior else None),
            tolerance_down=_tolerance(behavior.down if behavior else None),
        )
    return hpa.view


def _tolerance(rules: ScalingRules | None) -> float:
    """Give what the HPA itself says; the controller's own tolerance is in no API."""
    return TOLERANCE if rules is None or rules.tolerance is None else rules.tolerance


def pdb_view(pdb: PdbState) -> Pdb:
    """Show a budget."""
    if pdb.view is None:
        pdb.view = Pdb(
            namespace=pdb.namespace,
            name=pdb.name,
            uid=pdb.uid,
            resource_version=str(pdb.version),
            selector=pdb.selector,
            disruptions_allowed=pdb.status.allowed,
            pods_healthy=pdb.status.healthy,
            pods_desired=pdb.status.desired,
            pods_expected=pdb.status.expected,
            is_current=pdb.is_current,
        )
    return pdb.view
