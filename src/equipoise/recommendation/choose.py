"""Which workloads a person means: by name, or all."""

import re
from collections.abc import Collection, Sequence

from equipoise.model.cluster import Workload
from equipoise.model.errors import BadInput, WorldFailed
from equipoise.model.references import WorkloadRef

SHORT_NAMES = {"Deployment": "deploy", "StatefulSet": "sts", "ReplicaSet": "rs"}
"""How kubectl's users write the kinds."""
EXPECTED = "expected NAME, KIND/NAME or NAMESPACE/NAME, such as web or deploy/web"


def check_names(names: Collection[str]) -> None:
    """Refuse what cannot name a workload, before anything is asked."""
    for name in names:
        if not re.fullmatch(r"([^/\s]+/)?[^/\s]+", name):
            raise BadInput(f"workload {name!r}: {EXPECTED}")


def choose(listed: Sequence[Workload], namespace: str | None, names: Collection[str]) -> list[Workload]:
    """Give the named workloads, or all; in the order of their names."""
    chosen = {workload.ref: workload for workload in ([] if names else listed)}
    for name in names:
        found = [workload for workload in listed if _is_named(workload.ref, name)]
        if not found:
            where = f"namespace {namespace}" if namespace else "any namespace"
            raise WorldFailed(f"workload {name}: not found in {where}{_elsewhere(namespace, name)}")
        chosen |= {workload.ref: workload for workload in found}
    return sorted(chosen.values(), key=lambda workload: (workload.ref.subject, workload.ref.kind))


def without_kind(text: str, kind: str | None, namespaces: Collection[str] = ()) -> str:
    """Give `web` for `deploy/web` where all are of this kind (None: of any); another kind is refused."""
    before, _, name = text.rpartition("/")
    if not name:
        raise BadInput(f"workload {text!r}: {EXPECTED}")
    if not before or before in namespaces:
        return text
    if kind is not None and _is_kind(before, kind):
        return name
    for other in SHORT_NAMES:
        if _is_kind(before, other):
            if kind is None:
                return name
            raise BadInput(f"workload {text}: expected --kind {other} beside it, got {kind}")
    return text


def _elsewhere(namespace: str | None, text: str) -> str:
    """Say where to look for a workload whose name may begin with another namespace."""
    before = text.rpartition("/")[0]
    if namespace in {None, before} or not before or any(_is_kind(before, kind) for kind in SHORT_NAMES):
        return ""
    return f"; -n {before} or -A look there"


def _is_named(ref: WorkloadRef, text: str) -> bool:
    """Whether `web`, `deployment/web`, `deploy/web`, `deployments.apps/web` or `shop/web` means this one."""
    before, _, name = text.rpartition("/")
    if ref.name != name:
        return False
    return before in {"", ref.namespace} or _is_kind(before, ref.kind)


def _is_kind(word: str, kind: str) -> bool:
    """Whether `deploy`, `Deployment` or `deployments.apps` means this kind."""
    return word.partition(".")[0].lower() in {kind.lower(), f"{kind.lower()}s", SHORT_NAMES.get(kind)}
