"""Two looks at a machine and the pods on it become one observation. Pure.

What an error is about on a node: a pod is left out of a round, an action fails, and the rest goes on.

What the agent's round needs to be told by the API server.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from equipoise.core.decision import Action, Decided, EvictPod, Outcome
from equipoise.core.errors import EquipoiseError
from equipoise.engine.isolation import Isolation
from equipoise.ports import FailedTurn
from equipoise.ports.node import (
    TOO_LATE_SECONDS,
    ContainerRef,
    ContainerTold,
    Counters,
    NodeCounters,
    NodePod,
    Reading,
)
from equipoise.qos.decide import decide
from equipoise.qos.explain import QosDetails
from equipoise.qos.observation import (
    METRICS,
    UNLIMITED,
    Observation,
    ObservedContainer,
    ObservedPod,
    protection_of,
)
from equipoise.qos.policy import QosPolicy
from equipoise.qos.waterlines import QosMemory

INTERVAL_MIN_SECONDS = 0.2
"""A shorter interval says nothing about CPU."""
MICRO = 10**6


class PendingEffects(NamedTuple):
    """What we know of pods beyond what is told."""

    throttled: frozenset[str] = frozenset()
    """Ids of containers whose quota is ours."""
    leaving: frozenset[str] = frozenset()
    """UIDs of pods that we evicted, and that nobody has told us to be terminating yet."""
    refused: Mapping[str, str] = {}
    """Why a pod can't be evicted now, by UID."""
    rates: Mapping[str, tuple[str, int]] = {}
    """The pod's UID and the nanocores of each container, by id, when last seen."""
    changed_at: float | None = None
    """When something was last done to a pod, in monotonic seconds."""
    released_cpu_nanos: int = 0
    """What was throttled since the look."""
    ending: Mapping[str, float] = {}
    """When pods were first told to be terminating, by UID, in monotonic seconds."""


def refs_of(pods: Sequence[NodePod]) -> list[ContainerRef]:
    """Name every container that the kernel may know."""
    return [
        ContainerRef(pod.uid, container.id, pod.qos_class)
        for pod in pods
        for container in pod.containers
        if not pod.is_mirror
    ]


def ending_since(pods: Sequence[NodePod], known: Mapping[str, float], now: float) -> dict[str, float]:
    """Return when each pod that is terminating was first told to be."""
    return {pod.uid: known.get(pod.uid, now) for pod in pods if pod.deletion_at is not None}


def usage_between(
    before: NodeCounters | None, after: NodeCounters, changed_at: float | None = None
) -> dict[str, str]:
    """Return the machine's usage by metric; CPU only over an interval that is long enough.

    A mean that reaches back to before something was done says nothing about what came of it.
    """
    passed = math.inf if changed_at is None else after.read_at - changed_at
    usage = {name: text for name, text in after.gauges.items() if METRICS[name].window_seconds <= passed}
    if after.memory_used_bytes is not None:
        usage["memory_total_usage"] = str(after.memory_used_bytes)
    if before is not None and after.cpu_nanos is not None and before.cpu_nanos is not None:
        seconds = after.read_at - before.read_at
        used = after.cpu_nanos - before.cpu_nanos
        if seconds >= INTERVAL_MIN_SECONDS and used >= 0:
            # Nanoseconds per microsecond are millicores.
            usage["cpu_total_usage"] = str(Fraction(used, round(seconds * MICRO)))
    return usage


def see(
    name: str,
    at: float,
    looks: tuple[Reading | None, Reading],
    pods: Sequence[NodePod],
    marks: PendingEffects,
    *,
    labels: Mapping[str, str],
    is_scheduling_disabled: bool,
    fresh: NodeCounters | bool | None = False,
) -> Observation:
    """Join what was told with what was counted; `fresh` is a further look, None one that failed."""
    before, after = looks
    first = before.node if before is not None else None
    usage = usage_between(first, after.node, marks.changed_at)
    again: dict[str, str | None] | None = None
    if fresh is None:
        again = dict.fromkeys(usage)
    elif isinstance(fresh, NodeCounters):
        again = {**dict.fromkeys(usage), **usage_between(first, fresh, marks.changed_at)}
    return Observation(
        node=name,
        at=at,
        cpu_nanos=after.node.cpus * 10**9,
        memory_bytes=after.node.memory_total_bytes or 0,
        usage=usage,
        fresh=again,
        pods=tuple(_pod(pod, at, before, after, marks) for pod in pods if pod.phase == "Running"),
        labels=labels,
        is_scheduling_disabled=is_scheduling_disabled,
        released_cpu_nanos=marks.released_cpu_nanos + _ended(pods, at, looks, marks),
    )


def _ended(
    pods: Sequence[NodePod], at: float, looks: tuple[Reading | None, Reading], marks: PendingEffects
) -> int:
    """Return what pods that ended between two looks used when last seen: the interval still has it."""
    before, after = looks
    if before is None:
        return 0
    now = after.node.read_at
    alive = {pod.uid for pod in pods if pod.phase == "Running" and not _is_leaving(pod, at, now, marks)}
    gone = (before.containers.keys() & marks.rates.keys()) - after.containers.keys()
    rates = (marks.rates[id_] for id_ in gone)
    return sum(nanos for uid, nanos in rates if uid not in alive)


def _is_leaving(pod: NodePod, at: float, now: float, marks: PendingEffects) -> bool:
    """Count its grace period on our own clock where we can: the server's may be minutes away from it."""
    if pod.deletion_at is None:
        return pod.uid in marks.leaving
    if pod.grace_seconds is None or pod.uid not in marks.ending:
        return pod.is_leaving(at)
    return now - marks.ending[pod.uid] < pod.grace_seconds + TOO_LATE_SECONDS


def _pod(
    pod: NodePod, at: float, before: Reading | None, after: Reading, marks: PendingEffects
) -> ObservedPod:
    protection = protection_of(pod.owner, pod.priority, pod.priority_class, is_mirror=pod.is_mirror)
    is_leaving = _is_leaving(pod, at, after.node.read_at, marks)
    if pod.deletion_at is not None and not is_leaving:
        protection = protection or "it should have gone already"
    return ObservedPod(
        namespace=pod.namespace,
        name=pod.name,
        qos_class=pod.qos_class,
        priority=pod.priority,
        started_at=pod.started_at,
        containers=tuple(_container(part, before, after, marks) for part in pod.containers),
        uid=pod.uid,
        labels=dict(pod.labels),
        ext_cpu_limit_nanos=pod.ext_cpu_limit_nanos,
        protection=protection,
        is_daemon=pod.owner == "DaemonSet",
        is_terminating=is_leaving,
        refusal=marks.refused.get(pod.uid, ""),
    )


def rates_of(seen: Observation, before: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """Return the pod's UID and the nanocores of each container, by id; what is unknown now, as before."""
    return {
        part.id: (pod.uid, before.get(part.id, ("", 0))[1] if part.cpu_nanos is None else part.cpu_nanos)
        for pod in seen.pods
        for part in pod.containers
    }


def _container(
    part: ContainerTold, before: Reading | None, after: Reading, marks: PendingEffects
) -> ObservedContainer:
    now = after.containers.get(part.id)
    then = before.containers.get(part.id) if before is not None else None
    return ObservedContainer(
        name=part.name,
        cpu_nanos=_rate(then, now),
        memory_bytes=None if now is None else now.memory_bytes,
        reclaimable_bytes=0 if now is None else now.reclaimable_bytes,
        quota_us=UNLIMITED if now is None or now.quota_us is None else now.quota_us,
        period_us=100_000 if now is None else now.period_us,
        cpu_request_nanos=part.cpu_request_nanos,
        cpu_limit_nanos=part.cpu_limit_nanos,
        is_throttled=part.id in marks.throttled,
        id=part.id,
    )


def _rate(then: Counters | None, now: Counters | None) -> int | None:
    """Return nanocores, or None where the interval is too short or the counter began anew."""
    if then is None or now is None or then.cpu_nanos is None or now.cpu_nanos is None:
        return None
    seconds = now.read_at - then.read_at
    used = now.cpu_nanos - then.cpu_nanos
    return round(used / seconds) if seconds >= INTERVAL_MIN_SECONDS and used >= 0 else None


PlannedAction = Callable[..., Outcome]


def decided_apart(
    asked: tuple[QosPolicy, QosMemory, Isolation],
    place: tuple[str, float, tuple[Reading | None, Reading]],
    pods: Sequence[NodePod],
    marks: PendingEffects,
    **more: Any,
) -> tuple[Observation, Decided[QosDetails]]:
    """Return what is seen and decided; a pod that an error is about is left out, so that it stays as it is.

    `asked` is what decides, `place` and `more` are what `see` takes beside the pods and their marks.
    """
    policy, memory, isolation = asked

    def decided(some: Sequence[NodePod]) -> tuple[Observation, Decided[QosDetails]]:
        seen = see(*place, some, marks, **more)
        return seen, decide(policy, seen, memory)

    def probed(some: Sequence[NodePod]) -> list[bool]:
        decided(some)
        return [True] * len(some)

    try:
        return decided(pods)
    except EquipoiseError:
        raise
    except Exception:
        found = isolation.each(pods, probed, lambda pod: pod.key, (EquipoiseError,))
        kept = [pod for pod, one in zip(pods, found, strict=True) if not isinstance(one, FailedTurn)]
        if not kept:  # it is about none of them
            raise
        return decided(kept)


def done_apart(isolation: Isolation, deed: PlannedAction, action: Action, *told: Any) -> Outcome:
    """Return what came of an action; an error fails it alone, and an eviction may have been sent by then."""
    done = isolation.attempt(action.pod, lambda: deed(action, *told), (EquipoiseError,))
    if isinstance(done, FailedTurn):
        return Outcome(action, "Unknown" if isinstance(action, EvictPod) else "Failed", done.error)
    return done


class NodeContext(Protocol):
    """What the API server tells of this node."""

    def pods(self) -> Sequence[NodePod]:
        """Return the pods of this node; raise where they were never listed."""
        ...

    def policy(self) -> QosPolicy:
        """Return all that is asked for, as one."""
        ...

    def labels(self) -> Mapping[str, str]:
        """Return the node's labels."""
        ...

    def is_scheduling_disabled(self) -> bool:
        """Return whether our own taint is on the node."""
        ...

    def set_scheduling(self, *, is_disabled: bool, sentence: str) -> None:
        """Put our taint and condition on the node, or take them off."""
        ...
