"""Whether other requests and limits fit a pod, and what the change does to it: QoS class, restarts. Pure."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from equipoise.core.cluster import Container
from equipoise.core.quantity import NANO
from equipoise.proportional.functions import Slot

FIELDS = {
    ("requests", "cpu"): "cpu_request_cores",
    ("requests", "memory"): "memory_request_bytes",
    ("limits", "cpu"): "cpu_limit_cores",
    ("limits", "memory"): "memory_limit_bytes",
}
"""Where a container has each value."""


def value_of(containers: Iterable[Container], slot: Slot) -> int | None:
    """Return what a container has in the slot's units, rounded up; None where it has nothing."""
    for container in containers:
        if container.name == slot.container:
            amount: float | None = getattr(container, FIELDS[slot.section, slot.resource.value])
            return None if amount is None else units_of(amount, slot.unit_nanos)
    return None


def units_of(amount: float, unit_nanos: int) -> int:
    """Return cores or bytes in whole units; a float of bytes is whole, one of cores is to a billionth."""
    if unit_nanos == NANO:
        return math.ceil(amount)
    return -(-round(amount * NANO) // unit_nanos)


def with_values(
    containers: Sequence[Container], slots: Iterable[Slot], values: Mapping[str, int]
) -> tuple[Container, ...]:
    """Return the containers as they would be with these values."""
    changed = list(containers)
    for slot in slots:
        if slot.key not in values:
            continue
        amount = values[slot.key] * slot.unit_nanos / NANO
        for number, container in enumerate(changed):
            if container.name == slot.container:
                field = FIELDS[slot.section, slot.resource.value]
                changed[number] = msgspec.structs.replace(container, **{field: amount})
    return tuple(changed)


def qos_class(containers: Sequence[Container]) -> str:
    """Return the class that Kubernetes gives these containers."""
    pairs = [
        (asked, limit)
        for container in containers
        for asked, limit in (
            (container.cpu_request_cores, container.cpu_limit_cores),
            (container.memory_request_bytes, container.memory_limit_bytes),
        )
    ]
    if not any(asked or limit for asked, limit in pairs):
        return "BestEffort"
    return "Guaranteed" if all(limit and asked in {None, limit} for asked, limit in pairs) else "Burstable"


def above_limit(containers: Iterable[Container]) -> str:
    """Return which request is above its limit, which no server takes; or nothing."""
    for container in containers:
        for resource, asked, limit in (
            ("cpu", container.cpu_request_cores, container.cpu_limit_cores),
            ("memory", container.memory_request_bytes, container.memory_limit_bytes),
        ):
            if asked is not None and limit is not None and asked > limit:
                unit = "cores" if resource == "cpu" else "bytes"
                return f"{container.name}: {resource} of {asked:g} {unit} is above the limit of {limit:g}"
    return ""


def restarted(
    containers: Iterable[Container], slots: Iterable[Slot], values: Mapping[str, int]
) -> tuple[str, ...]:
    """Name the containers that a change in place restarts, since their `resizePolicy` says so."""
    by_name = {container.name: container for container in containers}
    found = dict.fromkeys(
        slot.container
        for slot in slots
        if slot.key in values
        and slot.container in by_name
        and slot.resource.value in by_name[slot.container].restarts_for
        and value_of([by_name[slot.container]], slot) != values[slot.key]
    )
    return tuple(found)


def sidecars_of(containers: Iterable[Container], names: Collection[str]) -> tuple[str, ...]:
    """Name those of these containers that are among the init containers."""
    return tuple(each.name for each in containers if each.is_sidecar and each.name in names)


def differs(containers: Sequence[Container], slots: Iterable[Slot], values: Mapping[str, int]) -> bool:
    """Whether any of these values is another one in the containers."""
    return any(value_of(containers, slot) != values[slot.key] for slot in slots if slot.key in values)
