"""The agent's evictions, wired to a cluster: whose a pod is, and where that workload's ledger is kept."""

import secrets

from equipoise.adapters.http import Backoff
from equipoise.adapters.journal import RecordIds
from equipoise.adapters.journal.ids import CHANCE_BITS
from equipoise.adapters.kubernetes import Client, KubernetesActuator, KubernetesCluster
from equipoise.adapters.kubernetes.kinds import WORKLOADS
from equipoise.adapters.kubernetes.lease import uptime_seconds
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.guard.leader import Guest
from equipoise.model.cluster import Owner, Workload
from equipoise.model.references import WorkloadRef
from equipoise.qos.evicting import Ledgered, Whose
from equipoise.qos.pods import PodTold


class Owners:
    """Finds the workload of a pod, as the server tells it now: a Deployment behind its ReplicaSet."""

    def __init__(self, client: Client) -> None:
        self._cluster = KubernetesCluster(client)
        self._uids: dict[WorkloadRef, str] = {}

    def whose(self, pod: PodTold) -> Whose | None:
        """Give the workload that a pod belongs to; None for one that nobody made, or whose maker is gone."""
        if pod.controller is None:
            return None
        ref = _ref(pod.namespace, pod.controller)
        if not _is_known(ref):
            return Whose(ref, is_whole=True)
        found = self._cluster.workload(ref)
        if ref.kind == "ReplicaSet" and found is not None and found.owner is not None:
            ref = _ref(pod.namespace, found.owner)
            if not _is_known(ref):
                return Whose(ref, is_whole=_is_whole(found))
            found = self._cluster.workload(ref)
        if found is None:
            return None
        self._uids[ref] = found.uid
        return Whose(ref, is_whole=_is_whole(found))

    def uid_of(self, ref: WorkloadRef) -> str | None:
        """Give the owner with which a ledger is to vanish."""
        return self._uids.get(ref)


def ledgered(client: Client, actuator: KubernetesActuator) -> Ledgered:
    """Have evictions written down first; each question is asked once, since a round must not wait."""
    once = client.twin(backoff=Backoff(attempts_max=1))
    owners = Owners(once)
    return Ledgered(
        actuator,
        LedgerStore(once, uid_of=owners.uid_of),
        owners.whose,
        RecordIds(secrets.randbits(CHANCE_BITS)).next,
        Guest(uptime_seconds),
    )


def _ref(namespace: str, owner: Owner) -> WorkloadRef:
    return WorkloadRef(owner.api_version, owner.kind, namespace, owner.name).canonical


def _is_known(ref: WorkloadRef) -> bool:
    return ref.group == "apps" and ref.kind in WORKLOADS


def _is_whole(workload: Workload) -> bool:
    return workload.replicas_ready >= workload.replicas_wanted
