"""The rotation's cycle: observe all workloads at once, decide in batches, guard and act one by one, record.

A cycle never waits. State is in the API server: the ledger of each workload, and the status of each policy.
Only the number of cycles in which a pod has been hot is state of this process: a new leader counts from 0.

`CyclePlanner` observes and decides, and changes nothing; `Rotator` guards and executes what it planned.
`RotationLoop` runs them for the workloads of all policies, `RotateCommand` for those that a command names.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from equipoise.core.cluster import ObjectRef, Workload, WorkloadRef
from equipoise.core.decision import Decided, Decision, Outcome, Record
from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code, Reason
from equipoise.crd.targets import Mode
from equipoise.engine.disruption import SYSTEM_NAMESPACES, DisruptionBudget
from equipoise.engine.guards import count_streaks
from equipoise.engine.isolation import Isolation
from equipoise.engine.policies import RejectedPolicy, status_error, write_status
from equipoise.engine.recording import record, record_failure
from equipoise.ports import CycleReport, FailedTurn, Policies, PolicyObject, StoreConflict, Stored
from equipoise.rotation.decide import decide_all
from equipoise.rotation.execute import (
    EvictionExecutor,
    Guards,
    Ledgers,
    LedgerState,
    Planned,
    Refusals,
    read_ledgers,
)
from equipoise.rotation.observe import ClusterSnapshot, Ports, SnapshotReader, observe
from equipoise.rotation.policy import RotationPolicy, policy_json
from equipoise.rotation.preconditions import Observation
from equipoise.rotation.progress import BALANCER, RotationDetails, describe
from equipoise.rotation.status import CycleItem, Target, assign, next_status, report_changes

Batch = Sequence[tuple[RotationPolicy, Observation, Mapping[str, Any]]]
Decide = Callable[[Batch], Sequence[Decided[RotationDetails]]]


def _in_process(batch: Batch) -> Iterable[tuple[Batch, Decide]]:
    return [(batch, decide_all)]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a cycle beside the policies."""

    disturbed_in_cluster_max: int = 10
    namespaces_protected: Collection[str] = SYSTEM_NAMESPACES
    is_debounced: bool = True
    """Whether a pod must have been hot for several cycles before it is evicted."""
    batches: Callable[[Batch], Iterable[tuple[Batch, Decide]]] = _in_process
    """Splits a batch into parts, each with the function that decides it: in this process or in a worker."""


DEFAULTS = Options()


@dataclass(frozen=True, slots=True)
class CyclePlanner:
    """Observes and decides for many workloads at once. Read-only."""

    ports: Ports
    options: Options
    isolation: Isolation
    is_acting: bool = True
    """Whether evictions may follow: if so, read errors hold them; otherwise they are notes."""

    def plan_cycle(
        self,
        targets: Sequence[Target],
        at: float,
        namespace: str | None = None,
        others: Sequence[Workload] = (),
    ) -> tuple[Guards, list[tuple[Target, Planned | FailedTurn]]]:
        """Observe and decide; for the `others`, only count the pods that are away. Return also the guards."""
        ports, options = self.ports, self.options
        epoch = ports.leadership.epoch()
        reader = SnapshotReader(ports, self.isolation, options.namespaces_protected, self.is_acting)
        snapshot = reader.read(at, targets, others, namespace)
        ledgers = Ledgers({})
        if targets:
            ledgers = read_ledgers(ports.store, snapshot, namespace, is_acting=self.is_acting)
        observed = [self._observed(target, snapshot, ledgers) for target in targets]
        budget = DisruptionBudget(set(snapshot.away), options.disturbed_in_cluster_max, snapshot.pdbs)
        guards = Guards(ports, budget, snapshot, epoch, self.is_acting)
        return guards, list(zip(targets, self._decided(targets, observed), strict=True))

    def _observed(
        self, target: Target, snapshot: ClusterSnapshot, ledgers: Ledgers
    ) -> tuple[Observation, LedgerState] | FailedTurn:
        ref = target.workload.ref
        if ref not in snapshot.pods:
            return next(failed for failed in self.isolation.failed if failed.subject == ref.subject)
        # A preview leaves out the rotation under way, since its result would not be written.
        with_run = target.mode is Mode.ENFORCE or not self.is_acting
        return self.isolation.attempt(
            ref.subject,
            lambda: (
                observe(target.policy, target.workload, snapshot),
                ledgers.state_of(target.workload, snapshot, self.ports.cluster, with_run=with_run),
            ),
        )

    def _decided(
        self, targets: Sequence[Target], observed: Sequence[tuple[Observation, LedgerState] | FailedTurn]
    ) -> list[Planned | FailedTurn]:
        batch = [
            (target.policy, each[0], each[1].memory)
            for target, each in zip(targets, observed, strict=True)
            if not isinstance(each, FailedTurn)
        ]
        decided = chain.from_iterable(
            self.isolation.each(part, decide, lambda item: item[1].subject)
            for part, decide in self.options.batches(batch)
        )
        planned: list[Planned | FailedTurn] = []
        for target, each in zip(targets, observed, strict=True):
            if isinstance(each, FailedTurn):
                planned.append(each)
                continue
            one = next(decided)
            planned.append(one if isinstance(one, FailedTurn) else Planned(target, *each, *one))
        assert next(decided, None) is None, "a batch has one decision for each of its workloads"
        return planned

    def failed(
        self, target: Target, failed: FailedTurn, at: float, outcomes: Sequence[Outcome] = ()
    ) -> CycleItem:
        """Record the error that ended a workload's part of the cycle, and return its item."""
        journal, record_id = self.ports.journal, self.ports.new_id(at)
        decision = record_failure(failed, BALANCER, journal, self.isolation, at, record_id, outcomes)
        return CycleItem(target, decision, outcomes, at=at, failed=failed)


@dataclass(slots=True)
class Rotator:
    """Runs cycles over the workloads that the caller chooses: plans, guards, evicts and records."""

    ports: Ports
    options: Options
    isolation: Isolation = field(default_factory=Isolation)
    _streaks: dict[WorkloadRef, dict[str, int]] = field(default_factory=dict)
    """Number of consecutive cycles in which each pod was hot, by UID."""
    _refusals: Refusals = field(default_factory=Refusals)

    def begin(self, at: float) -> None:
        """Begin a cycle: errors are isolated to their workload while this replica leads."""
        self.isolation.begin(at, self.ports.leadership)

    def retain_streaks(self, refs: Collection[WorkloadRef]) -> None:
        """Drop the streaks of all other workloads."""
        self._streaks = {ref: streaks for ref, streaks in self._streaks.items() if ref in refs}

    def run(
        self,
        targets: Sequence[Target],
        at: float,
        namespace: str | None = None,
        others: Sequence[Workload] = (),
    ) -> tuple[list[CycleItem], ClusterSnapshot]:
        """Plan a cycle and execute it, workload by workload; each workload's guards count earlier actions."""
        planner = CyclePlanner(self.ports, self.options, self.isolation)
        guards, plans = planner.plan_cycle(targets, at, namespace, others)
        items = []
        for target, planned in plans:
            self.ports.heartbeat()
            outcomes: list[Outcome] = []
            item: CycleItem | FailedTurn
            if isinstance(planned, FailedTurn):
                item = planned
            else:
                work = partial(self._execute, planned, guards, outcomes)
                item = self.isolation.turn(target.workload.ref.subject, work)
            if isinstance(item, FailedTurn):
                self._streaks.pop(target.workload.ref, None)
                item = planner.failed(target, item, at, outcomes)
            items.append(item)
        return items, guards.snapshot

    def _execute(self, planned: Planned, guards: Guards, outcomes: list[Outcome]) -> CycleItem:
        """Guard one decision, execute the remaining actions, and record it; appends to `outcomes`."""
        target, ledger, details, at = planned.target, planned.ledger, planned.details, guards.snapshot.at
        self._count_streaks(planned)
        is_real = target.mode is Mode.ENFORCE
        stored = self._write_memory(planned) if is_real and not ledger.error else ledger.stored
        guarded = self._guarded(planned, guards) if planned.decision.actions else planned.decision
        reported: Reason | None = None
        if is_real and stored is not None and details.result is not None:
            reported, about = guarded.reason, target.workload.object_ref
            self.ports.actuator.record_event(about, reported.code.value, describe(details.result))
        if is_real and guarded.actions and stored is not None and not ledger.error:
            executor = EvictionExecutor(self.ports, self.isolation, guards)
            executor.evict_wave(planned, guarded, stored, outcomes)
            self._refusals.take(target.workload.ref, outcomes, at)
        # A result is recorded with its observation, even where the reason has not changed.
        written = record_of(planned, guarded, at, self.ports.new_id(at), outcomes)
        self.ports.journal.append(written, is_whole=is_real and details.result is not None)
        return CycleItem(target, guarded, outcomes, details, reported, at, ledger.error)

    def _count_streaks(self, planned: Planned) -> None:
        """Count the consecutive cycles in which each pod was hot, for workloads with any."""
        ref, plan = planned.target.workload.ref, planned.details.plan
        before = self._streaks.pop(ref, {})
        if plan is not None and plan.hot:
            hot = [pod.uid for pod in planned.observation.pods if pod.name in plan.hot]
            self._streaks[ref] = count_streaks(before, hot)

    def _guarded(self, planned: Planned, guards: Guards) -> Decision:
        ref, is_real = planned.target.workload.ref, planned.target.mode is Mode.ENFORCE
        if planned.ledger.error:
            # An unreadable ledger holds this workload only.
            error = f"The ledger of earlier actions cannot be read: {planned.ledger.error}."
            return planned.decision.hold(Reason(Code.HELD_BY_BUDGET, error))
        refused = self._refusals.held(ref, guards.snapshot.at)
        if refused is not None and is_real:
            return planned.decision.hold(refused)
        guarded = guards.ask(planned, self._streaks.get(ref, {}) if self.options.is_debounced else None)
        if is_real:
            guards.spend(planned, guarded)
        return guarded

    def _write_memory(self, planned: Planned) -> Stored | None:
        """Write the memory where it changed; returns None where nothing may be done in this cycle."""
        state, memory = planned.ledger, planned.decision.memory
        is_known = memory == state.memory
        ledger = state.ledger if is_known else state.ledger.remembering(BALANCER, memory)
        if ledger == state.before:
            return state.stored
        try:
            return self.ports.store.write(planned.target.workload.ref, ledger.to_data(), state.stored.version)
        except (StoreConflict, WorldFailed):
            return None


@dataclass(slots=True)
class RotationLoop:
    """The operator's loop: every cycle covers all workloads of all policies."""

    ports: Ports
    policies: Policies
    options: Options = DEFAULTS
    interval_seconds: float = 30.0
    name: str = BALANCER
    _last: dict[WorkloadRef, CycleItem] = field(default_factory=dict)
    _rotator: Rotator = field(init=False)

    def __post_init__(self) -> None:
        self._rotator = Rotator(self.ports, self.options)

    def cycle(self, at: float) -> CycleReport:
        """Run one cycle. Returns an empty report unless this replica leads."""
        rotator, isolation = self._rotator, self._rotator.isolation
        if self.ports.leadership.epoch() is None:
            rotator.retain_streaks(())
            self._last.clear()
            return CycleReport((), ())
        rotator.begin(at)
        policies = self.policies.policies()
        targets, rejected = assign(policies, self.ports.cluster.workloads(), isolation)
        due = [target for target in targets if self._is_due(target, at)]
        refs = {target.workload.ref for target in due}
        carried = [self._last[each.workload.ref] for each in targets if each.workload.ref not in refs]
        items, snapshot = rotator.run(due, at, others=[item.target.workload for item in carried])
        before = self._last
        self._last = {item.target.workload.ref: item for item in (*carried, *items)}
        rotator.retain_streaks(self._last.keys())
        status_errors = self._write_statuses(policies, rejected, [*items, *carried], before, at)
        return CycleReport(
            [item.decision for item in items],
            [outcome for item in items for outcome in item.outcomes],
            [*snapshot.warnings, *sorted(snapshot.notes), *status_errors],
            carried=[item.decision for item in carried],
            failure="; ".join(snapshot.failures),
            failed_turns=isolation.failed,
        )

    def _is_due(self, target: Target, at: float) -> bool:
        """Return whether the policy's `syncPeriod` has passed, within half an interval, or anything is new.

        It is also due after the clock was set back.
        """
        last = self._last.get(target.workload.ref)
        if last is None or last.is_under_way or last.failed is not None:
            return True
        before = last.target
        if (before.source, before.mode, before.policy) != (target.source, target.mode, target.policy):
            return True
        period, interval = target.policy.sync_period_seconds, self.interval_seconds
        return period <= interval or not 0 <= at - last.at < period - interval / 2

    def _write_statuses(
        self,
        policies: Sequence[PolicyObject],
        rejected: Mapping[ObjectRef, RejectedPolicy],
        items: Collection[CycleItem],
        last: Mapping[WorkloadRef, CycleItem],
        at: float,
    ) -> list[str]:
        """Write the status of each policy whose reasons changed; return the errors."""
        by_policy: dict[ObjectRef, list[CycleItem]] = defaultdict(list)
        for item in items:
            by_policy[item.target.source].append(item)

        def write(policy: PolicyObject) -> str:
            own = by_policy[policy.ref]
            status = next_status(policy, own, rejected.get(policy.ref), at)
            if status is None:
                return ""
            written = write_status(self.policies.write_status, policy, status)
            if written.is_written:
                report_changes(self.ports.actuator, policy, own, last)
            return written.error

        isolation = self._rotator.isolation
        errors = [status_error(isolation, each, partial(write, each)) for each in policies]
        return [error for error in errors if error]


def record_of(
    planned: Planned, decision: Decision, at: float, record_id: str, outcomes: Sequence[Outcome] = ()
) -> Record:
    """Return the record of what was decided for a workload, as the guards left it."""
    inputs = policy_json(planned.target.policy), planned.observation, planned.ledger.memory
    pods = planned.observation.pods
    has_readings = not pods or any(pod.cpu_cores is not None for pod in pods)
    return record(BALANCER, *inputs, decision, at, record_id, outcomes, has_readings=has_readings)
