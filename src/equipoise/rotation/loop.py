"""The rotation at work: one cycle sees all workloads of all policies, decides, guards, acts and records.

A cycle never waits for the world. What it must remember is in the API server: the ledger of each workload,
and the status of each policy. Only for how long a pod has been hot is counted here: whoever begins to lead
begins to count.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from equipoise.guard.debounce import count_streaks
from equipoise.guard.protection import SYSTEM_NAMESPACES
from equipoise.model.crd.targets import Mode
from equipoise.model.decision import Decision, Outcome
from equipoise.model.errors import WorldFailed
from equipoise.model.ledger import Ledger
from equipoise.model.reason import Code, Reason
from equipoise.model.references import ObjectRef, StoreKey, WorkloadRef
from equipoise.ports import (
    Actuator,
    Cluster,
    CycleReport,
    Journal,
    Leadership,
    Metrics,
    NotInstalled,
    Pauses,
    Policies,
    PolicyObject,
    Store,
    StoreConflict,
    Stored,
)
from equipoise.rotation.assignment import Assigned, Refusal, assign
from equipoise.rotation.decide import decide_all
from equipoise.rotation.deeds import Deeds, about_workload
from equipoise.rotation.guards import Guards, held_by_server
from equipoise.rotation.memory import BALANCER, recall
from equipoise.rotation.observation import Observation
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.record import record
from equipoise.rotation.see import (
    Seen,
    Usage,
    fresh_usage,
    hpas_by_workload,
    is_away,
    observe,
    pods_by_workload,
)
from equipoise.rotation.status import next_status

Batch = Sequence[tuple[RotationPolicy, Observation, Mapping[str, Any]]]


class Remembered(NamedTuple):
    """The ledger of one workload as this cycle found it, or why it is unknown."""

    stored: Stored
    before: Ledger
    ledger: Ledger
    """The same, with every old intent settled by what the world shows."""
    memory: Mapping[str, Any]
    trouble: str = ""


class Turned(NamedTuple):
    """What came of one workload's turn."""

    item: Assigned
    decision: Decision
    outcomes: Sequence[Outcome]
    told: Reason | None = None
    """What the workload was told already: how its rotation ended."""
    at: float = 0.0
    """When it was looked at."""


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
    namespaces_protected: Collection[str] = SYSTEM_NAMESPACES
    is_acting: bool = True
    """Whether `Enforce` means it. Without, nothing is written and nothing is evicted."""
    asks_server: bool = False
    """Whether the server's dry run is asked before a preview is shown."""
    is_debounced: bool = True
    """Whether a pod must have been hot for some cycles before it goes."""
    decide_batch: Callable[[Batch], list[Decision]] = field(default=decide_all)
    """Where a batch is decided: here, or in a process of its own."""
    beat: Callable[[], object] = field(default=str)
    """Says from inside a long cycle that it still gets on."""
    passed: Callable[[str], object] = field(default=str)
    name: str = BALANCER
    _streaks: dict[WorkloadRef, dict[str, int]] = field(default_factory=dict)
    _last: dict[WorkloadRef, "Turned"] = field(default_factory=dict)

    def cycle(self, at: float) -> CycleReport:
        """Do one turn. Whoever does not lead does nothing, not even looks."""
        if self.leadership.epoch() is None:
            self._streaks.clear()
            self._last.clear()
            return CycleReport((), ())
        policies = self.policies.policies()
        assigned, refused = assign(policies, self.cluster.workloads())
        carried = [self._last[item.workload.ref] for item in assigned if not self._is_due(item, at)]
        turned, seen = self.look([item for item in assigned if self._is_due(item, at)], at)
        self._last = {turn.item.workload.ref: turn for turn in carried}
        self._last |= {turn.item.workload.ref: turn._replace(outcomes=(), at=at) for turn in turned}
        self._streaks = {ref: self._streaks[ref] for ref in self._last.keys() & self._streaks.keys()}
        unsaid = self._say(policies, refused, [*turned, *carried], at)
        return CycleReport(
            [turn.decision for turn in turned],
            [outcome for turn in turned for outcome in turn.outcomes],
            [*seen.warnings, *sorted(seen.notes), *unsaid],
            carried=[turn.decision for turn in carried],
            failure="; ".join(seen.failures),
        )

    def _is_due(self, item: Assigned, at: float) -> bool:
        """Whether a policy's `syncPeriod` has passed, give or take half of our interval; or it is new."""
        last = self._last.get(item.workload.ref)
        if last is None or last.item.policy != item.policy or last.item.mode is not item.mode:
            return True
        period = item.policy.sync_period_seconds
        return period <= self.interval_seconds or at - last.at >= period - self.interval_seconds / 2

    def look(
        self, assigned: Sequence[Assigned], at: float, namespace: str | None = None
    ) -> tuple[list[Turned], Seen]:
        """See, decide, guard, act and record for these workloads."""
        seen = self._see(assigned, at, namespace)
        remembered = self._remember(assigned, seen, namespace)
        observations = [observe(item.policy, item.workload, seen) for item in assigned]
        known = [remembered[item.workload.ref] for item in assigned]
        asked = [
            (item.policy, observation, each.memory)
            for item, observation, each in zip(assigned, observations, known, strict=True)
        ]
        decided = self.decide_batch(asked)
        self._count(assigned, observations, decided)
        guards = Guards(self.pauses, self.leadership, self.metrics, self.disturbed_in_cluster_max, seen)
        parts = zip(assigned, observations, decided, known, strict=True)
        return [self._turn(*part, guards) for part in parts], seen

    def _see(self, assigned: Sequence[Assigned], at: float, namespace: str | None) -> Seen:
        workloads = [item.workload for item in assigned]
        pods = pods_by_workload(workloads, self.cluster.pods(namespace))
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
        away = {pod.uid for group in pods.values() for pod in group if is_away(pod)}
        hpas, pdbs = hpas_by_workload(self.cluster.hpas(namespace)), self.cluster.pdbs(namespace)
        pauses, notes = self._autoscaler_pauses(namespace)
        return Seen(
            *(at, pods, hpas, pdbs, usage, pauses, warnings, failures, away),
            namespaces_protected=self.namespaces_protected,
            notes=notes,
        )

    def _autoscaler_pauses(self, namespace: str | None) -> tuple[Mapping[WorkloadRef, str], set[str]]:
        """Ask whose autoscaler is paused; who acts must know, who only looks is told when it can't."""
        try:
            return self.cluster.autoscaler_pauses(namespace), set()
        except WorldFailed as error:
            if self.is_acting:
                raise
            return {}, {f"whether KEDA has paused an autoscaler is unknown: {error}"}

    def _remember(
        self, assigned: Sequence[Assigned], seen: Seen, namespace: str | None
    ) -> Mapping[WorkloadRef, Remembered]:
        """Read all ledgers at once, and give every old intent the outcome that the world shows."""
        trouble = ""
        found: Mapping[WorkloadRef, Stored] = {}
        refs = [item.workload.ref for item in assigned]
        try:
            found = self.store.read_all("ledger", namespace) if refs else {}
        except WorldFailed as error:
            if self.is_acting or not isinstance(error, NotInstalled):
                trouble = str(error)
                seen.notes.add(f"what was done before is unknown: {error}")
        return {ref: _remembered(found.get(ref, Stored({})), trouble, seen, ref) for ref in refs}

    def _count(
        self,
        assigned: Sequence[Assigned],
        observations: Sequence[Observation],
        decided: Sequence[Decision],
    ) -> None:
        """Count in how many cycles in a row each pod was hot; a workload without a hot pod has no count."""
        for item, observation, decision in zip(assigned, observations, decided, strict=True):
            hot = set(decision.reason.numbers.get("hot", ()))
            before = self._streaks.pop(item.workload.ref, {})
            if hot:
                uids = [pod.uid for pod in observation.pods if pod.name in hot]
                self._streaks[item.workload.ref] = count_streaks(before, uids)

    def _turn(
        self,
        item: Assigned,
        observation: Observation,
        decision: Decision,
        known: Remembered,
        guards: Guards,
    ) -> Turned:
        """Guard one decision, act on what is left, and write it all down."""
        self.beat()
        seen, is_real = guards.seen, item.mode is Mode.ENFORCE and self.is_acting
        guarded = decision
        stored: Stored | None = known.stored
        told: Reason | None = None
        if is_real and not known.trouble:
            stored = self._keep(item, decision, known)
            if stored is not None and "course" in known.memory and "course" not in decision.memory:
                told = decision.reason
                self.actuator.record_event(about_workload(item.workload), told.code.value, told.sentence)
        if decision.actions:
            guarded = self._guard(item, decision, known, guards)
        outcomes: list[Outcome] = []
        if is_real and guarded.actions and stored is not None and not known.trouble:
            deeds = Deeds(
                *(self.cluster, self.pauses, self.leadership, self.store, self.actuator),
                *(self.new_id, self.passed),
            )
            outcomes = deeds.act(item, observation, guarded, stored, seen)
        kept = tuple(outcomes)
        name = self.new_id(seen.at)
        self.journal.append(record(item.policy, observation, known.memory, guarded, seen.at, name, kept))
        return Turned(item, guarded, outcomes, told)

    def _guard(self, item: Assigned, decision: Decision, known: Remembered, guards: Guards) -> Decision:
        if known.trouble and self.is_acting:
            return decision.hold(_unknown_ledger(known.trouble))
        streaks = self._streaks.get(item.workload.ref, {}) if self.is_debounced else None
        guarded = guards.ask(item, decision, known.ledger, streaks)
        if not self.asks_server:
            return guarded
        guarded, unsaid = held_by_server(guarded, self.actuator)
        if unsaid:
            guards.seen.notes.add(unsaid)
        return guarded

    def _keep(self, item: Assigned, decision: Decision, known: Remembered) -> Stored | None:
        """Write down what is to be remembered, when it changed; without that nothing is done this time."""
        ledger = known.ledger
        if decision.memory != known.memory:
            ledger = ledger.remembering(BALANCER, decision.memory)
        if ledger == known.before:
            return known.stored
        try:
            key = StoreKey("ledger", item.workload.ref)
            return self.store.write(key, ledger.to_data(), known.stored.version)
        except (StoreConflict, WorldFailed):
            return None

    def _tell_changes(self, policy: PolicyObject, turns: Sequence[Turned]) -> None:
        """Attach the new reason to each workload whose reason changed; the first reason is no news."""
        before = {entry.get("subject"): entry.get("reason") for entry in policy.status.get("decisions", ())}
        for turn in turns:
            reason, code = turn.decision.reason, turn.decision.reason.code.value
            is_news = not turn.outcomes and reason != turn.told
            if is_news and before.get(turn.decision.subject, code) != code:
                about = about_workload(turn.item.workload)
                self.actuator.record_event(about, code, reason.sentence)

    def _say(
        self,
        policies: Sequence[PolicyObject],
        refused: Mapping[ObjectRef, Refusal],
        turned: Collection[Turned],
        at: float,
    ) -> list[str]:
        """Write the status of each policy whose reasons changed, and tell what could not be written.

        A lost race is no trouble: the next cycle tries again.
        """
        by_policy: dict[ObjectRef, list[Turned]] = {}
        for turn in turned:
            by_policy.setdefault(turn.item.source, []).append(turn)
        unsaid: list[str] = []
        for policy in policies:
            ref, turns = policy.ref, by_policy.get(policy.ref, [])
            status = next_status(policy, [turn.decision for turn in turns], refused.get(ref), at)
            if status is None:
                continue
            try:
                self.policies.write_status(policy, status)
                self._tell_changes(policy, turns)
            except StoreConflict:
                continue
            except WorldFailed as error:
                unsaid.append(f"the status of {ref.kind} {ref.namespace}/{ref.name} was not written: {error}")
        return unsaid


def _remembered(stored: Stored, trouble: str, seen: Seen, ref: WorkloadRef) -> Remembered:
    nothing = Ledger()
    if trouble or not stored.version:
        return Remembered(stored, nothing, nothing, {}, trouble)
    try:
        before = Ledger.from_data(stored.data)
        alive = {pod.uid for pod in seen.pods[ref] if pod.deletion_at is None}
        ledger = before.reconciled(alive, seen.at)
        return Remembered(stored, before, ledger, recall(ledger))
    except WorldFailed as error:
        return Remembered(stored, nothing, nothing, {}, str(error))


def _unknown_ledger(trouble: str) -> Reason:
    """Hold what is wanted while nobody can say what was done before; other workloads go on."""
    return Reason(Code.HELD_BY_BUDGET, f"What was done to this workload before is unknown: {trouble}.")
