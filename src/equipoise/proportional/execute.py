"""The guards before a change of values, and its execution.

All guards are evaluated in order, and only reduce. A change that restarts nothing is sent to one pod after
another; one that restarts a container, or rolls out a new template, goes through the workload's ledger.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from equipoise.core.cluster import Pod, PodRef, Workload
from equipoise.core.decision import Action, Decision, Outcome, SetResources
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import EntryState, Ledger
from equipoise.core.quantity import print_count, print_seconds
from equipoise.core.reason import Code, Reason
from equipoise.engine.disruption import opted_out_by
from equipoise.engine.executor import ActionResult, Executed, FencedExecutor, Intent, execute_isolated
from equipoise.engine.guards import (
    held_by_age,
    held_by_cooldown,
    held_by_leader,
    held_by_others,
    held_by_pause,
)
from equipoise.engine.isolation import Isolation
from equipoise.ports import Leadership, Pauses, Store
from equipoise.ports.actions import ResizeAnswer, ResizeResult, Sizes
from equipoise.proportional.applied import PODS_PER_CYCLE_MAX, AppliedState, PlannedChange, PolicyState
from equipoise.proportional.functions import above_limit, sidecars_of, values_by_container, with_values
from equipoise.proportional.observe import Assignment
from equipoise.proportional.policy import BALANCER, UpdateMode

SCALE = "equipoise.dev/scale"
"""The annotation that opts a workload out of scaling, by the value `false`."""
RESIZING = frozenset({"InProgress", "Deferred"})
"""States of a resize in which a pod may restart at any moment."""
FOR_ALL_PODS = frozenset({ResizeResult.FORBIDDEN, ResizeResult.UNSUPPORTED})
"""Answers that are the same for every pod."""
REFUSALS_MAX = 3
"""After this many refusals without a success the change counts as refused for all pods."""
NAMED_MAX = 5
UNCHANGED_RESULTS = frozenset({"Fenced", "Outdated", "Gone", "Refused", "Forbidden", "Unsupported"})
"""Results after which it is certain that nothing was changed."""


@dataclass(frozen=True, slots=True)
class Guards:
    """The guards of one cycle."""

    pauses: Pauses
    leadership: Leadership
    taken_at: float
    now: Callable[[], float]
    change_seconds: float
    rollout_seconds: float

    def ask(
        self,
        item: Assignment,
        change: PlannedChange,
        applied: AppliedState,
        state: PolicyState,
        ledger: Callable[[], Ledger],
    ) -> Reason | None:
        """Return the first reason to wait, or None. The ledger is read only if the change restarts pods."""
        workload = item.workload
        return (
            held_by_pause(self.pauses, workload.ref.namespace)
            or held_by_leader(self.leadership)
            or held_by_age(self.now() - self.taken_at)
            or held_by_annotation(workload)
            or held_by_contention(applied)
            or held_by_fit(item, change)
            or state.held_by_refusal(change.key, self.taken_at, change.outdated)
            or self._held_by_rate(change, applied)
            or (self._held_by_disruption(workload, change, ledger) if change.is_disruptive else None)
        )

    def _held_by_rate(self, change: PlannedChange, applied: AppliedState) -> Reason | None:
        """Hold new values for the minimum interval; setting the present values in more pods does not wait."""
        if not change.is_new or not applied.changed_at_ms:
            return None
        pause = self.rollout_seconds if change.is_disruptive else self.change_seconds
        since = self.taken_at - applied.changed_at_ms / 1000
        if since >= pause:
            return None
        seconds_left = pause - since
        ago, left = print_seconds(round(since)), print_seconds(round(seconds_left))
        sentence = f"The last change was {ago} ago; the next is possible in {left}."
        return Reason(Code.HELD_BY_COOLDOWN, sentence, {"seconds_left": seconds_left})

    def _held_by_disruption(
        self, workload: Workload, change: PlannedChange, ledger: Callable[[], Ledger]
    ) -> Reason | None:
        is_rollout = change.strategy.mode is UpdateMode.ROLLOUT
        affected = change.pods if is_rollout and workload.replaces_pods else change.outdated[:1]
        annotated = [workload.annotations, *(pod.annotations for pod in affected)]
        opt_out = next(filter(None, map(opted_out_by, annotated)), "")
        if opt_out:
            return Reason(
                Code.OPTED_OUT, f"The change would restart pods, and the annotation {opt_out} excludes them."
            )
        if is_rolling(workload):
            counts = f"{workload.replicas_updated} of {workload.replicas_wanted}"
            newest = f"{counts} pods have the newest template"
            sentence = f"A rollout is in progress: {newest}. The change waits until all of them have."
            return Reason(Code.HELD_BY_ROLLOUT, sentence)
        unready = [pod.name for pod in change.pods if not pod.is_ready]
        if unready:
            are = "is" if len(unready) == 1 else "are"
            which = f"{print_count(len(unready), 'pod')} {are} not ready, such as {unready[0]}"
            sentence = f"{which}. The change restarts pods, so it waits until all are ready."
            return Reason(Code.HELD_BY_HEALTH, sentence)
        resizing = [pod.name for pod in change.pods if pod.resize and pod.resize.state in RESIZING]
        if resizing and not is_rollout:
            sentence = f"The resize of {resizing[0]} is still in progress. The next pod waits for it."
            return Reason(Code.HELD_BY_HEALTH, sentence)
        pause = self.rollout_seconds if is_rollout else 0.0
        try:
            recent = ledger()
            others = held_by_others(recent, BALANCER, self.taken_at)
            return others or held_by_cooldown(recent, BALANCER, pause, self.taken_at)
        except WorldFailed as error:
            sentence = f"The ledger of earlier actions cannot be read: {error}."
            return Reason(Code.HELD_BY_BUDGET, sentence)


def is_rolling(workload: Workload) -> bool:
    if workload.generation_observed < workload.generation:
        return True
    if not workload.replaces_pods:
        return False
    updated = workload.replicas_updated
    return updated < workload.replicas_wanted or workload.replicas_seen > updated


def held_by_annotation(workload: Workload) -> Reason | None:
    value = dict(workload.annotations).get(SCALE, "")
    if value.strip().lower() != "false":
        return None
    return Reason(Code.OPTED_OUT, f"The annotation {SCALE}={value} excludes the workload.")


def held_by_contention(applied: AppliedState) -> Reason | None:
    """Hold until the policy is edited once another manager has reverted the values too often."""
    if not applied.is_contended:
        return None
    who = applied.contending_manager or "an unnamed field manager"
    reverts = f"{who} has reverted the values {len(applied.reverts)} times"
    sentence = f"{reverts}. Nothing more is written until the policy is edited."
    return Reason(Code.FOUGHT_BY, sentence, {"fought_by": who})


def held_by_fit(item: Assignment, change: PlannedChange) -> Reason | None:
    """Hold what the API server would refuse, and what the policy's updateMode does not allow."""
    spec, slots = item.compiled.spec, item.compiled.slots
    if spec.update_mode is UpdateMode.IN_PLACE and change.strategy.mode is not UpdateMode.IN_PLACE:
        return Reason(Code.REFUSED, f"updateMode is InPlace, but {change.strategy.why}.")
    in_place = change.strategy.mode is UpdateMode.IN_PLACE
    kinds = [pod.containers for pod in change.outdated] if in_place else [item.workload.containers]
    for containers in dict.fromkeys(kinds):
        violation = above_limit(with_values(containers, slots, change.values))
        if violation:
            return Reason(Code.REFUSED, f"The API server would refuse the values: {violation}.")
    return None


@dataclass(slots=True)
class CycleProgress:
    """The steps done for one policy in a cycle, which an error may end at any step."""

    is_persisted: bool = False
    """Whether the new memory is in the status."""
    outcomes: list[Outcome] = field(default_factory=list)


class ResizeReport(NamedTuple):
    """The outcomes of a change, and the UIDs for which the API server accepted or refused it."""

    outcomes: list[Outcome]
    accepted: AbstractSet[str] = frozenset()
    refused: AbstractSet[str] = frozenset()
    """Empty if the refusal may hold for all pods."""


@dataclass(frozen=True, slots=True)
class ResizeExecutor:
    """Sends a change to the API server: to the pods, or to the template."""

    sizes: Sizes
    pauses: Pauses
    leadership: Leadership
    store: Store
    new_id: Callable[[float], str]
    epoch: int | None
    """The epoch of the snapshot; a decision is executed in no other."""
    heartbeat: Callable[[], object]
    on_step: Callable[[str], object]
    isolation: Isolation

    def execute(self, item: Assignment, decision: Decision, change: PlannedChange, at: float) -> ResizeReport:
        """Set the values by the change's strategy, and return the outcomes."""
        assert len(decision.actions) == 1, "scaling has one action for a workload"
        (action,) = decision.actions
        assert isinstance(action, SetResources), "scaling only sets resources"
        workload = item.workload
        if change.strategy.mode is UpdateMode.ROLLOUT:
            values = values_by_container(item.compiled.slots, change.values)
            sidecars = sidecars_of(workload.containers, values)
            send = partial(self.sizes.set_template, workload.object_ref, values, sidecars=sidecars)
            return self._fenced(item, action, workload.uid, send, at)
        if change.restarts:
            pod = change.outdated[0]  # the next waits until all are ready again
            one = SetResources(action.workload, action.containers, item.ref.namespace, pod.name, pod.uid)
            return self._fenced(item, one, pod.uid, partial(self._resize, item, change, pod), at)
        return self._in_place(item, action, change)

    def _in_place(self, item: Assignment, action: SetResources, change: PlannedChange) -> ResizeReport:
        """Change one pod after another; leadership and pauses are checked before each.

        A pod may be refused because of its node; the others are changed all the same.
        """
        answers: list[tuple[str, ResizeAnswer | WorldFailed]] = []
        accepted: set[str] = set()
        refused: set[str] = set()
        for pod in change.outdated[:PODS_PER_CYCLE_MAX]:
            self.heartbeat()
            is_ours = self.epoch is not None and self.leadership.epoch() == self.epoch
            if not is_ours or held_by_pause(self.pauses, item.ref.namespace) is not None:
                break
            try:
                answer = self._resize(item, change, pod)
            except WorldFailed as error:
                answers.append((pod.name, error))
                break
            except Exception as error:  # noqa: BLE001 - as after a lost answer
                answers.append((pod.name, WorldFailed(self.isolation.take(item.ref.subject, error).error)))
                break
            answers.append((pod.name, answer))
            if answer.result is ResizeResult.ACCEPTED:
                accepted.add(pod.uid)
            elif answer.result is ResizeResult.REFUSED:
                refused.add(pod.uid)
            if answer.result in FOR_ALL_PODS or (not accepted and len(refused) >= REFUSALS_MAX):
                refused.clear()
                break
        return ResizeReport(list(summarize(action, answers)), accepted, refused)

    def _resize(self, item: Assignment, change: PlannedChange, pod: Pod) -> ResizeAnswer:
        values = values_by_container(item.compiled.slots, change.values)
        ref = PodRef(pod.namespace, pod.name, pod.uid)
        return self.sizes.resize(ref, values, sidecars=sidecars_of(pod.containers, values))

    def _fenced(
        self, item: Assignment, action: SetResources, uid: str, send: Callable[[], ResizeAnswer], at: float
    ) -> ResizeReport:
        """Set values that restart pods: through the workload's ledger, unless another balancer acts on it."""
        if self.epoch is None:
            return ResizeReport([])
        intent = Intent(
            id=self.new_id(at),
            workload=item.ref,
            pod=action.pod or item.ref.name,
            uid=item.workload.uid,  # not the pod's, since it is not evicted
            at=at,
            epoch=self.epoch,
        )
        executor = FencedExecutor(
            BALANCER, self.store, self.leadership, lambda _: self._recheck(item), self.on_step
        )

        def result() -> ActionResult:
            answer = send()
            is_accepted = answer.result is ResizeResult.ACCEPTED
            state = EntryState.DONE if is_accepted else EntryState.FAILED
            return ActionResult(answer.result.value, answer.detail, state)

        def execute() -> Executed:
            stored = self.store.read(item.ref)
            others = held_by_others(Ledger.from_data(stored.data), BALANCER, at)
            if others is not None:
                return Executed(Outcome(action, "Fenced", others.sentence))
            return executor.execute(action, result, intent, stored)

        outcome = execute_isolated(self.isolation, item.ref.subject, action, execute).outcome
        is_accepted, is_refused = outcome.result == "Accepted", outcome.result == "Refused"
        return ResizeReport([outcome], {uid} if is_accepted else set(), {uid} if is_refused else set())

    def _recheck(self, item: Assignment) -> str | None:
        """Return why the change must not be sent now: a pause, another workload, or its opt-out."""
        if (pause := held_by_pause(self.pauses, item.ref.namespace)) is not None:
            return pause.sentence
        try:
            now = self.sizes.workload(item.ref)
        except WorldFailed as error:
            return f"the workload could not be read again: {error}"
        if now is None or now.uid != item.workload.uid:
            return "the workload was deleted or created anew"
        opt_out = held_by_annotation(now)
        return None if opt_out is None else opt_out.sentence


def summarize(action: Action, answers: Sequence[tuple[str, ResizeAnswer | WorldFailed]]) -> Iterable[Outcome]:
    """Return one outcome for each result, naming the first pods that had it."""
    by_result: dict[str, list[tuple[str, str]]] = {}
    for pod, answer in answers:
        if isinstance(answer, WorldFailed):
            by_result.setdefault("Unknown", []).append((pod, str(answer)))
        else:
            by_result.setdefault(answer.result.value, []).append((pod, answer.detail))
    for result, pods in by_result.items():
        names = ", ".join(pod for pod, _ in pods[:NAMED_MAX])
        more = f" and {len(pods) - NAMED_MAX} more" if len(pods) > NAMED_MAX else ""
        detail = next((detail for _, detail in pods if detail), "")
        yield Outcome(action, result, f"{names}{more}{f': {detail}' if detail else ''}")
