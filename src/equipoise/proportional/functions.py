"""From the cluster's size to the value of each resource, and the values that containers have. Pure and exact.

value  = sum of base + slope x rounded(input) / per
target = the level at or above min(max(value, min), max), in millicores or bytes
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from equipoise.core.cluster import Container, Selector
from equipoise.core.quantity import (
    NANO,
    NumberFormat,
    Quantity,
    print_bytes,
    print_cores,
    print_exact_cores,
)
from equipoise.engine.recording import as_json
from equipoise.proportional.policy import (
    SECTIONS,
    UNIT_NANOS,
    ContainerPolicy,
    Cut,
    Function,
    Quantization,
    ResourceName,
    Rule,
    ScalingPolicySpec,
    cut_of,
    rounded_up,
)


class Levels(NamedTuple):
    """The levels of a quantization, in billionths."""

    base: Fraction
    step: Fraction
    ratio: Fraction = Fraction(1)
    step_max: Fraction | None = None
    cuts: tuple[Cut, ...] = ()


def levels_of(written: Quantization) -> Levels:
    """Return where the levels of a quantization are; a base alone means levels 0, base, 2 base, …"""
    base = Fraction(written.base.nanos if written.base is not None else 0)
    if written.segments:
        return Levels(base, Fraction(0), cuts=written.cuts)
    if written.step is None:
        return Levels(Fraction(0), base)
    return Levels(
        base,
        Fraction(written.step.nanos),
        Fraction(repr(written.step_ratio)) if written.step_ratio is not None else Fraction(1),
        Fraction(written.step_max.nanos) if written.step_max is not None else None,
    )


def quantized(levels: Levels, value: Fraction) -> Fraction:
    """Return the first level at or above a value, both in billionths."""
    if levels.cuts:
        cut = cut_of(levels.cuts, math.floor(value))
        if cut is not None:
            value = Fraction(rounded_up(math.ceil(value), cut.every, slack=False))
        return max(levels.base, value)
    level, step = levels.base, levels.step
    assert step > 0, "levels without segments have a step"
    while level < value:
        if levels.ratio == 1 or step == levels.step_max:  # from here on all steps are equal
            return level + math.ceil((value - level) / step) * step
        level += step
        step = step * levels.ratio if levels.step_max is None else min(step * levels.ratio, levels.step_max)
    return level


Inputs = Mapping[str, int]
"""The cluster's size, in billionths: cores, bytes, nodes, pods."""


class LinearFunction(NamedTuple):
    """One function, with its numbers in billionths."""

    input: str | None
    base: int
    slope: int
    per: int
    cuts: tuple[Cut, ...]


class Slot(NamedTuple):
    """One resource of one container, and everything from which its value is computed."""

    key: str
    """The slot's name, such as `kube-dns.requests.cpu`."""
    container: str
    section: str
    resource: ResourceName
    unit_nanos: int
    """The unit of its values."""
    format: NumberFormat
    """The format in which they are printed."""
    functions: tuple[LinearFunction, ...]
    low: int
    high: int | None
    levels: Levels | None

    def text(self, units: int) -> str:
        return str(Quantity(units * self.unit_nanos, self.format))

    @property
    def words(self) -> str:
        """What it is, as a sentence has it: `the CPU request of kube-dns`."""
        resource = "CPU" if self.resource is ResourceName.CPU else "memory"
        return f"the {resource} {self.section.removesuffix('s')} of {self.container}"

    def amount(self, units: int) -> str:
        """Return a value with its unit, as a sentence has it."""
        nanos = units * self.unit_nanos
        is_cpu = self.resource is ResourceName.CPU
        return print_exact_cores(nanos) if is_cpu else print_bytes(nanos / NANO)


def slots(policy: ScalingPolicySpec) -> tuple[Slot, ...]:
    """Return a slot for each value that the policy sets, in the order of the policy."""
    found = []
    for container in policy.containers:
        for section in SECTIONS:
            rules: tuple[Rule, ...] = getattr(container.resources, section)
            for resource in dict.fromkeys(rule.resource for rule in rules):
                own = [rule for rule in rules if rule.resource is resource]
                found.append(_slot(container, section, resource, own))
    assert len({slot.key for slot in found}) == len(found), "each value has one slot"
    return tuple(found)


def target(slot: Slot, inputs: Inputs) -> int:
    """Return the slot's value for a cluster of this size, in whole units."""
    total = sum((linear_value(function, inputs) for function in slot.functions), Fraction(0))
    value = max(total, Fraction(slot.low))
    if slot.high is not None:
        value = min(value, Fraction(slot.high))
    if slot.levels is not None:
        value = quantized(slot.levels, value)
    units = math.ceil(value / slot.unit_nanos)
    if slot.high is not None:
        units = min(units, slot.high // slot.unit_nanos)
    assert units * slot.unit_nanos >= slot.low, f"{slot.key} of {units} is below its min"
    return units


def linear_value(function: LinearFunction, inputs: Inputs) -> Fraction:
    """Return base + slope x rounded(input) / per, in billionths."""
    if function.input is None or not function.slope:
        return Fraction(function.base)
    return function.base + Fraction(
        function.slope * rounded_input(function.cuts, inputs[function.input]), function.per
    )


def rounded_input(cuts: tuple[Cut, ...], size: int) -> int:
    """Round an input up by its segment; below the first segment it stays as it is."""
    cut = cut_of(cuts, size)
    return size if cut is None else rounded_up(size, cut.every, slack=True)


def linear_function(function: Function) -> LinearFunction:
    return LinearFunction(
        input=function.input,
        base=function.base.nanos if function.base is not None else 0,
        slope=function.slope.nanos if function.slope is not None else 0,
        per=function.per.nanos if function.per is not None else NANO,
        cuts=function.cuts,
    )


def _slot(container: ContainerPolicy, section: str, resource: ResourceName, rules: list[Rule]) -> Slot:
    levels = [levels_of(part) for part in container.quantization if part.resource is resource]
    first = rules[0].function  # its base or, if that is zero, its slope has the format
    formats = [part.format for part in (first.base, first.slope) if part is not None and part.nanos]
    return Slot(
        key=f"{container.name}.{section}.{resource.value}",
        container=container.name,
        section=section,
        resource=resource,
        unit_nanos=UNIT_NANOS[resource],
        format=formats[0] if formats else NumberFormat.DECIMAL,
        functions=tuple(linear_function(rule.function) for rule in rules),
        low=next((rule.min.nanos for rule in rules if rule.min is not None), 0),
        high=next((rule.max.nanos for rule in rules if rule.max is not None), None),
        levels=levels[0] if levels else None,
    )


class CompiledPolicy(NamedTuple):
    """A policy, ready for many decisions."""

    spec: ScalingPolicySpec
    slots: tuple[Slot, ...]
    document: dict[str, Any]
    """The policy in the form of its records."""
    fingerprint: str
    """A hash of the document, which any edit changes."""
    selector: Selector
    """Selects the nodes that count."""
    target: Callable[[Slot, Inputs], int] = target

    @classmethod
    def of(cls, spec: ScalingPolicySpec) -> "CompiledPolicy":
        document = as_json(spec.model_dump(mode="json", by_alias=True))
        fingerprint = hashlib.sha256(msgspec.json.encode(document, order="sorted")).hexdigest()[:16]
        return cls(spec, slots(spec), document, fingerprint, spec.node_selector.selector)


FIELDS = {
    ("requests", "cpu"): "cpu_request_cores",
    ("requests", "memory"): "memory_request_bytes",
    ("limits", "cpu"): "cpu_limit_cores",
    ("limits", "memory"): "memory_limit_bytes",
}
"""The field of a container for each value."""


def value_of(containers: Iterable[Container], slot: Slot) -> int | None:
    """Return a container's value in the slot's units, rounded up; None if it has none."""
    for container in containers:
        if container.name == slot.container:
            amount: float | None = getattr(container, FIELDS[slot.section, slot.resource.value])
            if amount is None or slot.unit_nanos == NANO:  # bytes are whole numbers
                return None if amount is None else math.ceil(amount)
            return -(-round(amount * NANO) // slot.unit_nanos)  # cores are exact to a billionth
    return None


def with_values(
    containers: Sequence[Container], slots: Iterable[Slot], values: Mapping[str, int]
) -> tuple[Container, ...]:
    """Return the containers as they would be with these values."""
    changed = {container.name: container for container in containers}
    for slot in slots:
        if slot.key in values and slot.container in changed:
            amount = values[slot.key] * slot.unit_nanos / NANO
            field = {FIELDS[slot.section, slot.resource.value]: amount}
            changed[slot.container] = msgspec.structs.replace(changed[slot.container], **field)
    return tuple(changed.values())


def qos_class(containers: Sequence[Container]) -> str:
    pairs = [(request, limit) for _, _, request, limit in _pairs(containers)]
    if not any(request or limit for request, limit in pairs):
        return "BestEffort"
    is_guaranteed = all(limit and request in {None, limit} for request, limit in pairs)
    return "Guaranteed" if is_guaranteed else "Burstable"


def above_limit(containers: Iterable[Container]) -> str:
    """Return which request is above its limit, which the API server refuses; empty if none is."""
    for name, resource, request, limit in _pairs(containers):
        if request is not None and limit is not None and request > limit:
            words, amount = ("CPU", print_cores) if resource == "cpu" else ("memory", print_bytes)
            return f"the {words} request of {name}, {amount(request)}, is above its limit of {amount(limit)}"
    return ""


def _pairs(containers: Iterable[Container]) -> Iterator[tuple[str, str, float | None, float | None]]:
    """Yield each container's name, resource, request and limit."""
    for each in containers:
        yield each.name, "cpu", each.cpu_request_cores, each.cpu_limit_cores
        yield each.name, "memory", each.memory_request_bytes, each.memory_limit_bytes


def restarted(
    containers: Iterable[Container], slots: Iterable[Slot], values: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the containers that a change in place restarts, since their `resizePolicy` says so."""
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
    """Return which of these containers are among the init containers."""
    return tuple(each.name for each in containers if each.is_sidecar and each.name in names)


def differs(containers: Sequence[Container], slots: Iterable[Slot], values: Mapping[str, int]) -> bool:
    """Return whether the containers have another value for any of these slots."""
    return any(value_of(containers, slot) != values[slot.key] for slot in slots if slot.key in values)


def values_by_container(
    slots: Iterable[Slot], values: Mapping[str, int]
) -> dict[str, dict[str, dict[str, str]]]:
    """Return values by container, section and resource, as a manifest has them."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for slot in slots:
        if slot.key in values:
            section = found.setdefault(slot.container, {}).setdefault(slot.section, {})
            section[slot.resource.value] = slot.text(values[slot.key])
    return found
