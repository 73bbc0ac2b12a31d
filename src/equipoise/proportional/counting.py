"""How large the cluster is: allocatable of its Ready nodes, cordoned ones too, and the pods on them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from equipoise.model.cluster import Node, Pod, Selector
from equipoise.model.quantity import NANO, Format, Quantity

FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended for good."""


class Size(NamedTuple):
    """What was counted, as quantities; what is unknown is absent, and why it is."""

    inputs: Mapping[str, str]
    nodes_ready: int
    nodes_unknown: int = 0
    """Ready nodes that do not say how large they are."""
    unknown: Mapping[str, str] = {}
    """Why an input is unknown, by its name."""


def count(nodes: Sequence[Node], pods_on: Mapping[str, int] | None, selector: Selector) -> Size:
    """Count the Ready nodes that are selected; without `pods_on` the pods are unknown."""
    labelled = [node for node in nodes if selector.matches(dict(node.labels))]
    ready = [node for node in labelled if node.is_ready]
    silent = [node for node in ready if node.cpu_cores <= 0 or node.memory_bytes <= 0]
    inputs = {"nodes": str(len(ready))}
    unknown = {}
    if silent:
        counts = f"{len(silent)} of {len(ready)} Ready nodes"
        why = f"{counts} do not say how large they are, such as {silent[0].name}"
        unknown = {"cores": why, "memory": why}
    else:
        inputs["cores"] = str(Quantity(sum(round(node.cpu_cores * NANO) for node in ready)))
        memory = sum(int(node.memory_bytes) for node in ready)
        inputs["memory"] = str(Quantity(memory * NANO, Format.BINARY))
    if pods_on is None:
        unknown["pods"] = "only the pods of some namespaces are seen"
    else:
        inputs["pods"] = str(sum(pods_on.get(node.name, 0) for node in ready))
    return Size(inputs, len(ready), len(silent), unknown)


def pods_by_node(pods: Iterable[Pod]) -> dict[str, int]:
    """Count the pods on each node that have not ended."""
    found: dict[str, int] = {}
    for pod in pods:
        if pod.node and pod.phase not in FINISHED:
            found[pod.node] = found.get(pod.node, 0) + 1
    return found
