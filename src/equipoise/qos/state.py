"""The agent's state on the host's disk: the containers that it throttled, and refused evictions. Pure.

A quota outlives the agent that wrote it. So each quota is stored before it is written, with the one before
it: after a crash, a quota that is neither of the two was written by another program, and the container no
longer counts as throttled by this agent. If the file is lost, `find_throttled` finds throttled containers
from the cgroups (docs/decisions/0010).

A refused eviction is tried again with exponential backoff; other pods are evicted meanwhile.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from equipoise.core.errors import delay_seconds
from equipoise.ports.node import Counters, NodeContainer, NodePod
from equipoise.qos.observation import PERCENT, QUOTA_MIN_US, UNLIMITED, protection_of, quota_of

BACKOFF_FIRST_SECONDS = 30.0
"""The backoff after the first refused eviction; it doubles with each further one."""
BACKOFF_MAX_SECONDS = 600.0
WHY_LENGTH_MAX = 300


class EvictionRefusal(msgspec.Struct, frozen=True, rename="camel"):
    """A refused eviction: how often in a row, why, and until when it is not tried again."""

    count: int
    until: float
    """Unix seconds."""
    why: str

    @property
    def sentence(self) -> str:
        often = "once" if self.count == 1 else f"{self.count} times in a row"
        again = datetime.fromtimestamp(self.until, UTC).strftime("%H:%M:%SZ")
        return (
            f"its eviction was refused {often} and will be tried again at {again}. The answer was: {self.why}"
        )


TOLERANCE_PERCENT = 1
"""A quota lower than the limit by at most this percentage does not count as throttled."""
NO_STATE_FILE = "there was no state file"
"""The value of `AgentState.lost` on a node without a state file."""
QUOTA_MAX_US = 2**44
"""The kernel's maximum."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
"""Matches every name, UID and id."""


class ThrottledContainer(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One container that we throttled, or are about to throttle."""

    pod_uid: str
    namespace: str
    pod: str
    container: str
    intended_us: int
    written_us: int = 0
    """Our quota before that, which is in the cgroup until the intended one was written."""

    def is_ours(self, quota_us: int | None) -> bool:
        """Return whether this quota is one that we wrote; an unreadable one counts as ours."""
        return quota_us in {None, self.intended_us, self.written_us}


class AgentState(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The state that outlives the agent, valid for one boot, since cgroups do not outlive that."""

    boot_id: str = ""
    throttled: dict[str, ThrottledContainer] = {}
    """By container id."""
    memory: dict[str, Any] = {}
    """When actions were last triggered, and the counts of rounds."""
    changed_at: float | None = None
    """The time of the last action on a pod: seconds since the boot."""
    refused: dict[str, EvictionRefusal] = {}
    """Evictions that were refused, by the UID of the pod."""
    lost: str = ""
    """Why the state file was lost, until the throttled containers were found from the cgroups."""

    def implausibility(self, now: float) -> str:
        """Return what no agent can have written since the boot; empty if all is plausible."""
        for id_, part in self.throttled.items():
            names = (id_, part.pod_uid, part.namespace, part.pod, part.container)
            if not all(map(NAME.fullmatch, names)):
                return "the name of a container is not valid"
            quotas = (part.intended_us, part.written_us or UNLIMITED)
            if not all(one == UNLIMITED or 0 < one <= QUOTA_MAX_US for one in quotas):
                return "a CPU quota is out of range"
        if self.changed_at is not None and not 0 <= self.changed_at <= now:
            return "changedAt is not within this boot"
        if any(one.count < 1 or len(one.why) > WHY_LENGTH_MAX for one in self.refused.values()):
            return "a refused eviction is out of range"
        return ""

    def with_refusal(self, uid: str, at: float, why: str) -> "AgentState":
        """Return the state with one more refusal of a pod, whose backoff is twice the last one."""
        count = self.refused[uid].count + 1 if uid in self.refused else 1
        wait = delay_seconds(max(count, 1), BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS)
        assert BACKOFF_FIRST_SECONDS <= wait <= BACKOFF_MAX_SECONDS, "a refusal is asked about again in time"
        refusal = EvictionRefusal(count, at + wait, why[:WHY_LENGTH_MAX])
        return replace(self, refused=self.without_refusal(uid).refused | {uid: refusal})

    def without_refusal(self, uid: str) -> "AgentState":
        refused = {each: one for each, one in self.refused.items() if each != uid}
        return replace(self, refused=refused)

    def with_recent_refusals(self, uids: Collection[str], at: float) -> "AgentState":
        """Return the state with the recent refusals of these pods: older ones do not count.

        A backoff longer than the maximum comes from a clock that was set back, and is dropped.
        """
        refused = {
            uid: one
            for uid, one in self.refused.items()
            if uid in uids and -BACKOFF_MAX_SECONDS < one.until - at <= BACKOFF_MAX_SECONDS
        }
        return replace(self, refused=refused)

    def refusals_in_force(self, at: float) -> dict[str, str]:
        """Return why each pod must not be evicted now, by UID."""
        return {uid: one.sentence for uid, one in self.refused.items() if at < one.until}

    def with_intended(self, pod: NodePod, ids: dict[str, str], quotas: dict[str, int]) -> "AgentState":
        """Return the state with quotas about to be written; `ids` has each container's id by its name."""
        assert quotas.keys() <= ids.keys(), "quotas are written to containers of the pod"
        found = dict(self.throttled)
        for name, quota in quotas.items():
            recorded = found.get(ids[name])
            found[ids[name]] = ThrottledContainer(
                pod.uid, pod.namespace, pod.name, name, quota, recorded.intended_us if recorded else 0
            )
        return replace(self, throttled=found)

    def without(self, ids: set[str]) -> "AgentState":
        remaining = {id_: part for id_, part in self.throttled.items() if id_ not in ids}
        return replace(self, throttled=remaining)

    def with_settled(self, counters: Mapping[str, Counters]) -> "AgentState":
        """Return the state without intents that were never written: the cgroup still has the quota before."""
        found = {
            id_: replace(part, intended_us=part.written_us)
            for id_, part in self.throttled.items()
            if id_ in counters and counters[id_].quota_us == part.written_us != part.intended_us
        }
        return replace(self, throttled=self.throttled | found) if found else self

    def not_throttled(self, counters: Mapping[str, Counters], limits: Mapping[str, int]) -> set[str]:
        """Return the containers that no longer exist, whose quota we did not write, or that are restored."""
        return {
            id_
            for id_, part in self.throttled.items()
            if id_ not in counters
            or not part.is_ours(counters[id_].quota_us)
            or _is_restored(counters[id_], limits.get(id_, 0))
        }


def _is_restored(now: Counters, limit_nanos: int) -> bool:
    if now.quota_us is None or limit_nanos <= 0:
        return now.quota_us == UNLIMITED
    return now.quota_us < 0 or now.quota_us >= quota_of(limit_nanos, now.period_us)


class LoweredQuota(NamedTuple):
    """A container whose CPU quota is lower than that of its limit."""

    pod: NodePod
    container: NodeContainer
    quota_us: int
    limit_us: int
    why_left: str = ""
    """Why it is not restored; if empty, the quota counts as ours."""

    @property
    def sentence(self) -> str:
        is_unlimited = self.limit_us == UNLIMITED
        asked = "it has no CPU limit" if is_unlimited else f"its CPU limit is {self.limit_us / 1000:g} ms"
        quota = f"container {self.container.name} has a CPU quota of {self.quota_us / 1000:g} ms per period"
        if self.why_left:
            return f"{quota}, but {asked}. The quota is not changed: {self.why_left}"
        return f"{quota}, but {asked}. The quota is treated as set by this agent, and is restored"

    @property
    def throttled(self) -> ThrottledContainer:
        pod = self.pod
        return ThrottledContainer(pod.uid, pod.namespace, pod.name, self.container.name, self.quota_us)


class QuotaSearch(NamedTuple):
    """The containers with lower quotas, found in the cgroups of some pods."""

    ours: tuple[LoweredQuota, ...]
    unclear: tuple[LoweredQuota, ...]
    left: frozenset[str]
    """UIDs of the pods to read again: with unclear containers, or without any that is known to run."""


def find_throttled(
    pods: Sequence[NodePod], counters: Mapping[str, Counters], recorded: Collection[str], why_none: str = ""
) -> QuotaSearch:
    """Return the containers with a lower quota than that of their limit; `recorded` are ids in the state.

    Such a quota counts as ours unless it has another explanation: a resize in progress, resources of the pod
    as a whole, or another agent (`why_none` is then the reason why none is ours).
    """
    ours: list[LoweredQuota] = []
    unclear: list[LoweredQuota] = []
    left: set[str] = set()
    for pod in pods:
        if protection_of(pod.owner, pod.priority, pod.priority_class, is_mirror=pod.is_mirror):
            continue  # agents never throttle it
        is_resolved = bool(pod.containers) or pod.phase != "Running"
        for part in pod.containers:
            if part.id in recorded or part.id not in counters:
                continue
            now = counters[part.id]
            is_resolved = is_resolved and now.quota_us is not None
            found = _lowered_quota(pod, part, now, why_none)
            if found is not None:
                (unclear if found.why_left else ours).append(found)
                is_resolved = is_resolved and not found.why_left
        if not is_resolved:
            left.add(pod.uid)
    return QuotaSearch(tuple(ours), tuple(unclear), frozenset(left))


def _lowered_quota(pod: NodePod, part: NodeContainer, now: Counters, why_none: str) -> LoweredQuota | None:
    if now.quota_us is None or now.quota_us <= 0:
        return None
    asked = quota_of(part.cpu_limit_nanos, now.period_us)
    if asked != UNLIMITED:
        asked = max(asked, QUOTA_MIN_US)  # the kubelet's minimum
        if now.quota_us * PERCENT >= asked * (PERCENT - TOLERANCE_PERCENT):
            return None
    return LoweredQuota(pod, part, now.quota_us, asked, why_none or dict(pod.unclear).get(part.id, ""))


class StateStore(Protocol):
    """Stores the state on the host's disk, atomically."""

    def load(self) -> AgentState: ...

    def save(self, state: AgentState) -> None:
        """Replace the state; when this returns, it is durable."""
        ...
