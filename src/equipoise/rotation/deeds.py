"""One wave: pods are evicted one after the other, each through the fence; the first that stays ends it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from equipoise.guard.fence import Fence, Passed
from equipoise.guard.isolation import Isolation
from equipoise.guard.pause import held_by_pause
from equipoise.guard.protection import protection_of
from equipoise.model.cluster import Workload
from equipoise.model.decision import Action, Decision, EvictPod, Outcome
from equipoise.model.errors import WorldFailed
from equipoise.model.ledger import Entry
from equipoise.model.references import ObjectRef, StoreKey
from equipoise.ports import Actuator, Cluster, Leadership, Pauses, Store, Stored
from equipoise.rotation.assignment import Assigned
from equipoise.rotation.course import begun
from equipoise.rotation.memory import BALANCER, RotationMemory
from equipoise.rotation.observation import Observation
from equipoise.rotation.see import FINISHED, Seen, away_now, is_away

MAYBE_GONE = frozenset({"Accepted", "Unknown"})
"""Results after which a pod counts as away, whatever the last look at the cluster showed."""


@dataclass(frozen=True, slots=True)
class Deeds:
    """What a wave needs of the world."""

    cluster: Cluster
    pauses: Pauses
    leadership: Leadership
    store: Store
    actuator: Actuator
    new_id: Callable[[float], str]
    now: Callable[[], float]
    epoch: int | None
    """In which we led when we looked: what was decided then is done in no other."""
    passed: Callable[[str], object]
    isolation: Isolation

    def act(
        self,
        item: Assigned,
        observation: Observation,
        decision: Decision,
        stored: Stored,
        seen: Seen,
        outcomes: list[Outcome],
    ) -> None:
        """Evict what the guards left of a decision; `outcomes` gets what came of each, as it comes.

        Whether somebody said stop is asked again before each: an eviction before it may have taken long.
        """
        if self.epoch is None or self.leadership.epoch() != self.epoch:
            return
        memory = RotationMemory.from_data(decision.memory)
        memory = begun(memory, observation, decision, self.new_id(seen.at))
        assert memory.course is not None, "a wave belongs to a rotation"
        basis: Stored | None = stored
        moment = round(max(self.now(), seen.at), 3)  # one for all of a wave, which is told by it
        for action in decision.actions:
            if basis is None or (
                outcomes and held_by_pause(self.pauses, item.workload.ref.namespace) is not None
            ):
                break
            entry = Entry(
                id=self.new_id(seen.at),
                round=memory.course.round,
                balancer=BALANCER,
                action="EvictPod",
                pod=action.pod,
                uid=action.uid,
                at=moment,
                epoch=self.epoch,
            )
            outcome, basis = self._evict(item, action, entry, basis, memory.to_data())
            outcomes.append(outcome)
            if outcome.result in MAYBE_GONE:
                seen.away.add(action.uid)
            self._tell(item.workload, outcome, decision)
            if outcome.result != "Accepted":
                break

    def _evict(
        self, item: Assigned, action: Action, entry: Entry, basis: Stored, memory: Mapping[str, Any]
    ) -> Passed:
        fence = Fence(
            self.store,
            self.leadership,
            self.actuator,
            lambda chosen: self._recheck(item, chosen),
            self.passed,
        )
        assert isinstance(action, EvictPod), "a rotation only evicts"
        try:
            return fence.evict(action, StoreKey("ledger", item.workload.ref), entry, basis, memory)
        except WorldFailed as error:
            # The intent is in the ledger, and counts: it may have happened.
            return Passed(Outcome(action, "Unknown", str(error)))
        except Exception as error:  # noqa: BLE001 - as unknown as a lost answer
            failed = self.isolation.take(item.workload.ref.subject, error)
            return Passed(Outcome(action, "Unknown", failed.error))

    def _recheck(self, item: Assigned, action: Action) -> str | None:
        """Ask the server itself, past every cache, whether the pod may still go; say why not."""
        try:
            pods = {pod.uid: pod for pod in self.cluster.pods_now(item.workload)}
        except WorldFailed as error:
            return f"the workload could not be looked at again: {error}"
        pod = pods.get(action.uid)
        if pod is None or pod.phase in FINISHED or is_away(pod):
            return f"{action.pod} has gone or is on its way since it was chosen"
        protection = protection_of(
            pod,
            includes_local_storage=item.policy.includes_local_storage,
            includes_stateful_sets=item.policy.includes_stateful_sets,
        )
        if protection:
            return f"{action.pod} must stay since it was chosen: {protection}"
        away = away_now(pods.values(), item.workload.replicas_wanted)
        if away >= item.policy.unavailable_pods_max:
            others, are = ("pod", "is") if away == 1 else ("pods", "are")
            return f"{away} other {others} of the workload {are} away since it was chosen"
        stop = held_by_pause(self.pauses, item.workload.ref.namespace)
        return None if stop is None else stop.sentence

    def _tell(self, workload: Workload, outcome: Outcome, decision: Decision) -> None:
        """Tell the workload and the pod, in the same words."""
        detail = f" ({outcome.detail})" if outcome.detail else ""
        sentence = f"Eviction of {outcome.action.pod}: {outcome.result}{detail}. {decision.reason.sentence}"
        is_warning = outcome.result != "Accepted"
        code, action = decision.reason.code.value, outcome.action
        pod = ObjectRef("v1", "Pod", action.namespace, action.pod, action.uid)
        for about in (about_workload(workload), pod):
            self.actuator.record_event(about, code, sentence, is_warning=is_warning)


def about_workload(workload: Workload) -> ObjectRef:
    """Name a workload as an event does."""
    ref = workload.ref
    return ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, workload.uid)
