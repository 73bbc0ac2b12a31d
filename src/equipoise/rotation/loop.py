"""The rotation at work: one cycle sees all workloads of all policies, decides, guards, acts and records.

A cycle never waits for the world. What it must remember is in the API server: the ledger of each workload,
and the status of each policy. Only for how long a pod has been hot is counted here: whoever begins to lead
begins to count.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from equipoise.core.cluster import ObjectRef, Workload, WorkloadRef
from equipoise.core.decision import Decided, Decision, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code, Reason
from equipoise.crd.targets import Mode
from equipoise.engine.assignment import RejectedPolicy
from equipoise.engine.cycle import ignore
from equipoise.engine.disruption import SYSTEM_NAMESPACES, DisruptionBudget
from equipoise.engine.guards import count_streaks
from equipoise.engine.isolation import Isolation, failed_decision, failed_record
from equipoise.engine.recording import record
from equipoise.engine.status import write_status
from equipoise.ports import (
    Actuator,
    Cluster,
    CycleReport,
    FailedTurn,
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
from equipoise.rotation.assignment import Assigned, assign
from equipoise.rotation.decide import decide_all
from equipoise.rotation.execute import EvictionExecutor, Guards, Refusals, held_by_server
from equipoise.rotation.observe import (
    NO_LEDGERS,
    ClusterSnapshot,
    Ledgers,
    LedgerState,
    SnapshotReader,
    observe,
    read_ledgers,
)
from equipoise.rotation.policy import RotationPolicy, policy_json
from equipoise.rotation.preconditions import Observation
from equipoise.rotation.progress import BALANCER, RotationDetails, describe
from equipoise.rotation.status import CycleItem, next_status, tell_changes

Batch = Sequence[tuple[RotationPolicy, Observation, Mapping[str, Any]]]
Decide = Callable[[Batch], Sequence[Decided[RotationDetails]]]


class _Observed(NamedTuple):
    """What is seen and remembered of one workload."""

    observation: Observation
    known: LedgerState


class _Decided(NamedTuple):
    """The same, and what follows from it."""

    observation: Observation
    known: LedgerState
    decision: Decision
    details: RotationDetails


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
    batches: Callable[[Batch], Iterable[tuple[Batch, Decide]]] = field(
        default=lambda all_: [(all_, decide_all)]
    )
    """The parts of a batch, and where each is decided: here, or in a process of its own."""
    beat: Callable[[], object] = ignore
    """Says from inside a long cycle that it still gets on."""
    on_step: Callable[[str], object] = ignore
    now: Callable[[], float] | None = None
    """The time, to stamp intents with and to know how old a look is; without, that of the cycle."""
    name: str = BALANCER
    _streaks: dict[WorkloadRef, dict[str, int]] = field(default_factory=dict)
    _last: dict[WorkloadRef, CycleItem] = field(default_factory=dict)
    _refusals: Refusals = field(default_factory=Refusals)
    _isolation: Isolation = field(default_factory=Isolation)

    def cycle(self, at: float) -> CycleReport:
        """Do one turn. Whoever does not lead does nothing, not even looks."""
        if self.leadership.epoch() is None:
            self._streaks.clear()
            self._last.clear()
            return CycleReport((), ())
        self._begin(at)
        policies = self.policies.policies()
        assigned, refused = assign(policies, self.cluster.workloads(), self._isolation)
        due = [item for item in assigned if self._is_due(item, at)]
        refs = {item.workload.ref for item in due}
        carried = [self._last[item.workload.ref] for item in assigned if item.workload.ref not in refs]
        turned, seen = self._look(due, at, others=[turn.item.workload for turn in carried])
        before = self._last
        self._last = {turn.item.workload.ref: turn for turn in (*carried, *turned)}
        self._streaks = {ref: self._streaks[ref] for ref in self._last.keys() & self._streaks.keys()}
        status_errors = self._say(policies, refused, [*turned, *carried], before, at)
        return CycleReport(
            [turn.decision for turn in turned],
            [outcome for turn in turned for outcome in turn.outcomes],
            [*seen.warnings, *sorted(seen.notes), *status_errors],
            carried=[turn.decision for turn in carried],
            failure="; ".join(seen.failures),
            failed_turns=self._isolation.failed,
        )

    def _begin(self, at: float) -> None:
        """Begin a cycle: from here on an error is one workload's own for as long as we lead."""
        epoch = self.leadership.epoch()
        self._isolation.begin(at, lambda: self.leadership.epoch() == epoch)

    def _is_due(self, item: Assigned, at: float) -> bool:
        """Whether a policy's `syncPeriod` has passed, give or take half of our interval; or it is new.

        A clock that was set back tells nothing of what has passed.
        """
        last = self._last.get(item.workload.ref)
        if last is None or last.is_under_way or last.failed is not None:
            return True
        was = last.item
        if (was.source, was.mode) != (item.source, item.mode) or was.policy != item.policy:
            return True
        period = item.policy.sync_period_seconds
        least = period - self.interval_seconds / 2
        return period <= self.interval_seconds or not 0 <= at - last.at < least

    def look(
        self, assigned: Sequence[Assigned], at: float, namespace: str | None = None
    ) -> tuple[list[CycleItem], ClusterSnapshot]:
        """Take one turn for a person's command, for workloads that it chose itself."""
        self._begin(at)
        turned, seen = self._look(assigned, at, namespace)
        seen.notes.update(f"{failed.subject}: {failed.error}" for failed in self._isolation.failed)
        return turned, seen

    def _look(
        self,
        assigned: Sequence[Assigned],
        at: float,
        namespace: str | None = None,
        *,
        others: Sequence[Workload] = (),
    ) -> tuple[list[CycleItem], ClusterSnapshot]:
        """See, decide, guard, act and record for these workloads; `others` count as disturbed only."""
        epoch = self.leadership.epoch()
        look = SnapshotReader(
            *(self.cluster, self.metrics, self._isolation, self.beat, self.namespaces_protected),
            is_acting=self.is_acting,
        )
        wanted = [(item.policy.metrics_window_seconds, item.workload) for item in assigned]
        seen = look.at(at, wanted, others, namespace)
        ledgers = (
            read_ledgers(self.store, seen, namespace, is_acting=self.is_acting) if assigned else NO_LEDGERS
        )
        observed = {item.workload.ref: self._observed(item, seen, ledgers) for item in assigned}
        decided = self._decided(assigned, observed)
        guards = Guards(
            self.pauses,
            self.leadership,
            self.metrics,
            DisruptionBudget(set(seen.away), self.disturbed_in_cluster_max, seen.pdbs),
            seen,
            epoch=epoch,
            now=self.now or (lambda: at),
            is_planning=not self.is_acting,
        )
        return [self._turn(item, decided[item.workload.ref], guards) for item in assigned], seen

    def _observed(self, item: Assigned, seen: ClusterSnapshot, ledgers: Ledgers) -> "_Observed | FailedTurn":
        """Return what is seen and remembered of one workload."""
        ref = item.workload.ref
        if ref not in seen.pods:
            return next(failed for failed in self._isolation.failed if failed.subject == ref.subject)
        return self._isolation.attempt(
            ref.subject,
            lambda: _Observed(
                observe(item.policy, item.workload, seen),
                # Of a preview no rotation is under way: its result would be written nowhere.
                ledgers.of(
                    item.workload,
                    seen,
                    self.cluster,
                    with_run=self._is_real(item) or not self.is_acting,
                ),
            ),
        )

    def _decided(
        self, assigned: Sequence[Assigned], observed: "Mapping[WorkloadRef, _Observed | FailedTurn]"
    ) -> "Mapping[WorkloadRef, _Decided | FailedTurn]":
        """Decide all that was observed, in batches."""
        found: dict[WorkloadRef, _Decided | FailedTurn] = {}
        asked, refs = [], []
        for item in assigned:
            ref = item.workload.ref
            each = observed[ref]
            if isinstance(each, FailedTurn):
                found[ref] = each
            else:
                asked.append((item.policy, each.observation, each.known.memory))
                refs.append(ref)
        decided = [
            one
            for part, decide in self.batches(asked)
            for one in self._isolation.each(part, decide, lambda asked: asked[1].subject)
        ]
        for ref, one in zip(refs, decided, strict=True):
            each = observed[ref]
            assert not isinstance(each, FailedTurn), "only what was observed is decided"
            found[ref] = one if isinstance(one, FailedTurn) else _Decided(*each, *one)
        return found

    def _is_real(self, item: Assigned) -> bool:
        return item.mode is Mode.ENFORCE and self.is_acting

    def _count(self, item: Assigned, observation: Observation, details: RotationDetails) -> None:
        """Count in how many cycles in a row each pod was hot; a workload without a hot pod has no count."""
        hot = set(details.plan.hot) if details.plan is not None else set()
        before = self._streaks.pop(item.workload.ref, {})
        if hot:
            uids = [pod.uid for pod in observation.pods if pod.name in hot]
            self._streaks[item.workload.ref] = count_streaks(before, uids)

    def _turn(self, item: Assigned, decided: "_Decided | FailedTurn", guards: Guards) -> CycleItem:
        """Take the turn of one workload; an error ends it, and nobody else's."""
        self.beat()
        outcomes: list[Outcome] = []
        turned: CycleItem | FailedTurn = (
            decided
            if isinstance(decided, FailedTurn)
            else self._isolation.turn(
                item.workload.ref.subject, lambda: self._taken(item, decided, guards, outcomes)
            )
        )
        if not isinstance(turned, FailedTurn):
            return turned
        self._streaks.pop(item.workload.ref, None)
        at = guards.seen.at
        decision = failed_decision(turned, outcomes)
        written = failed_record(BALANCER, decision, at, self.new_id(at), outcomes)
        self._isolation.attempt(item.workload.ref.subject, lambda: self.journal.append(written))
        return CycleItem(item, decision, outcomes, at=at, failed=turned)

    def _taken(
        self, item: Assigned, decided: "_Decided", guards: Guards, outcomes: list[Outcome]
    ) -> CycleItem:
        """Guard one decision, act on what is left, and write it all down."""
        observation, known, decision, details = decided
        self._count(item, observation, details)
        seen, is_real = guards.seen, self._is_real(item)
        stored: Stored | None = known.stored
        if is_real and not known.trouble:
            stored = self._keep(item, decision, known)
        guarded = self._guard(item, decided, guards) if decision.actions else decision
        result = details.result
        said: Reason | None = None
        if is_real and stored is not None and result is not None:
            self.actuator.record_event(item.workload.object_ref, guarded.reason.code.value, describe(result))
            said = guarded.reason
        if is_real and guarded.actions and stored is not None and not known.trouble:
            deeds = EvictionExecutor(
                *(self.cluster, self.pauses, self.leadership, self.store, self.actuator),
                *(self.new_id, guards.now, guards.epoch, self.on_step, self._isolation),
            )
            deeds.act(item, observation, guarded, details, stored, guards.budget, seen.at, outcomes)
            self._refusals.take(item.workload.ref, outcomes, seen.at)
        kept = tuple(outcomes)
        name = self.new_id(seen.at)
        # A verdict is kept with what it was measured from, also where the reason is the same as before.
        written = record(
            BALANCER, policy_json(item.policy), observation, known.memory, guarded, seen.at, name, kept
        )
        self.journal.append(written, is_whole=is_real and result is not None)
        return CycleItem(item, guarded, outcomes, details, said, seen.at, known.trouble)

    def _guard(self, item: Assigned, decided: "_Decided", guards: Guards) -> Decision:
        known, decision = decided.known, decided.decision
        if known.trouble and self.is_acting:
            return decision.hold(_unknown_ledger(known.trouble))
        refusal = self._refusals.held(item.workload.ref, guards.seen.at)
        if refusal is not None and self._is_real(item):
            return decision.hold(refusal)
        streaks = self._streaks.get(item.workload.ref, {}) if self.is_debounced else None
        guarded = guards.ask(
            item,
            decision,
            known.ledger,
            streaks,
            is_under_way=decided.details.memory.run is not None,
        )
        if self.asks_server:
            guarded, status_errors = held_by_server(guarded, self.actuator)
            guards.seen.notes.update({status_errors} - {""})
        if self._is_real(item) or not self.is_acting:
            guards.spend(item, guarded)
        return guarded

    def _keep(self, item: Assigned, decision: Decision, known: LedgerState) -> Stored | None:
        """Write down what is to be remembered, when it changed; without that nothing is done this time."""
        ledger = known.ledger
        if decision.memory != known.memory:
            ledger = ledger.remembering(BALANCER, decision.memory)
        if ledger == known.before:
            return known.stored
        try:
            key = item.workload.ref
            return self.store.write(key, ledger.to_data(), known.stored.version)
        except (StoreConflict, WorldFailed):
            return None

    def _say(
        self,
        policies: Sequence[PolicyObject],
        refused: Mapping[ObjectRef, RejectedPolicy],
        turned: Collection[CycleItem],
        last: Mapping[WorkloadRef, CycleItem],
        at: float,
    ) -> list[str]:
        """Write the status of each policy whose reasons changed, and tell what could not be written.

        A lost race is no trouble: the next cycle tries again.
        """
        by_policy: dict[ObjectRef, list[CycleItem]] = {}
        for turn in turned:
            by_policy.setdefault(turn.item.source, []).append(turn)
        status_errors = []
        for policy in policies:
            ref, turns = policy.ref, by_policy.get(policy.ref, [])
            said = self._isolation.attempt(
                str(ref), partial(self._say_one, policy, turns, refused.get(ref), last, at)
            )
            status_errors.append("" if isinstance(said, FailedTurn) else said)
        return [words for words in status_errors if words]

    def _say_one(
        self,
        policy: PolicyObject,
        turns: Sequence[CycleItem],
        refusal: RejectedPolicy | None,
        last: Mapping[WorkloadRef, CycleItem],
        at: float,
    ) -> str:
        """Write the status of one policy, and return why that could not be done."""
        status = next_status(policy, turns, refusal, at)
        if status is None:
            return ""
        written = write_status(self.policies.write_status, policy, status)
        if written.is_written:
            tell_changes(self.actuator, policy, turns, last)
        return written.error


def _unknown_ledger(trouble: str) -> Reason:
    """Hold what is wanted while nobody can say what was done before; other workloads go on."""
    return Reason(Code.HELD_BY_BUDGET, f"What was done to this workload before is unknown: {trouble}.")
