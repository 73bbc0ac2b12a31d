"""What the agent has throttled, as it is kept: which containers, and what was written last.

A quota that is neither what we wrote nor what we were about to write is somebody else's, and becomes the new
base: the container is ours no more.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from equipoise.qos.node import Counters
from equipoise.qos.observation import UNLIMITED, quota_of
from equipoise.qos.pods import PodTold
from equipoise.qos.refusals import Refusal


class ThrottledContainer(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One container whose quota is, or is about to be, ours."""

    pod_uid: str
    namespace: str
    pod: str
    container: str
    intended_us: int
    written_us: int = 0
    """What the one before was, which is still there when the last writing never happened."""

    def is_ours(self, quota_us: int) -> bool:
        """Whether a quota is one that we wrote."""
        return quota_us in {self.intended_us, self.written_us}


class AgentState(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """All that outlives the agent; of another boot it is worth nothing, since cgroups do not outlive it."""

    boot_id: str = ""
    throttled: dict[str, ThrottledContainer] = {}
    """By container id."""
    memory: dict[str, Any] = {}
    """When actions were last wanted, and the counts of rounds."""
    changed_at: float | None = None
    """When something was last done to a pod: seconds since the boot."""
    refused: dict[str, Refusal] = {}
    """Evictions that were refused, by the UID of the pod."""

    def intending(self, pod: PodTold, ids: dict[str, str], quotas: dict[str, int]) -> "AgentState":
        """Add what is about to be written; `ids` gives the id of each container by its name."""
        found = dict(self.throttled)
        for name, quota in quotas.items():
            known = found.get(ids[name])
            found[ids[name]] = ThrottledContainer(
                pod.uid, pod.namespace, pod.name, name, quota, known.intended_us if known else 0
            )
        return msgspec.structs.replace(self, throttled=found)

    def without(self, ids: set[str]) -> "AgentState":
        """Forget containers."""
        kept = {id_: part for id_, part in self.throttled.items() if id_ not in ids}
        return msgspec.structs.replace(self, throttled=kept)

    def settled(self, counters: Mapping[str, Counters]) -> "AgentState":
        """Take a quota of ours that was never written for never meant: the one that is there is the last."""
        found = {
            id_: msgspec.structs.replace(part, intended_us=part.written_us)
            for id_, part in self.throttled.items()
            if id_ in counters and counters[id_].quota_us == part.written_us != part.intended_us
        }
        return msgspec.structs.replace(self, throttled=self.throttled | found) if found else self

    def over(self, counters: Mapping[str, Counters], limits: Mapping[str, int]) -> set[str]:
        """Give the containers that have vanished, whose quota is not ours, or which have all again."""
        return {
            id_
            for id_, part in self.throttled.items()
            if id_ not in counters
            or not _is_ours(part, counters[id_].quota_us)
            or _is_whole(counters[id_], limits.get(id_, 0))
        }


def _is_ours(part: ThrottledContainer, quota_us: int | None) -> bool:
    """Take a quota that can't be read for ours: nobody is known to have changed it."""
    return quota_us is None or part.is_ours(quota_us)


def _is_whole(now: Counters, limit_nanos: int) -> bool:
    if now.quota_us is None or limit_nanos <= 0:
        return now.quota_us == UNLIMITED
    return now.quota_us < 0 or now.quota_us >= quota_of(limit_nanos, now.period_us)


class Keep(Protocol):
    """Where the state is kept: on the host's disk, whole or not at all."""

    def load(self) -> AgentState:
        """Read what was left."""
        ...

    def save(self, state: AgentState) -> None:
        """Replace it; when this returns, it is lasting."""
        ...
