"""What the agent has throttled, as it is kept: which containers, and what was written last.

A quota that is neither what we wrote nor what we were about to write is somebody else's, and becomes the new
base: the container is ours no more.
"""

from typing import Any, Protocol

import msgspec

from equipoise.qos.node import Counters
from equipoise.qos.pods import PodTold


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

    def gone_or_foreign(self, counters: dict[str, Counters]) -> set[str]:
        """Give the containers that have vanished, or whose quota is not what we wrote."""
        return {
            id_
            for id_, part in self.throttled.items()
            if id_ not in counters or not _is_ours(part, counters[id_].quota_us)
        }


def _is_ours(part: ThrottledContainer, quota_us: int | None) -> bool:
    """Take a quota that can't be read for ours: nobody is known to have changed it."""
    return quota_us is None or part.is_ours(quota_us)


class Keep(Protocol):
    """Where the state is kept: on the host's disk, whole or not at all."""

    def load(self) -> AgentState:
        """Read what was left."""
        ...

    def save(self, state: AgentState) -> None:
        """Replace it; when this returns, it is lasting."""
        ...
