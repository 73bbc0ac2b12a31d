"""The input of a decision: the pods of one workload and their nodes, as plain data."""

from collections.abc import Iterable

import msgspec

from equipoise.core.cluster import Pod, WorkloadRef


class PlacedPod(msgspec.Struct, frozen=True):
    """A ready pod that is not terminating."""

    name: str
    node: str
    created_at: float = 0.0
    uid: str = ""


class Observation(msgspec.Struct, frozen=True):
    """The pods of one workload at one moment."""

    workload: str
    pods: tuple[PlacedPod, ...]


def observe(workload: WorkloadRef, pods: Iterable[Pod]) -> Observation:
    """Return the pods that count: ready, and not terminating."""
    placed = (
        PlacedPod(pod.name, pod.node, pod.created_at, pod.uid)
        for pod in pods
        if pod.is_ready and pod.deletion_at is None
    )
    return Observation(workload.subject, tuple(sorted(placed, key=lambda pod: pod.name)))
