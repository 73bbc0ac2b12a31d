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


class Ledgers(NamedTuple):
    """All ledgers, or why none is known."""

    stored: Mapping[WorkloadRef, Stored]
    trouble: str = ""

    def of(self, workload: Workload, seen: Seen, cluster: Cluster) -> Remembered:
        """Return what is remembered of one workload."""
        stored = self.stored.get(workload.ref, Stored({}))
        if self.trouble or not stored.version:
            return Remembered(stored, _NOTHING, _NOTHING, {}, self.trouble)
        try:
            before = Ledger.from_data(stored.data)
            ledger = _settled(before, seen, cluster, workload)
            return Remembered(stored, before, ledger, recall(ledger))
        except WorldFailed as error:
            return Remembered(stored, _NOTHING, _NOTHING, {}, str(error))


NO_LEDGERS = Ledgers({})


def read_ledgers(store: Store, seen: Seen, namespace: str | None, *, is_acting: bool) -> Ledgers:
    """Read all ledgers at once. For who only looks, a ledger that was never installed is an empty one."""
    try:
        return Ledgers(store.read_all("ledger", namespace))
    except WorldFailed as error:
        if not is_acting and isinstance(error, NotInstalled):
            return Ledgers({})
        seen.notes.add(f"what was done before is unknown: {error}")
        return Ledgers({}, str(error))


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
