"""What a process carries from cycle to cycle for one policy, beyond what the status keeps."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from equipoise.model.cluster import Pod
from equipoise.model.decision import Outcome
from equipoise.model.errors import DECODE_ERRORS
from equipoise.model.reason import Code, Reason
from equipoise.ports import PolicyObject
from equipoise.proportional.memory import ProportionalMemory
from equipoise.proportional.standing import KEY, Deeds

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
class Mind:
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
    def of(cls, policy: PolicyObject) -> "Mind":
        """Begin from what the status has; what can't be read is forgotten, as after an edit."""
        try:
            memory = dict(policy.status.get("memory") or {})
            ProportionalMemory.from_data(memory)
            msgspec.convert(memory.get(KEY, {}), type=Deeds)
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
