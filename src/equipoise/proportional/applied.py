"""What we have set for a workload and what stands of it: the value in force, pods behind, reverts. Pure.

It is kept in the policy's status beside what deciding remembers, and is written before every deed.

How large the cluster is: allocatable of its Ready nodes, cordoned ones too, and the pods on them. Pure.

What a process carries from cycle to cycle for one policy, beyond what the status keeps.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from equipoise.core.cluster import Node, Pod, Selector, Workload
from equipoise.core.decision import Outcome
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import NANO, Format, Quantity
from equipoise.core.reason import Code, Reason
from equipoise.ports import PolicyObject
from equipoise.proportional.fit import differs, qos_class, value_of, with_values
from equipoise.proportional.functions import Slot
from equipoise.proportional.policy import UpdateMode
from equipoise.proportional.smoothing import ProportionalMemory

FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended for good."""


class Size(NamedTuple):
    """What was counted, as quantities; what is unknown is absent, and why it is."""

    inputs: Mapping[str, str]
    nodes_ready: int
    nodes_unknown: int = 0
    """Ready nodes that do not say how large they are."""
    unknown: Mapping[str, str] = {}
    """Why an input is unknown, by its name."""


def count(nodes: Sequence[Node], pods_on: Mapping[str, int] | None, selector: Selector) -> Size:
    """Count the Ready nodes that are selected; without `pods_on` the pods are unknown."""
    labelled = [node for node in nodes if selector.matches(dict(node.labels))]
    ready = [node for node in labelled if node.is_ready]
    silent = [node for node in ready if node.cpu_cores <= 0 or node.memory_bytes <= 0]
    inputs = {"nodes": str(len(ready))}
    unknown = {}
    if silent:
        counts = f"{len(silent)} of {len(ready)} Ready nodes"
        why = f"{counts} do not say how large they are, such as {silent[0].name}"
        unknown = {"cores": why, "memory": why}
    else:
        inputs["cores"] = str(Quantity(sum(round(node.cpu_cores * NANO) for node in ready)))
        memory = sum(int(node.memory_bytes) for node in ready)
        inputs["memory"] = str(Quantity(memory * NANO, Format.BINARY))
    if pods_on is None:
        unknown["pods"] = "only the pods of some namespaces are seen"
    else:
        inputs["pods"] = str(sum(pods_on.get(node.name, 0) for node in ready))
    return Size(inputs, len(ready), len(silent), unknown)


def pods_by_node(pods: Iterable[Pod]) -> dict[str, int]:
    """Count the pods on each node that have not ended."""
    found: dict[str, int] = {}
    for pod in pods:
        if pod.node and pod.phase not in FINISHED:
            found[pod.node] = found.get(pod.node, 0) + 1
    return found


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
                wait = min(REFUSED_FIRST_SECONDS * 2.0 ** min(times, 10), REFUSED_MAX_SECONDS)
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
