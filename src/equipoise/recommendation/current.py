"""What runs today, beside what is advised: replicas, HPAs and requests."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from equipoise.model.cluster import Container, HpaSpec, Workload
from equipoise.model.decision import Decision
from equipoise.model.quantity import Format, Quantity
from equipoise.model.references import WorkloadRef

MILLI_NANOS = 10**6
NANO = 10**9


def with_current(
    decisions: Sequence[Decision], workloads: Iterable[Workload], specs: Iterable[HpaSpec]
) -> list[Decision]:
    """Add to each decision what its workload has today."""
    hpas: dict[WorkloadRef, list[HpaSpec]] = defaultdict(list)
    for spec in specs:
        hpas[spec.target].append(spec)
    known = {(workload.ref.subject, workload.ref.kind): workload for workload in workloads}
    found = []
    for decision in decisions:
        workload = known.get((decision.subject, decision.extra["kind"]))
        if workload is not None:
            current = _current(workload, hpas[workload.ref])
            decision = structs.replace(decision, extra={**decision.extra, "current": current})  # noqa: PLW2901
        found.append(decision)
    return found


def _current(workload: Workload, hpas: Sequence[HpaSpec]) -> dict[str, Any]:
    return {
        "replicas": workload.replicas_wanted,
        "hpas": [
            {
                "name": spec.name,
                "minReplicas": spec.replicas_min,
                "maxReplicas": spec.replicas_max,
                "targetUtilization": cpu_target(spec.metrics),
            }
            for spec in hpas
        ],
        "containers": [
            {"name": container.name, "requests": _requests(container)} for container in workload.containers
        ],
    }


def cpu_target(metrics: Iterable[Mapping[str, Any]]) -> int | None:
    """Give the CPU utilisation that an HPA aims at, or None."""
    for metric in metrics:
        resource = metric.get("resource")
        if metric.get("type") == "Resource" and isinstance(resource, dict) and resource.get("name") == "cpu":
            percent = (resource.get("target") or {}).get("averageUtilization")
            return percent if isinstance(percent, int) else None
    return None


def _requests(container: Container) -> dict[str, str]:
    requests = {}
    if container.cpu_request_cores is not None:
        requests["cpu"] = str(Quantity(round(container.cpu_request_cores * 1000) * MILLI_NANOS))
    if container.memory_request_bytes is not None:
        requests["memory"] = str(Quantity(round(container.memory_request_bytes) * NANO, Format.BINARY))
    return requests
