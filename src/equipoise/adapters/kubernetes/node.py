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
from equipoise.adapters.kubernetes.decode import Decoder, rules_condition, time_or_none
from equipoise.adapters.kubernetes.kinds import NODES, ResourceKind, cluster_key
from equipoise.adapters.kubernetes.structs import (
    ObjectMeta,
    PodSpec,
    Quantities,
    RawCondition,
    RawContainer,
    Resources,
    resize_condition,
)
from equipoise.core.cluster import Owner, RulesCondition
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import NANO, Quantity
from equipoise.ports.node import Counters, NodeContainer, NodeCounters, NodePod, NodeReading

EXTENDED_CPU = "gocrane.io/cpu"
MIRROR = "kubernetes.io/config.mirror"
TAINT = Taint("ensurance.equipoise.dev/waterline", "NoSchedule", "crossed")
"""The taint that keeps new pods away from a node whose waterline is crossed."""
CRANE_AGENT = "crane-agent"


class _RunningContainer(msgspec.Struct, gc=False):
    name: str = ""
    containerID: str = ""
    resources: Resources | None = None
    state: dict[str, Any] | None = None


class _PodStatusOnNode(msgspec.Struct, gc=False):
    phase: str = ""
    qosClass: str = ""
    startTime: str | None = None
    resize: str | None = None
    """The state of an in-place resize before Kubernetes 1.33; since then, conditions have it."""
    conditions: list[RawCondition] | None = None
    containerStatuses: list[_RunningContainer] | None = None
    initContainerStatuses: list[_RunningContainer] | None = None


class _TerminatingMeta(ObjectMeta, gc=False):
    deletionGracePeriodSeconds: int | None = None


class _RawPodOnNode(msgspec.Struct, gc=False):
    metadata: _TerminatingMeta
    spec: PodSpec
    status: _PodStatusOnNode = msgspec.field(default_factory=_PodStatusOnNode)


class ObservedNode(msgspec.Struct, frozen=True, gc=False):
    """The node itself."""

    name: str
    uid: str
    resource_version: str
    labels: tuple[tuple[str, str], ...]
    is_disabled: bool
    rules: RulesCondition | None
    """What an agent has reported about its rules."""


class _RawTaint(msgspec.Struct, gc=False):
    key: str = ""
    effect: str = ""


class _NodeSpecWithTaints(msgspec.Struct, gc=False):
    taints: list[_RawTaint] | None = None


class _NodeConditions(msgspec.Struct, gc=False):
    conditions: list[RawCondition] | None = None


class _RawNodeWithTaints(msgspec.Struct, gc=False):
    metadata: ObjectMeta
    spec: _NodeSpecWithTaints = msgspec.field(default_factory=_NodeSpecWithTaints)
    status: _NodeConditions = msgspec.field(default_factory=_NodeConditions)


def _node(_: Decoder, raw: _RawNodeWithTaints) -> ObservedNode:
    meta, labels = raw.metadata, tuple((raw.metadata.labels or {}).items())
    is_disabled = any((one.key, one.effect) == TAINT[:2] for one in raw.spec.taints or ())
    rules = rules_condition(raw.status.conditions)
    return ObservedNode(meta.name, meta.uid, meta.resourceVersion, labels, is_disabled, rules)


def _pod(_: Decoder, raw: _RawPodOnNode) -> NodePod:
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
        started_at=time_or_none(status.startTime),
        deletion_at=time_or_none(meta.deletionTimestamp),
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
    status: _PodStatusOnNode, specs: dict[str, RawContainer], whole: Resources | None
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
    status: _PodStatusOnNode, running: list[tuple[_RunningContainer, str]], specs: dict[str, RawContainer]
) -> bool:
    """Return whether spec and status differ: the kubelet may be about to write the new values."""
    if status.resize or resize_condition(status.conditions) is not None:
        return True
    return any(
        nanos_of((specs[part.name].resources or Resources()).limits, "cpu")
        != nanos_of(part.resources.limits, "cpu")
        for part, _ in running
        if part.resources is not None and part.name in specs
    )


def _running(status: _PodStatusOnNode) -> Iterator[tuple[_RunningContainer, str]]:
    """Yield the running containers with their ids."""
    for part in (*(status.containerStatuses or ()), *(status.initContainerStatuses or ())):
        _, _, id_ = part.containerID.partition("://")
        if id_ and "running" in (part.state or {}):
            yield part, id_


def _containers(
    status: _PodStatusOnNode, specs: dict[str, RawContainer], whole: Resources
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


PODS_OF_NODE: ResourceKind[NodePod] = ResourceKind("Pod", "pods", "", "v1", _RawPodOnNode, _pod)
NODE: ResourceKind[ObservedNode] = ResourceKind(
    "Node", "nodes", "", "v1", _RawNodeWithTaints, _node, cluster_key, is_namespaced=False
)


PERIOD_US = 100_000


class _Measured(msgspec.Struct):
    usageNanoCores: int | None = None
    workingSetBytes: int | None = None


class _Usage(msgspec.Struct):
    cpu: _Measured = msgspec.field(default_factory=_Measured)
    memory: _Measured = msgspec.field(default_factory=_Measured)


class _ContainerStats(_Usage, kw_only=True):
    name: str


class _PodOfStats(msgspec.Struct):
    uid: str = ""


class _PodStats(msgspec.Struct):
    podRef: _PodOfStats
    containers: list[_ContainerStats] | None = None


class _StatsSummary(msgspec.Struct):
    node: _Usage
    pods: list[_PodStats] | None = None


class _NodeSizes(msgspec.Struct):
    capacity: Quantities | None = None


class _SizedNode(msgspec.Struct):
    metadata: ObjectMeta
    status: _NodeSizes = msgspec.field(default_factory=_NodeSizes)


def read_from_kubelet(client: Client, node: str, pods: list[NodePod]) -> tuple[NodeReading, NodeReading]:
    """Return two readings, one second apart, whose difference is the usage that the kubelet reports."""
    path = NODES.path(None, node)
    sizes = client.get_as(_SizedNode, path).status.capacity
    summary = client.get_as(_StatsSummary, f"{path}/proxy/stats/summary")
    measured = {
        (pod.podRef.uid, container.name): container
        for pod in summary.pods or ()
        for container in pod.containers or ()
    }
    after = {
        part.id: _counters(stats, part)
        for pod in pods
        for part in pod.containers
        if (stats := measured.get((pod.uid, part.name))) and stats.cpu.usageNanoCores is not None
    }
    before = dict.fromkeys(after, Counters(0, 0.0))
    cpus = max(1, nanos_of(sizes, "cpu") // NANO)
    total = nanos_of(sizes, "memory") // NANO
    cpu, memory = summary.node.cpu.usageNanoCores, summary.node.memory.workingSetBytes
    return (
        NodeReading(NodeCounters(0, 0.0, cpus, total, None, {}), before),
        NodeReading(NodeCounters(cpu, 1.0, cpus, total, memory, {}), after),
    )


def _counters(stats: _ContainerStats, part: NodeContainer) -> Counters:
    """Return counters with the quota of the limit: an agent's throttling is not visible from outside."""
    quota = part.cpu_limit_nanos * PERIOD_US // NANO if part.cpu_limit_nanos else -1
    return Counters(stats.cpu.usageNanoCores, 1.0, stats.memory.workingSetBytes, 0, quota, PERIOD_US)
