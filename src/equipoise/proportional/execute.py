"""The change itself: pods in place one after the other, or the template through the fence."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from equipoise.core.cluster import Pod, PodRef
from equipoise.core.decision import Action, Decision, Outcome, SetResources
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import EntryState, Ledger
from equipoise.engine.executor import ActionResult, Executed, FencedExecutor, Intent, execute_isolated
from equipoise.engine.guards import held_by_others, held_by_pause
from equipoise.engine.isolation import Isolation
from equipoise.ports import Actuator, Leadership, Pauses, Store
from equipoise.ports.actions import ResizeAnswer, ResizeResult, Sizes, Values
from equipoise.proportional.applied import AppliedState
from equipoise.proportional.functions import Slot, sidecars_of
from equipoise.proportional.guards import PODS_PER_CYCLE_MAX, PlannedChange, held_by_annotation
from equipoise.proportional.observe import Assignment
from equipoise.proportional.policy import BALANCER, UpdateMode

FOR_ALL_PODS = frozenset({ResizeResult.FORBIDDEN, ResizeResult.UNSUPPORTED})
"""Answers that hold for all pods."""
REFUSALS_MAX = 3
"""After so many and no success it is the change that is refused, and not a pod."""
NAMED_MAX = 5


class ResizeReport(NamedTuple):
    """What came of a change, and the UIDs that the server took it for or refused it for."""

    outcomes: list[Outcome]
    accepted: AbstractSet[str] = frozenset()
    refused: AbstractSet[str] = frozenset()
    """Empty where nothing says that it would be another answer for another pod."""


@dataclass(frozen=True, slots=True)
class ResizeExecutor:
    """What a change needs of the world."""

    sizes: Sizes
    pauses: Pauses
    leadership: Leadership
    store: Store
    actuator: Actuator
    new_id: Callable[[float], str]
    epoch: int | None
    """In which we led when we looked: what was decided then is done in no other."""
    beat: Callable[[], object]
    on_step: Callable[[str], object]
    isolation: Isolation

    def execute(self, item: Assignment, decision: Decision, change: PlannedChange, at: float) -> ResizeReport:
        """Set the values, and give what came of it."""
        (action,) = decision.actions
        assert isinstance(action, SetResources), "scaling only sets resources"
        if change.strategy.mode is UpdateMode.ROLLOUT:
            return self._roll_out(item, action, change, at)
        if change.restarts:
            return self._restart(item, action, change, at)
        return self._in_place(item, action, change)

    def _in_place(self, item: Assignment, action: SetResources, change: PlannedChange) -> ResizeReport:
        """Change pod after pod; leadership and pauses are checked before each.

        A pod may be refused for its node's sake, which is no reason to keep the value from the others.
        """
        answers: list[tuple[str, ResizeAnswer | WorldFailed]] = []
        accepted: set[str] = set()
        refused: set[str] = set()
        for pod in change.outdated[:PODS_PER_CYCLE_MAX]:
            self.beat()
            if self._is_over(item):
                break
            try:
                answer = self._resize(item, change, pod)
            except WorldFailed as error:
                answers.append((pod.name, error))
                break
            except Exception as error:  # noqa: BLE001 - as unknown as a lost answer
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
        return ResizeReport(list(summed_up(action, answers)), accepted, refused)

    def _is_over(self, item: Assignment) -> bool:
        is_ours = self.epoch is not None and self.leadership.epoch() == self.epoch
        return not is_ours or held_by_pause(self.pauses, item.ref.namespace) is not None

    def _resize(self, item: Assignment, change: PlannedChange, pod: Pod) -> ResizeAnswer:
        values = values_by_container(item.compiled.slots, change.values)
        sidecars = sidecars_of(pod.containers, values)
        ref = PodRef(pod.namespace, pod.name, pod.uid)
        return self.sizes.resize(ref, values, sidecars=sidecars)

    def _restart(
        self, item: Assignment, action: SetResources, change: PlannedChange, at: float
    ) -> ResizeReport:
        """Change one pod whose container restarts; the next waits until all are ready again."""
        if not change.outdated:
            return ResizeReport([])
        pod = change.outdated[0]
        one = SetResources(action.workload, action.containers, item.ref.namespace, pod.name, pod.uid)
        return self._fenced(item, one, pod.uid, lambda: self._resize(item, change, pod), at)

    def _roll_out(
        self, item: Assignment, action: SetResources, change: PlannedChange, at: float
    ) -> ResizeReport:
        workload = item.workload
        values = values_by_container(item.compiled.slots, change.values)
        sidecars = sidecars_of(workload.containers, values)

        def send() -> ResizeAnswer:
            return self.sizes.set_template(workload.object_ref, values, sidecars=sidecars)

        return self._fenced(item, action, workload.uid, send, at)

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
            uid=item.workload.uid,  # not the pod's: nobody is sent away
            at=at,
            epoch=self.epoch,
        )
        executor = FencedExecutor(
            BALANCER, self.store, self.leadership, lambda _: self._recheck(item), self.on_step
        )

        def result() -> ActionResult:
            answer = send()
            is_taken = answer.result is ResizeResult.ACCEPTED
            state = EntryState.DONE if is_taken else EntryState.FAILED
            return ActionResult(answer.result.value, answer.detail, state)

        def execute() -> Executed:
            stored = self.store.read(item.ref)
            others = held_by_others(Ledger.from_data(stored.data), BALANCER, at)
            if others is not None:
                return Executed(Outcome(action, "Fenced", others.sentence))
            return executor.execute(action, result, intent, stored)

        outcome = execute_isolated(self.isolation, item.ref.subject, action, execute).outcome
        own = {uid}
        return ResizeReport(
            [outcome],
            own if outcome.result == "Accepted" else set(),
            own if outcome.result == "Refused" else set(),
        )

    def _recheck(self, item: Assignment) -> str | None:
        """Ask once more whether somebody said stop, and whether the workload is still the one."""
        stop = held_by_pause(self.pauses, item.ref.namespace)
        if stop is not None:
            return stop.sentence
        try:
            now = self.sizes.workload(item.ref)
        except WorldFailed as error:
            return f"the workload could not be looked at again: {error}"
        if now is None or now.uid != item.workload.uid:
            return "the workload has gone or was made anew since it was looked at"
        left = held_by_annotation(now)
        return None if left is None else left.sentence


def values_by_container(slots: Iterable[Slot], values: Mapping[str, int]) -> Values:
    """Say values as a manifest does."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for slot in slots:
        if slot.key in values:
            section = found.setdefault(slot.container, {}).setdefault(slot.section, {})
            section[slot.resource.value] = slot.text(values[slot.key])
    return found


def summed_up(action: Action, answers: Sequence[tuple[str, ResizeAnswer | WorldFailed]]) -> Iterable[Outcome]:
    """Return one outcome for each result, with the first pods that had it."""
    by_result: dict[str, list[tuple[str, str]]] = {}
    for pod, answer in answers:
        if isinstance(answer, WorldFailed):
            by_result.setdefault("Unknown", []).append((pod, str(answer)))
        else:
            by_result.setdefault(answer.result.value, []).append((pod, answer.detail))
    for result, pods in by_result.items():
        names = ", ".join(pod for pod, _ in pods[:NAMED_MAX])
        more = f" and {len(pods) - NAMED_MAX} more" if len(pods) > NAMED_MAX else ""
        said = next((detail for _, detail in pods if detail), "")
        yield Outcome(action, result, f"{names}{more}{f': {said}' if said else ''}")


def intended(applied: AppliedState, change: PlannedChange, at_ms: int, epoch: int) -> AppliedState:
    """Remember what is about to be set, before it is."""
    is_same = applied.values == change.values and applied.update_mode == change.strategy.mode
    return msgspec.structs.replace(
        applied,
        update_mode=change.strategy.mode.value,
        values=dict(change.values),
        changed_at_ms=at_ms if change.is_new else applied.changed_at_ms,
        is_confirmed=applied.is_confirmed and is_same,
        epoch=epoch,
    )


UNDONE = frozenset({"Fenced", "Outdated", "Gone", "Refused", "Forbidden", "Unsupported"})
"""Results after which it is certain that nothing was changed."""


@dataclass(slots=True)
class CycleProgress:
    """How far a cycle has come with one policy: an error may end it anywhere."""

    is_persisted: bool = False
    """Whether what is to be remembered is in the status."""
    outcomes: list[Outcome] = field(default_factory=list)
