"""One wave: pods are evicted one after the other, each through the fence; the first that stays ends it.

May this rotation go on now? Every guard is asked in turn, and they only reduce.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from equipoise.core.backoff import KeyedBackoff
from equipoise.core.cluster import ObjectRef, Pod, PodRef, Workload, WorkloadRef
from equipoise.core.decision import Action, Decision, EvictPod, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import Ledger
from equipoise.core.reason import Code, Reason
from equipoise.crd.windows import held_by_window
from equipoise.engine.disruption import DisruptionBudget, held_by_hourly_budget, protection_of
from equipoise.engine.executor import Executed, FencedExecutor, Intent, evict, execute_isolated
from equipoise.engine.guards import (
    held_by_age,
    held_by_cooldown,
    held_by_lag,
    held_by_leader,
    held_by_others,
    held_by_pause,
    hold_spikes,
)
from equipoise.engine.isolation import Isolation
from equipoise.ports import Actuator, Cluster, EvictionResult, Leadership, Metrics, Pauses, Store, Stored
from equipoise.rotation.assignment import Assigned
from equipoise.rotation.observe import FINISHED, ClusterSnapshot, away_now, is_away
from equipoise.rotation.policy import KafkaLag
from equipoise.rotation.preconditions import Observation
from equipoise.rotation.progress import BALANCER, RotationDetails, begin_wave

MAYBE_GONE = frozenset({"Accepted", "Unknown"})
"""Results after which a pod counts as away, whatever the last look at the cluster showed."""


@dataclass(frozen=True, slots=True)
class EvictionExecutor:
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
    on_step: Callable[[str], object]
    isolation: Isolation

    def act(
        self,
        item: Assigned,
        observation: Observation,
        decision: Decision,
        details: RotationDetails,
        stored: Stored,
        budget: DisruptionBudget,
        at: float,
        outcomes: list[Outcome],
    ) -> None:
        """Evict what the guards left of a decision; `outcomes` gets what came of each, as it comes.

        Whether somebody said stop is asked again before each: an eviction before it may have taken long.
        """
        if self.epoch is None or self.leadership.epoch() != self.epoch:
            return
        memory = begin_wave(decision, details, observation, self.new_id(at))
        assert memory.run is not None, "a wave belongs to a rotation"
        basis: Stored | None = stored
        moment = round(max(self.now(), at), 3)  # one for all of a wave, which is told by it
        for action in decision.actions:
            if basis is None or (
                outcomes and held_by_pause(self.pauses, item.workload.ref.namespace) is not None
            ):
                break
            intent = Intent(
                id=self.new_id(at),
                workload=item.workload.ref,
                pod=action.pod,
                uid=action.uid,
                at=moment,
                epoch=self.epoch,
                round=memory.run.round,
            )
            outcome, basis = self._evict(item, action, intent, basis, memory.to_data())
            outcomes.append(outcome)
            if outcome.result in MAYBE_GONE:
                budget.away.add(action.uid)
            self._tell(item.workload, outcome, decision)
            if outcome.result != "Accepted":
                break

    def _evict(
        self, item: Assigned, action: Action, intent: Intent, basis: Stored, memory: Mapping[str, Any]
    ) -> Executed:
        assert isinstance(action, EvictPod), "a rotation only evicts"
        executor = FencedExecutor(
            BALANCER, self.store, self.leadership, lambda chosen: self._recheck(item, chosen), self.on_step
        )
        pod = PodRef(action.namespace, action.pod, action.uid)
        return execute_isolated(
            self.isolation,
            item.workload.ref.subject,
            action,
            lambda: executor.execute(action, lambda: evict(self.actuator, pod), intent, basis, memory),
        )

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
        for about in (workload.object_ref, pod):
            self.actuator.record_event(about, code, sentence, is_warning=is_warning)


@dataclass(slots=True)
class Refusals:
    """Whose evictions were refused for good: they are not asked for again in every cycle."""

    _backoff: KeyedBackoff[WorkloadRef, Reason] = field(
        default_factory=lambda: KeyedBackoff(REFUSED_FIRST_SECONDS, REFUSED_MAX_SECONDS)
    )

    def take(self, workload: WorkloadRef, outcomes: Sequence[Outcome], at: float) -> None:
        """Learn from what came of a wave; one that went forgets what was."""
        refused = [outcome for outcome in outcomes if outcome.result in _REFUSED]
        if not refused:
            self._backoff.forget(workload)
            return
        code, why = _REFUSED[refused[-1].result]
        self._backoff.fail(workload, at, Reason(code, f"{why} ({refused[-1].detail})."))

    def held(self, workload: WorkloadRef, at: float) -> Reason | None:
        """Hold until it is time to ask again."""
        failure = self._backoff.failure(workload)
        return failure.last if failure is not None and at < failure.until else None


_REFUSED = {
    "Forbidden": (Code.OPTED_OUT, "The right to evict its pods is missing, so it is only previewed"),
    "Refused": (Code.PDB_BLOCKED, "The server does not let its pods be evicted"),
}
REFUSED_FIRST_SECONDS = 300.0
REFUSED_MAX_SECONDS = 3600.0


@dataclass(slots=True)
class Guards:
    """The guards of one cycle. What one question answered holds for the whole cycle."""

    pauses: Pauses
    leadership: Leadership
    metrics: Metrics
    budget: DisruptionBudget
    seen: ClusterSnapshot
    epoch: int | None
    """In which we led when we looked."""
    now: Callable[[], float]
    is_planning: bool = False
    """Whether what would go counts as gone, since nothing goes."""
    _lags: dict[str, float | None] = field(default_factory=dict)

    def ask(
        self,
        item: Assigned,
        decision: Decision,
        ledger: Ledger,
        streaks: Mapping[str, int] | None,
        *,
        is_under_way: bool,
    ) -> Decision:
        """Hold what must wait. Without `streaks` nobody asks for how long a pod has been hot."""
        policy, at = item.policy, self.seen.at
        reasons = [
            held_by_pause(self.pauses, item.workload.ref.namespace),
            held_by_leader(self.leadership) or held_by_age(self.now() - at),
            held_by_window(policy.windows, at),
            held_by_others(ledger, BALANCER, at),
        ]
        if not is_under_way:  # the waves of one rotation follow each other as soon as each is measured
            reasons.append(held_by_cooldown(ledger, BALANCER, policy.cooldown_seconds, at))
            reasons.append(held_by_hourly_budget(ledger, BALANCER, policy.rotations_per_hour_max, at))
        reasons.append(self._held_by_lag(policy.kafka_lag))
        for reason in reasons:
            if reason is not None:
                return decision.hold(reason)
        if streaks is not None and not is_under_way:
            decision = hold_spikes(decision, streaks, policy.debounce_cycles)
        pods = self.seen.pods[item.workload.ref]
        decision = held_by_pdbs(decision, pods, self.budget)
        unfinished = [pod for pod in pods if pod.phase not in FINISHED]
        disturbed = self.budget.disturbed(unfinished, item.workload.replicas_wanted, ledger)
        room, reason = self.budget.room(disturbed, policy.unavailable_pods_max)
        return decision.hold(reason, room)

    def spend(self, item: Assigned, decision: Decision) -> None:
        """Count what goes now, so that two workloads under one budget do not both have it."""
        by_uid = {pod.uid: pod for pod in self.seen.pods[item.workload.ref]}
        going = [by_uid[action.uid] for action in decision.actions if action.uid in by_uid]
        self.budget.spend(going)
        if self.is_planning:
            self.budget.away.update(pod.uid for pod in going)

    def _held_by_lag(self, lag: KafkaLag) -> Reason | None:
        """Ask each query once a cycle, and only when something would be done."""
        if not lag.is_enabled:
            return None
        if lag.query not in self._lags:
            try:
                self._lags[lag.query] = self.metrics.scalar(lag.query, self.seen.at) if lag.query else None
            except WorldFailed:
                self._lags[lag.query] = None
        return held_by_lag(self._lags[lag.query], lag.threshold, lag.query)


def held_by_pdbs(decision: Decision, pods: Sequence[Pod], budget: DisruptionBudget) -> Decision:
    """Hold what no PodDisruptionBudget lets go; the order is kept, so what follows a held one waits too."""
    by_uid = {pod.uid: pod for pod in pods}
    cleared = budget.clear([by_uid[action.uid] for action in decision.actions if action.uid in by_uid])
    if not cleared.waiting:
        return decision
    first = cleared.waiting[0]
    after = next(n for n, action in enumerate(decision.actions) if action.uid == first.pod.uid)
    return decision.hold(_blocked(first.sentence), after)


def held_by_server(decision: Decision, actuator: Actuator) -> tuple[Decision, str]:
    """Ask the server's dry run for the first pod, which is all that it can tell; add what it could not say.

    It does not count down, so for the others the arithmetic on the budgets holds.
    """
    if not decision.actions:
        return decision, ""
    first = decision.actions[0]
    try:
        answer = actuator.evict(PodRef(first.namespace, first.pod, first.uid), is_dry_run=True)
    except WorldFailed as error:
        return decision, f"budgets were counted, and the server's dry run failed: {error}"
    if answer.result is EvictionResult.ACCEPTED:
        return decision, ""
    if answer.result is EvictionResult.FORBIDDEN:
        return decision, "the right to evict is missing, so budgets were counted and the server was not asked"
    if answer.result is EvictionResult.GONE:
        sentence = f"{first.pod} has gone since it was looked at."
        return decision.hold(Reason(Code.HELD_BY_HEALTH, sentence)), ""
    return decision.hold(_blocked(f"the server would refuse {first.pod}: {answer.detail}")), ""


def _blocked(why: str) -> Reason:
    return Reason(Code.PDB_BLOCKED, f"{why[0].upper()}{why[1:].rstrip('.')}.")
