"""Requests and limits of containers, from their usage in the week. Pure.

    CPU request    = max(percentile x (1 + margin), minimum), rounded up to 1m
    memory request = max(peak x (1 + margin), minimum)

The peak of a container that ran out of memory is not known to be enough: its limit, if that is higher, and
20 % more count instead. A limit that is lower than its request would be rejected, so it is raised to it.
"""

from collections.abc import Sequence
from itertools import islice

import numpy as np

from equipoise.core.cluster import Container
from equipoise.core.quantity import NumberFormat, Quantity
from equipoise.recommendation.explain import ContainerAdvice, ContainerAmounts, ContainerFacts, Facts
from equipoise.recommendation.settings import ResourcePolicy
from equipoise.stats.ranks import Floats, rounded_up

OOM_FACTOR = 1.2
"""How far above its limit, or its peak, the usage of a container that ran out of memory is taken to be."""
MILLI = 1000
MILLI_NANOS = 10**6
NANO = 10**9


def container_advice(policy: ResourcePolicy, facts: Sequence[Facts]) -> list[list[ContainerAdvice]]:
    """Return the containers of each workload with today's and the recommended requests and limits."""
    kept = [[one for one in each.containers if not policy.excludes(one.name)] for each in facts]
    containers = [one for some in kept for one in some]
    cores = _column([one.cpu_cores for one in containers]) * (1 + policy.cpu_margin_percent / 100)
    memory = _column([memory_used(one) for one in containers]) * (1 + policy.memory_margin_percent / 100)
    cores = rounded_up(np.maximum(cores, policy.cpu_cores_min) * MILLI) / MILLI
    memory = rounded_up(np.maximum(memory, policy.memory_bytes_min))
    advised = (
        ContainerAdvice(one.name, _current(one), _recommended(policy, one, *sizes))
        for one, *sizes in zip(containers, cores.tolist(), memory.tolist(), strict=True)
    )
    return [list(islice(advised, len(some))) for some in kept]


def _column(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def memory_used(container: ContainerFacts) -> float | None:
    """Return the memory that a request must cover, without the margin; None where it is unknown."""
    if not container.is_oom_killed:
        return container.memory_peak_bytes
    known = [each for each in (container.memory_peak_bytes, container.memory_limit_bytes) if each is not None]
    return max(known) * OOM_FACTOR if known else None


def _recommended(
    policy: ResourcePolicy, container: ContainerFacts, cores: float, memory: float
) -> ContainerAmounts:
    cores = _kept(policy, container.cpu_request_cores, cores)
    is_enough = not (container.is_oom_killed and memory > (container.memory_request_bytes or 0.0))
    if is_enough:
        memory = _kept(policy, container.memory_request_bytes, memory)
    requests = _texts(cores if np.isfinite(cores) else None, memory if np.isfinite(memory) else None)
    cpu_limit = container.cpu_limit_cores if policy.cpu_limits == "keep" else None
    return ContainerAmounts(
        requests, _texts(_raised(cpu_limit, cores), _raised(container.memory_limit_bytes, memory))
    )


def _kept(policy: ResourcePolicy, today: float | None, advised: float) -> float:
    """Return today's request where the advised one hardly differs from it."""
    if today is None or abs(advised - today) >= today * policy.change_percent_min / 100:
        return advised
    return today


def _raised(limit: float | None, request: float) -> float | None:
    return None if limit is None else float(np.fmax(limit, request))


def _current(container: ContainerFacts) -> ContainerAmounts:
    return ContainerAmounts(
        _texts(container.cpu_request_cores, container.memory_request_bytes),
        _texts(container.cpu_limit_cores, container.memory_limit_bytes),
    )


def requests_of(container: Container) -> dict[str, str]:
    """Return what a container requests now, as quantities."""
    return _texts(container.cpu_request_cores, container.memory_request_bytes)


def _texts(cores: float | None, memory: float | None) -> dict[str, str]:
    """Return amounts as quantities of Kubernetes; what is not set is left out."""
    texts = {}
    if cores is not None:
        texts["cpu"] = str(Quantity(round(cores * MILLI) * MILLI_NANOS))
    if memory is not None:
        texts["memory"] = str(Quantity(round(memory) * NANO, NumberFormat.BINARY))
    return texts
