"""How the actions of a decision are held, sent and counted.

An agent has no Lease and reads one node. So it evicts through the ledger of the pod's workload, which
prevents other agents and the balancers from acting on pods of one workload at the same time: the intent is
written by compare-and-swap before the eviction is sent, and nothing is sent while another's action is in
progress. Quotas and memory concern one node only, and need no ledger.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace

from equipoise.core.cluster import PodRef, WorkloadRef
from equipoise.core.decision import (
    Action,
    Decision,
    DisableScheduling,
    EnableScheduling,
    EvictPod,
    Held,
    Outcome,
    RestorePod,
    ThrottlePod,
)
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import GUEST_EPOCH, Ledger
from equipoise.core.reason import Reason
from equipoise.engine.executor import ActionResult, FencedExecutor, Intent, LeaselessLeadership, evict
from equipoise.engine.guards import RECOVERY_SECONDS, held_by_anyone
from equipoise.engine.isolation import ignore
from equipoise.ports import Actuator, EvictionResult, Store
from equipoise.ports.node import ContainerRef, Counters, Host, NodeContainer, NodePod
from equipoise.qos.explain import amount
from equipoise.qos.observation import NANOS_PER_MILLI, PERIOD_US, NodeResource, quota_of
from equipoise.qos.observe import NodeContext
from equipoise.qos.state import ThrottledContainer

BALANCER = "qos"


class PodOwner(NamedTuple):
    """The workload that a pod belongs to."""

    ref: WorkloadRef
    is_whole: bool
    """Whether all its replicas are available."""


def evict_directly(actuator: Actuator, action: EvictPod, pod: NodePod) -> Outcome:
    """Evict a pod without a ledger; raises WorldFailed if it is unknown whether the eviction was accepted."""
    result = _send(actuator, action, pod)
    return Outcome(action, result.result, result.detail)


def _send(actuator: Actuator, action: EvictPod, pod: NodePod) -> ActionResult:
    return evict(actuator, PodRef(pod.namespace, pod.name, pod.uid), action.grace_seconds)


@dataclass(slots=True)
class LedgerEvictor:
    """Evicts through the ledger of the pod's workload; pods without a workload have no ledger."""

    actuator: Actuator
    store: Store
    owner_of: Callable[[NodePod], PodOwner | None]
    new_id: Callable[[float], str]
    leadership: LeaselessLeadership
    on_step: Callable[[str], object] = ignore
    _own: dict[str, float] = field(default_factory=dict)
    """Times of our own entries, by id: the budget of a round limits them, not the ledger."""

    def evict(self, action: EvictPod, pod: NodePod, at: float) -> Outcome:
        """Evict one pod, unless another's action on its workload is in progress.

        Raises WorldFailed if it is unknown whether the eviction was accepted.
        """
        self.leadership.renew()
        try:
            owner = self.owner_of(pod)
            if owner is None:
                return evict_directly(self.actuator, action, pod)
            stored = self.store.read(owner.ref)
            ledger = Ledger.from_data(stored.data)
        except WorldFailed as error:
            return Outcome(action, "Fenced", f"the ledger of its workload could not be read: {error}")
        self._own = {name: written for name, written in self._own.items() if at - written < RECOVERY_SECONDS}
        reason = held_by_anyone(ledger, self._own, at, is_whole=owner.is_whole)
        if reason is not None:
            return Outcome(action, "Fenced", reason.sentence)
        name = self.new_id(at)
        self._own[name] = at
        intent = Intent(name, owner.ref, pod.name, pod.uid, at, GUEST_EPOCH)
        # Nothing is re-checked: the eviction names the pod's UID, and the server checks the budgets.
        executor = FencedExecutor(BALANCER, self.store, self.leadership, lambda _: None, self.on_step)
        return executor.execute(action, lambda: _send(self.actuator, action, pod), intent, stored).outcome


PREVIEW = "Preview: "


def hold_paused(decision: Decision, pause_of: Callable[[str], Reason | None]) -> Decision:
    """Hold actions in paused namespaces, restoring included; `pause_of` gets "" for those on the node."""
    namespaces = dict.fromkeys(map(namespace_of, decision.actions))
    reasons = {namespace: pause_of(namespace) for namespace in namespaces}
    asked = [(action, reasons[namespace_of(action)]) for action in decision.actions]
    allowed = tuple(action for action, reason in asked if reason is None)
    held = [Held(action, reason.code, reason.sentence) for action, reason in asked if reason is not None]
    assert len(allowed) + len(held) == len(decision.actions), "a guard only reduces"
    if not held:
        return decision
    why = decision.reason
    if not allowed:
        why = replace(why, code=held[0].reason, sentence=held[0].sentence)
    return replace(decision, reason=why, actions=allowed, held=(*held, *decision.held))


def namespace_of(action: Action) -> str:
    """Return the namespace of the pod that is acted on; empty for the node itself."""
    return action.pod.partition("/")[0]


def previewed(decision: Decision) -> Decision:
    sentence = f"{PREVIEW}{decision.reason.sentence}"
    return replace(decision, reason=replace(decision.reason, sentence=sentence))


ACCEPTED, GONE = EvictionResult.ACCEPTED.value, EvictionResult.GONE.value
SUCCEEDED = frozenset({"Done", ACCEPTED})
MAY_HAVE_EVICTED = frozenset({ACCEPTED, "Unknown"})
OUTCOMES_SHOWN_MAX = 4


def is_unforeseen(outcome: Outcome) -> bool:
    """Return whether an action did not release what was planned, or its release was only estimated."""
    match outcome.action:
        case EvictPod():
            return outcome.result != ACCEPTED
        case ThrottlePod(reclaim=reclaim):
            return outcome.result != "Done" or reclaim is not None
    return False


def affects_usage(outcome: Outcome) -> bool:
    """Return whether the action changed a pod, or may have."""
    if isinstance(outcome.action, EvictPod):
        return outcome.result in MAY_HAVE_EVICTED
    return isinstance(outcome.action, ThrottlePod | RestorePod)


def throttled_nanos(outcomes: Sequence[Outcome]) -> int:
    """Return the CPU that these outcomes' lowered quotas release."""
    return sum(
        int(Fraction(one.action.release) * NANOS_PER_MILLI)
        for one in outcomes
        if isinstance(one.action, ThrottlePod)
        and one.result == "Done"
        and one.action.quota is not None
        and one.action.release is not None
    )


class Tally(NamedTuple):
    """The results of the actions of one cycle so far."""

    evictions_accepted: int
    """Those that may have been included."""
    evictions_refused: int
    """By the server, or for an action of another balancer."""
    throttles_failed: int


def tally(outcomes: Sequence[Outcome]) -> Tally:
    evictions = [one.result for one in outcomes if isinstance(one.action, EvictPod)]
    accepted = sum(result in MAY_HAVE_EVICTED for result in evictions)
    failed = sum(isinstance(one.action, ThrottlePod) and one.result == "Failed" for one in outcomes)
    return Tally(accepted, len(evictions) - accepted - evictions.count(GONE), failed)


def deviation(decision: Decision, outcomes: Sequence[Outcome]) -> str:
    """Return the results of a plan that was not executed as decided; empty if it was, or nothing was sent.

    The rest of a cycle is decided again after a refused action: then other pods are evicted than planned.
    """
    planned = [(type(action), action.pod) for action in decision.actions]
    sent = [(type(one.action), one.action.pod) for one in outcomes]
    if not sent or (sent == planned and all(one.result in SUCCEEDED for one in outcomes)):
        return ""
    results = [f"{one.action.pod or type(one.action).__name__} {one.result}" for one in outcomes]
    more = f" and {len(results) - OUTCOMES_SHOWN_MAX} more" if len(results) > OUTCOMES_SHOWN_MAX else ""
    return f" Results: {', '.join(results[:OUTCOMES_SHOWN_MAX])}{more}."


def set_quotas(node: Host, action: ThrottlePod | RestorePod, pod: NodePod, ids: Mapping[str, str]) -> Outcome:
    assert action.pod == pod.key, "quotas are written to the pod that they were decided for"
    try:
        vanished = [
            name
            for name, quota in (action.quota or {}).items()
            if not node.set_quota(ContainerRef(pod.uid, ids[name], pod.qos_class), quota)
        ]
    except WorldFailed as error:
        return Outcome(action, "Failed", str(error))
    if vanished:
        return Outcome(action, "Gone", f"no longer running: container {', '.join(vanished)}")
    return Outcome(action, "Done")


def restore_container(
    node: Host,
    part: ThrottledContainer,
    running: tuple[NodePod, NodeContainer] | None,
    counters: Counters | None,
) -> Outcome:
    """Write the quota of a container's limit; any error becomes the outcome, so that others are restored."""
    action = RestorePod(f"{part.namespace}/{part.pod}", uid=part.pod_uid)
    if running is None:
        why = f"the CPU limit of container {part.container} is unknown: its pod was not found"
        return Outcome(action, "Unknown", why)
    pod, container = running
    try:
        period_us = counters.period_us if counters is not None else PERIOD_US
        quota = quota_of(container.cpu_limit_nanos, period_us)
        action = RestorePod(pod.key, uid=pod.uid, quota={part.container: quota})
        return set_quotas(node, action, pod, {part.container: container.id})
    except Exception as error:  # noqa: BLE001 - any error is about this container
        return Outcome(action, "Failed", f"unexpected {type(error).__name__}: {error}")


def reclaim_memory(node: Host, action: ThrottlePod, pod: NodePod, ids: Mapping[str, str]) -> Outcome:
    released = 0
    try:
        for name, size in (action.reclaim or {}).items():
            got = node.reclaim(ContainerRef(pod.uid, ids[name], pod.qos_class), size)
            released += got or 0
    except WorldFailed as error:
        return Outcome(action, "Failed", str(error))
    return Outcome(action, "Done", f"{amount(NodeResource.MEMORY, Fraction(released))} of memory reclaimed")


def set_scheduling(
    node_api: NodeContext, action: DisableScheduling | EnableScheduling, sentence: str
) -> Outcome:
    try:
        node_api.set_scheduling(is_disabled=isinstance(action, DisableScheduling), sentence=sentence)
    except WorldFailed as error:
        return Outcome(action, "Failed", str(error))
    return Outcome(action, "Done")
