"""Who is acted on first: named comparators, chained. A new one needs one entry.

Each gives a key that is smaller for the pod to act on first. What is unknown comes last among its equals,
but for a start time: a pod that has none has hardly begun.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from equipoise.qos.observation import PodSeen

CLASSES = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
TIE_BREAK = "name"


def _largest_first(used: int | Fraction | None) -> tuple[bool, Any]:
    return (True, 0) if used is None else (False, -used)


def _class_and_priority(pod: PodSeen) -> tuple[int, int]:
    return CLASSES.get(pod.qos_class, 0), pod.priority


def _ext_cpu_usage(pod: PodSeen) -> tuple[bool, Any]:
    """Give the share of its extended CPU that a pod uses; 0 for a pod that has none."""
    if pod.ext_cpu_limit_nanos <= 0 or pod.cpu_nanos is None:
        return _largest_first(0)
    return _largest_first(Fraction(pod.cpu_nanos, pod.ext_cpu_limit_nanos))


COMPARATORS: Mapping[str, Callable[[PodSeen], Any]] = {
    "classAndPriority": _class_and_priority,
    "cpuUsage": lambda pod: _largest_first(pod.cpu_nanos),
    "memoryUsage": lambda pod: _largest_first(pod.memory_bytes),
    "extCpuUsage": _ext_cpu_usage,
    "runningTime": lambda pod: -math.inf if pod.started_at is None else -pod.started_at,
    TIE_BREAK: lambda pod: (pod.namespace, pod.name),
}


def sorted_by(chain: Sequence[str], pods: Iterable[PodSeen]) -> list[PodSeen]:
    """Sort pods, the one to act on first at the front; equals by name, so that a plan is reproducible."""
    keys = [COMPARATORS[name] for name in (*chain, TIE_BREAK)]
    return sorted(pods, key=lambda pod: tuple(key(pod) for key in keys))
