"""Makes one observation from two readings of a node's counters and the pods on the node. Pure.

The kernel counts CPU time and has no pods; the API server has pods and not their usage. So usage is the
growth of counters between two readings, joined with the pods by container. Actions since the last reading,
and pods that ended meanwhile, are in no reading yet: `PendingEffects` has them, so that no action is
repeated.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol, TypeVar

from equipoise.core.errors import EquipoiseError
from equipoise.engine.isolation import Isolation
from equipoise.ports import FailedTurn
from equipoise.ports.node import (
    TOO_LATE_SECONDS,
    ContainerRef,
    Counters,
    NodeContainer,
    NodeCounters,
    NodePod,
    NodeReading,
)
from equipoise.qos.observation import (
    METRICS,
    PERIOD_US,
    UNLIMITED,
    Observation,
    ObservedContainer,
    ObservedPod,
    protection_of,
)
from equipoise.qos.policy import QosPolicy

INTERVAL_MIN_SECONDS = 0.2
"""CPU usage over a shorter interval is unknown."""
MICRO = 10**6
UNREAD = Counters(cpu_nanos=None, read_at=0.0, period_us=PERIOD_US)
T = TypeVar("T")


class PendingEffects(NamedTuple):
    """The actions and facts about pods that the two readings do not show."""

    throttled: frozenset[str] = frozenset()
    """Ids of containers that we throttled."""
    evicted: frozenset[str] = frozenset()
    """UIDs of evicted pods that the API server does not show as terminating yet."""
    refused: Mapping[str, str] = {}
    """Why a pod can't be evicted now, by UID."""
    rates: Mapping[str, tuple[str, int]] = {}
    """The pod's UID and the last known nanocores of each container, by id."""
    changed_at: float | None = None
    """The time of the last action on a pod, in monotonic seconds."""
    released_cpu_nanos: int = 0
    """The CPU released by throttles since the second reading."""
    terminating_since: Mapping[str, float] = {}
    """When each pod was first observed to be terminating, by UID, in monotonic seconds."""


class NodeContext(Protocol):
    """The API server's pods and labels of this node, and the policies for it."""

    def pods(self) -> Sequence[NodePod]:
        """Return the pods of this node; raises WorldFailed if they were never listed."""
        ...

    def policy(self) -> QosPolicy:
        """Return all policies for this node as one."""
        ...

    def labels(self) -> Mapping[str, str]: ...

    def is_scheduling_disabled(self) -> bool:
        """Return whether our own taint is on the node."""
        ...

    def set_scheduling(self, *, is_disabled: bool, sentence: str) -> None:
        """Add our taint and condition to the node, or remove them."""
        ...


def refs_of(pods: Sequence[NodePod]) -> list[ContainerRef]:
    """Return the containers that may have a cgroup: those of all pods but mirror pods."""
    return [
        ContainerRef(pod.uid, container.id, pod.qos_class)
        for pod in pods
        for container in pod.containers
        if not pod.is_mirror
    ]


def terminating_since(pods: Sequence[NodePod], before: Mapping[str, float], now: float) -> dict[str, float]:
    """Return when each terminating pod was first observed to be, by UID."""
    return {pod.uid: before.get(pod.uid, now) for pod in pods if pod.deletion_at is not None}


def usage_between(
    before: NodeCounters | None, after: NodeCounters, changed_at: float | None = None
) -> dict[str, str]:
    """Return the machine's usage by metric; CPU only over an interval that is long enough.

    A mean whose window begins before the last action is left out, since it does not show the action's effect.
    """
    since = math.inf if changed_at is None else after.read_at - changed_at
    usage = {name: text for name, text in after.gauges.items() if METRICS[name].window_seconds <= since}
    if after.memory_used_bytes is not None:
        usage["memory_total_usage"] = str(after.memory_used_bytes)
    if before is not None and after.cpu_nanos is not None and before.cpu_nanos is not None:
        seconds = after.read_at - before.read_at
        used = after.cpu_nanos - before.cpu_nanos
        if seconds >= INTERVAL_MIN_SECONDS and used >= 0:
            # Nanoseconds per microsecond are millicores.
            usage["cpu_total_usage"] = str(Fraction(used, round(seconds * MICRO)))
    return usage


def observe(
    name: str,
    at: float,
    readings: tuple[NodeReading | None, NodeReading],
    pods: Sequence[NodePod],
    effects: PendingEffects,
    *,
    labels: Mapping[str, str],
    is_scheduling_disabled: bool,
    is_fresh: bool = False,
    fresh: NodeCounters | None = None,
) -> Observation:
    """Return the observation that joins pods and counters.

    `is_fresh` means that the node was read again, right before acting; `fresh` is None if that failed.
    """
    before, after = readings
    first = before.node if before is not None else None
    usage = usage_between(first, after.node, effects.changed_at)
    fresh_usage = dict[str, str | None].fromkeys(usage) if is_fresh else None
    if fresh_usage is not None and fresh is not None:
        fresh_usage |= usage_between(first, fresh, effects.changed_at)
    released_cpu_nanos = effects.released_cpu_nanos + _ended_cpu_nanos(pods, at, readings, effects)
    assert released_cpu_nanos >= 0, "what has ended used no less than nothing"
    return Observation(
        node=name,
        at=at,
        cpu_nanos=after.node.cpus * 10**9,
        memory_bytes=after.node.memory_total_bytes or 0,
        usage=usage,
        fresh=fresh_usage,
        pods=tuple(_pod(pod, at, before, after, effects) for pod in pods if pod.phase == "Running"),
        labels=labels,
        is_scheduling_disabled=is_scheduling_disabled,
        released_cpu_nanos=released_cpu_nanos,
    )


def _ended_cpu_nanos(
    pods: Sequence[NodePod],
    at: float,
    readings: tuple[NodeReading | None, NodeReading],
    effects: PendingEffects,
) -> int:
    """Return the last known usage of pods that ended between two readings, which the interval includes."""
    before, after = readings
    if before is None:
        return 0
    now = after.node.read_at
    alive = {pod.uid for pod in pods if pod.phase == "Running" and not _is_terminating(pod, at, now, effects)}
    ended = (before.containers.keys() & effects.rates.keys()) - after.containers.keys()
    rates = (effects.rates[id_] for id_ in ended)
    return sum(nanos for uid, nanos in rates if uid not in alive)


def _is_terminating(pod: NodePod, at: float, now: float, effects: PendingEffects) -> bool:
    """Return whether a pod is terminating, and its grace period is not over.

    The grace period is measured by the local clock if possible: the server's may differ by minutes.
    """
    if pod.deletion_at is None:
        return pod.uid in effects.evicted
    if pod.grace_seconds is None or pod.uid not in effects.terminating_since:
        return pod.is_leaving(at)
    return now - effects.terminating_since[pod.uid] < pod.grace_seconds + TOO_LATE_SECONDS


def _pod(
    pod: NodePod, at: float, before: NodeReading | None, after: NodeReading, effects: PendingEffects
) -> ObservedPod:
    protection = protection_of(pod.owner, pod.priority, pod.priority_class, is_mirror=pod.is_mirror)
    is_terminating = _is_terminating(pod, at, after.node.read_at, effects)
    if pod.deletion_at is not None and not is_terminating:
        protection = protection or "its termination is overdue"
    return ObservedPod(
        namespace=pod.namespace,
        name=pod.name,
        qos_class=pod.qos_class,
        priority=pod.priority,
        started_at=pod.started_at,
        containers=tuple(_container(part, before, after, effects) for part in pod.containers),
        uid=pod.uid,
        labels=dict(pod.labels),
        ext_cpu_limit_nanos=pod.ext_cpu_limit_nanos,
        protection=protection,
        is_daemon=pod.owner == "DaemonSet",
        is_terminating=is_terminating,
        refusal=effects.refused.get(pod.uid, ""),
    )


def _container(
    part: NodeContainer, before: NodeReading | None, after: NodeReading, effects: PendingEffects
) -> ObservedContainer:
    now = after.containers.get(part.id, UNREAD)
    earlier = UNREAD if before is None else before.containers.get(part.id, UNREAD)
    return ObservedContainer(
        name=part.name,
        cpu_nanos=_rate(earlier, now),
        memory_bytes=now.memory_bytes,
        reclaimable_bytes=now.reclaimable_bytes,
        quota_us=UNLIMITED if now.quota_us is None else now.quota_us,
        period_us=now.period_us,
        cpu_request_nanos=part.cpu_request_nanos,
        cpu_limit_nanos=part.cpu_limit_nanos,
        is_throttled=part.id in effects.throttled,
        id=part.id,
    )


def _rate(earlier: Counters, now: Counters) -> int | None:
    """Return nanocores, or None where the interval is too short or the counter began anew."""
    if earlier.cpu_nanos is None or now.cpu_nanos is None:
        return None
    seconds = now.read_at - earlier.read_at
    used = now.cpu_nanos - earlier.cpu_nanos
    return round(used / seconds) if seconds >= INTERVAL_MIN_SECONDS and used >= 0 else None


def without_failing_pods(
    work: Callable[[Sequence[NodePod]], T], pods: Sequence[NodePod], isolation: Isolation
) -> T:
    """Return the result of the work for these pods, without those for which it fails by a bug.

    The work must be free of side effects. An EquipoiseError, and an error not caused by single pods, is
    raised.
    """

    def probe(some: Sequence[NodePod]) -> list[bool]:
        work(some)
        return [True] * len(some)

    try:
        return work(pods)
    except EquipoiseError:
        raise
    except Exception:
        found = isolation.each(pods, probe, lambda pod: pod.key, (EquipoiseError,))
        healthy = [pod for pod, one in zip(pods, found, strict=True) if not isinstance(one, FailedTurn)]
        if not healthy:
            raise
        return work(healthy)


def rates_of(observation: Observation, before: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """Return the pod's UID and the nanocores of each container, by id; if unknown now, the earlier ones."""
    return {
        part.id: (pod.uid, before.get(part.id, ("", 0))[1] if part.cpu_nanos is None else part.cpu_nanos)
        for pod in observation.pods
        for part in pod.containers
    }
