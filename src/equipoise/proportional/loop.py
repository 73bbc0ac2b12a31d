"""One cycle of proportional scaling: a snapshot, then per policy: decide, guard, store, execute, record.

A cycle never waits. The memory is in the policy's status, which is written before every change; a process
itself stores only the API server's answers since it became the leader.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from equipoise.core.cluster import Pod
from equipoise.core.decision import Decision, Outcome
from equipoise.core.ledger import Ledger
from equipoise.crd.targets import Mode
from equipoise.engine.isolation import Isolation, ignore
from equipoise.engine.policies import RejectedPolicy, StatusWrite, status_error, write_status
from equipoise.engine.recording import record, record_failure
from equipoise.ports import (
    Actuator,
    Cluster,
    CycleReport,
    FailedTurn,
    Journal,
    Leadership,
    NotInstalled,
    Pauses,
    Policies,
    PolicyObject,
    Store,
)
from equipoise.ports.actions import Sizes
from equipoise.proportional.applied import (
    AppliedState,
    PlannedChange,
    PolicyMemory,
    PolicyState,
    active_pods,
    count_at_target,
)
from equipoise.proportional.decide import Assessment, Observation, decide_compiled, moment_of
from equipoise.proportional.execute import UNCHANGED_RESULTS, CycleProgress, Guards, ResizeExecutor
from equipoise.proportional.observe import (
    Assignment,
    PolicyCache,
    ScalingSnapshot,
    assign,
    confirm_reverts,
    name_contending_manager,
    observe,
    take_snapshot,
    unknown_size,
    utilization_warning,
)
from equipoise.proportional.policy import BALANCER
from equipoise.proportional.status import StatusInput, next_status, rejected_status, report_event


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The result of one policy in a cycle."""

    item: Assignment
    decision: Decision | None
    outcomes: Sequence[Outcome] = ()
    rejection: RejectedPolicy | None = None
    cost: str = ""
    """Whether the change restarts anything, as a sentence."""
    warning: str = ""
    status_error: str = ""
    """Why its status could not be written."""
    pods_left: int = 0
    """Pods beyond the limit of one cycle, which are changed in the next ones."""


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """The decision about one policy in a cycle, guards included."""

    pods: Sequence[Pod]
    applied: AppliedState
    observation: Observation
    decision: Decision
    assessment: Assessment
    change: PlannedChange | None
    """The change that the actions make, held ones included; None without actions."""

    def __post_init__(self) -> None:
        has_actions = bool(self.decision.actions or self.decision.held)
        assert has_actions == (self.change is not None), "a change is planned for actions only"


@dataclass(slots=True)
class ProportionalLoop:
    """Scales the resources of workloads with the cluster, cycle by cycle."""

    cluster: Cluster
    sizes: Sizes
    policies: Policies
    pauses: Pauses
    leadership: Leadership
    store: Store
    actuator: Actuator
    journal: Journal
    new_id: Callable[[float], str]
    mode: Mode = Mode.PREVIEW
    """The setting `compat.mode`, since the kind has no mode of its own."""
    interval_seconds: float = 10.0
    change_seconds: float = 60.0
    """Minimum interval between new values of a workload that are set in place."""
    rollout_seconds: float = 600.0
    """Minimum interval between new values that restart pods."""
    is_cluster_wide: bool = True
    """Whether the cluster's snapshot has the pods of all namespaces."""
    is_acting: bool = True
    """Whether anything is written; a plan changes no pods and writes no statuses and events."""
    heartbeat: Callable[[], object] = ignore
    """Called before each policy and each pod."""
    on_step: Callable[[str], object] = ignore
    announce: Callable[[str], object] = ignore
    """Called before a change that restarts pods, with a sentence about it."""
    now: Callable[[], float] | None = None
    """Returns the present time, for the age of the snapshot; by default the time of the cycle."""
    name: str = BALANCER
    _cache: PolicyCache = field(default_factory=PolicyCache)
    _states: dict[str, PolicyState] = field(default_factory=dict)
    """By the policy's UID."""
    _epoch: int | None = None
    _isolation: Isolation = field(default_factory=Isolation)

    def cycle(self, at: float) -> CycleReport:
        """Run one cycle. Returns an empty report unless this replica leads."""
        epoch = self.leadership.epoch()
        if epoch != self._epoch:
            self._states.clear()  # another replica may have been the leader: the status has its changes
        self._epoch = epoch
        self._isolation.begin(at, self.leadership)
        if epoch is None:
            return CycleReport((), ())
        policies = self.policies.policies()
        uids = {policy.ref.uid for policy in policies}
        self._states = {uid: state for uid, state in self._states.items() if uid in uids}
        readings = self._cache.read(policies, self._isolation)
        assigned, rejected = assign(policies, readings, self.sizes, self.mode, self._isolation)
        results = self._reconcile_all(assigned, at)
        errors = [self._reject(each, rejected[each.ref], at) for each in policies if each.ref in rejected]
        errors += [result.status_error for result in results]
        return CycleReport(
            [result.decision for result in results if result.decision is not None],
            [outcome for result in results for outcome in result.outcomes],
            list(dict.fromkeys(error for error in errors if error)),
            failed_turns=self._isolation.failed,
        )

    def run_once(
        self, assigned: Sequence[Assignment], at: float, namespace: str | None = None
    ) -> list[PolicyResult]:
        """Run one cycle for a command, with assignments that the command made."""
        self._states.clear()
        self._epoch = self.leadership.epoch()
        self._isolation.begin(at, self.leadership)
        return self._reconcile_all(assigned, at, namespace)

    def _reconcile_all(
        self, assigned: Sequence[Assignment], at: float, namespace: str | None = None
    ) -> list[PolicyResult]:
        """Take one snapshot, and reconcile each policy; an error ends only that policy's share."""
        snapshot = take_snapshot(
            self.cluster, assigned, at, namespace, self._isolation, is_cluster_wide=self.is_cluster_wide
        )
        now = self.now or (lambda: at)
        guards = Guards(self.pauses, self.leadership, at, now, self.change_seconds, self.rollout_seconds)
        return [self._reconcile_isolated(item, snapshot, guards) for item in assigned]

    def _reconcile_isolated(
        self, item: Assignment, snapshot: ScalingSnapshot, guards: Guards
    ) -> PolicyResult:
        self.heartbeat()
        progress, subject, uid = CycleProgress(), item.ref.subject, item.policy.ref.uid
        memory = self._states[uid].memory if uid in self._states else None
        result: PolicyResult | FailedTurn | None = next(
            (failed for failed in self._isolation.failed if failed.subject == subject), None
        )
        if item.ref in snapshot.pods:
            result = self._isolation.turn(subject, lambda: self._reconcile(item, snapshot, guards, progress))
        assert result is not None, "a workload without a list of pods has an error"
        if isinstance(result, PolicyResult):
            return result
        if memory is None:
            self._states.pop(uid, None)
        elif not progress.is_persisted:
            self._states[uid].memory = memory  # the new memory is not in the status
        outcomes, at, record_id = progress.outcomes, snapshot.at, self.new_id(snapshot.at)
        decision = record_failure(result, BALANCER, self.journal, self._isolation, at, record_id, outcomes)
        status_error = self._reject(item.policy, RejectedPolicy.of_failure(result), at)
        return PolicyResult(item, decision, outcomes, status_error=status_error)

    def _reconcile(
        self, item: Assignment, snapshot: ScalingSnapshot, guards: Guards, progress: CycleProgress
    ) -> PolicyResult:
        """Decide for one policy, evaluate the guards, store the memory, execute, and record."""
        at = snapshot.at
        rejection = unknown_size(item, snapshot)
        if rejection is not None:
            status_error = self._reject(item.policy, rejection, at)
            return PolicyResult(item, None, rejection=rejection, status_error=status_error)
        state = self._state(item, at)
        before = state.memory
        plan = self._plan(item, snapshot, guards, state)
        decision, change = plan.decision, plan.change
        is_executed = self._is_enforced(item) and bool(decision.actions)
        unchanged = PolicyMemory(plan.assessment.memory.with_changes_of(before.smoothing), plan.applied)
        state.memory = unchanged
        if is_executed and change is not None:
            applied = change.as_applied(plan.applied, moment_of(at), self.leadership.epoch() or 0)
            state.memory = PolicyMemory(plan.assessment.memory, applied)
        status_input = StatusInput(
            decision,
            plan.assessment,
            state.memory,
            item.mode,
            pods_at_target=count_at_target(plan.pods, item.compiled.slots, plan.assessment.applied),
            pods=len(plan.pods),
            cost=change.cost(item.workload) if change is not None else "",
            warning=utilization_warning(snapshot.hpas.get(item.ref, ()), item.compiled.slots),
            is_executed=is_executed,
        )
        outcomes = progress.outcomes
        progress.is_persisted, status_error = self._write_status(item, status_input, state, at)
        if is_executed and change is not None:
            outcomes += self._execute(item, decision, change, state, at, is_persisted=progress.is_persisted)
            if outcomes and all(outcome.result in UNCHANGED_RESULTS for outcome in outcomes):
                state.memory = unchanged
        assert is_executed or not outcomes, "a plan or a preview changes nothing"
        if self.is_acting:
            report_event(self.actuator, item.workload, item.policy, status_input, outcomes)
        inputs = item.compiled.document, plan.observation, before.smoothing.to_data()
        self.journal.append(record(BALANCER, *inputs, decision, at, self.new_id(at), outcomes))
        is_accepted = any(outcome.result == "Accepted" for outcome in outcomes)
        return PolicyResult(
            item,
            decision,
            outcomes,
            cost=status_input.cost,
            warning=status_input.warning if change is not None else "",
            status_error=status_error,
            pods_left=change.pods_left if change is not None and is_accepted else 0,
        )

    def _plan(
        self, item: Assignment, snapshot: ScalingSnapshot, guards: Guards, state: PolicyState
    ) -> PolicyPlan:
        """Decide for one policy and evaluate the guards; nothing is written."""
        pods = active_pods(snapshot.pods[item.ref])
        applied = state.memory.applied_to(item.workload, item.policy.generation)
        if self._is_enforced(item):
            applied, lost = confirm_reverts(item, applied, pods, state.accepted, self.cluster, snapshot.at)
            state.accepted -= lost
            applied = name_contending_manager(item, applied, pods, self.sizes)
        observation = observe(item, snapshot, applied)
        decision, assessment = decide_compiled(item.compiled, observation, state.memory.smoothing)
        change = None
        if decision.actions:
            change = state.plan_change(
                item.compiled, assessment, item.workload, pods, self.sizes, snapshot.at
            )
            reason = guards.ask(item, change, applied, state, lambda: self._ledger(item))
            decision = decision if reason is None else decision.hold(reason)
        return PolicyPlan(pods, applied, observation, decision, assessment, change)

    def _is_enforced(self, item: Assignment) -> bool:
        return item.mode is Mode.ENFORCE and self.is_acting

    def _state(self, item: Assignment, at: float) -> PolicyState:
        policy = item.policy
        state = self._states.get(policy.ref.uid)
        if state is None:
            state = self._states[policy.ref.uid] = PolicyState.of(policy)
            state.status_written_at = at if policy.status else None
        elif state.generation != policy.generation:
            state.edited(policy.generation)
        return state

    def _ledger(self, item: Assignment) -> Ledger:
        try:
            return Ledger.from_data(self.store.read(item.ref).data)
        except NotInstalled:
            if self.is_acting:
                raise
            return Ledger()  # for a plan, a ledger whose kind is not installed is an empty one

    def _execute(
        self,
        item: Assignment,
        decision: Decision,
        change: PlannedChange,
        state: PolicyState,
        at: float,
        *,
        is_persisted: bool,
    ) -> list[Outcome]:
        """Set the values; nothing is set unless the new memory is in the status."""
        if not is_persisted:
            return [Outcome(decision.actions[0], "Fenced", "the policy's status could not be written")]
        if change.is_disruptive:
            sentence = f"{decision.reason.sentence} {change.cost(item.workload)}"
            self.announce(f"{item.ref.subject}: {sentence}")
            self.actuator.record_event(item.workload.object_ref, decision.reason.code.value, sentence)
        executor = ResizeExecutor(
            sizes=self.sizes,
            pauses=self.pauses,
            leadership=self.leadership,
            store=self.store,
            new_id=self.new_id,
            epoch=self._epoch,
            heartbeat=self.heartbeat,
            on_step=self.on_step,
            isolation=self._isolation,
        )
        outcomes, accepted, refused = executor.execute(item, decision, change, at)
        assert accepted.isdisjoint(refused), "a pod has one answer"
        state.accepted = set(accepted) if change.is_new else state.accepted | accepted
        state.record_outcomes(outcomes, change.key, at, refused)
        return outcomes

    def _write_status(
        self, item: Assignment, status_input: StatusInput, state: PolicyState, at: float
    ) -> StatusWrite:
        """Write the status if it is due; an unchanged one counts as written."""
        if not self.is_acting:
            return StatusWrite(False)
        status = next_status(item.policy, item.compiled, status_input, at, state.status_written_at)
        if status is None:
            return StatusWrite(True)
        written = write_status(self.policies.write_status, item.policy, status)
        if written.is_written:
            state.status_written_at = at
        return written

    def _reject(self, policy: PolicyObject, rejection: RejectedPolicy, at: float) -> str:
        """Write why a policy is not followed, unless its status has it; return the error of the write."""

        def write() -> str:
            status = rejected_status(policy, rejection, at) if self.is_acting else None
            if status is None:
                return ""
            is_written, error = write_status(self.policies.write_status, policy, status)
            if is_written:
                self.actuator.record_event(policy.ref, rejection.code, rejection.sentence, is_warning=True)
            return error

        return status_error(self._isolation, policy, write)
