"""The fields that we read of each kind, as the API spells them. All others are skipped by the decoder.

A page of these exists only until it is converted to records. At the end: what the fields of a pod say about
in-place resizes, which of them restart a container, and which the node has not carried out.
"""

from __future__ import annotations

import msgspec

from equipoise.core.cluster import API_VERSIONS, Resize, WorkloadRef
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import parse_bytes

Quantities = dict[str, str | int | float]


class ListMeta(msgspec.Struct, gc=False):
    resourceVersion: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class OwnerReference(msgspec.Struct, gc=False):
    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class ObjectMeta(msgspec.Struct, gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[OwnerReference] | None = None


class Resources(msgspec.Struct, gc=False):
    requests: Quantities | None = None
    limits: Quantities | None = None


class ResizePolicy(msgspec.Struct, gc=False):
    """Whether an in-place resize of one resource restarts the container."""

    resourceName: str
    restartPolicy: str = ""


class RawContainer(msgspec.Struct, gc=False):
    name: str
    resources: Resources | None = None
    restartPolicy: str | None = None
    resizePolicy: list[ResizePolicy] | None = None


class Volume(msgspec.Struct, gc=False):
    """A volume: its name, and whether it is local to the node."""

    name: str = ""
    emptyDir: dict[str, object] | None = None
    hostPath: dict[str, object] | None = None


class TemplateSpec(msgspec.Struct, gc=False):
    """What we read of the spec of a pod, and of a pod template alike."""

    containers: list[RawContainer] = []
    initContainers: list[RawContainer] | None = None
    resources: Resources | None = None


class PodSpec(TemplateSpec, gc=False):
    nodeName: str = ""
    volumes: list[Volume] | None = None
    priority: int | None = None
    priorityClassName: str = ""


class RawCondition(msgspec.Struct, gc=False):
    type: str
    status: str
    lastTransitionTime: str | None = None
    lastHeartbeatTime: str | None = None
    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, gc=False):
    finishedAt: str | None = None
    reason: str = ""


class Running(msgspec.Struct, gc=False):
    startedAt: str | None = None


class ContainerState(msgspec.Struct, gc=False):
    """The state of a container, or its last one."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, gc=False):
    name: str = ""
    resources: Resources | None = None
    """The resources in force, which may not be those of the spec yet."""
    restartCount: int = 0
    state: ContainerState | None = None
    lastState: ContainerState | None = None


class PodStatus(msgspec.Struct, gc=False):
    phase: str = ""
    qosClass: str = ""
    conditions: list[RawCondition] | None = None
    containerStatuses: list[ContainerStatus] | None = None
    initContainerStatuses: list[ContainerStatus] | None = None


class RawPod(msgspec.Struct, gc=False):
    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeSpec(msgspec.Struct, gc=False):
    unschedulable: bool | None = None


class NodeStatus(msgspec.Struct, gc=False):
    allocatable: Quantities | None = None
    conditions: list[RawCondition] | None = None


class RawNode(msgspec.Struct, gc=False):
    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Expression(msgspec.Struct, gc=False):
    key: str
    operator: str
    values: list[str] | None = None


class RawLabelSelector(msgspec.Struct, gc=False):
    matchLabels: dict[str, str] | None = None
    matchExpressions: list[Expression] | None = None


class PodTemplate(msgspec.Struct, gc=False):
    spec: TemplateSpec = msgspec.field(default_factory=TemplateSpec)


class RawUpdateStrategy(msgspec.Struct, gc=False):
    type: str = ""


class WorkloadSpec(msgspec.Struct, gc=False):
    replicas: int | None = None
    selector: RawLabelSelector | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)
    updateStrategy: RawUpdateStrategy | None = None


class WorkloadStatus(msgspec.Struct, gc=False):
    replicas: int = 0
    readyReplicas: int = 0
    updatedReplicas: int = 0
    observedGeneration: int = 0
    desiredNumberScheduled: int = 0
    currentNumberScheduled: int = 0
    updatedNumberScheduled: int = 0
    numberReady: int = 0


class RawWorkload(msgspec.Struct, gc=False):
    """A Deployment, StatefulSet, ReplicaSet or DaemonSet."""

    metadata: ObjectMeta
    spec: WorkloadSpec
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class JobTemplate(msgspec.Struct, gc=False):
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)


class CronJobSpec(msgspec.Struct, gc=False):
    jobTemplate: JobTemplate = msgspec.field(default_factory=JobTemplate)


class RawCronJob(msgspec.Struct, gc=False):
    metadata: ObjectMeta
    spec: CronJobSpec


class ScaleSpec(msgspec.Struct, gc=False):
    replicas: int = 0


class ScaleStatus(msgspec.Struct, gc=False):
    replicas: int = 0
    selector: str = ""


class RawScale(msgspec.Struct, gc=False):
    """A `scale` subresource (autoscaling/v1)."""

    metadata: ObjectMeta
    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)
    status: ScaleStatus = msgspec.field(default_factory=ScaleStatus)


class RawObject(msgspec.Struct, gc=False):
    """The metadata of any object."""

    metadata: ObjectMeta


class MetricTarget(msgspec.Struct, gc=False):
    type: str
    averageUtilization: int | None = None
    averageValue: str | int | float | None = None
    value: str | int | float | None = None


class MetricName(msgspec.Struct, gc=False):
    """The name of a metric that is not a resource."""

    name: str


class MetricSource(msgspec.Struct, gc=False):
    """One metric of whichever type: a resource has its name here, others have it in `metric`."""

    target: MetricTarget
    name: str = ""
    container: str = ""
    metric: MetricName | None = None


class MetricSpec(msgspec.Struct, gc=False):
    type: str
    resource: MetricSource | None = None
    containerResource: MetricSource | None = None
    pods: MetricSource | None = None
    object: MetricSource | None = None
    external: MetricSource | None = None


class RawScaleTargetRef(msgspec.Struct, gc=False):
    """The workload that an autoscaler scales, or whose requests it sets."""

    kind: str
    name: str
    apiVersion: str = ""

    def workload(self, namespace: str) -> WorkloadRef:
        """Return the workload; without an API version, in that of a built-in kind."""
        api_version = self.apiVersion or API_VERSIONS.get(self.kind, "")
        return WorkloadRef(api_version, self.kind, namespace, self.name)


class RawScalingRules(msgspec.Struct, gc=False):
    tolerance: str | int | float | None = None


class HpaBehavior(msgspec.Struct, gc=False):
    scaleUp: RawScalingRules | None = None
    scaleDown: RawScalingRules | None = None


class RawHpaSpec(msgspec.Struct, gc=False):
    scaleTargetRef: RawScaleTargetRef
    maxReplicas: int
    minReplicas: int | None = None
    metrics: list[MetricSpec] | None = None
    behavior: HpaBehavior | None = None


class HpaStatus(msgspec.Struct, gc=False):
    currentReplicas: int = 0
    desiredReplicas: int = 0
    lastScaleTime: str | None = None


class RawHpa(msgspec.Struct, gc=False):
    """A HorizontalPodAutoscaler (autoscaling/v2)."""

    metadata: ObjectMeta
    spec: RawHpaSpec
    status: HpaStatus = msgspec.field(default_factory=HpaStatus)


class PdbSpec(msgspec.Struct, gc=False):
    selector: RawLabelSelector | None = None


class PdbStatus(msgspec.Struct, gc=False):
    disruptionsAllowed: int = 0
    currentHealthy: int = 0
    desiredHealthy: int = 0
    expectedPods: int = 0
    observedGeneration: int = 0


class RawPdb(msgspec.Struct, gc=False):
    """A PodDisruptionBudget (policy/v1)."""

    metadata: ObjectMeta
    spec: PdbSpec = msgspec.field(default_factory=PdbSpec)
    status: PdbStatus = msgspec.field(default_factory=PdbStatus)


class AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class AccessReview(msgspec.Struct, frozen=True):
    """An answered SelfSubjectAccessReview."""

    status: AccessStatus


class Version(msgspec.Struct, frozen=True):
    """The answer of `/version`."""

    gitVersion: str


RESTART = "RestartContainer"
_RESOURCES = ("cpu", "memory")
_CONDITIONS = frozenset({"PodResizePending", "PodResizeInProgress"})
_STATES = frozenset({"Deferred", "Infeasible"})
_IN_PROGRESS = Resize("InProgress")


def restarts_for(raw: RawContainer) -> tuple[str, ...]:
    """Return the resources whose in-place resize restarts this container."""
    if not raw.resizePolicy:
        return ()
    return tuple(
        sorted(policy.resourceName for policy in raw.resizePolicy if policy.restartPolicy == RESTART)
    )


def resize_condition(conditions: list[RawCondition] | None) -> RawCondition | None:
    """Return the condition of a resize that the node has not carried out yet."""
    return next((one for one in conditions or () if one.status == "True" and one.type in _CONDITIONS), None)


def resize_of(spec: PodSpec, status: PodStatus) -> Resize | None:
    """Return the resize that the node has not carried out yet, or None."""
    condition = resize_condition(status.conditions)
    if condition is None:
        return _IN_PROGRESS if _differs(spec, status) else None
    if condition.type == "PodResizePending":
        return Resize(condition.reason if condition.reason in _STATES else "Deferred", condition.message)
    return Resize("Error" if condition.reason == "Error" else "InProgress", condition.message)


def _differs(spec: PodSpec, status: PodStatus) -> bool:
    """Return whether a container's status differs from its spec; an absent status does not differ."""
    has = {
        one.name: one.resources
        for statuses in (status.containerStatuses, status.initContainerStatuses)
        for one in statuses or ()
        if one.resources is not None and one.state is not None and one.state.running is not None
    }
    return any(
        _differ(raw.resources.requests, present.requests) or _differ(raw.resources.limits, present.limits)
        for raw in (*spec.containers, *(spec.initContainers or ()))
        if raw.resources is not None and (present := has.get(raw.name)) is not None
    )


def _differ(requested: Quantities | None, present: Quantities | None) -> bool:
    if not requested or not present or requested == present:
        return False
    both = [name for name in _RESOURCES if name in requested and name in present]
    return any(_amount(requested[name]) != _amount(present[name]) for name in both)


def _amount(value: str | float) -> float | None:
    try:
        return parse_bytes(value)
    except DECODE_ERRORS:
        return None
