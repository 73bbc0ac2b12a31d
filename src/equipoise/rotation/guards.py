"""May this rotation go on now? Every guard is asked in turn, and they only reduce."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from equipoise.guard.budget import held_by_hourly_budget, room_for_disruption
from equipoise.guard.budgets import clear
from equipoise.guard.cooldown import held_by_cooldown
from equipoise.guard.debounce import hold_spikes
from equipoise.guard.lag import held_by_lag
from equipoise.guard.leader import held_by_leader
from equipoise.guard.pause import held_by_pause
from equipoise.guard.window import held_by_window
from equipoise.model.cluster import Pdb, Pod
from equipoise.model.decision import Decision
from equipoise.model.errors import WorldFailed
from equipoise.model.ledger import Ledger
from equipoise.model.reason import Code, Reason
from equipoise.model.references import PodRef
from equipoise.ports import Actuator, EvictionResult, Leadership, Metrics, Pauses
from equipoise.rotation.assignment import Assigned
from equipoise.rotation.memory import BALANCER
from equipoise.rotation.policy import KafkaLag
from equipoise.rotation.see import Seen


@dataclass(slots=True)
class Guards:
    """The guards of one cycle. What one question answered holds for the whole cycle."""

    pauses: Pauses
    leadership: Leadership
    metrics: Metrics
    disturbed_in_cluster_max: int
    seen: Seen
    _lags: dict[str, float | None] = field(default_factory=dict)

    def ask(
        self, item: Assigned, decision: Decision, ledger: Ledger, streaks: Mapping[str, int] | None
    ) -> Decision:
        """Hold what must wait. Without `streaks` nobody asks for how long a pod has been hot."""
        policy, at = item.policy, self.seen.at
        is_under_way = "course" in decision.memory
        reasons = [
            held_by_pause(self.pauses, item.workload.ref.namespace),
            held_by_leader(self.leadership),
            held_by_window(policy.windows, at),
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
        decision = held_by_pdbs(decision, self.seen.pods[item.workload.ref], self.seen.pdbs)
        room, reason = room_for_disruption(
            self.seen.disturbed(item.workload, ledger),
            policy.unavailable_pods_max,
            len(self.seen.away),
            self.disturbed_in_cluster_max,
        )
        return decision.hold(reason, room)

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


def held_by_pdbs(decision: Decision, pods: Sequence[Pod], pdbs: Sequence[Pdb]) -> Decision:
    """Hold what no PodDisruptionBudget lets go; the order is kept, so what follows a held one waits too."""
    by_uid = {pod.uid: pod for pod in pods}
    wanted = [by_uid[action.uid] for action in decision.actions if action.uid in by_uid]
    cleared = clear(wanted, pdbs)
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
    answer = actuator.evict(PodRef(first.namespace, first.pod, first.uid), is_dry_run=True)
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
