"""Proportional scaling at work: one cycle sees the cluster once, decides for every policy, guards and acts.

A cycle never waits for the world. What it must remember is in the policy's status, written before every
deed; here is kept only what was said since this process leads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from equipoise.core.cluster import ObjectRef, Pod
from equipoise.core.decision import Decision, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import Ledger
from equipoise.core.reason import Code
from equipoise.crd.targets import Mode
from equipoise.engine.assignment import RejectedPolicy
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
    NotInstalled,
    Pauses,
    Policies,
    PolicyObject,
    Store,
)
from equipoise.ports.actions import Sizes
from equipoise.proportional.applied import (
    AppliedState,
    PolicyState,
    Way,
    at_target,
    behind,
    choose_way,
    is_contended,
    living,
    noticed,
    recalled,
    remembered,
    restarted,
)
from equipoise.proportional.assignment import Assigned, Readings, assign
from equipoise.proportional.decide import Assessment, decide_compiled, moment_of
from equipoise.proportional.execute import (
    UNDONE,
    CycleProgress,
    ResizeExecutor,
    about,
    intended,
)
from equipoise.proportional.guards import Change, Guards
from equipoise.proportional.observe import (
    ClusterState,
    look,
    observe,
    pods_by_workload,
    unknown_size,
    utilization_warning,
)
from equipoise.proportional.policy import UpdateMode
from equipoise.proportional.record import BALANCER
from equipoise.proportional.smoothing import ProportionalMemory
from equipoise.proportional.status import StatusInput, kept_memory, next_status, refused_status

NEWS = frozenset({Code.FOUGHT_BY, Code.REFUSED, Code.INFEASIBLE, Code.DEFERRED})
"""Reasons that a person should hear of where they look: told at the workload when they begin."""


class CycleItem(NamedTuple):
    """What came of one policy's turn."""

    item: Assigned
    decision: Decision | None
    outcomes: Sequence[Outcome] = ()
    refusal: RejectedPolicy | None = None
    cost: str = ""
    """Whether the change restarts anything."""
    warning: str = ""
    status_errors: str = ""
    """Why its status could not be written."""
    left: int = 0
    """How many pods wait for the next turn: those beyond one turn's share."""
    failed: FailedTurn | None = None
    """The error that ended it."""


@dataclass(slots=True)
class ProportionalLoop:
    """All that one cycle needs of the world."""

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
    """Whether anything is changed: the setting `compat.mode`, since the kind has no mode of its own."""
    interval_seconds: float = 10.0
    change_seconds: float = 60.0
    """How long after a new value of a workload the next one waits,"""
    rollout_seconds: float = 600.0
    """and how long where it restarts pods."""
    sees_all_pods: bool = True
    """Whether the cluster's view has the pods of all namespaces."""
    is_acting: bool = True
    """Whether `Enforce` means it. Without, nothing is written at all."""
    beat: Callable[[], object] = field(default=str)
    passed: Callable[[str], object] = field(default=str)
    announce: Callable[[str], object] = field(default=str)
    """Told what is about to restart, before it does."""
    now: Callable[[], float] | None = None
    """The time, to know how old a look is; without, that of the cycle."""
    name: str = BALANCER
    _readings: Readings = field(default_factory=Readings)
    _minds: dict[str, PolicyState] = field(default_factory=dict)
    _epoch: int | None = None
    _isolation: Isolation = field(default_factory=Isolation)

    def cycle(self, at: float) -> CycleReport:
        """Do one turn. Whoever does not lead does nothing, not even looks."""
        epoch = self.leadership.epoch()
        if epoch != self._epoch:
            self._minds.clear()  # somebody else may have led meanwhile: the status knows
            self._epoch = epoch
        if epoch is None:
            return CycleReport((), ())
        self._begin(at)
        policies = self.policies.policies()
        known = {policy.ref.uid for policy in policies}
        self._minds = {uid: mind for uid, mind in self._minds.items() if uid in known}
        readings = self._readings.read(policies, self._isolation)
        assigned, refused = assign(policies, readings, self.sizes, self.mode, self._isolation)
        turned = self._look(assigned, at)
        status_errors = [
            self._refuse(policy, refused[policy.ref], at) for policy in policies if policy.ref in refused
        ]
        status_errors += [turn.status_errors for turn in turned]
        return CycleReport(
            [turn.decision for turn in turned if turn.decision is not None],
            [outcome for turn in turned for outcome in turn.outcomes],
            list(dict.fromkeys(words for words in status_errors if words)),
            failed_turns=self._isolation.failed,
        )

    def _begin(self, at: float) -> None:
        """Begin a cycle: from here on an error is one policy's own for as long as we lead."""
        epoch = self.leadership.epoch()
        self._isolation.begin(at, lambda: self.leadership.epoch() == epoch)

    def by_hand(
        self, assigned: Sequence[Assigned], at: float, namespace: str | None = None
    ) -> list[CycleItem]:
        """Take one turn for a person's command, for policies that it chose itself."""
        self._epoch = self.leadership.epoch()
        self._minds.clear()
        self._begin(at)
        return self._look(assigned, at, namespace)

    def _look(self, assigned: Sequence[Assigned], at: float, namespace: str | None = None) -> list[CycleItem]:
        """See, decide, guard, act and record for these policies."""
        seen = look(self.cluster, assigned, at, namespace, self._isolation, sees_all_pods=self.sees_all_pods)
        guards = Guards(
            *(self.pauses, self.leadership, at, self.now or (lambda: at)),
            *(self.change_seconds, self.rollout_seconds),
        )
        return [self._turn(item, seen, guards) for item in assigned]

    def _is_real(self, item: Assigned) -> bool:
        return item.mode is Mode.ENFORCE and self.is_acting

    def _mind(self, item: Assigned, at: float) -> PolicyState:
        policy = item.policy
        mind = self._minds.get(policy.ref.uid)
        if mind is None:
            mind = self._minds[policy.ref.uid] = PolicyState.of(policy)
            mind.said_at = at if policy.status else None
        elif mind.generation != policy.generation:
            mind.generation, mind.needs_rollout = policy.generation, ""
        return mind

    def _turn(self, item: Assigned, seen: ClusterState, guards: Guards) -> CycleItem:
        """Take the turn of one policy; an error ends it, and nobody else's."""
        self.beat()
        progress, subject, uid = CycleProgress(), item.ref.subject, item.policy.ref.uid
        kept = self._minds[uid].memory if uid in self._minds else None
        turned: CycleItem | FailedTurn | None = next(
            (failed for failed in self._isolation.failed if failed.subject == subject), None
        )
        if item.ref in seen.pods:
            turned = self._isolation.turn(subject, lambda: self._taken(item, seen, guards, progress))
        if not isinstance(turned, FailedTurn):
            assert turned is not None, "a look that failed says why"
            return turned
        if kept is None:
            self._minds.pop(uid, None)
        elif not progress.is_said:
            self._minds[uid].memory = kept  # what was about to be remembered is not in the status
        outcomes = progress.outcomes
        decision = failed_decision(turned, outcomes)
        written = failed_record(BALANCER, decision, seen.at, self.new_id(seen.at), outcomes)
        self._isolation.attempt(subject, lambda: self.journal.append(written))
        status_errors = self._refuse(item.policy, RejectedPolicy.of_failure(turned), seen.at)
        return CycleItem(item, decision, outcomes, status_errors=status_errors, failed=turned)

    def _taken(
        self, item: Assigned, seen: ClusterState, guards: Guards, progress: CycleProgress
    ) -> CycleItem:
        """Decide for one policy, guard it, act on what is left, and write it all down."""
        refusal = unknown_size(item, seen)
        if refusal is not None:
            return CycleItem(
                item, None, (), refusal, status_errors=self._refuse(item.policy, refusal, seen.at)
            )
        mind, at_ms = self._mind(item, seen.at), moment_of(seen.at)
        pods = living(seen.pods[item.ref])
        slots = item.prepared.asked.slots
        deeds = recalled(mind.memory, item.workload, item.policy.generation)
        if self._is_real(item):
            deeds = self._named(item, self._noticed(item, deeds, pods, mind, at_ms), pods)
        observation = observe(item, seen, deeds)
        before = mind.decided
        remembers = ProportionalMemory.from_data(before)
        decision, assessment = decide_compiled(item.prepared.asked, observation, remembers)
        change = self._change(item, assessment, pods, mind, seen.at) if decision.actions else None
        if change is not None:
            reason = guards.ask(item, change, deeds, mind, lambda: self._ledger(item))
            decision = decision if reason is None else decision.hold(reason)
        warning = utilization_warning(seen.hpas.get(item.ref, ()), slots)
        is_doing = self._is_real(item) and bool(decision.actions)
        stands = deeds
        if is_doing and change is not None:
            deeds = intended(deeds, change, at_ms, self.leadership.epoch() or 0)
        mind.memory = remembered(kept_memory(remembers, assessment.memory, is_done=is_doing), deeds)
        told = StatusInput(
            decision,
            assessment,
            mind.memory,
            item.mode,
            pods_at_target=at_target(pods, slots, assessment.applied),
            pods=len(pods),
            cost=change.cost(item.workload) if change is not None else "",
            warning=warning,
            is_acting=is_doing,
        )
        outcomes = progress.outcomes
        progress.is_said, status_errors = self._say(item, told, mind, seen.at)
        if is_doing and change is not None:
            outcomes += self._act(item, decision, change, mind, seen.at, is_said=progress.is_said)
            if outcomes and all(outcome.result in UNDONE for outcome in outcomes):
                mind.memory = remembered(kept_memory(remembers, assessment.memory, is_done=False), stands)
        self._tell(item, told, outcomes)
        policy, id_ = item.prepared.document, self.new_id(seen.at)
        self.journal.append(record(BALANCER, policy, observation, before, decision, seen.at, id_, outcomes))
        left = change.left if change is not None and any(o.result == "Accepted" for o in outcomes) else 0
        said = warning if change is not None else ""
        return CycleItem(item, decision, outcomes, None, told.cost, said, status_errors, left)

    def _change(
        self, item: Assigned, assessment: Assessment, pods: Sequence[Pod], mind: PolicyState, at: float
    ) -> Change:
        """Return what an action comes to: which values, by which way, at what cost."""
        slots, spec = item.prepared.asked.slots, item.prepared.spec
        values = assessment.applied
        if mind.needs_rollout and spec.update_mode is UpdateMode.AUTO:
            way = Way(UpdateMode.ROLLOUT, mind.needs_rollout)
        else:
            offers = spec.update_mode is UpdateMode.ROLLOUT or self.sizes.offers_resize()
            way = choose_way(spec.update_mode, slots, values, item.workload, pods, offers_resize=offers)
        found = behind(pods, slots, values) if way.mode is UpdateMode.IN_PLACE else []
        late = mind.open(found, (way.mode.value, values), at)
        restarts = dict.fromkeys(name for pod in late for name in restarted(pod.containers, slots, values))
        return Change(values, way, pods, late, tuple(restarts), assessment.is_new)

    def _noticed(
        self, item: Assigned, deeds: AppliedState, pods: Sequence[Pod], mind: PolicyState, at_ms: int
    ) -> AppliedState:
        """Count what somebody put back; pods are looked at anew, since a late view still shows the old."""
        slots, workload = item.prepared.asked.slots, item.workload
        found, lost = noticed(deeds, slots, workload, pods, mind.accepted, at_ms)
        if lost and deeds.way != UpdateMode.ROLLOUT:
            try:
                fresh = pods_by_workload([workload], self.cluster.pods_now(workload))[item.ref]
                found, lost = noticed(deeds, slots, workload, living(fresh), mind.accepted, at_ms)
            except WorldFailed as error:
                del error  # what was seen counts: better stop too early than write too often
        mind.accepted -= lost
        return found

    def _named(self, item: Assigned, deeds: AppliedState, pods: Sequence[Pod]) -> AppliedState:
        """Find out who puts other values back, once it has happened too often."""
        if deeds.fought_by or not is_contended(deeds):
            return deeds
        target = about(item.workload)
        if deeds.way != UpdateMode.ROLLOUT:
            for pod in behind(pods, item.prepared.asked.slots, deeds.written)[:1]:
                target = ObjectRef("v1", "Pod", pod.namespace, pod.name, pod.uid)
        names = []
        for slot in item.prepared.asked.slots:
            try:
                names.append(self.sizes.setter_of(target, slot.container, slot.section, slot.resource.value))
            except WorldFailed:
                continue  # the name is for people; without it the fight is over all the same
        who = next((name for name in names if name), "another field manager")
        return msgspec.structs.replace(deeds, fought_by=who, generation=item.policy.generation)

    def _ledger(self, item: Assigned) -> Ledger:
        try:
            return Ledger.from_data(self.store.read(item.ref).data)
        except NotInstalled:
            if self.is_acting:
                raise
            return Ledger()  # for who only looks, a ledger that was never installed is an empty one

    def _act(
        self,
        item: Assigned,
        decision: Decision,
        change: Change,
        mind: PolicyState,
        at: float,
        *,
        is_said: bool,
    ) -> list[Outcome]:
        """Set the values; without what is to be remembered in the status nothing is done this time."""
        if not is_said:
            return [Outcome(decision.actions[0], "Fenced", "what is to be remembered could not be written")]
        if change.is_disruptive:
            sentence = f"{decision.reason.sentence} {change.cost(item.workload)}"
            self.announce(f"{item.ref.subject}: {sentence}")
            self.actuator.record_event(about(item.workload), decision.reason.code.value, sentence)
        hands = ResizeExecutor(
            *(self.sizes, self.pauses, self.leadership, self.store, self.actuator),
            *(self.new_id, self._epoch, self.beat, self.passed, self._isolation),
        )
        outcomes, accepted, refused = hands.act(item, decision, change, at)
        mind.accepted = set(accepted) if change.is_new else mind.accepted | accepted
        mind.take(outcomes, (change.way.mode.value, dict(change.values)), at, refused)
        return outcomes

    def _say(self, item: Assigned, told: StatusInput, mind: PolicyState, at: float) -> tuple[bool, str]:
        """Write the status where it is worth it; tell whether it stands, and what went wrong."""
        if not self.is_acting:
            return False, ""
        status = next_status(item.policy, item.prepared, told, at, mind.said_at)
        if status is None:
            return True, ""
        is_said, status_errors = write_status(self.policies.write_status, item.policy, status)
        if is_said:
            mind.said_at = at
        return is_said, status_errors

    def _refuse(self, policy: PolicyObject, refusal: RejectedPolicy, at: float) -> str:
        said = self._isolation.attempt(str(policy.ref), lambda: self._refuse_one(policy, refusal, at))
        return "" if isinstance(said, FailedTurn) else said

    def _refuse_one(self, policy: PolicyObject, refusal: RejectedPolicy, at: float) -> str:
        if not self.is_acting:
            return ""
        status = refused_status(policy, refusal, at)
        if status is None:
            return ""
        is_said, status_errors = write_status(self.policies.write_status, policy, status)
        if is_said:
            self.actuator.record_event(policy.ref, refusal.code, refusal.sentence, is_warning=True)
        return status_errors

    def _tell(self, item: Assigned, told: StatusInput, outcomes: Sequence[Outcome]) -> None:
        """Tell the workload what was done to it, and what keeps it from being done."""
        reason = told.decision.reason
        before = item.policy.status.get("lastDecision", {}).get("reason")
        done = "; ".join(f"{each.result}: {each.detail}".rstrip(": ") for each in outcomes)
        is_well = all(outcome.result == "Accepted" for outcome in outcomes)
        if outcomes:
            sentence = f"{reason.sentence} {told.cost} {done}."
            self.actuator.record_event(
                about(item.workload), reason.code.value, sentence, is_warning=not is_well
            )
        elif self.is_acting and reason.code in NEWS and before != reason.code.value:
            self.actuator.record_event(
                about(item.workload), reason.code.value, reason.sentence, is_warning=True
            )
