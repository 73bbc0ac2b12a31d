"""May these values be set now? Every guard is asked in turn, and they only reduce."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from equipoise.core.cluster import Pod, Workload
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import Ledger
from equipoise.core.reason import Code, Reason
from equipoise.engine.disruption import opted_out_by
from equipoise.engine.guards import (
    held_by_age,
    held_by_cooldown,
    held_by_leader,
    held_by_others,
    held_by_pause,
)
from equipoise.ports import Leadership, Pauses
from equipoise.ports.actions import Sizes
from equipoise.proportional.applied import (
    AppliedState,
    ChangeKey,
    PolicyState,
    UpdateStrategy,
    choose_update_strategy,
    pods_outdated,
)
from equipoise.proportional.decide import Assessment
from equipoise.proportional.functions import above_limit, restarted, with_values
from equipoise.proportional.observe import Assignment
from equipoise.proportional.policy import BALANCER, UpdateMode

SCALE = "equipoise.dev/scale"
"""`false` on a workload leaves its resources alone."""
PODS_PER_CYCLE_MAX = 100
"""Of one workload; the others follow in the next cycles."""
UNDER_WAY = frozenset({"InProgress", "Deferred"})
"""A pod whose node says so may restart at any moment."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What is about to be set, where, and what it costs."""

    values: Mapping[str, int]
    strategy: UpdateStrategy
    pods: Sequence[Pod]
    """All that count."""
    outdated: Sequence[Pod]
    """Those that ask for something else, and would be changed in place."""
    restarts: Sequence[str]
    """Containers that a change in place restarts."""
    is_new: bool
    """Whether the values are new, and not only brought to pods that lack them."""

    @property
    def pods_left(self) -> int:
        """How many pods wait for another turn: those beyond one turn's share."""
        return max(0, len(self.outdated) - (1 if self.restarts else PODS_PER_CYCLE_MAX))

    @property
    def key(self) -> ChangeKey:
        return self.strategy.mode.value, self.values

    @property
    def is_disruptive(self) -> bool:
        """Whether anything restarts."""
        return self.strategy.mode is UpdateMode.ROLLOUT or bool(self.restarts)

    def cost(self, workload: Workload) -> str:
        """Say before it is done whether anything restarts."""
        if self.strategy.mode is UpdateMode.ROLLOUT:
            why = f": {self.strategy.why}" if self.strategy.why else ", as updateMode says"
            if not workload.replaces_pods:
                return f"The template is changed{why}; pods get it when somebody replaces them."
            return f"The template is changed{why}; every pod is replaced."
        if self.restarts:
            names = ", ".join(self.restarts)
            return f"In place, one pod at a time; the container {names} restarts, as its resizePolicy says."
        return "In place; nothing restarts."


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
        """Give the first reason to wait, or None. The ledger is read only where something restarts."""
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
        """Hold a new value until so long after the last one; pods that lack the old one do not wait."""
        if not change.is_new or not applied.changed_at_ms:
            return None
        pause = self.rollout_seconds if change.is_disruptive else self.change_seconds
        since = self.taken_at - applied.changed_at_ms / 1000
        if since >= pause:
            return None
        left = pause - since
        sentence = f"The last change was {since:.0f} s ago, and the next waits {left:.0f} s more."
        return Reason(Code.HELD_BY_COOLDOWN, sentence, {"seconds_left": left})

    def _held_by_disruption(
        self, workload: Workload, change: PlannedChange, ledger: Callable[[], Ledger]
    ) -> Reason | None:
        is_rollout = change.strategy.mode is UpdateMode.ROLLOUT
        next_ = change.pods if is_rollout and workload.replaces_pods else change.outdated[:1]
        said = opted_out_by(workload.annotations) or next(
            (found for pod in next_ if (found := opted_out_by(pod.annotations))), ""
        )
        if said:
            return Reason(Code.OPTED_OUT, f"It would restart, and {said} asks to leave it alone.")
        if is_rolling(workload):
            return Reason(
                Code.HELD_BY_ROLLOUT,
                f"{workload.replicas_updated} of {workload.replicas_wanted} pods are of the newest template, "
                "and another change waits until all are.",
            )
        unready = [pod.name for pod in change.pods if not pod.is_ready]
        if unready:
            return Reason(
                Code.HELD_BY_HEALTH, f"{len(unready)} pods are not ready, such as {unready[0]}; it restarts."
            )
        busy = [pod.name for pod in change.pods if pod.resize is not None and pod.resize.state in UNDER_WAY]
        if busy and not is_rollout:
            sentence = f"The change of {busy[0]} is not carried out yet; the next pod restarts after it."
            return Reason(Code.HELD_BY_HEALTH, sentence)
        pause = self.rollout_seconds if is_rollout else 0.0
        try:
            known = ledger()
            others = held_by_others(known, BALANCER, self.taken_at)
            return others or held_by_cooldown(known, BALANCER, pause, self.taken_at)
        except WorldFailed as error:
            sentence = f"What was done to this workload before is unknown: {error}."
            return Reason(Code.HELD_BY_BUDGET, sentence)


def is_rolling(workload: Workload) -> bool:
    """Whether a new template is on its way to the pods."""
    if workload.generation_observed < workload.generation:
        return True
    if not workload.replaces_pods:
        return False
    updated = workload.replicas_updated
    return updated < workload.replicas_wanted or workload.replicas_seen > updated


def held_by_annotation(workload: Workload) -> Reason | None:
    """Hold where the workload asks to be left alone altogether."""
    value = dict(workload.annotations).get(SCALE, "")
    if value.strip().lower() != "false":
        return None
    return Reason(Code.OPTED_OUT, f"{SCALE}={value} asks to leave its resources alone.")


def held_by_contention(applied: AppliedState) -> Reason | None:
    """Hold for good once another one has put its own value back too often."""
    if not applied.is_contended:
        return None
    who = applied.contending_manager or "somebody who left no name"
    return Reason(
        Code.FOUGHT_BY,
        f"{who} has put another value back {len(applied.reverts)} times, so nothing more is written "
        "until the policy is edited.",
        {"fought_by": who},
    )


def held_by_fit(item: Assignment, change: PlannedChange) -> Reason | None:
    """Hold what no server would take, and what the policy's updateMode does not allow."""
    spec, slots = item.compiled.spec, item.compiled.slots
    if spec.update_mode is UpdateMode.IN_PLACE and change.strategy.mode is not UpdateMode.IN_PLACE:
        return Reason(Code.REFUSED, f"updateMode is InPlace, and {change.strategy.why}.")
    in_place = change.strategy.mode is UpdateMode.IN_PLACE
    kinds = [pod.containers for pod in change.outdated] if in_place else [item.workload.containers]
    for containers in dict.fromkeys(kinds):
        too_much = above_limit(with_values(containers, slots, change.values))
        if too_much:
            return Reason(Code.REFUSED, f"No server would take it: {too_much}.")
    return None


def plan_change(
    item: Assignment,
    assessment: Assessment,
    pods: Sequence[Pod],
    state: PolicyState,
    sizes: Sizes,
    at: float,
) -> PlannedChange:
    """Return what an action comes to: which values, by which strategy, in which pods, at what cost."""
    slots, mode, values = item.compiled.slots, item.compiled.spec.update_mode, assessment.applied
    if state.rollout_reason and mode is UpdateMode.AUTO:
        strategy = UpdateStrategy(UpdateMode.ROLLOUT, state.rollout_reason)
    else:
        offers = mode is UpdateMode.ROLLOUT or sizes.offers_resize()
        strategy = choose_update_strategy(mode, slots, values, item.workload, pods, offers_resize=offers)
    found = pods_outdated(pods, slots, values) if strategy.mode is UpdateMode.IN_PLACE else []
    outdated = state.pods_to_try(found, (strategy.mode.value, values), at)
    restarts = dict.fromkeys(name for pod in outdated for name in restarted(pod.containers, slots, values))
    return PlannedChange(values, strategy, pods, outdated, tuple(restarts), assessment.is_new)
