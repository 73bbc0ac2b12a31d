"""What the ledgers say of the workloads that are looked at, all of them read at once."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.model.cluster import Pod, Workload
from equipoise.model.errors import WorldFailed
from equipoise.model.ledger import Ledger
from equipoise.model.references import WorkloadRef
from equipoise.ports import Cluster, NotInstalled, Store, Stored
from equipoise.rotation.memory import recall
from equipoise.rotation.see import Seen


class Remembered(NamedTuple):
    """The ledger of one workload as this cycle found it, or why it is unknown."""

    stored: Stored
    before: Ledger
    ledger: Ledger
    """The same, with every old intent settled by what the world shows."""
    memory: Mapping[str, Any]
    trouble: str = ""


_NOTHING = Ledger()


def read_ledgers(
    store: Store,
    cluster: Cluster,
    workloads: Sequence[Workload],
    seen: Seen,
    namespace: str | None,
    *,
    is_acting: bool,
) -> Mapping[WorkloadRef, Remembered]:
    """Read all ledgers at once. For who only looks, a ledger that was never installed is an empty one."""
    trouble = ""
    found: Mapping[WorkloadRef, Stored] = {}
    try:
        found = store.read_all("ledger", namespace) if workloads else {}
    except WorldFailed as error:
        if is_acting or not isinstance(error, NotInstalled):
            trouble = str(error)
            seen.notes.add(f"what was done before is unknown: {error}")
    return {
        workload.ref: _remembered(found.get(workload.ref, Stored({})), trouble, seen, cluster, workload)
        for workload in workloads
    }


def _remembered(stored: Stored, trouble: str, seen: Seen, cluster: Cluster, workload: Workload) -> Remembered:
    if trouble or not stored.version:
        return Remembered(stored, _NOTHING, _NOTHING, {}, trouble)
    try:
        before = Ledger.from_data(stored.data)
        ledger = _settled(before, seen, cluster, workload)
        return Remembered(stored, before, ledger, recall(ledger))
    except WorldFailed as error:
        return Remembered(stored, _NOTHING, _NOTHING, {}, str(error))


def _settled(before: Ledger, seen: Seen, cluster: Cluster, workload: Workload) -> Ledger:
    """Give every old intent the outcome that the world shows.

    That one never happened is believed of the server alone: a cache may not have heard of it yet.
    """
    ledger = before.reconciled(_alive(seen.pods[workload.ref]), seen.at)
    if len(ledger.sent()) == len(before.sent()):
        return ledger
    return before.reconciled(_alive(cluster.pods_now(workload)), seen.at)


def _alive(pods: Sequence[Pod]) -> frozenset[str]:
    return frozenset(pod.uid for pod in pods if pod.deletion_at is None)
