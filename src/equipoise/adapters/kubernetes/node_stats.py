"""What a node's kubelet measures, asked through the API server: `/stats/summary`."""

from __future__ import annotations

import msgspec

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.node_pods import nanos_of
from equipoise.adapters.kubernetes.paths import path_of
from equipoise.adapters.kubernetes.structs import Meta, Quantities
from equipoise.model.quantity import NANO
from equipoise.qos.node import Counters, Look, NodeCounters
from equipoise.qos.pods import ContainerTold, PodTold

PERIOD_US = 100_000


class Measured(msgspec.Struct):
    """CPU or memory of something."""

    usageNanoCores: int | None = None
    workingSetBytes: int | None = None


class ContainerStats(msgspec.Struct):
    """One container."""

    name: str
    cpu: Measured = msgspec.field(default_factory=Measured)
    memory: Measured = msgspec.field(default_factory=Measured)


class PodOfStats(msgspec.Struct):
    """Whose they are."""

    uid: str = ""


class PodStats(msgspec.Struct):
    """One pod."""

    podRef: PodOfStats
    containers: list[ContainerStats] | None = None


class NodeStats(msgspec.Struct):
    """The machine."""

    cpu: Measured = msgspec.field(default_factory=Measured)
    memory: Measured = msgspec.field(default_factory=Measured)


class Summary(msgspec.Struct):
    """All that a kubelet says, as far as it is read."""

    node: NodeStats
    pods: list[PodStats] | None = None


class NodeSizes(msgspec.Struct):
    """How large a node is."""

    capacity: Quantities | None = None


class SizedNode(msgspec.Struct):
    """A node."""

    metadata: Meta
    status: NodeSizes = msgspec.field(default_factory=NodeSizes)


def look_from_outside(client: Client, node: str, pods: list[PodTold]) -> tuple[Look, Look]:
    """Give two looks, one second apart, between which everything used what the kubelet says it uses now."""
    path = path_of("", "v1", "nodes", None, node)
    sizes = client.get_as(SizedNode, path).status.capacity
    summary = client.get_as(Summary, f"{path}/proxy/stats/summary")
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
        Look(NodeCounters(0, 0.0, cpus, total, None, {}), before),
        Look(NodeCounters(used.cpu.usageNanoCores, 1.0, cpus, total, used.memory.workingSetBytes, {}), after),
    )


def _counters(stats: ContainerStats, part: ContainerTold) -> Counters:
    """Take the quota for what the limit means: what an agent has throttled is not told from outside."""
    quota = part.cpu_limit_nanos * PERIOD_US // NANO if part.cpu_limit_nanos else -1
    return Counters(stats.cpu.usageNanoCores, 1.0, stats.memory.workingSetBytes, 0, quota, PERIOD_US)
