"""The node, its pods and its policies from the API server: the loop's `NodeContext`, and its evictor.

A cycle must not wait for the API server. So it reads caches that watches keep current, its few requests are
not retried, and invalid policies are left out and reported.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event
from typing import Any

from equipoise.adapters.http import Backoff
from equipoise.adapters.journal import RecordIds
from equipoise.adapters.journal.records import WRITER_BITS
from equipoise.adapters.kubernetes import (
    ApiError,
    Client,
    KubernetesActuator,
    KubernetesCluster,
    Reflector,
    Unreachable,
)
from equipoise.adapters.kubernetes.actions import NodeMarks
from equipoise.adapters.kubernetes.kinds import WORKLOADS
from equipoise.adapters.kubernetes.lease import uptime_seconds
from equipoise.adapters.kubernetes.node import CRANE_AGENT, NODE, PODS_OF_NODE, TAINT
from equipoise.adapters.kubernetes.policies import KubernetesPolicies, look_at
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.core.cluster import Owner, RulesCondition, Workload, WorkloadRef
from equipoise.core.documents import explain
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.crd.definition import DefinedKind, Standing
from equipoise.engine.executor import LeaselessLeadership
from equipoise.ports import PolicyObject
from equipoise.ports.node import NodePod
from equipoise.qos.execute import LedgerEvictor, PodOwner
from equipoise.qos.policy import QosPolicy
from equipoise.qos.status import GROUP, POD_QOS, QOS_KINDS, VERSION, read_spec
from equipoise.qos.waterlines import QosObject, assemble_valid


def read_objects(objects: Iterable[PolicyObject]) -> tuple[QosPolicy, tuple[str, ...]]:
    """Return all valid objects as one policy, and what is wrong with the others."""
    listed = list(objects)
    read: list[QosObject] = []
    problems: list[str] = []
    for one in listed:
        where = f"{one.ref.kind} {one.ref.name}"
        if one.unreadable:
            problems.append(f"{where}: the object could not be decoded: {one.unreadable}")
            continue
        try:
            spec = read_spec(one.ref.kind, one.spec)
        except DECODE_ERRORS as error:
            problems.append(f"{where}: spec.{explain(error)}")
        else:
            read.append(QosObject(one.ref.kind, one.ref.name, spec, where))
    policy, wrong = assemble_valid(read)
    if policy.pods is None and any(one.ref.kind == POD_QOS.name for one in listed):
        # PodQOS objects exist that limit the pods, and none is valid: so no pod may be acted on.
        policy = policy.model_copy(update={"pods": ()})
    return policy, (*problems, *wrong)


CONDITION = "EquipoiseWaterlineCrossed"
SYNC_SECONDS = 60.0
"""How long to wait for the first list of the node, and then for that of its pods."""
NOT_FOUND = 404
APP_LABELS = frozenset({"app", "app.kubernetes.io/name"})
Wait = Callable[[Event, float], bool]
"""Waits for an event, at most for so many seconds, and returns whether it is set."""


class WatchedNode:
    """Watches the node, its pods and its policies between `start()` and `stop()`."""

    def __init__(
        self,
        client: Client,
        actuator: KubernetesActuator,
        node: str,
        *,
        evictions_per_round: int | None = None,
        excess_percent: int = 0,
    ) -> None:
        self.node = node
        self.problems: tuple[str, ...] = ()
        """What is wrong with policies, each by its path; such objects are left out."""
        self._client = client
        self._actuator = actuator
        self._settings = {"evictions_per_round": evictions_per_round, "excess_percent": excess_percent}
        self._pods = Reflector(client, PODS_OF_NODE, params={"fieldSelector": f"spec.nodeName={node}"})
        self._nodes = Reflector(client, NODE, params={"fieldSelector": f"metadata.name={node}"})
        # One attempt: a cycle must not wait for the API server.
        once = client.with_own_connections(backoff=Backoff(attempts_max=1))
        self._policies = {kind.name: _policies(once, kind) for kind in QOS_KINDS}
        kinds = [policies.reflector for policies in self._policies.values()]
        self._reflectors: list[Reflector[Any]] = [self._pods, self._nodes, *kinds]
        self._marks = NodeMarks(once)
        self._policy: tuple[tuple[tuple[str, str, str], ...], QosPolicy] = ((), QosPolicy(**self._settings))

    def start(self, wait: Wait = Event.wait) -> None:
        """Start the watches, and wait until the node and its pods have been listed once."""
        for reflector in self._reflectors:
            reflector.start()
        for reflector in (self._nodes, self._pods):
            if not wait(reflector.synced, SYNC_SECONDS):
                why = f"the {reflector.kind.plural} of {self.node}: {reflector.last_error or 'no answer'}"
                raise WorldFailed(f"{self._client.address}: {why}")
        if self._nodes.cache.get("", self.node) is None:
            raise WorldFailed(
                f"node {self.node}: not found at {self._client.address}; set another with --node"
            )

    def stop(self) -> None:
        for reflector in self._reflectors:
            reflector.stop(1.0)

    def waiting_for(self) -> str:
        """Return what has not been listed yet and why; "" if everything has."""
        waiting = [one for one in (self._nodes, self._pods) if not one.synced.is_set()]
        if not waiting:
            return ""
        why = f": {waiting[0].last_error}" if waiting[0].last_error else ""
        return f"the {waiting[0].kind.plural} of {self.node} have not been listed yet{why}"

    def pods(self) -> Sequence[NodePod]:
        return self._pods.cache.records()

    def crane_agent(self) -> str:
        """Return a pod of Crane's own agent on this node, or "": both would write the same quotas."""
        for pod in self.pods():
            if any(value == CRANE_AGENT and key in APP_LABELS for key, value in pod.labels) or (
                pod.owner == "DaemonSet" and pod.name.startswith(f"{CRANE_AGENT}-")
            ):
                return pod.key
        return ""

    def policy(self) -> QosPolicy:
        """Return all objects as one policy, which is assembled again only when an object has changed.

        Raises Unreachable if the cache of the node, its pods or the policies is minutes old. `pods()` does
        not raise then, since restoring must stay possible.
        """
        for reflector in self._reflectors:
            was_removed = _is_absent(reflector) and not reflector.cache.records()  # after its objects
            if reflector.synced.is_set() and not was_removed:
                reflector.require_fresh(f"the {reflector.kind.plural} of {self.node}")
        allows_all = _is_absent(self._policies[POD_QOS.name].reflector)
        objects = [one for name in self._policies for one in self._listed(name)]
        versions = tuple(sorted((one.ref.kind, one.ref.name, one.version) for one in objects))
        if versions != self._policy[0]:
            if objects and allows_all:
                self._require_not_installed()
            policy, self.problems = read_objects(objects)
            self._policy = (versions, policy.model_copy(update=self._settings))
        return self._policy[1]

    def _listed(self, name: str) -> Sequence[Any]:
        try:
            return self._policies[name].policies()
        except Unreachable:
            if _is_absent(self._policies[name].reflector):
                return ()
            raise

    def _require_not_installed(self) -> None:
        """List PodQOS and raise if it is installed by now: without it, all pods may be acted on.

        A CRD that is not installed is listed only every half a minute, so the cache may not have it yet.
        """
        try:
            self._policies[POD_QOS.name].listed()
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        else:
            listed = "have not been listed yet: their definition was installed just now"
            raise Unreachable(f"the {POD_QOS.plural} {listed}")

    def uid(self) -> str:
        node = self._nodes.cache.get("", self.node)
        return "" if node is None else node.uid

    def labels(self) -> Mapping[str, str]:
        node = self._nodes.cache.get("", self.node)
        return {} if node is None else dict(node.labels)

    def is_scheduling_disabled(self) -> bool:
        """Return whether our own taint is on the node."""
        node = self._nodes.cache.get("", self.node)
        return node is not None and node.is_disabled

    def reported_rules(self) -> RulesCondition | None:
        """Return the node's condition about its rules, as the watch last saw it."""
        node = self._nodes.cache.get("", self.node)
        return None if node is None else node.rules

    def report_rules(self, rules: RulesCondition) -> None:
        """Write the node's condition about its rules, once: a round must not wait for the API server."""
        self._marks.set_condition(self.node, rules.TYPE, rules.status, rules.reason, rules.message)

    def set_scheduling(self, *, is_disabled: bool, sentence: str) -> None:
        """Add our taint and condition to the node, or remove them."""
        # A successor finds the taint, so it is added first and removed last.
        if is_disabled:
            # Not retried later in the same cycle: a pause may have begun by then.
            self._marks.add_taint(self.node, TAINT)
            self._marks.set_condition(self.node, CONDITION, "True", "WaterlineCrossed", sentence)
        else:
            marks = self._actuator.nodes
            marks.set_condition(self.node, CONDITION, "False", "WaterlinesClear", sentence)
            marks.remove_taint(self.node, TAINT.key, TAINT.effect)


def _is_absent(reflector: Reflector[Any]) -> bool:
    """Return whether the CRD is not installed, so that no object of it can exist."""
    error = reflector.last_error
    return isinstance(error, ApiError) and error.status == NOT_FOUND


def _policies(client: Client, kind: DefinedKind) -> KubernetesPolicies:
    return KubernetesPolicies(client, kind)


class OwnerLookup:
    """Finds the current workload of a pod: the Deployment that owns its ReplicaSet, for example."""

    def __init__(self, client: Client) -> None:
        self._cluster = KubernetesCluster(client)
        self._uids: dict[WorkloadRef, str] = {}

    def owner_of(self, pod: NodePod) -> PodOwner | None:
        """Return the workload of a pod; None if it has no controller, or if that no longer exists."""
        if pod.controller is None:
            return None
        ref = _ref(pod.namespace, pod.controller)
        if not _is_workload(ref):
            return PodOwner(ref, is_whole=True)
        found = self._cluster.workload(ref)
        if ref.kind == "ReplicaSet" and found is not None and found.owner is not None:
            ref = _ref(pod.namespace, found.owner)
            if not _is_workload(ref):
                return PodOwner(ref, is_whole=_is_whole(found))
            found = self._cluster.workload(ref)
        if found is None:
            return None
        self._uids[ref] = found.uid
        return PodOwner(ref, is_whole=_is_whole(found))

    def uid_of(self, ref: WorkloadRef) -> str | None:
        return self._uids.get(ref)


def ledger_evictor(client: Client, actuator: KubernetesActuator) -> LedgerEvictor:
    """Return an evictor that writes each eviction to its workload's ledger first."""
    once = client.with_own_connections(backoff=Backoff(attempts_max=1))
    owners = OwnerLookup(once)
    return LedgerEvictor(
        actuator,
        LedgerStore(once, uid_of=owners.uid_of),
        owners.owner_of,
        RecordIds(secrets.randbits(WRITER_BITS)).next,
        LeaselessLeadership(uptime_seconds),
    )


def _ref(namespace: str, owner: Owner) -> WorkloadRef:
    return WorkloadRef(owner.api_version, owner.kind, namespace, owner.name).canonical


def _is_workload(ref: WorkloadRef) -> bool:
    return ref.group == "apps" and ref.kind in WORKLOADS


def _is_whole(workload: Workload) -> bool:
    return workload.replicas_ready >= workload.replicas_wanted


CHECK_SECONDS = 300.0
"""How long a check of the CRD's owner is valid."""
RETRY_SECONDS = 10.0
"""The delay before a first check that failed is retried; nothing is changed meanwhile."""
PREVIEW = "the agent runs in Preview and changes nothing"
FOREIGN = (
    "ForeignController: the definitions of ensurance.crane.io are managed by another controller; the agent "
    "changes nothing unless it is started with --crane on"
)
OTHER = f"the definitions of {GROUP} are managed by another controller, whose agent may have set it"


class EnforcementGate:
    """Checks before each cycle whether anything may be changed."""

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
        # One attempt: a cycle must not wait for an API server that does not answer.
        self._client = client.with_own_connections(backoff=Backoff(attempts_max=1))
        self._monotonic = monotonic
        self._standing: Standing | None = None
        self._had_policies = False
        self._check_at = float("-inf")
        self._why_unknown = ""
        self.is_unknown = False
        """True if the last denial was only that the API was unreachable; throttles are then kept."""

    def denial(self, crane_pod: str, has_policies: Callable[[], bool]) -> str:
        """Return why nothing may be changed now, or ""; `crane_pod` is one of Crane's agent on this node."""
        self.is_unknown = False
        if not self._is_enforced:
            return PREVIEW
        if crane_pod:
            return f"{crane_conflict(crane_pod)}; remove one of them"
        if self._takes_over:
            return ""
        had_policies, self._had_policies = self._had_policies, has_policies()
        denial = self._foreign(FOREIGN, is_first=self._had_policies and not had_policies)
        self.is_unknown = self._standing is None
        return denial

    def other_agent(self, crane_pod: str) -> str:
        """Return why a quota on this node may be another agent's, or ""; the same in Preview and Enforce."""
        if crane_pod:
            return crane_conflict(crane_pod)
        return "" if self._takes_over else self._foreign(OTHER, is_first=False)

    def _foreign(self, sentence: str, *, is_first: bool) -> str:
        """Return the sentence if another controller manages the CRD, why its owner is unknown, or "".

        The owner is checked when due; a failed check keeps the last answer, unless `is_first`.
        """
        if is_first:
            self._standing = None
        now = self._monotonic()
        if is_first or now >= self._check_at:
            try:
                self._standing = look_at(self._client, GROUP, VERSION, "nodeqosensurancepolicies").standing
            except WorldFailed as error:
                self._why_unknown = str(error)
            self._check_at = now + (RETRY_SECONDS if self._standing is None else CHECK_SECONDS)
        if self._standing is None:
            return f"the controller that manages the definitions of {GROUP} is unknown: {self._why_unknown}"
        return sentence if self._standing is Standing.FOREIGN else ""


def crane_conflict(pod: str) -> str:
    return f"pod {pod} is Crane's agent, and both agents would set the same CPU quotas"
