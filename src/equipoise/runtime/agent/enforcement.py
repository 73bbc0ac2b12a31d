"""Whether the agent may change anything: Enforce, kinds that are ours, and no other hand on the quotas.

Kinds change hands while an agent runs: somebody installs Crane, or removes it. So whose they are is looked at
again every few minutes, and whenever the first policy appears.

The agent's evictions, wired to a cluster: whose a pod is, and where that workload's ledger is kept.
"""

import secrets
import time
from collections.abc import Callable

from equipoise.adapters.http import Backoff
from equipoise.adapters.journal import RecordIds
from equipoise.adapters.journal.records import CHANCE_BITS
from equipoise.adapters.kubernetes import Client, KubernetesActuator, KubernetesCluster
from equipoise.adapters.kubernetes.kinds import WORKLOADS
from equipoise.adapters.kubernetes.lease import uptime_seconds
from equipoise.adapters.kubernetes.policies import look_at
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.core.cluster import Owner, Workload, WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import Standing
from equipoise.engine.leadership import LeaselessLeadership
from equipoise.ports.node import NodePod
from equipoise.qos.execute import LedgerEvictor, PodOwner
from equipoise.qos.objects import GROUP, VERSION

LOOK_SECONDS = 300.0
"""How long what was seen of the definition counts."""
RETRY_SECONDS = 10.0
"""How long until a first look that failed is tried again; nothing is changed meanwhile."""
PREVIEW = "nothing is changed in Preview"
FOREIGN = (
    "ForeignController: the kinds of ensurance.crane.io are somebody else's; nothing is changed until "
    "--crane on says to take over"
)
OTHER = f"the kinds of {GROUP} are somebody else's, whose agent may have written it"


class EnforcementGate:
    """Says before each round what forbids to change anything, or nothing."""

    def __init__(
        self,
        client: Client,
        *,
        is_enforced: bool,
        takes_over: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_enforced = is_enforced
        self._takes_over = takes_over
        # One try: a round must not wait for an API server that does not answer.
        self._client = client.with_own_connections(backoff=Backoff(attempts_max=1))
        self._monotonic = monotonic
        self._standing: Standing | None = None
        self._had_policies = False
        self._look_at = float("-inf")
        self._why_unknown = ""
        self.is_unknown = False
        """Whether the last denial was only that nobody could be asked: no reason to give anything back."""

    def denial(self, beside: str, has_policies: Callable[[], bool]) -> str:
        """Return why nothing may be changed now; `beside` names a pod of Crane's own agent on this node."""
        self.is_unknown = False
        if not self._is_enforced:
            return PREVIEW
        if beside:
            return f"{_crane(beside)}; remove one of them"
        if self._takes_over:
            return ""
        has_now = has_policies()
        self._look(is_first=has_now and not self._had_policies)
        self._had_policies = has_now
        self.is_unknown = self._standing is None
        if self.is_unknown:
            return self._unknown()
        return FOREIGN if self._standing is Standing.FOREIGN else ""

    def other_agent(self, beside: str) -> str:
        """Return why a quota on this node may be another agent's, or nothing; Preview or not is no matter."""
        if beside:
            return _crane(beside)
        if self._takes_over:
            return ""
        self._look(is_first=False)
        if self._standing is None:
            return self._unknown()
        return OTHER if self._standing is Standing.FOREIGN else ""

    def _unknown(self) -> str:
        return f"whose the kinds of {GROUP} are is not known: {self._why_unknown}"

    def _look(self, *, is_first: bool) -> None:
        """Look again where it is time; a look that failed changes nothing, unless the first policy came."""
        if is_first:
            self._standing = None
        now = self._monotonic()
        if not is_first and now < self._look_at:
            return
        try:
            self._standing = look_at(self._client, GROUP, VERSION, "nodeqosensurancepolicies").standing
        except WorldFailed as error:
            self._why_unknown = str(error)
        self._look_at = now + (RETRY_SECONDS if self._standing is None else LOOK_SECONDS)


def _crane(pod: str) -> str:
    return f"pod {pod} is Crane's own agent, and both would write the same quotas"


class Owners:
    """Finds the workload of a pod, as the server tells it now: a Deployment behind its ReplicaSet."""

    def __init__(self, client: Client) -> None:
        self._cluster = KubernetesCluster(client)
        self._uids: dict[WorkloadRef, str] = {}

    def whose(self, pod: NodePod) -> PodOwner | None:
        """Give the workload that a pod belongs to; None for one that nobody made, or whose maker is gone."""
        if pod.controller is None:
            return None
        ref = _ref(pod.namespace, pod.controller)
        if not _is_known(ref):
            return PodOwner(ref, is_whole=True)
        found = self._cluster.workload(ref)
        if ref.kind == "ReplicaSet" and found is not None and found.owner is not None:
            ref = _ref(pod.namespace, found.owner)
            if not _is_known(ref):
                return PodOwner(ref, is_whole=_is_whole(found))
            found = self._cluster.workload(ref)
        if found is None:
            return None
        self._uids[ref] = found.uid
        return PodOwner(ref, is_whole=_is_whole(found))

    def uid_of(self, ref: WorkloadRef) -> str | None:
        """Return the owner with which a ledger is to vanish."""
        return self._uids.get(ref)


def ledgered(client: Client, actuator: KubernetesActuator) -> LedgerEvictor:
    """Have evictions written down first; each question is asked once, since a round must not wait."""
    once = client.with_own_connections(backoff=Backoff(attempts_max=1))
    owners = Owners(once)
    return LedgerEvictor(
        actuator,
        LedgerStore(once, uid_of=owners.uid_of),
        owners.whose,
        RecordIds(secrets.randbits(CHANCE_BITS)).next,
        LeaselessLeadership(uptime_seconds),
    )


def _ref(namespace: str, owner: Owner) -> WorkloadRef:
    return WorkloadRef(owner.api_version, owner.kind, namespace, owner.name).canonical


def _is_known(ref: WorkloadRef) -> bool:
    return ref.group == "apps" and ref.kind in WORKLOADS


def _is_whole(workload: Workload) -> bool:
    return workload.replicas_ready >= workload.replicas_wanted
