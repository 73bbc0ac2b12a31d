"""One node and its pods, as its agent needs them: container ids, what is in force, and our own taint."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from equipoise.adapters.kubernetes.decode import Decoder, parse_time
from equipoise.adapters.kubernetes.kinds import Kind
from equipoise.adapters.kubernetes.nodes import Taint
from equipoise.adapters.kubernetes.structs import Meta, PodSpec, Quantities, RawContainer, Resources
from equipoise.model.cluster import Owner
from equipoise.model.errors import DECODE_ERRORS
from equipoise.model.quantity import NANO, Quantity
from equipoise.qos.pods import ContainerTold, PodTold

EXTENDED_CPU = "gocrane.io/cpu"
MIRROR = "kubernetes.io/config.mirror"
TAINT = Taint("ensurance.equipoise.dev/waterline", "NoSchedule", "crossed")
"""What keeps new pods away from a node whose waterline is crossed."""
CRANE_AGENT = "crane-agent"


class RunningContainer(msgspec.Struct, gc=False):
    """A container's status: which incarnation it is, and what it has."""

    name: str = ""
    containerID: str = ""
    resources: Resources | None = None
    state: dict[str, Any] | None = None


class PodStatusOnNode(msgspec.Struct, gc=False):
    """A pod's status, as far as its node's agent reads it."""

    phase: str = ""
    qosClass: str = ""
    startTime: str | None = None
    containerStatuses: list[RunningContainer] | None = None
    initContainerStatuses: list[RunningContainer] | None = None


class EndingMeta(Meta, gc=False):
    """A pod's metadata, with how long it has to end."""

    deletionGracePeriodSeconds: int | None = None


class RawPodOnNode(msgspec.Struct, gc=False):
    """A pod."""

    metadata: EndingMeta
    spec: PodSpec
    status: PodStatusOnNode = msgspec.field(default_factory=PodStatusOnNode)


class NodeTold(msgspec.Struct, frozen=True, gc=False):
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

    metadata: Meta
    spec: NodeSpecWithTaints = msgspec.field(default_factory=NodeSpecWithTaints)


def _node(decoder: Decoder, raw: RawNodeWithTaints) -> NodeTold:
    del decoder
    meta = raw.metadata
    is_disabled = any((one.key, one.effect) == TAINT[:2] for one in raw.spec.taints or ())
    return NodeTold(
        meta.name, meta.uid, meta.resourceVersion, tuple((meta.labels or {}).items()), is_disabled
    )


def _pod(decoder: Decoder, raw: RawPodOnNode) -> PodTold:
    del decoder
    meta, spec, status = raw.metadata, raw.spec, raw.status
    owner = next((one for one in meta.ownerReferences or () if one.controller), None)
    specs = {part.name: part for part in (*spec.containers, *(spec.initContainers or ()))}
    extended = sum(
        nanos_of(part.resources.limits, EXTENDED_CPU) for part in spec.containers if part.resources
    )
    return PodTold(
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
    )


def _containers(
    status: PodStatusOnNode, specs: dict[str, RawContainer], whole: Resources
) -> Iterator[ContainerTold]:
    """Give the containers that run now; what they have is told by their status, else by their spec.

    What only the pod as a whole has holds for each container: the kubelet writes its limit as their quota,
    and none may be throttled below its request.
    """
    for part in (*(status.containerStatuses or ()), *(status.initContainerStatuses or ())):
        _, _, id_ = part.containerID.partition("://")
        if not id_ or "running" not in (part.state or {}):
            continue
        spec = specs.get(part.name)
        has = part.resources or (spec.resources if spec is not None else None) or Resources()
        request = nanos_of(has.requests, "cpu") or nanos_of(whole.requests, "cpu")
        limit = nanos_of(has.limits, "cpu") or nanos_of(whole.limits, "cpu")
        yield ContainerTold(part.name, id_, request, limit)


def nanos_of(amounts: Quantities | None, name: str) -> int:
    """Read an amount; one that makes no sense is none, since the server has already refused such."""
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


PODS_OF_NODE: Kind[PodTold] = Kind(
    "Pod", "pods", "", "v1", RawPodOnNode, _pod, lambda pod: (pod.namespace, pod.name)
)
NODE: Kind[NodeTold] = Kind(
    "Node", "nodes", "", "v1", RawNodeWithTaints, _node, lambda node: ("", node.name), is_namespaced=False
)
