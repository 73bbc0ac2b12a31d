"""The values applied to a workload: those in force, pods that lack them, reverts by other managers.

A value that was set may be reverted by another field manager, lost with a pod, or refused. `AppliedState` is
stored in the policy's status before every change; `PolicyState` has what one process adds to it in memory,
such as the pods for which the API server accepted the present values.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from equipoise.core.cluster import FINISHED, Pod, Workload
from equipoise.core.decision import Outcome
from equipoise.core.errors import DECODE_ERRORS, delay_seconds
from equipoise.core.quantity import print_list
from equipoise.core.reason import Code, Reason
from equipoise.ports import PolicyObject
from equipoise.ports.actions import Sizes
from equipoise.proportional.decide import Assessment
from equipoise.proportional.functions import (
    CompiledPolicy,
    Slot,
    differs,
    qos_class,
    restarted,
    value_of,
    with_values,
)
from equipoise.proportional.policy import UpdateMode
from equipoise.proportional.smoothing import ProportionalMemory

REVERTS_MAX = 2
"""Reverts by another manager after which nothing more is written."""
REVERT_MEMORY_MS = 86_400_000
"""Older reverts do not count."""
KEY = "deeds"
"""The key of the applied state in the status' memory."""


class AppliedState(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The values that were set for one policy, or were about to be set."""

    uid: str = ""
    """The workload's UID; for another workload of the same name the state is empty."""
    update_mode: str = msgspec.field(default="", name="way")
    """`InPlace` or `Rollout`."""
    values: dict[str, int] = msgspec.field(default_factory=dict, name="written")
    """The values that were set, by slot."""
    changed_at_ms: int = msgspec.field(default=0, name="at")
    """When the values last changed."""
    is_confirmed: bool = False
    """Whether the values were observed: in the template, or in all pods at the same time."""
    reverts: tuple[int, ...] = ()
    """The times at which another value was observed again, in milliseconds."""
    contending_manager: str = msgspec.field(default="", name="foughtBy")
    generation: int = 0
    """The policy's generation when we stopped writing; a later generation resets the contention."""
    epoch: int = 0
    """The Lease transition in which the values were written."""

    @property
    def is_rollout(self) -> bool:
        return self.update_mode == UpdateMode.ROLLOUT

    @property
    def is_contended(self) -> bool:
        """Whether another manager has reverted the values too often."""
        return bool(self.contending_manager) or len(self.reverts) >= REVERTS_MAX


class PolicyMemory(NamedTuple):
    """The memory in one policy's status: for the next decision, and of the applied values."""

    smoothing: ProportionalMemory = ProportionalMemory()
    applied: AppliedState = AppliedState()

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "PolicyMemory":
        """Return the memory from the form of `to_data`; raises ValueError for other data."""
        applied = msgspec.convert(data.get(KEY, {}), type=AppliedState)
        return cls(ProportionalMemory.from_data(data), applied)

    def to_data(self) -> dict[str, Any]:
        data = self.smoothing.to_data()
        if self.applied.values or self.applied.reverts:
            data[KEY] = msgspec.json.decode(msgspec.json.encode(self.applied))
        return data

    def applied_to(self, workload: Workload, generation: int) -> AppliedState:
        """Return the state applied to this workload; an edit of the policy resets a contention."""
        applied = self.applied
        if applied.uid != workload.uid:
            return AppliedState(uid=workload.uid)
        if applied.contending_manager and applied.generation != generation:
            return msgspec.structs.replace(applied, contending_manager="", reverts=(), is_confirmed=False)
        return applied


def active_pods(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that have neither ended nor are being deleted."""
    return [pod for pod in pods if pod.phase not in FINISHED and pod.deletion_at is None]


def values_in_force(
    mode: UpdateMode, slots: Sequence[Slot], workload: Workload, pods: Sequence[Pod], applied: AppliedState
) -> dict[str, int]:
    """Return the value in force of each slot, for the whole workload.

    It is the template's, unless pods were changed in place by us, or all to one value by another manager.
    """
    found: dict[str, int] = {}
    is_template = mode is UpdateMode.ROLLOUT or applied.is_rollout
    for slot in slots:
        value = value_of(workload.containers, slot)
        pod_values = {value_of(pod.containers, slot) for pod in pods}
        if not is_template and slot.key in applied.values:
            value = applied.values[slot.key]
        elif not is_template and len(pod_values) == 1:
            (value,) = pod_values
        if value is not None:
            found[slot.key] = value
    return found


def pods_outdated(pods: Iterable[Pod], slots: Sequence[Slot], values: Mapping[str, int]) -> list[Pod]:
    """Return the running pods with other values, oldest first: those that can be changed in place."""
    resizable = [pod for pod in pods if pod.phase == "Running" and not pod.is_mirror]
    outdated = [pod for pod in resizable if differs(pod.containers, slots, values)]
    return sorted(outdated, key=attrgetter("created_at", "name"))


def count_at_target(pods: Iterable[Pod], slots: Sequence[Slot], values: Mapping[str, int]) -> int:
    """Return how many pods request these values and got them from their nodes."""
    return sum(pod.resize is None and not differs(pod.containers, slots, values) for pod in pods)


class ChangeStrategy(NamedTuple):
    """How a change is applied to the pods, and why."""

    mode: UpdateMode
    why: str = ""


def choose_strategy(
    mode: UpdateMode,
    slots: Sequence[Slot],
    values: Mapping[str, int],
    workload: Workload,
    pods: Sequence[Pod],
    *,
    offers_resize: bool,
) -> ChangeStrategy:
    """Choose between a change in place, which must not change the QoS class, and a rollout."""
    if mode is UpdateMode.ROLLOUT:
        return ChangeStrategy(mode)
    if not offers_resize:
        return ChangeStrategy(UpdateMode.ROLLOUT, "this API server cannot resize pods in place")
    # The pods decide, since they may have more values than their template: a LimitRange adds defaults.
    kinds = [(pod.qos_class, pod.containers) for pod in pods] or [("", workload.containers)]
    for pod_class, containers in dict.fromkeys((name, tuple(containers)) for name, containers in kinds):
        before, after = qos_class(containers), qos_class(with_values(containers, slots, values))
        is_decisive = pod_class in {"", before}  # else init containers, which are not listed, determine it
        if containers and before != after and is_decisive:
            why = f"the QoS class would change from {before} to {after}"
            return ChangeStrategy(UpdateMode.ROLLOUT, why)
    return ChangeStrategy(UpdateMode.IN_PLACE)


def detect_reverts(
    applied: AppliedState,
    slots: Sequence[Slot],
    workload: Workload,
    pods: Sequence[Pod],
    accepted: Collection[str],
    at_ms: int,
) -> tuple[AppliedState, frozenset[str]]:
    """Return the state with any new revert; `accepted` are the UIDs whose change the API server accepted.

    A pod created since then has the template's values, which is no revert. Also returned are the UIDs that
    lost the values: they count again only after the values were set again.
    """
    if not applied.values or applied.contending_manager:
        return applied, frozenset()
    if applied.is_rollout:
        is_applied = not differs(workload.containers, slots, applied.values)
        was_accepted = applied.is_confirmed or workload.uid in accepted
        lost = frozenset({workload.uid} if was_accepted and not is_applied else ())
    else:
        # Confirmed: an earlier process observed the values in all pods that existed at that time.
        since = applied.changed_at_ms if applied.is_confirmed else -math.inf
        outdated = pods_outdated(pods, slots, applied.values)
        lost = frozenset(pod.uid for pod in outdated if pod.uid in accepted or pod.created_at * 1000 < since)
        is_in_all_pods = bool(pods) and not any(
            differs(pod.containers, slots, applied.values) for pod in pods
        )
        is_applied = is_in_all_pods or (applied.is_confirmed and not lost)
    assert not (is_applied and lost), "what all pods have, none has lost"
    applied = msgspec.structs.replace(applied, is_confirmed=is_applied)
    if not lost:
        return applied, lost
    recent = tuple(at for at in applied.reverts if at_ms - at < REVERT_MEMORY_MS)
    return msgspec.structs.replace(applied, reverts=(*recent, at_ms)), lost


ChangeKey = tuple[str, Mapping[str, int]]
"""An update mode and the values: the change that a refusal concerns."""
PODS_PER_CYCLE_MAX = 100
"""Pods changed per workload and cycle."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The values to set, in which objects, and what that restarts."""

    values: Mapping[str, int]
    strategy: ChangeStrategy
    pods: Sequence[Pod]
    """All active pods."""
    outdated: Sequence[Pod]
    """The pods with other values, which would be changed in place."""
    restarts: Sequence[str]
    """The containers that the change in place restarts."""
    is_new: bool
    """Whether the values are new; otherwise they are only set in pods that lack them."""

    def __post_init__(self) -> None:
        assert self.values, "a change sets something"
        is_in_place = self.strategy.mode is UpdateMode.IN_PLACE
        assert is_in_place or not self.outdated, "a rollout resizes no pod in place"
        assert self.outdated or not self.restarts, "what restarts is in a pod that is changed"

    @property
    def pods_left(self) -> int:
        """The number of pods beyond the limit of one cycle."""
        return max(0, len(self.outdated) - (1 if self.restarts else PODS_PER_CYCLE_MAX))

    @property
    def key(self) -> ChangeKey:
        return self.strategy.mode.value, self.values

    @property
    def is_disruptive(self) -> bool:
        return self.strategy.mode is UpdateMode.ROLLOUT or bool(self.restarts)

    def cost(self, workload: Workload) -> str:
        """Return whether the change restarts anything, as a sentence for before the change."""
        if self.strategy.mode is UpdateMode.ROLLOUT:
            why = f" because {self.strategy.why}" if self.strategy.why else " (updateMode is Rollout)"
            if not workload.replaces_pods:
                return f"The template changes{why}; a pod gets the values when it is replaced."
            return f"The template changes{why}; every pod is replaced."
        if self.restarts:
            names = print_list(self.restarts)
            restarts = f"{names} {'restarts' if len(self.restarts) == 1 else 'restart'} (resizePolicy)"
            return f"Pods are resized in place, one at a time; the container {restarts}."
        return "Pods are resized in place; nothing restarts."

    def as_applied(self, before: AppliedState, at_ms: int, epoch: int) -> AppliedState:
        """Return the applied state to write into the status before the change is made."""
        is_same = before.values == self.values and before.update_mode == self.strategy.mode
        return msgspec.structs.replace(
            before,
            update_mode=self.strategy.mode.value,
            values=dict(self.values),
            changed_at_ms=at_ms if self.is_new else before.changed_at_ms,
            is_confirmed=before.is_confirmed and is_same,
            epoch=epoch,
        )


REFUSED_FIRST_SECONDS = 300.0
REFUSED_MAX_SECONDS = 3600.0
UNSUPPORTED_SECONDS = 30.0
"""A resize is also unsupported until the kubelet reports the container; after this long, it is the node."""
TRIED_AGAIN = f"The resize is tried again after {UNSUPPORTED_SECONDS:.0f} s."
PERMANENT = {
    "Forbidden": (Code.OPTED_OUT, "The right to change it is missing, so the change is only previewed"),
    "Refused": (Code.REFUSED, "The API server refused the change"),
    "Unsupported": (Code.REFUSED, "The API server or a node cannot resize pods in place"),
}
"""Results that will not change on retry, and their reason codes."""


class _RefusedChange(NamedTuple):
    """A refused change in backoff: how often it was refused in a row, and for which pods."""

    until: float
    times: int
    reason: Reason
    key: ChangeKey
    uids: frozenset[str]
    """Empty if it was refused for all pods."""


@dataclass(slots=True)
class PolicyState:
    """One policy's memory of the last cycle, and the API server's answers since we are the leader."""

    memory: PolicyMemory
    generation: int
    status_written_at: float | None = None
    accepted: set[str] = field(default_factory=set)
    """UIDs of the objects for which the API server accepted the present values."""
    rollout_reason: str = ""
    """Why the API server refused the change in place."""
    _refused: _RefusedChange | None = None
    _unsupported_at: float | None = None
    """When a resize was first refused as unsupported, since the last accepted change."""

    @classmethod
    def of(cls, policy: PolicyObject) -> "PolicyState":
        """Return the state from the status' memory, or from an empty one if that cannot be decoded."""
        try:
            memory = PolicyMemory.from_data(dict(policy.status.get("memory") or {}))
        except (*DECODE_ERRORS, AttributeError):
            memory = PolicyMemory()
        return cls(memory, policy.generation)

    def record_outcomes(
        self, outcomes: Sequence[Outcome], key: ChangeKey, at: float, refused: Collection[str] = ()
    ) -> None:
        """Record outcomes; back off after permanent refusals.

        `refused` are the UIDs of the refused pods, if the answer may be another one for other pods.
        """
        before = self._refused_at(key, None)
        times = 0 if before is None else before.times
        self._refused = before if before is not None and before.uids and at < before.until else None
        earlier = frozenset[str]() if self._refused is None else self._refused.uids
        uids = earlier.union(refused) if refused else frozenset()
        for outcome in outcomes:
            self._unsupported_at = None if outcome.result == "Accepted" else self._unsupported_at
            if outcome.result == "Unsupported" and not self._is_unsupported(at):
                sentence = f"The API server resized no pod in place ({outcome.detail}). {TRIED_AGAIN}"
                until = at + UNSUPPORTED_SECONDS
                self._refused = _RefusedChange(until, times, Reason(Code.REFUSED, sentence), key, uids)
            elif outcome.result in PERMANENT:
                code, why = PERMANENT[outcome.result]
                wait = delay_seconds(times + 1, REFUSED_FIRST_SECONDS, REFUSED_MAX_SECONDS)
                reason = Reason(code, f"{why} ({outcome.detail}).")
                self._refused = _RefusedChange(at + wait, times + 1, reason, key, uids)
            if outcome.result == "Refused" and "QOS" in outcome.detail.upper():
                self.rollout_reason = "the QoS class would change"

    def _is_unsupported(self, at: float) -> bool:
        """Record this answer, and return whether it is the same as one of 30 s ago or more: then roll out."""
        first = self._unsupported_at
        if first is None or at - first < UNSUPPORTED_SECONDS:
            self._unsupported_at = at if first is None else first
            return False
        self.rollout_reason = "a node cannot resize pods in place"
        return True

    def edited(self, generation: int) -> None:
        """Forget the API server's answers about an earlier generation of the policy."""
        self.generation, self.rollout_reason, self._unsupported_at = generation, "", None

    def _refused_at(self, key: ChangeKey, at: float | None) -> _RefusedChange | None:
        """Return the refusal of this change if its backoff is not over; with None, also after that."""
        refused = self._refused
        if refused is None or refused.key != key or (at is not None and at >= refused.until):
            return None
        return refused

    def held_by_refusal(self, key: ChangeKey, at: float, pods: Sequence[Pod] = ()) -> Reason | None:
        """Hold a refused change until its backoff is over, unless some of the pods were not refused."""
        refused = self._refused_at(key, at)
        if refused is None or (refused.uids and any(pod.uid not in refused.uids for pod in pods)):
            return None
        return refused.reason

    def plan_change(
        self,
        compiled: CompiledPolicy,
        assessment: Assessment,
        workload: Workload,
        pods: Sequence[Pod],
        sizes: Sizes,
        at: float,
    ) -> PlannedChange:
        slots, mode, values = compiled.slots, compiled.spec.update_mode, assessment.applied
        if self.rollout_reason and mode is UpdateMode.AUTO:
            strategy = ChangeStrategy(UpdateMode.ROLLOUT, self.rollout_reason)
        else:
            offers_resize = mode is UpdateMode.ROLLOUT or sizes.offers_resize()
            strategy = choose_strategy(mode, slots, values, workload, pods, offers_resize=offers_resize)
        outdated = pods_outdated(pods, slots, values) if strategy.mode is UpdateMode.IN_PLACE else []
        refused = self._refused_at((strategy.mode.value, values), at)
        if refused is not None:  # the pods that were not refused; all if every one was
            outdated = [pod for pod in outdated if pod.uid not in refused.uids] or outdated
        restarts = dict.fromkeys(
            name for pod in outdated for name in restarted(pod.containers, slots, values)
        )
        return PlannedChange(values, strategy, pods, outdated, tuple(restarts), assessment.is_new)
