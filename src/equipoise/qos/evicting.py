"""An agent's evictions through the ledger of the pod's workload.

An agent has no Lease and sees one node. The workload's ledger keeps it, other agents and the balancers from
taking pods of one workload at the same time: the intent is written by compare-and-swap before the eviction
is sent, and nothing is sent while somebody else's deed is under way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from equipoise.guard.fence import STATES, Deed, Fence
from equipoise.guard.leader import Guest
from equipoise.guard.others import MENDING_SECONDS, held_by_anyone
from equipoise.model.decision import Action, EvictPod, Outcome
from equipoise.model.errors import WorldFailed
from equipoise.model.ledger import GUEST_EPOCH, Entry, Ledger
from equipoise.model.references import PodRef, StoreKey, WorkloadRef
from equipoise.ports import Actuator, Store
from equipoise.qos.pods import PodTold

BALANCER = "qos"


class Whose(NamedTuple):
    """The workload that a pod belongs to."""

    ref: WorkloadRef
    is_whole: bool
    """Whether it has all the pods that it wants, ready."""


class Evictor(Protocol):
    """Sends a pod away, or says why not."""

    def evict(self, action: EvictPod, pod: PodTold, at: float) -> Outcome:
        """Evict one pod; WorldFailed where nobody knows whether it goes."""
        ...


@dataclass(frozen=True, slots=True)
class Direct:
    """Asks the API server and nobody else."""

    actuator: Actuator

    def evict(self, action: EvictPod, pod: PodTold, at: float) -> Outcome:
        """Evict one pod."""
        del at
        done = self.deed(action, pod)
        return Outcome(action, done.result, done.detail)

    def deed(self, action: EvictPod, pod: PodTold) -> Deed:
        """Send the eviction."""
        ref = PodRef(pod.namespace, pod.name, pod.uid)
        answer = self.actuator.evict(ref, grace_seconds=action.grace_seconds)
        return Deed(answer.result.value, answer.detail, STATES[answer.result])


@dataclass(slots=True)
class Ledgered:
    """Asks the ledger of the pod's workload first; pods that nothing replaces have none."""

    actuator: Actuator
    store: Store
    whose: Callable[[PodTold], Whose | None]
    new_id: Callable[[float], str]
    guest: Guest
    passed: Callable[[str], object] = field(default=str)
    _own: dict[str, float] = field(default_factory=dict)
    """Our own entries: those do not hold us, our budget of a round does."""

    def evict(self, action: EvictPod, pod: PodTold, at: float) -> Outcome:
        """Evict one pod, if nobody else is taking pods of its workload."""
        self.guest.look()
        direct = Direct(self.actuator)
        try:
            owner = self.whose(pod)
            if owner is None:
                return direct.evict(action, pod, at)
            key = StoreKey("ledger", owner.ref)
            stored = self.store.read(key)
            ledger = Ledger.from_data(stored.data)
        except WorldFailed as error:
            return Outcome(action, "Fenced", f"what was done to its workload before is unknown: {error}")
        self._own = {name: written for name, written in self._own.items() if at - written < MENDING_SECONDS}
        reason = held_by_anyone(ledger, self._own, at, is_whole=owner.is_whole)
        if reason is not None:
            return Outcome(action, "Fenced", reason.sentence)
        entry = self._entry(pod, at)
        fence = Fence(self.store, self.guest, self.actuator, _as_it_is, self.passed)
        self._own[entry.id] = at
        return fence.through(action, lambda: direct.deed(action, pod), key, entry, stored).outcome

    def _entry(self, pod: PodTold, at: float) -> Entry:
        name = self.new_id(at)
        return Entry(
            id=name,
            round=name,
            balancer=BALANCER,
            action="EvictPod",
            pod=pod.name,
            uid=pod.uid,
            at=round(at, 3),
            epoch=GUEST_EPOCH,
        )


def _as_it_is(action: Action) -> str | None:
    """Look no more: the eviction names the pod's UID, and the server asks its budgets."""
    del action
    return None
