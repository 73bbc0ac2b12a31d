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
from equipoise.guard.protection import held_by_kind
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
from equipoise.rotation.assignment import Assigned, Refusal, assign
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
MAYBE_GONE = frozenset({"Accepted", "Unknown"})
"""Results after which a pod counts as away, whatever the last look at the cluster showed."""

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
    failures: Sequence[str]
    """What could not be seen at all."""
    away: set[str]
    """The UIDs of all pods that are away now, whoever caused it; what this cycle sends away comes on top."""

    def disturbed(self, workload: Workload, ledger: Ledger) -> int:
        """Count pods that are away now, that we sent or mean to send away, and that are missing."""
        pods = [pod for pod in self.pods.get(workload.ref, ()) if pod.phase not in FINISHED]
        sent = ledger.sent()
        disturbed = sum(pod.uid in self.away or pod.uid in sent for pod in pods)
        return disturbed + max(0, workload.replicas_wanted - len(pods))


FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that are over: they were replaced, and only their objects are left."""


def is_away(pod: Pod) -> bool:
    """Whether a pod serves nobody now, or is about to go."""
    if pod.phase in FINISHED:
        return False
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
    beat: Callable[[], object] = field(default=str)
    """Says from inside a long cycle that it still gets on."""
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
        unsaid = self._say(policies, refused, [(item, decision) for item, decision, _ in results], at)
        return CycleReport(
            [decision for _, decision, _ in results],
            [outcome for _, _, outcomes in results for outcome in outcomes],
            [*seen.warnings, *unsaid],
            "; ".join(seen.failures),
        )

    def _see(self, assigned: Sequence[Assigned], at: float) -> Seen:
        workloads = [item.workload for item in assigned]
        pods = pods_by_workload(workloads, self.cluster.pods())
        usage: dict[float, Usage] = {}
        warnings: list[str] = []
        failures: list[str] = []
        for window in sorted({item.policy.metrics_window_seconds for item in assigned}):
            names: dict[str, list[str]] = {}
            for item in assigned:
                if item.policy.metrics_window_seconds == window:
                    names.setdefault(item.workload.ref.namespace, []).extend(
                        pod.name for pod in pods[item.workload.ref]
                    )
            self.beat()
            try:
                answer = self.metrics.cpu_usage(names, at, window)
            except WorldFailed as error:
                # Unknown, not zero: every decision of this window says that its metrics are incomplete.
                usage[window] = {}
                failures.append(f"the usage over {window:g} s is unknown: {error}")
                continue
            warnings += [f"{answer.source}: {warning}" for warning in answer.warnings]
            usage[window] = fresh_usage(answer, at)
        hpas, pdbs = hpas_by_workload(self.cluster.hpas()), self.cluster.pdbs()
        away = {pod.uid for group in pods.values() for pod in group if is_away(pod)}
        return Seen(at, pods, hpas, pdbs, usage, warnings, failures, away)

    def _turn(
        self, item: Assigned, observation: Observation, decision: Decision, seen: Seen
    ) -> tuple[Assigned, Decision, list[Outcome]]:
        """Guard one decision, act on what is left, and write it all down."""
        self.beat()
        key = StoreKey("ledger", item.workload.ref)
        guarded = decision
        if decision.actions:
            try:
                guarded = self._guard(item, decision, self._ledger(key, seen), seen)
            except WorldFailed as error:
                guarded = decision.hold(_unknown_ledger(error))
        outcomes = self._act(item, guarded, key, seen) if item.mode is Mode.ENFORCE and self.is_acting else []
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
            held_by_kind(item.workload.ref.kind, includes_stateful_sets=policy.includes_stateful_sets),
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
            seen.disturbed(item.workload, ledger),
            policy.unavailable_pods_max,
            len(seen.away),
            self.disturbed_in_cluster_max,
        )
        return decision.hold(reason, room)

    def _act(self, item: Assigned, decision: Decision, key: StoreKey, seen: Seen) -> list[Outcome]:
        """Evict one pod after the other, each through the fence; stop at the first that does not go.

        Whether somebody said stop is asked again before each: an eviction before it may have taken long.
        """
        at, epoch = seen.at, self.leadership.epoch()
        outcomes: list[Outcome] = []
        if epoch is None:
            return outcomes
        fence = Fence(
            self.store,
            self.leadership,
            self.actuator,
            lambda action: self._recheck(item, action),
            self.passed,
        )
        this_round = self.new_id(at)
        for action in decision.actions:
            if outcomes and held_by_pause(self.pauses, item.workload.ref.namespace) is not None:
                break
            entry = Entry(
                self.new_id(at), this_round, BALANCER, "EvictPod", action.pod, action.uid, round(at, 3), epoch
            )
            outcome = self._evict(fence, action, key, entry)
            outcomes.append(outcome)
            if outcome.result in MAYBE_GONE:
                seen.away.add(action.uid)
            self._tell(item.workload, outcome, decision)
            if outcome.result != "Accepted":
                break
        return outcomes

    def _recheck(self, item: Assigned, action: Action) -> str | None:
        """Ask the server itself, past every cache, whether the pod may still go; say why not."""
        try:
            pods = {pod.uid: pod for pod in self.cluster.pods_now(item.workload)}
        except WorldFailed as error:
            return f"the workload could not be looked at again: {error}"
        pod = pods.get(action.uid)
        if pod is None or is_away(pod):
            return f"{action.pod} has gone or is on its way since it was chosen"
        away = sum(map(is_away, pods.values()))
        if away >= item.policy.unavailable_pods_max:
            return f"{away} other pods of the workload are away since it was chosen"
        return None

    def _evict(self, fence: Fence, action: Action, key: StoreKey, entry: Entry) -> Outcome:
        try:
            return fence.evict(action, key, entry)
        except WorldFailed as error:
            # The intent is in the ledger, and counts: it may have happened.
            return Outcome(action, "Unknown", str(error))

    def _tell(self, workload: Workload, outcome: Outcome, decision: Decision) -> None:
        sentence = f"Eviction of {outcome.action.pod}: {outcome.result}. {decision.reason.sentence}"
        is_good = outcome.result == "Accepted"
        code = decision.reason.code.value
        self.actuator.record_event(_about(workload), code, sentence, is_warning=not is_good)

    def _tell_changes(self, policy: PolicyObject, decisions: Sequence[tuple[Workload, Decision]]) -> None:
        """Attach the new reason to each workload whose reason changed; the first reason is no news."""
        before = {entry.get("subject"): entry.get("reason") for entry in policy.status.get("decisions", ())}
        for workload, decision in decisions:
            code = decision.reason.code.value
            if before.get(decision.subject, code) != code:
                self.actuator.record_event(_about(workload), code, decision.reason.sentence)

    def _say(
        self,
        policies: Sequence[PolicyObject],
        refused: Mapping[ObjectRef, Refusal],
        decided: Collection[tuple[Assigned, Decision]],
        at: float,
    ) -> list[str]:
        """Write the status of each policy whose reasons changed, and tell what could not be written.

        A lost race is no trouble: the next cycle tries again.
        """
        by_policy: dict[ObjectRef, list[tuple[Workload, Decision]]] = {}
        for item, decision in decided:
            by_policy.setdefault(item.source, []).append((item.workload, decision))
        unsaid: list[str] = []
        for policy in policies:
            ref = policy.ref
            decisions = [decision for _, decision in by_policy.get(ref, ())]
            status = next_status(policy, decisions, refused.get(ref), at, is_acting=self.is_acting)
            if status is None:
                continue
            try:
                self.policies.write_status(policy, status)
                self._tell_changes(policy, by_policy.get(ref, ()))
            except StoreConflict:
                continue
            except WorldFailed as error:
                unsaid.append(f"the status of {ref.kind} {ref.namespace}/{ref.name} was not written: {error}")
        return unsaid


def _about(workload: Workload) -> ObjectRef:
    ref = workload.ref
    return ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, workload.uid)


def _unknown_ledger(error: WorldFailed) -> Reason:
    """Hold what is wanted while nobody can say what was done before; other workloads go on."""
    return Reason(Code.HELD_BY_BUDGET, f"What was done to this workload before is unknown: {error}.")


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
