"""The rotation at work: one cycle sees all workloads of all policies, decides, guards, acts and records.

A cycle never waits for the world. What it must remember is in the API server: the ledger of each workload,
and the status of each policy.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from equipoise.guard.budget import held_by_hourly_budget, room_for_disruption
from equipoise.guard.budgets import clear
from equipoise.guard.cooldown import held_by_cooldown
from equipoise.guard.fence import Fence
from equipoise.guard.leader import held_by_leader
from equipoise.guard.pause import held_by_pause
from equipoise.guard.window import held_by_window
from equipoise.model.cluster import Pdb, Pod, Workload
from equipoise.model.crd.targets import Mode
from equipoise.model.decision import Action, Decision, Outcome
from equipoise.model.errors import WorldFailed
from equipoise.model.ledger import Entry, Ledger
from equipoise.model.reason import Code, Reason
from equipoise.model.references import ObjectRef, StoreKey, WorkloadRef
from equipoise.ports import (
    Actuator,
    Cluster,
    CycleReport,
    Journal,
    Leadership,
    Metrics,
    Pauses,
    Policies,
    PolicyObject,
    Store,
    StoreConflict,
)
from equipoise.rotation.assignment import Assigned, assign
from equipoise.rotation.decide import decide_all
from equipoise.rotation.loop import (
    Usage,
    fresh_usage,
    hold_for_lag,
    hpas_by_workload,
    observe,
    pods_by_workload,
)
from equipoise.rotation.observation import HpaSeen, Observation
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.record import record
from equipoise.rotation.status import next_status

BALANCER = "rotation"

Batch = Sequence[tuple[RotationPolicy, Observation]]


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the cluster, for all workloads at once."""

    at: float
    pods: Mapping[WorkloadRef, Sequence[Pod]]
    hpas: Mapping[WorkloadRef, Sequence[HpaSeen]]
    pdbs: Sequence[Pdb]
    usage: Mapping[float, Usage]
    """By metrics window."""
    warnings: Sequence[str]

    def disturbed(self, workload: WorkloadRef, ledger: Ledger) -> int:
        """Count pods that are away now, whoever caused it, and those that we mean to send away."""
        pods = self.pods.get(workload, ())
        away = {pod.uid for pod in pods if is_away(pod)}
        meant = {entry.uid for entry in ledger.intents()} & {pod.uid for pod in pods}
        return len(away | meant)

    def disturbed_everywhere(self) -> int:
        """Count the pods of all workloads that are away now."""
        return sum(is_away(pod) for pods in self.pods.values() for pod in pods)


def is_away(pod: Pod) -> bool:
    """Whether a pod serves nobody now, or is about to go."""
    return pod.deletion_at is not None or pod.is_disruption_target or not pod.is_ready


@dataclass(slots=True)
class RotationLoop:
    """All that one cycle needs of the world."""

    cluster: Cluster
    metrics: Metrics
    policies: Policies
    pauses: Pauses
    leadership: Leadership
    store: Store
    actuator: Actuator
    journal: Journal
    new_id: Callable[[float], str]
    """Names records, rounds and entries, given the time."""
    interval_seconds: float = 30.0
    disturbed_in_cluster_max: int = 10
    is_acting: bool = False
    """Whether `Enforce` means it. Without, every policy is a preview."""
    decide_batch: Callable[[Batch], list[Decision]] = field(default=decide_all)
    """Where a batch is decided: here, or in a process of its own."""
    passed: Callable[[str], object] = field(default=str)
    name: str = BALANCER

    def cycle(self, at: float) -> CycleReport:
        """Do one turn. Whoever does not lead does nothing, not even looks."""
        if self.leadership.epoch() is None:
            return CycleReport((), ())
        policies = self.policies.policies()
        workloads = self.cluster.workloads()
        assigned, refused = assign(policies, workloads)
        seen = self._see(assigned, at)
        observations = [_observe(item, seen) for item in assigned]
        asked = [(item.policy, each) for item, each in zip(assigned, observations, strict=True)]
        decided = zip(assigned, observations, self.decide_batch(asked), strict=True)
        results = [self._turn(item, observation, decision, seen) for item, observation, decision in decided]
        self._say(policies, refused, [(item, decision) for item, decision, _ in results], at)
        return CycleReport(
            [decision for _, decision, _ in results],
            [outcome for _, _, outcomes in results for outcome in outcomes],
            seen.warnings,
        )

    def _see(self, assigned: Sequence[Assigned], at: float) -> Seen:
        workloads = [item.workload for item in assigned]
        pods = pods_by_workload(workloads, self.cluster.pods())
        usage, warnings = {}, []
        for window in sorted({item.policy.metrics_window_seconds for item in assigned}):
            names: dict[str, list[str]] = {}
            for item in assigned:
                if item.policy.metrics_window_seconds == window:
                    names.setdefault(item.workload.ref.namespace, []).extend(
                        pod.name for pod in pods[item.workload.ref]
                    )
            answer = self.metrics.cpu_usage(names, at, window)
            warnings += [f"{answer.source}: {warning}" for warning in answer.warnings]
            usage[window] = fresh_usage(answer, at)
        return Seen(at, pods, hpas_by_workload(self.cluster.hpas()), self.cluster.pdbs(), usage, warnings)

    def _turn(
        self, item: Assigned, observation: Observation, decision: Decision, seen: Seen
    ) -> tuple[Assigned, Decision, list[Outcome]]:
        """Guard one decision, act on what is left, and write it all down."""
        key = StoreKey("ledger", item.workload.ref)
        guarded = decision
        if decision.actions:
            ledger = self._ledger(key, seen)
            guarded = self._guard(item, decision, ledger, seen)
        outcomes = (
            self._act(item, guarded, key, seen.at) if item.mode is Mode.ENFORCE and self.is_acting else []
        )
        written = record(
            item.policy, observation, {}, guarded, seen.at, self.new_id(seen.at), tuple(outcomes)
        )
        self.journal.append(written)
        return item, guarded, outcomes

    def _ledger(self, key: StoreKey, seen: Seen) -> Ledger:
        """Read a ledger, and settle the intents of whoever led before."""
        stored = self.store.read(key)
        ledger = Ledger.from_data(stored.data)
        alive = {pod.uid for pod in seen.pods[key.workload] if pod.deletion_at is None}
        settled = ledger.reconciled(alive, seen.at)
        if settled is not ledger:
            try:
                self.store.write(key, settled.to_data(), stored.version)
            except StoreConflict:
                return ledger
        return settled

    def _guard(self, item: Assigned, decision: Decision, ledger: Ledger, seen: Seen) -> Decision:
        """Ask every guard in turn; they only reduce."""
        policy, at = item.policy, seen.at
        for reason in (
            held_by_pause(self.pauses, item.workload.ref.namespace),
            held_by_leader(self.leadership),
            held_by_window(policy.windows, at),
            held_by_cooldown(ledger, BALANCER, policy.cooldown_seconds, at),
            held_by_hourly_budget(ledger, BALANCER, policy.rotations_per_hour_max, at),
        ):
            if reason is not None:
                return decision.hold(reason)
        (decision,) = hold_for_lag(policy, self.metrics, at, decision)
        decision = _held_by_pdbs(decision, seen.pods[item.workload.ref], seen.pdbs)
        room, reason = room_for_disruption(
            seen.disturbed(item.workload.ref, ledger),
            policy.unavailable_pods_max,
            seen.disturbed_everywhere(),
            self.disturbed_in_cluster_max,
        )
        return decision.hold(reason, room)

    def _act(self, item: Assigned, decision: Decision, key: StoreKey, at: float) -> list[Outcome]:
        """Evict one pod after the other, each through the fence; stop at the first that does not go."""
        epoch = self.leadership.epoch()
        outcomes: list[Outcome] = []
        if epoch is None:
            return outcomes
        fence = Fence(self.store, self.leadership, self.actuator, self.passed)
        this_round = self.new_id(at)
        for action in decision.actions:
            entry = Entry(
                self.new_id(at), this_round, BALANCER, "EvictPod", action.pod, action.uid, round(at, 3), epoch
            )
            outcome = self._evict(fence, action, key, entry)
            outcomes.append(outcome)
            self._tell(item.workload, outcome, decision)
            if outcome.result != "Accepted":
                break
        return outcomes

    def _evict(self, fence: Fence, action: Action, key: StoreKey, entry: Entry) -> Outcome:
        try:
            return fence.evict(action, key, entry)
        except WorldFailed as error:
            # The intent is in the ledger, and counts: it may have happened.
            return Outcome(action, "Unknown", str(error))

    def _tell(self, workload: Workload, outcome: Outcome, decision: Decision) -> None:
        ref = workload.ref
        about = ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, workload.uid)
        sentence = f"Eviction of {outcome.action.pod}: {outcome.result}. {decision.reason.sentence}"
        is_good = outcome.result == "Accepted"
        self.actuator.record_event(about, decision.reason.code.value, sentence, is_warning=not is_good)

    def _say(
        self,
        policies: Sequence[PolicyObject],
        refused: Mapping[ObjectRef, str],
        decided: Collection[tuple[Assigned, Decision]],
        at: float,
    ) -> None:
        """Write the status of each policy whose reasons changed; the next cycle tries a lost race again."""
        for policy in policies:
            decisions = [decision for item, decision in decided if item.source == policy.ref]
            status = next_status(policy, decisions, refused.get(policy.ref), at, is_acting=self.is_acting)
            if status is None:
                continue
            try:
                self.policies.write_status(policy, status)
            except (StoreConflict, WorldFailed):
                continue


def _observe(item: Assigned, seen: Seen) -> Observation:
    ref, usage = item.workload.ref, seen.usage[item.policy.metrics_window_seconds]
    return observe(item.policy, item.workload, seen.hpas.get(ref, ()), seen.pods[ref], usage, seen.at)


def _held_by_pdbs(decision: Decision, pods: Sequence[Pod], pdbs: Sequence[Pdb]) -> Decision:
    """Hold what no PodDisruptionBudget lets go; the order is kept, so what follows a held one waits too."""
    by_uid = {pod.uid: pod for pod in pods}
    wanted = [by_uid[action.uid] for action in decision.actions if action.uid in by_uid]
    cleared = clear(wanted, pdbs)
    if not cleared.waiting:
        return decision
    first = cleared.waiting[0]
    after = next(n for n, action in enumerate(decision.actions) if action.uid == first.pod.uid)
    return decision.hold(Reason(Code.PDB_BLOCKED, f"{first.sentence[0].upper()}{first.sentence[1:]}."), after)
