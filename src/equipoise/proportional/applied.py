"""What was applied to a workload and what stands of it: the values in force, pods without them, reverts.

A value that was set may be put back by somebody else, lost with a pod, or refused. `AppliedState` keeps what
was set in the policy's status, and is written before every change; `PolicyState` keeps what one process knows
beyond that, such as which pods the API server accepted the present values for.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from equipoise.core.backoff import delay_seconds
from equipoise.core.cluster import Container, Pod, Workload
from equipoise.core.decision import Outcome
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import NANO
from equipoise.core.reason import Code, Reason
from equipoise.ports import PolicyObject
from equipoise.proportional.functions import Slot
from equipoise.proportional.policy import UpdateMode
from equipoise.proportional.smoothing import ProportionalMemory

FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended for good."""
FIELDS = {
    ("requests", "cpu"): "cpu_request_cores",
    ("requests", "memory"): "memory_request_bytes",
    ("limits", "cpu"): "cpu_limit_cores",
    ("limits", "memory"): "memory_limit_bytes",
}
"""Where a container has each value."""


def value_of(containers: Iterable[Container], slot: Slot) -> int | None:
    """Return what a container has in the slot's units, rounded up; None where it has nothing."""
    for container in containers:
        if container.name == slot.container:
            amount: float | None = getattr(container, FIELDS[slot.section, slot.resource.value])
            return None if amount is None else units_of(amount, slot.unit_nanos)
    return None


def units_of(amount: float, unit_nanos: int) -> int:
    """Return cores or bytes in whole units; a float of bytes is whole, one of cores is to a billionth."""
    if unit_nanos == NANO:
        return math.ceil(amount)
    return -(-round(amount * NANO) // unit_nanos)


def with_values(
    containers: Sequence[Container], slots: Iterable[Slot], values: Mapping[str, int]
) -> tuple[Container, ...]:
    """Return the containers as they would be with these values."""
    changed = list(containers)
    for slot in slots:
        if slot.key not in values:
            continue
        amount = values[slot.key] * slot.unit_nanos / NANO
        for number, container in enumerate(changed):
            if container.name == slot.container:
                field = FIELDS[slot.section, slot.resource.value]
                changed[number] = msgspec.structs.replace(container, **{field: amount})
    return tuple(changed)


def qos_class(containers: Sequence[Container]) -> str:
    """Return the class that Kubernetes gives these containers."""
    pairs = [
        (asked, limit)
        for container in containers
        for asked, limit in (
            (container.cpu_request_cores, container.cpu_limit_cores),
            (container.memory_request_bytes, container.memory_limit_bytes),
        )
    ]
    if not any(asked or limit for asked, limit in pairs):
        return "BestEffort"
    return "Guaranteed" if all(limit and asked in {None, limit} for asked, limit in pairs) else "Burstable"


def above_limit(containers: Iterable[Container]) -> str:
    """Return which request is above its limit, which no server takes; or nothing."""
    for container in containers:
        for resource, asked, limit in (
            ("cpu", container.cpu_request_cores, container.cpu_limit_cores),
            ("memory", container.memory_request_bytes, container.memory_limit_bytes),
        ):
            if asked is not None and limit is not None and asked > limit:
                unit = "cores" if resource == "cpu" else "bytes"
                return f"{container.name}: {resource} of {asked:g} {unit} is above the limit of {limit:g}"
    return ""


def restarted(
    containers: Iterable[Container], slots: Iterable[Slot], values: Mapping[str, int]
) -> tuple[str, ...]:
    """Name the containers that a change in place restarts, since their `resizePolicy` says so."""
    by_name = {container.name: container for container in containers}
    found = dict.fromkeys(
        slot.container
        for slot in slots
        if slot.key in values
        and slot.container in by_name
        and slot.resource.value in by_name[slot.container].restarts_for
        and value_of([by_name[slot.container]], slot) != values[slot.key]
    )
    return tuple(found)


def sidecars_of(containers: Iterable[Container], names: Collection[str]) -> tuple[str, ...]:
    """Name those of these containers that are among the init containers."""
    return tuple(each.name for each in containers if each.is_sidecar and each.name in names)


def differs(containers: Sequence[Container], slots: Iterable[Slot], values: Mapping[str, int]) -> bool:
    """Whether any of these values is another one in the containers."""
    return any(value_of(containers, slot) != values[slot.key] for slot in slots if slot.key in values)


REVERTS_MAX = 2
"""So often another one may put its own value back; then nothing more is written."""
REVERT_MEMORY_MS = 86_400_000
"""A day later a revert is forgotten."""
KEY = "deeds"
"""Where it is in the status' memory."""


class AppliedState(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What was done for one policy, or was about to be."""

    uid: str = ""
    """The workload that it was done to: another one begins anew."""
    way: str = ""
    """`InPlace` or `Rollout`."""
    written: dict[str, int] = {}
    """What was set, by slot."""
    at: int = 0
    """When it was last set to something else, in milliseconds."""
    is_confirmed: bool = False
    """Whether it was seen where it was set: in the template, or in all pods at once."""
    reverts: tuple[int, ...] = ()
    """When somebody put another value back."""
    fought_by: str = ""
    generation: int = 0
    """Of the policy when we gave up: an edit lets it begin anew."""
    epoch: int = 0
    """The Lease transition in which it was written."""


def recalled(memory: Mapping[str, Any], workload: Workload, generation: int) -> AppliedState:
    """Read what is remembered of this workload; a ValueError says what does not fit."""
    known = msgspec.convert(memory.get(KEY, {}), type=AppliedState)
    if known.uid != workload.uid:
        return AppliedState(uid=workload.uid)
    if known.fought_by and known.generation != generation:
        return msgspec.structs.replace(known, fought_by="", reverts=(), is_confirmed=False)
    return known


def remembered(memory: Mapping[str, Any], deeds: AppliedState) -> dict[str, Any]:
    """Put it beside what deciding remembers."""
    kept = {name: part for name, part in memory.items() if name != KEY}
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(deeds), type=dict[str, Any])
    return kept | ({KEY: data} if deeds.written or deeds.reverts else {})


def living(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that count: neither ended nor on their way out."""
    return [pod for pod in pods if pod.phase not in FINISHED and pod.deletion_at is None]


def in_force(
    mode: UpdateMode, slots: Sequence[Slot], workload: Workload, pods: Sequence[Pod], deeds: AppliedState
) -> dict[str, int]:
    """Return the value of each slot that counts for the whole workload.

    It is the template's, unless pods were changed in place: by us, or by whoever left all of them alike.
    """
    found: dict[str, int] = {}
    is_template = mode is UpdateMode.ROLLOUT or deeds.way == UpdateMode.ROLLOUT
    for slot in slots:
        value = value_of(workload.containers, slot)
        if not is_template and slot.key in deeds.written:
            value = deeds.written[slot.key]
        elif not is_template and pods:
            alike = {value_of(pod.containers, slot) for pod in pods}
            value = next(iter(alike)) if len(alike) == 1 else value
        if value is not None:
            found[slot.key] = value
    return found


def behind(pods: Iterable[Pod], slots: Sequence[Slot], values: Mapping[str, int]) -> list[Pod]:
    """Return the running pods that ask for something else, by age: those that could be changed in place."""
    late = [
        pod
        for pod in pods
        if pod.phase == "Running" and not pod.is_mirror and differs(pod.containers, slots, values)
    ]
    return sorted(late, key=lambda pod: (pod.created_at, pod.name))


def at_target(pods: Iterable[Pod], slots: Sequence[Slot], values: Mapping[str, int]) -> int:
    """Count the pods that ask for these values and have them from their nodes."""
    return sum(pod.resize is None and not differs(pod.containers, slots, values) for pod in pods)


class Way(NamedTuple):
    """How a change reaches the pods, and why that way."""

    mode: UpdateMode
    why: str = ""


def choose_way(
    mode: UpdateMode,
    slots: Sequence[Slot],
    values: Mapping[str, int],
    workload: Workload,
    pods: Sequence[Pod],
    *,
    offers_resize: bool,
) -> Way:
    """Choose between a change in place, which keeps the QoS class, and a new template."""
    if mode is UpdateMode.ROLLOUT:
        return Way(mode)
    if not offers_resize:
        return Way(UpdateMode.ROLLOUT, "this API server can't change pods in place")
    # Pods may have more than their template says (a LimitRange's defaults), and it is they who are changed.
    kinds = [(pod.qos_class, pod.containers) for pod in pods] or [("", workload.containers)]
    for known, containers in dict.fromkeys((known, tuple(containers)) for known, containers in kinds):
        before, after = qos_class(containers), qos_class(with_values(containers, slots, values))
        is_decisive = known in {"", before}  # else init containers, which we do not see, settle the class
        if containers and before != after and is_decisive:
            return Way(UpdateMode.ROLLOUT, f"the QoS class would change from {before} to {after}")
    return Way(UpdateMode.IN_PLACE)


def noticed(
    deeds: AppliedState,
    slots: Sequence[Slot],
    workload: Workload,
    pods: Sequence[Pod],
    accepted: Collection[str],
    at_ms: int,
) -> tuple[AppliedState, frozenset[str]]:
    """Count it when somebody has put another value back; `accepted` are the UIDs that the server took.

    A pod that was born since has the template's value, and is nobody's revert. Gives the UIDs that lost the
    value too: until they are set again they can't lose it once more.
    """
    if not deeds.written or deeds.fought_by:
        return deeds, frozenset()
    if deeds.way == UpdateMode.ROLLOUT:
        has_it = not differs(workload.containers, slots, deeds.written)
        is_taken = deeds.is_confirmed or workload.uid in accepted
        lost = frozenset({workload.uid} if is_taken and not has_it else ())
    else:
        has_it = bool(pods) and not any(differs(pod.containers, slots, deeds.written) for pod in pods)
        late = behind(pods, slots, deeds.written)
        lost = frozenset(pod.uid for pod in late if pod.uid in accepted or _had_it(deeds, pod))
        has_it = has_it or (deeds.is_confirmed and not lost)
    deeds = msgspec.structs.replace(deeds, is_confirmed=has_it)
    if not lost:
        return deeds, lost
    recent = tuple(at for at in deeds.reverts if at_ms - at < REVERT_MEMORY_MS)
    return msgspec.structs.replace(deeds, reverts=(*recent, at_ms)), lost


def _had_it(deeds: AppliedState, pod: Pod) -> bool:
    """Whether an earlier process saw the value in this pod: it was there when all of them had it."""
    return deeds.is_confirmed and pod.created_at * 1000 < deeds.at


def is_contended(deeds: AppliedState) -> bool:
    """Whether somebody has put another value back too often."""
    return bool(deeds.fought_by) or len(deeds.reverts) >= REVERTS_MAX


REFUSED_FIRST_SECONDS = 300.0
REFUSED_MAX_SECONDS = 3600.0
IN_VAIN = {
    "Forbidden": (Code.OPTED_OUT, "The right to change it is missing, so it is only previewed"),
    "Refused": (Code.REFUSED, "The server does not take it"),
    "Unsupported": (Code.REFUSED, "The server or a node can't change pods in place"),
}
"""Answers that asking again would not change, and what is said about them."""


Asked = tuple[str, Mapping[str, int]]
"""By which way, and which values."""


class _Refusal(NamedTuple):
    """Until when it is not asked for again, how often it was in vain, why, what, and for which pods."""

    until: float
    times: int
    reason: Reason
    asked: Asked
    uids: frozenset[str]
    """Empty where it is for all."""


@dataclass(slots=True)
class PolicyState:
    """One policy's memory as of the last cycle, and what was said to our deeds since this process leads."""

    memory: Mapping[str, Any]
    generation: int
    said_at: float | None = None
    """When its status was last written."""
    accepted: set[str] = field(default_factory=set)
    """UIDs of what the server has taken the present values for."""
    needs_rollout: str = ""
    """Why the server refused the change in place."""
    _refusal: "_Refusal | None" = None

    @classmethod
    def of(cls, policy: PolicyObject) -> "PolicyState":
        """Begin from what the status has; what can't be read is forgotten, as after an edit."""
        try:
            memory = dict(policy.status.get("memory") or {})
            ProportionalMemory.from_data(memory)
            msgspec.convert(memory.get(KEY, {}), type=AppliedState)
        except (*DECODE_ERRORS, AttributeError):
            memory = {}
        return cls(memory, policy.generation)

    @property
    def decided(self) -> dict[str, Any]:
        """What deciding remembers."""
        return {name: part for name, part in self.memory.items() if name != KEY}

    def take(
        self, outcomes: Sequence[Outcome], asked: Asked, at: float, refused: Collection[str] = ()
    ) -> None:
        """Learn from what came of a deed: what is refused for good is not asked for again soon.

        `refused` are the UIDs that were, where other pods may get another answer.
        """
        known = self._refusal if self._refusal is not None and self._refusal.asked == asked else None
        times = 0 if known is None else known.times
        self._refusal = known if known is not None and known.uids and at < known.until else None
        earlier: frozenset[str] = frozenset() if self._refusal is None else self._refusal.uids
        uids = earlier.union(refused) if refused else frozenset()
        for outcome in outcomes:
            if outcome.result in IN_VAIN:
                code, why = IN_VAIN[outcome.result]
                wait = delay_seconds(times + 1, REFUSED_FIRST_SECONDS, REFUSED_MAX_SECONDS)
                reason = Reason(code, f"{why} ({outcome.detail}).")
                self._refusal = _Refusal(at + wait, times + 1, reason, asked, uids)
            if outcome.result == "Refused" and "QOS" in outcome.detail.upper():
                self.needs_rollout = "the QoS class would change"
            if outcome.result == "Unsupported":
                self.needs_rollout = "a node can't change pods in place"

    def held(self, asked: Asked, at: float, pods: Sequence[Pod] = ()) -> Reason | None:
        """Hold the same values by the same way until it is time to ask again; other pods may be asked."""
        said = self._refusal
        if said is None or at >= said.until or said.asked != asked:
            return None
        is_for_all = not said.uids or all(pod.uid in said.uids for pod in pods)
        return said.reason if is_for_all else None

    def open(self, pods: Sequence[Pod], asked: Asked, at: float) -> Sequence[Pod]:
        """Leave out the pods that were refused, unless there is no other."""
        said = self._refusal
        if said is None or at >= said.until or said.asked != asked:
            return pods
        return [pod for pod in pods if pod.uid not in said.uids] or pods
