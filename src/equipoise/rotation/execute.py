"""Executes decisions of the rotation: the ledger, the guards, and a wave of evictions.

A decision is made from a snapshot, and before a pod is evicted anything may have changed: the namespace was
paused, another balancer acted, a PodDisruptionBudget was used up. So the guards are evaluated in a fixed
order, and each can only hold actions. The remaining pods are evicted one after the other through the fenced
executor; the first eviction that is not accepted ends the wave.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from equipoise.core.cluster import FINISHED, ObjectRef, Pod, PodRef, Workload, WorkloadRef
from equipoise.core.decision import Action, Decision, EvictPod, Outcome
from equipoise.core.errors import KeyedBackoff, WorldFailed
from equipoise.core.ledger import Ledger
from equipoise.core.quantity import print_count
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
from equipoise.ports import (
    Actuator,
    Cluster,
    EvictionResult,
    NotInstalled,
    Store,
    Stored,
)
from equipoise.rotation.observe import ClusterSnapshot, Ports, away_now, is_away
from equipoise.rotation.policy import KafkaLag
from equipoise.rotation.preconditions import Observation
from equipoise.rotation.progress import BALANCER, RotationDetails, begin_wave, load_memory
from equipoise.rotation.status import MAYBE_EVICTED, Target

REFUSED_FIRST_SECONDS = 300.0
REFUSED_MAX_SECONDS = 3600.0
REFUSED = {
    "Forbidden": (
        Code.OPTED_OUT,
        "The right to evict the pods of this workload is missing, so its rotation is only previewed",
    ),
    "Refused": (Code.PDB_BLOCKED, "The API server refuses to evict the pods of this workload"),
}


class LedgerState(NamedTuple):
    """The ledger of one workload as this cycle read it, or why it is unknown."""

    stored: Stored
    before: Ledger
    ledger: Ledger
    """The stored ledger, with the outcomes of old intents that the cluster shows."""
    memory: Mapping[str, Any]
    error: str = ""


_EMPTY = Ledger()


class Ledgers(NamedTuple):
    """All ledgers, or why none is known."""

    stored: Mapping[WorkloadRef, Stored]
    error: str = ""

    def state_of(
        self, workload: Workload, snapshot: ClusterSnapshot, cluster: Cluster, *, with_run: bool = True
    ) -> LedgerState:
        """Return the ledger of one workload; an unreadable one affects this workload only."""
        stored = self.stored.get(workload.ref, Stored({}))
        if self.error or not stored.version:
            return LedgerState(stored, _EMPTY, _EMPTY, {}, self.error)
        try:
            before = Ledger.from_data(stored.data)
            ledger = _settled(before, snapshot, cluster, workload)
            return LedgerState(stored, before, ledger, load_memory(ledger, with_run=with_run))
        except WorldFailed as error:
            return LedgerState(stored, _EMPTY, _EMPTY, {}, str(error))


def read_ledgers(
    store: Store, snapshot: ClusterSnapshot, namespace: str | None, *, is_acting: bool
) -> Ledgers:
    """Return all ledgers. For a plan, missing definitions of the ledger count as empty ledgers."""
    try:
        return Ledgers(store.read_all(namespace))
    except WorldFailed as error:
        if not is_acting and isinstance(error, NotInstalled):
            return Ledgers({})
        snapshot.notes.add(f"the ledger of earlier actions cannot be read: {error}")
        return Ledgers({}, str(error))


def _settled(before: Ledger, snapshot: ClusterSnapshot, cluster: Cluster, workload: Workload) -> Ledger:
    """Return the ledger with the outcomes of old intents that the cluster shows.

    Only the server shows that an eviction did not happen: a cache may not have received the deletion yet.
    """
    ledger = before.reconciled(_alive(snapshot.pods[workload.ref]), snapshot.at)
    if len(ledger.sent()) == len(before.sent()):
        return ledger
    return before.reconciled(_alive(cluster.pods_now(workload)), snapshot.at)


def _alive(pods: Sequence[Pod]) -> frozenset[str]:
    return frozenset(pod.uid for pod in pods if pod.deletion_at is None)


class Planned(NamedTuple):
    """The observation of one workload and the decision from it, before any guard."""

    target: Target
    observation: Observation
    ledger: LedgerState
    decision: Decision
    details: RotationDetails


@dataclass(frozen=True, slots=True)
class EvictionExecutor:
    """Evicts the waves of one cycle."""

    ports: Ports
    isolation: Isolation
    guards: "Guards"

    def evict_wave(
        self, planned: Planned, decision: Decision, stored: Stored, outcomes: list[Outcome]
    ) -> None:
        """Evict the pods of a decision after its guards; each outcome is appended to `outcomes` at once.

        Pauses are read again before every pod but the first, since an eviction may take long.
        """
        ports, workload, at = self.ports, planned.target.workload, self.guards.snapshot.at
        epoch = self.guards.epoch  # a decision is executed only in the epoch in which it was made
        if epoch is None or ports.leadership.epoch() != epoch:
            return
        assert decision.actions, "a wave has pods"
        room = planned.details.room
        assert room is None or len(decision.actions) <= room, "a rotation takes no more pods than it planned"
        memory = begin_wave(decision, planned.details, planned.observation, ports.new_id(at))
        assert memory.run is not None, "a wave belongs to a rotation"
        basis: Stored | None = stored
        sent_at = round(max(ports.now(), at), 3)  # identifies the wave in the ledger
        for action in decision.actions:
            is_paused = outcomes and held_by_pause(ports.pauses, workload.ref.namespace) is not None
            if basis is None or is_paused:
                break
            entry_id, round_id = ports.new_id(at), memory.run.round
            intent = Intent(entry_id, workload.ref, action.pod, action.uid, sent_at, epoch, round_id)
            outcome, basis = self._evict(planned.target, action, intent, basis, memory.to_data())
            outcomes.append(outcome)
            if outcome.result in MAYBE_EVICTED:
                self.guards.budget.away.add(action.uid)
            self._report(workload, outcome, decision)
            if outcome.result != "Accepted":
                break

    def _evict(
        self, target: Target, action: Action, intent: Intent, basis: Stored, memory: Mapping[str, Any]
    ) -> Executed:
        assert isinstance(action, EvictPod), "a rotation only evicts"
        ports = self.ports
        recheck = partial(self._recheck, target)
        executor = FencedExecutor(BALANCER, ports.store, ports.leadership, recheck, ports.on_step)
        pod = PodRef(action.namespace, action.pod, action.uid)
        return execute_isolated(
            self.isolation,
            target.workload.ref.subject,
            action,
            lambda: executor.execute(action, lambda: evict(ports.actuator, pod), intent, basis, memory),
        )

    def _recheck(self, target: Target, action: Action) -> str | None:
        """Return why the pod must not be evicted any more, from the API server, not from a cache."""
        try:
            pods = {pod.uid: pod for pod in self.ports.cluster.pods_now(target.workload)}
        except WorldFailed as error:
            return f"the workload could not be read again: {error}"
        pod = pods.get(action.uid)
        if pod is None or pod.phase in FINISHED or is_away(pod):
            return f"{action.pod} is gone or no longer ready"
        protection = protection_of(
            pod,
            includes_local_storage=target.policy.includes_local_storage,
            includes_stateful_sets=target.policy.includes_stateful_sets,
        )
        if protection:
            return f"{action.pod} is protected now: {protection}"
        away = away_now(pods.values(), target.workload.replicas_wanted)
        if away >= target.policy.unavailable_pods_max:
            return f"{print_count(away, 'other pod')} of the workload became unavailable"
        paused = held_by_pause(self.ports.pauses, target.workload.ref.namespace)
        return None if paused is None else paused.sentence

    def _report(self, workload: Workload, outcome: Outcome, decision: Decision) -> None:
        """Record the same event on the workload and on the pod."""
        detail = f" ({outcome.detail})" if outcome.detail else ""
        is_warning, pod_name = outcome.result != "Accepted", outcome.action.pod
        what = f"Eviction of {pod_name}: {outcome.result}" if is_warning else f"Evicted {pod_name}"
        sentence = f"{what}{detail}. {decision.reason.sentence}"
        code, action = decision.reason.code.value, outcome.action
        pod = ObjectRef("v1", "Pod", action.namespace, action.pod, action.uid)
        for about in (workload.object_ref, pod):
            self.ports.actuator.record_event(about, code, sentence, is_warning=is_warning)


@dataclass(slots=True)
class Refusals:
    """The backoff of workloads whose evictions were refused permanently."""

    _backoff: KeyedBackoff[WorkloadRef, Reason] = field(
        default_factory=lambda: KeyedBackoff(REFUSED_FIRST_SECONDS, REFUSED_MAX_SECONDS)
    )

    def take(self, workload: WorkloadRef, outcomes: Sequence[Outcome], at: float) -> None:
        """Back off after a permanent refusal; any other outcome of a wave ends the backoff."""
        refused = [outcome for outcome in outcomes if outcome.result in REFUSED]
        if not refused:
            self._backoff.forget(workload)
            return
        code, why = REFUSED[refused[-1].result]
        self._backoff.fail(workload, at, Reason(code, f"{why} ({refused[-1].detail})."))

    def held(self, workload: WorkloadRef, at: float) -> Reason | None:
        failure = self._backoff.failure(workload)
        return failure.last if failure is not None and at < failure.until else None


@dataclass(slots=True)
class Guards:
    """The guards of one cycle. Answers from outside are cached for the cycle."""

    ports: Ports
    budget: DisruptionBudget
    snapshot: ClusterSnapshot
    epoch: int | None
    """The epoch of this replica's Lease when the snapshot was taken."""
    is_acting: bool = True
    """Whether evictions are sent; otherwise planned evictions count as away."""
    _lags: dict[str, float | None] = field(default_factory=dict)

    def ask(self, planned: Planned, streaks: Mapping[str, int] | None) -> Decision:
        """Hold actions that must wait; without `streaks`, regardless of how long a pod has been hot."""
        target, ledger, decision = planned.target, planned.ledger.ledger, planned.decision
        policy, at = target.policy, self.snapshot.at
        is_under_way = planned.details.memory.run is not None
        reasons = [
            held_by_pause(self.ports.pauses, target.workload.ref.namespace),
            held_by_leader(self.ports.leadership) or held_by_age(self.ports.now() - at),
            held_by_window(policy.windows, at),
            held_by_others(ledger, BALANCER, at),
        ]
        if not is_under_way:  # no cooldown between the waves of one rotation
            reasons.append(held_by_cooldown(ledger, BALANCER, policy.cooldown_seconds, at))
            reasons.append(held_by_hourly_budget(ledger, BALANCER, policy.rotations_per_hour_max, at))
        reasons.append(self._held_by_lag(policy.kafka_lag))
        if (first := next(filter(None, reasons), None)) is not None:
            return decision.hold(first)
        if streaks is not None and not is_under_way:
            decision = hold_spikes(decision, streaks, policy.debounce_cycles)
        pods = self.snapshot.pods[target.workload.ref]
        decision = held_by_pdbs(decision, pods, self.budget)
        unfinished = [pod for pod in pods if pod.phase not in FINISHED]
        disturbed = self.budget.disturbed(unfinished, target.workload.replicas_wanted, ledger)
        room, reason = self.budget.room(disturbed, policy.unavailable_pods_max)
        guarded = decision.hold(reason, room)
        assert guarded.actions == planned.decision.actions[: len(guarded.actions)], "guards only reduce"
        return guarded

    def spend(self, planned: Planned, decision: Decision) -> None:
        """Deduct the actions from the budgets, so that two workloads do not use the same budget."""
        by_uid = {pod.uid: pod for pod in self.snapshot.pods[planned.target.workload.ref]}
        going = [by_uid[action.uid] for action in decision.actions if action.uid in by_uid]
        self.budget.spend(going)
        if not self.is_acting:
            self.budget.away.update(pod.uid for pod in going)

    def _held_by_lag(self, lag: KafkaLag) -> Reason | None:
        """Run each query at most once per cycle, and only where there are actions."""
        if not lag.is_enabled:
            return None
        if lag.query not in self._lags:
            try:
                at = self.snapshot.at
                self._lags[lag.query] = self.ports.metrics.scalar(lag.query, at) if lag.query else None
            except WorldFailed:
                self._lags[lag.query] = None
        return held_by_lag(self._lags[lag.query], lag.threshold, lag.query)


def held_by_pdbs(decision: Decision, pods: Sequence[Pod], budget: DisruptionBudget) -> Decision:
    """Hold actions that a PodDisruptionBudget does not allow, and all that follow them in order."""
    by_uid = {pod.uid: pod for pod in pods}
    cleared = budget.clear([by_uid[action.uid] for action in decision.actions if action.uid in by_uid])
    if not cleared.waiting:
        return decision
    first = cleared.waiting[0]
    after = next(n for n, action in enumerate(decision.actions) if action.uid == first.pod.uid)
    return decision.hold(_blocked(first.sentence), after)


def held_by_server(decision: Decision, actuator: Actuator) -> tuple[Decision, str]:
    """Hold actions if the server's dry run refuses the first; return a note where the dry run failed.

    A dry run uses up no budget, so it is sent for the first pod only; for the others budgets were counted.
    """
    if not decision.actions:
        return decision, ""
    first = decision.actions[0]
    try:
        answer = actuator.evict(PodRef(first.namespace, first.pod, first.uid), is_dry_run=True)
    except WorldFailed as error:
        return decision, f"the API server's dry run failed, so only the budgets' status was used: {error}"
    if answer.result is EvictionResult.ACCEPTED:
        return decision, ""
    if answer.result is EvictionResult.FORBIDDEN:
        return (
            decision,
            "the right to evict is missing, so only the status of the PodDisruptionBudgets was used",
        )
    if answer.result is EvictionResult.GONE:
        sentence = f"{first.pod} no longer exists."
        return decision.hold(Reason(Code.HELD_BY_HEALTH, sentence)), ""
    return decision.hold(_blocked(f"the API server would refuse to evict {first.pod}: {answer.detail}")), ""


def _blocked(why: str) -> Reason:
    return Reason(Code.PDB_BLOCKED, f"{why[0].upper()}{why[1:].rstrip('.')}.")
