"""What the agent has throttled, as it is kept: which containers, and what was written last.

A quota that is neither what we wrote nor what we were about to write is somebody else's, and becomes the new
base: the container is ours no more. Where the state is lost, `judged` finds what is throttled from the
cgroups themselves (docs/decisions/0010).

Evictions that were refused: asked for again after ever longer waits; others go meanwhile. Pure.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from equipoise.core.backoff import delay_seconds
from equipoise.ports.node import ContainerTold, Counters, NodePod
from equipoise.qos.observation import PERCENT, UNLIMITED, protection_of, quota_of
from equipoise.qos.throttle import QUOTA_MIN_US

FIRST_SECONDS = 30.0
"""How long an eviction that was refused is not asked for again; twice as long after each further refusal."""
WAIT_SECONDS_MAX = 600.0
WHY_LENGTH_MAX = 300


class Refusal(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of a pod whose eviction was refused."""

    count: int
    until: float
    """When it may be asked for again: Unix seconds."""
    why: str

    @property
    def sentence(self) -> str:
        """Return why the pod can't be evicted for now."""
        often = "once" if self.count == 1 else f"{self.count} times in a row"
        again = datetime.fromtimestamp(self.until, UTC).strftime("%H:%M:%SZ")
        return f"its eviction was refused {often} and is asked for again at {again}: {self.why}"


Refusals = Mapping[str, Refusal]
"""By the UID of the pod."""


def refused_again(known: Refusal | None, at: float, why: str) -> Refusal:
    """Wait twice as long as the last time, within bounds."""
    count = known.count + 1 if known is not None else 1
    wait = delay_seconds(max(count, 1), FIRST_SECONDS, WAIT_SECONDS_MAX)
    return Refusal(count, at + wait, why[:WHY_LENGTH_MAX])


def still_known(refusals: Refusals, pods: Collection[str], at: float) -> dict[str, Refusal]:
    """Forget pods that are gone, and refusals so old that the next one is a first one.

    A wait that is longer than any can be comes from a clock that was set back: it is over.
    """
    return {
        uid: one
        for uid, one in refusals.items()
        if uid in pods and -WAIT_SECONDS_MAX < one.until - at <= WAIT_SECONDS_MAX
    }


def in_force(refusals: Refusals, at: float) -> dict[str, str]:
    """Say of each pod that must not be asked for now why."""
    return {uid: one.sentence for uid, one in refusals.items() if at < one.until}


TOLERANCE_PERCENT = 1
"""A quota that is lower than what is asked for by no more than this is no throttle."""
NEVER_KEPT = "there was no state file"
"""What `AgentState.lost` says on a node where no agent is known to have kept one."""
QUOTA_MAX_US = 2**44
"""The kernel takes no more."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
"""Names, UIDs and ids, as loosely as all of them are covered."""


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
    lost: str = ""
    """Why what was throttled before is not known, until it has been found from the cgroups."""

    def absurdity(self, now: float) -> str:
        """Return what no agent of this boot can have written until now (monotonic seconds), or nothing."""
        for id_, part in self.throttled.items():
            names = (id_, part.pod_uid, part.namespace, part.pod, part.container)
            if not all(map(NAME.fullmatch, names)):
                return "a container has a name that none can have"
            if not all(_is_quota(one) for one in (part.intended_us, part.written_us or UNLIMITED)):
                return "a quota is out of its range"
        if self.changed_at is not None and not 0 <= self.changed_at <= now:
            return "changedAt is not within this boot"
        if any(one.count < 1 or len(one.why) > WHY_LENGTH_MAX for one in self.refused.values()):
            return "a refusal is out of its range"
        return ""

    def intending(self, pod: NodePod, ids: dict[str, str], quotas: dict[str, int]) -> "AgentState":
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
        """Return the containers that have vanished, whose quota is not ours, or which have all again."""
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


def _is_quota(quota_us: int) -> bool:
    return quota_us == UNLIMITED or 0 < quota_us <= QUOTA_MAX_US


class Lowered(NamedTuple):
    """A container that has a lower CPU quota than it asks for."""

    pod: NodePod
    part: ContainerTold
    quota_us: int
    asked_us: int
    why_left: str = ""
    """Why it is left as it is; where it is empty, the quota counts as ours."""

    @property
    def sentence(self) -> str:
        """What was found, and what follows."""
        asked = "no limit" if self.asked_us == UNLIMITED else f"{self.asked_us} us"
        found = f"container {self.part.name} has a CPU quota of {self.quota_us} us and asks for {asked}"
        if self.why_left:
            return f"{found}; it is left as it is, since {self.why_left}"
        return f"{found}; the quota counts as written by this agent, and is given back"

    @property
    def throttled(self) -> ThrottledContainer:
        """Return it as a container that we throttled."""
        return ThrottledContainer(
            self.pod.uid, self.pod.namespace, self.pod.name, self.part.name, self.quota_us
        )


class Judged(NamedTuple):
    """What the cgroups tell of some pods."""

    ours: tuple[Lowered, ...]
    unclear: tuple[Lowered, ...]
    left: frozenset[str]
    """UIDs of the pods to look at again: they have unclear containers, or none that is told to run."""


def judged(
    pods: Sequence[NodePod], counters: Mapping[str, Counters], known: Collection[str], why_none: str = ""
) -> Judged:
    """Find the containers with a lower quota than they ask for; `known` are those of the state, by id.

    Such a quota counts as ours where nothing else explains it: no resize in progress, no resources of the
    pod as a whole, and no other agent (`why_none` then says why none is ours).
    """
    ours: list[Lowered] = []
    unclear: list[Lowered] = []
    left: set[str] = set()
    for pod in pods:
        if protection_of(pod.owner, pod.priority, pod.priority_class, is_mirror=pod.is_mirror):
            continue  # no agent ever throttles it
        is_over = bool(pod.containers) or pod.phase != "Running"
        for part in pod.containers:
            if part.id in known or part.id not in counters:
                continue
            now = counters[part.id]
            is_over = is_over and now.quota_us is not None
            found = _lowered(pod, part, now, why_none)
            if found is not None:
                (unclear if found.why_left else ours).append(found)
                is_over = is_over and not found.why_left
        if not is_over:
            left.add(pod.uid)
    return Judged(tuple(ours), tuple(unclear), frozenset(left))


def _lowered(pod: NodePod, part: ContainerTold, now: Counters, why_none: str) -> Lowered | None:
    if now.quota_us is None or now.quota_us <= 0:
        return None
    asked = quota_of(part.cpu_limit_nanos, now.period_us)
    if asked != UNLIMITED:
        asked = max(asked, QUOTA_MIN_US)  # the kubelet writes no less
        if now.quota_us * PERCENT >= asked * (PERCENT - TOLERANCE_PERCENT):
            return None
    return Lowered(pod, part, now.quota_us, asked, why_none or dict(pod.unclear).get(part.id, ""))


class StateStore(Protocol):
    """Where the state is kept: on the host's disk, whole or not at all."""

    def load(self) -> AgentState:
        """Read what was left."""
        ...

    def save(self, state: AgentState) -> None:
        """Replace it; when this returns, it is lasting."""
        ...
