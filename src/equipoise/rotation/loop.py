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
from equipoise.model.cluster import Workload
from equipoise.model.crd.targets import Mode
from equipoise.model.decision import Decision, Outcome
from equipoise.model.errors import WorldFailed
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
    Stored,
)
from equipoise.rotation.assignment import Assigned, Refusal, assign
from equipoise.rotation.course import told
from equipoise.rotation.decide import decide_all
from equipoise.rotation.deeds import MAYBE_GONE, Deeds, about_workload
from equipoise.rotation.guards import Guards, Refusals, held_by_server
from equipoise.rotation.ledgers import Remembered, read_ledgers
from equipoise.rotation.memory import BALANCER, RotationMemory
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


class Turned(NamedTuple):
    """What came of one workload's turn."""

    item: Assigned
    decision: Decision
    outcomes: Sequence[Outcome]
    told: Reason | None = None
    """What the workload was told already: how its rotation ended."""
    at: float = 0.0
    """When it was looked at."""
    trouble: str = ""
    """Why nobody knows what was done to it before."""

    @property
    def is_under_way(self) -> bool:
        """Whether a rotation has begun that has no verdict yet."""
        return "course" in self.decision.memory or any(o.result in MAYBE_GONE for o in self.outcomes)


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
    now: Callable[[], float] | None = None
    """The time, to stamp intents with and to know how old a look is; without, that of the cycle."""
    name: str = BALANCER
    _streaks: dict[WorkloadRef, dict[str, int]] = field(default_factory=dict)
    _last: dict[WorkloadRef, "Turned"] = field(default_factory=dict)
    _refusals: Refusals = field(default_factory=Refusals)

    def cycle(self, at: float) -> CycleReport:
        """Do one turn. Whoever does not lead does nothing, not even looks."""
        if self.leadership.epoch() is None:
            self._streaks.clear()
            self._last.clear()
            return CycleReport((), ())
        policies = self.policies.policies()
        assigned, refused = assign(policies, self.cluster.workloads())
        due = [item for item in assigned if self._is_due(item, at)]
        carried = [self._last[item.workload.ref] for item in assigned if not self._is_due(item, at)]
        turned, seen = self.look(due, at, others=[turn.item.workload for turn in carried])
        before = self._last
        self._last = {turn.item.workload.ref: turn for turn in (*carried, *turned)}
        self._streaks = {ref: self._streaks[ref] for ref in self._last.keys() & self._streaks.keys()}
        unsaid = self._say(policies, refused, [*turned, *carried], before, at)
        return CycleReport(
            [turn.decision for turn in turned],
            [outcome for turn in turned for outcome in turn.outcomes],
            [*seen.warnings, *sorted(seen.notes), *unsaid],
            carried=[turn.decision for turn in carried],
            failure="; ".join(seen.failures),
        )

    def _is_due(self, item: Assigned, at: float) -> bool:
        """Whether a policy's `syncPeriod` has passed, give or take half of our interval; or it is new.

        A clock that was set back tells nothing of what has passed.
        """
        last = self._last.get(item.workload.ref)
        if last is None or last.is_under_way:
            return True
        was = last.item
        if (was.source, was.mode) != (item.source, item.mode) or was.policy != item.policy:
            return True
        period = item.policy.sync_period_seconds
        least = period - self.interval_seconds / 2
        return period <= self.interval_seconds or not 0 <= at - last.at < least

    def look(
        self,
        assigned: Sequence[Assigned],
        at: float,
        namespace: str | None = None,
        *,
        others: Sequence[Workload] = (),
    ) -> tuple[list[Turned], Seen]:
        """See, decide, guard, act and record for these workloads; `others` count as disturbed only."""
        epoch = self.leadership.epoch()
        seen = self._see(assigned, at, namespace, others)
        workloads = [item.workload for item in assigned]
        remembered = read_ledgers(
            *(self.store, self.cluster, workloads, seen, namespace), is_acting=self.is_acting
        )
        observations = [observe(item.policy, item.workload, seen) for item in assigned]
        known = [self._known(item, remembered[item.workload.ref]) for item in assigned]
        asked = [
            (item.policy, observation, each.memory)
            for item, observation, each in zip(assigned, observations, known, strict=True)
        ]
        decided = self.decide_batch(asked)
        self._count(assigned, observations, decided)
        guards = Guards(
            *(self.pauses, self.leadership, self.metrics, self.disturbed_in_cluster_max, seen),
            epoch=epoch,
            now=self.now or (lambda: at),
            is_planning=not self.is_acting,
        )
        parts = zip(assigned, observations, decided, known, strict=True)
        return [self._turn(*part, guards) for part in parts], seen

    def _is_real(self, item: Assigned) -> bool:
        return item.mode is Mode.ENFORCE and self.is_acting

    def _known(self, item: Assigned, known: Remembered) -> Remembered:
        """For a preview, no rotation is under way: nobody would write its verdict down."""
        if self._is_real(item) or not self.is_acting or "course" not in known.memory:
            return known
        return known._replace(memory={name: known.memory[name] for name in known.memory if name != "course"})

    def _see(
        self, assigned: Sequence[Assigned], at: float, namespace: str | None, others: Sequence[Workload]
    ) -> Seen:
        workloads = [*(item.workload for item in assigned), *others]
        pods = pods_by_workload(workloads, self.cluster.pods(namespace))
        usage: dict[float, Usage] = {}
        warnings: list[str] = []
        failures: list[str] = []
        partial: dict[float, str] = {}
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
            if answer.partial:
                partial[window] = answer.partial[0]
        away = {pod.uid for group in pods.values() for pod in group if is_away(pod)}
        hpas, pdbs = hpas_by_workload(self.cluster.hpas(namespace)), self.cluster.pdbs(namespace)
        pauses, notes = self._autoscaler_pauses(namespace) if assigned else ({}, set())
        return Seen(
            *(at, pods, hpas, pdbs, usage, pauses, warnings, failures, away),
            namespaces_protected=self.namespaces_protected,
            partial=partial,
            notes=notes,
        )

    def _autoscaler_pauses(self, namespace: str | None) -> tuple[Mapping[WorkloadRef, str], set[str]]:
        """Ask whose autoscaler is paused; who acts must know, who only looks is told when it can't."""
        try:
            return self.cluster.autoscaler_pauses(namespace), set()
        except WorldFailed as error:
            if self.is_acting:
                raise
            return {}, {str(error)}

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
        seen, is_real = guards.seen, self._is_real(item)
        stored: Stored | None = known.stored
        if is_real and not known.trouble:
            stored = self._keep(item, decision, known)
        guarded = self._guard(item, decision, known, guards) if decision.actions else decision
        has_ended = "course" in known.memory and "course" not in decision.memory
        said: Reason | None = None
        if is_real and stored is not None and has_ended:
            said = self._tell_end(item, guarded)
        outcomes: list[Outcome] = []
        if is_real and guarded.actions and stored is not None and not known.trouble:
            deeds = Deeds(
                *(self.cluster, self.pauses, self.leadership, self.store, self.actuator),
                *(self.new_id, guards.now, guards.epoch, self.passed),
            )
            outcomes = deeds.act(item, observation, guarded, stored, seen)
            self._refusals.take(item.workload.ref, outcomes, seen.at)
        kept = tuple(outcomes)
        name = self.new_id(seen.at)
        # A verdict is kept with what it was measured from, also where the reason is the same as before.
        written = record(item.policy, observation, known.memory, guarded, seen.at, name, kept)
        self.journal.append(written, is_whole=is_real and has_ended)
        return Turned(item, guarded, outcomes, said, seen.at, known.trouble)

    def _tell_end(self, item: Assigned, guarded: Decision) -> Reason:
        """Tell the workload what came of its rotation, under the reason that holds now."""
        verdict = RotationMemory.from_data(guarded.memory).last
        assert verdict is not None, "a rotation that ended has a verdict"
        code = guarded.reason.code.value
        self.actuator.record_event(about_workload(item.workload), code, told(verdict))
        return guarded.reason

    def _guard(self, item: Assigned, decision: Decision, known: Remembered, guards: Guards) -> Decision:
        if known.trouble and self.is_acting:
            return decision.hold(_unknown_ledger(known.trouble))
        refusal = self._refusals.held(item.workload.ref, guards.seen.at)
        if refusal is not None and self._is_real(item):
            return decision.hold(refusal)
        streaks = self._streaks.get(item.workload.ref, {}) if self.is_debounced else None
        guarded = guards.ask(item, decision, known.ledger, streaks)
        if self.asks_server:
            guarded, unsaid = held_by_server(guarded, self.actuator)
            guards.seen.notes.update({unsaid} - {""})
        if self._is_real(item) or not self.is_acting:
            guards.spend(item, guarded)
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

    def _tell_changes(
        self, policy: PolicyObject, turns: Sequence[Turned], last: Mapping[WorkloadRef, Turned]
    ) -> None:
        """Attach the new reason to each workload whose reason changed; the first reason is no news.

        The status, which a new leader has too, shows the first of many workloads only.
        """
        shown = {entry.get("subject"): entry.get("reason") for entry in policy.status.get("decisions", ())}
        for turn in turns:
            reason, code = turn.decision.reason, turn.decision.reason.code.value
            ref = turn.item.workload.ref
            known = last[ref].decision.reason.code.value if ref in last else code
            is_news = not turn.outcomes and reason != turn.told
            if is_news and shown.get(turn.decision.subject, known) != code:
                self.actuator.record_event(about_workload(turn.item.workload), code, reason.sentence)

    def _say(
        self,
        policies: Sequence[PolicyObject],
        refused: Mapping[ObjectRef, Refusal],
        turned: Collection[Turned],
        last: Mapping[WorkloadRef, Turned],
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
                self._tell_changes(policy, turns, last)
            except StoreConflict:
                continue
            except WorldFailed as error:
                unsaid.append(f"the status of {ref.kind} {ref.namespace}/{ref.name} was not written: {error}")
        return unsaid


def _unknown_ledger(trouble: str) -> Reason:
    """Hold what is wanted while nobody can say what was done before; other workloads go on."""
    return Reason(Code.HELD_BY_BUDGET, f"What was done to this workload before is unknown: {trouble}.")
