"""Which workloads a person means: by name, or all that an HPA scales."""

import re
from collections.abc import Collection, Mapping

from equipoise.model.cluster import Workload
from equipoise.model.errors import BadInput, WorldFailed
from equipoise.model.references import WorkloadRef
from equipoise.ports import Cluster
from equipoise.rotation.see import hpas_by_workload

SHORT_NAMES = {"Deployment": "deploy", "StatefulSet": "sts", "ReplicaSet": "rs", "DaemonSet": "ds"}
"""How kubectl's users write the kinds."""


def check_names(names: Collection[str]) -> None:
    """Refuse what cannot name a workload, before anything is asked."""
    for name in names:
        if not re.fullmatch(r"([^/\s]+/)?[^/\s]+", name):
            raise BadInput(f"workload {name!r}: expected NAME or KIND/NAME, such as web or deployment/web")


def choose_workloads(cluster: Cluster, namespace: str | None, names: Collection[str]) -> list[Workload]:
    """Give the named workloads, or all that an HPA scales."""
    check_names(names)
    hpas = hpas_by_workload(cluster.hpas(namespace))
    return _chosen(cluster, hpas, namespace, names)


def _chosen(
    cluster: Cluster,
    hpas: Mapping[WorkloadRef, object],
    namespace: str | None,
    names: Collection[str],
) -> list[Workload]:
    """Take the named workloads, or everything that an HPA scales; kinds that no list shows, by `scale`."""
    listed = {workload.ref: workload for workload in cluster.workloads(namespace)}
    chosen: dict[WorkloadRef, Workload] = {}
    for name in names or [""]:
        found = (
            [ref for ref in listed if _is_named(ref, name)]
            if name
            else [ref for ref in listed if ref in hpas]
        )
        others = [ref for ref in hpas if ref not in listed and (not name or _is_named(ref, name))]
        scaled = [workload for ref in others if (workload := cluster.workload(ref)) is not None]
        if name and not (found or scaled):
            where = f"namespace {namespace}" if namespace else "any namespace"
            raise WorldFailed(f"workload {name}: not found in {where}")
        chosen |= {ref: listed[ref] for ref in found} | {workload.ref: workload for workload in scaled}
    return sorted(chosen.values(), key=lambda workload: (workload.ref.subject, workload.ref.kind))


def _is_named(ref: WorkloadRef, text: str) -> bool:
    """Whether `web`, `deployment/web`, `deploy/web` or `deployments.apps/web` means this workload."""
    kind, _, name = text.rpartition("/")
    if ref.name != name:
        return False
    kind = kind.partition(".")[0].lower()
    return not kind or kind in {ref.kind.lower(), ref.kind.lower() + "s", SHORT_NAMES.get(ref.kind)}
