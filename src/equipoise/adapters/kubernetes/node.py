"""A node and its pods for the agent: container ids, the values in force, and our own taint.

Also the kubelet's measurements, read through the API server: `/stats/summary`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from equipoise.adapters.kubernetes.actions import Taint
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.decode import Decoder, parse_time
from equipoise.adapters.kubernetes.kinds import ResourceKind
from equipoise.adapters.kubernetes.objects import path_of
from equipoise.adapters.kubernetes.structs import (
    ObjectMeta,
    PodSpec,
    Quantities,
    RawCondition,
    RawContainer,
    Resources,
)
from equipoise.core.cluster import Owner
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import NANO, Quantity
from equipoise.ports.node import Counters, NodeContainer, NodeCounters, NodePod, NodeReading

EXTENDED_CPU = "gocrane.io/cpu"
MIRROR = "kubernetes.io/config.mirror"
TAINT = Taint("ensurance.equipoise.dev/waterline", "NoSchedule", "crossed")
"""The taint that keeps new pods away from a node whose waterline is crossed."""
CRANE_AGENT = "crane-agent"
RESIZE_CONDITIONS = frozenset({"PodResizePending", "PodResizeInProgress"})


class RunningContainer(msgspec.Struct, gc=False):
    """A container's status: its id and its resources."""

    name: str = ""
    containerID: str = ""
    resources: Resources | None = None
    state: dict[str, Any] | None = None


class PodStatusOnNode(msgspec.Struct, gc=False):
    """The fields of a pod's status that the agent reads."""

    phase: str = ""
    qosClass: str = ""
    startTime: str | None = None
    resize: str | None = None
    """The state of an in-place resize before Kubernetes 1.33; since then, conditions have it."""
    conditions: list[RawCondition] | None = None
    containerStatuses: list[RunningContainer] | None = None
    initContainerStatuses: list[RunningContainer] | None = None


class TerminatingMeta(ObjectMeta, gc=False):
    """A pod's metadata, with its deletion grace period."""

    deletionGracePeriodSeconds: int | None = None


class RawPodOnNode(msgspec.Struct, gc=False):
    """A pod."""

    metadata: TerminatingMeta
    spec: PodSpec
    status: PodStatusOnNode = msgspec.field(default_factory=PodStatusOnNode)


class ObservedNode(msgspec.Struct, frozen=True, gc=False):
    """The node itself."""

    name: str
    uid: str
    resource_version: str
    labels: tuple[tuple[str, str], ...]
    is_disabled: bool


class RawTaint(msgspec.Struct, gc=False):
    """A taint."""

    key: str = ""
    effect: str = ""


class NodeSpecWithTaints(msgspec.Struct, gc=False):
    """A node's spec."""

    taints: list[RawTaint] | None = None


class RawNodeWithTaints(msgspec.Struct, gc=False):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpecWithTaints = msgspec.field(default_factory=NodeSpecWithTaints)


def _node(decoder: Decoder, raw: RawNodeWithTaints) -> ObservedNode:
    del decoder
    meta = raw.metadata
    is_disabled = any((one.key, one.effect) == TAINT[:2] for one in raw.spec.taints or ())
    return ObservedNode(
        meta.name, meta.uid, meta.resourceVersion, tuple((meta.labels or {}).items()), is_disabled
    )


def _pod(decoder: Decoder, raw: RawPodOnNode) -> NodePod:
    del decoder
    meta, spec, status = raw.metadata, raw.spec, raw.status
    owner = next((one for one in meta.ownerReferences or () if one.controller), None)
    specs = {part.name: part for part in (*spec.containers, *(spec.initContainers or ()))}
    extended = sum(
        nanos_of(part.resources.limits, EXTENDED_CPU) for part in spec.containers if part.resources
    )
    return NodePod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resourceVersion,
        phase=status.phase,
        qos_class=status.qosClass or "BestEffort",
        priority=spec.priority or 0,
        priority_class=spec.priorityClassName,
        started_at=_time(status.startTime),
        deletion_at=_time(meta.deletionTimestamp),
        grace_seconds=meta.deletionGracePeriodSeconds,
        owner="" if owner is None else owner.kind,
        is_mirror=MIRROR in (meta.annotations or {}),
        labels=tuple((meta.labels or {}).items()),
        containers=tuple(_containers(status, specs, spec.resources or Resources())),
        ext_cpu_limit_nanos=extended,
        controller=None if owner is None else Owner(owner.apiVersion, owner.kind, owner.name, owner.uid),
        unclear=tuple(_unclear(status, specs, spec.resources)),
    )


def _unclear(
    status: PodStatusOnNode, specs: dict[str, RawContainer], whole: Resources | None
) -> Iterator[tuple[str, str]]:
    """Yield the id of each running container whose quota is not that of its limit, and why."""
    running = list(_running(status))
    why_all = ""
    if whole is not None and (whole.requests or whole.limits):
        why_all = "its pod has resources as a whole"
    elif _is_resized(status, running, specs):
        why_all = "a resize of its pod is in progress"
    for part, id_ in running:
        if why_all or part.name not in specs:
            yield id_, why_all or "its spec is not known"


def _is_resized(
    status: PodStatusOnNode, running: list[tuple[RunningContainer, str]], specs: dict[str, RawContainer]
) -> bool:
    """Return whether spec and status differ: the kubelet may be about to write the new values."""
    if status.resize or any(
        one.type in RESIZE_CONDITIONS and one.status == "True" for one in status.conditions or ()
    ):
        return True
    for part, _ in running:
        if part.resources is None or part.name not in specs:
            continue
        asked = specs[part.name].resources or Resources()
        if nanos_of(asked.limits, "cpu") != nanos_of(part.resources.limits, "cpu"):
            return True
    return False


def _running(status: PodStatusOnNode) -> Iterator[tuple[RunningContainer, str]]:
    """Yield the running containers with their ids."""
    for part in (*(status.containerStatuses or ()), *(status.initContainerStatuses or ())):
        _, _, id_ = part.containerID.partition("://")
        if id_ and "running" in (part.state or {}):
            yield part, id_


def _containers(
    status: PodStatusOnNode, specs: dict[str, RawContainer], whole: Resources
) -> Iterator[NodeContainer]:
    """Yield the running containers with the resources of their status, else of their spec.

    Pod-level resources apply to each container: the kubelet writes the pod's limit as their quota, and none
    may be throttled below the pod's request.
    """
    for part, id_ in _running(status):
        spec = specs.get(part.name)
        has = part.resources or (spec.resources if spec is not None else None) or Resources()
        request = nanos_of(has.requests, "cpu") or nanos_of(whole.requests, "cpu")
        limit = nanos_of(has.limits, "cpu") or nanos_of(whole.limits, "cpu")
        yield NodeContainer(part.name, id_, request, limit)


def nanos_of(amounts: Quantities | None, name: str) -> int:
    """Return an amount; 0 for one that cannot be parsed, since the server refuses such."""
    value = (amounts or {}).get(name)
    if value is None:
        return 0
    try:
        return Quantity.parse(value).nanos if isinstance(value, str) else math.ceil(value * NANO)
    except DECODE_ERRORS:
        return 0


def _time(text: str | None) -> float | None:
    try:
        return None if text is None else parse_time(text)
    except DECODE_ERRORS:
        return None


PODS_OF_NODE: ResourceKind[NodePod] = ResourceKind(
    "Pod", "pods", "", "v1", RawPodOnNode, _pod, lambda pod: (pod.namespace, pod.name)
)
NODE: ResourceKind[ObservedNode] = ResourceKind(
    "Node", "nodes", "", "v1", RawNodeWithTaints, _node, lambda node: ("", node.name), is_namespaced=False
)


PERIOD_US = 100_000


class Measured(msgspec.Struct):
    """CPU or memory usage."""

    usageNanoCores: int | None = None
    workingSetBytes: int | None = None


class ContainerStats(msgspec.Struct):
    """One container."""

    name: str
    cpu: Measured = msgspec.field(default_factory=Measured)
    memory: Measured = msgspec.field(default_factory=Measured)


class PodOfStats(msgspec.Struct):
    """The pod that the statistics are of."""

    uid: str = ""


class PodStats(msgspec.Struct):
    """One pod."""

    podRef: PodOfStats
    containers: list[ContainerStats] | None = None


class NodeStats(msgspec.Struct):
    """The machine."""

    cpu: Measured = msgspec.field(default_factory=Measured)
    memory: Measured = msgspec.field(default_factory=Measured)


class StatsSummary(msgspec.Struct):
    """The kubelet's summary, as far as it is read."""

    node: NodeStats
    pods: list[PodStats] | None = None


class NodeSizes(msgspec.Struct):
    """How large a node is."""

    capacity: Quantities | None = None


class SizedNode(msgspec.Struct):
    """A node."""

    metadata: ObjectMeta
    status: NodeSizes = msgspec.field(default_factory=NodeSizes)


def read_from_kubelet(client: Client, node: str, pods: list[NodePod]) -> tuple[NodeReading, NodeReading]:
    """Return two readings, one second apart, whose difference is the usage that the kubelet reports."""
    path = path_of("", "v1", "nodes", None, node)
    sizes = client.get_as(SizedNode, path).status.capacity
    summary = client.get_as(StatsSummary, f"{path}/proxy/stats/summary")
    measured = {
        (pod.podRef.uid, container.name): container
        for pod in summary.pods or ()
        for container in pod.containers or ()
    }
    before: dict[str, Counters] = {}
    after: dict[str, Counters] = {}
    for pod in pods:
        for part in pod.containers:
            stats = measured.get((pod.uid, part.name))
            if stats is not None and stats.cpu.usageNanoCores is not None:
                before[part.id] = Counters(0, 0.0)
                after[part.id] = _counters(stats, part)
    cpus = max(1, nanos_of(sizes, "cpu") // NANO)
    total = nanos_of(sizes, "memory") // NANO
    used = summary.node
    return (
        NodeReading(NodeCounters(0, 0.0, cpus, total, None, {}), before),
        NodeReading(
            NodeCounters(used.cpu.usageNanoCores, 1.0, cpus, total, used.memory.workingSetBytes, {}), after
        ),
    )


def _counters(stats: ContainerStats, part: NodeContainer) -> Counters:
    """Return counters with the quota of the limit: an agent's throttling is not visible from outside."""
    quota = part.cpu_limit_nanos * PERIOD_US // NANO if part.cpu_limit_nanos else -1
    return Counters(stats.cpu.usageNanoCores, 1.0, stats.memory.workingSetBytes, 0, quota, PERIOD_US)
