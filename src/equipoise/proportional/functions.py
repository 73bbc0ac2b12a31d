"""From the cluster's size to the value of each resource: function, sum, bounds, levels. Pure and exact.

value  = sum of base + slope x rounded(input) / per
target = the level at or above min(max(value, min), max), in millicores or bytes
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

import msgspec

from equipoise.core.quantity import NANO, Format, Quantity
from equipoise.proportional.policy import (
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
    """Where the levels are, as plain numbers of billionths."""

    base: Fraction
    step: Fraction
    ratio: Fraction = Fraction(1)
    step_max: Fraction | None = None
    cuts: tuple[Cut, ...] = ()


def levels_of(written: Quantization) -> Levels:
    """Take a quantization apart; a base alone means levels 0, base, 2 base, …"""
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
        return max(levels.base, _by_segment(levels.cuts, value))
    level, step = levels.base, levels.step
    while level < value:
        if levels.ratio == 1 or step == levels.step_max:  # from here on all steps are alike
            return level + math.ceil((value - level) / step) * step
        level += step
        step = step * levels.ratio if levels.step_max is None else min(step * levels.ratio, levels.step_max)
    return level


def _by_segment(cuts: tuple[Cut, ...], value: Fraction) -> Fraction:
    cut = cut_of(cuts, math.floor(value))
    return value if cut is None else Fraction(rounded_up(math.ceil(value), cut.every, slack=False))


Inputs = Mapping[str, int]
"""What was counted, in billionths: cores, bytes, nodes, pods."""
SECTIONS = ("requests", "limits")


class LinearFunction(NamedTuple):
    """One function, as plain numbers of billionths."""

    input: str | None
    base: int
    slope: int
    per: int
    cuts: tuple[Cut, ...]


class Slot(NamedTuple):
    """One resource of one container, and all that its value is made of."""

    key: str
    """How it is named: `kube-dns.requests.cpu`."""
    container: str
    section: str
    resource: ResourceName
    unit_nanos: int
    """What its values are counted in."""
    format: Format
    """How they are written."""
    functions: tuple[LinearFunction, ...]
    low: int
    high: int | None
    levels: Levels | None

    def text(self, units: int) -> str:
        """Write a value as a manifest has it."""
        return str(Quantity(units * self.unit_nanos, self.format))


def slots(policy: ScalingPolicySpec) -> tuple[Slot, ...]:
    """Return everything that the policy sets, in the order in which it was written."""
    return tuple(_slots(policy))


def target(slot: Slot, inputs: Inputs) -> int:
    """Return the value that this cluster asks for, in whole units."""
    value = max(
        sum((linear_value(function, inputs) for function in slot.functions), Fraction(0)), Fraction(slot.low)
    )
    if slot.high is not None:
        value = min(value, Fraction(slot.high))
    if slot.levels is not None:
        value = quantized(slot.levels, value)
    units = math.ceil(value / slot.unit_nanos)
    return units if slot.high is None else min(units, slot.high // slot.unit_nanos)


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
    """Take a function apart."""
    return LinearFunction(
        input=function.input,
        base=function.base.nanos if function.base is not None else 0,
        slope=function.slope.nanos if function.slope is not None else 0,
        per=function.per.nanos if function.per is not None else NANO,
        cuts=function.cuts,
    )


def _slots(policy: ScalingPolicySpec) -> Iterator[Slot]:
    for container in policy.containers:
        for section in SECTIONS:
            rules: tuple[Rule, ...] = getattr(container.resources, section)
            for resource in dict.fromkeys(rule.resource for rule in rules):
                own = [rule for rule in rules if rule.resource is resource]
                yield _slot(container, section, resource, own)


def _slot(container: ContainerPolicy, section: str, resource: ResourceName, rules: list[Rule]) -> Slot:
    levels = [levels_of(part) for part in container.quantization if part.resource is resource]
    return Slot(
        key=f"{container.name}.{section}.{resource.value}",
        container=container.name,
        section=section,
        resource=resource,
        unit_nanos=UNIT_NANOS[resource],
        format=_format(rules[0].function),
        functions=tuple(linear_function(rule.function) for rule in rules),
        low=next((rule.min.nanos for rule in rules if rule.min is not None), 0),
        high=next((rule.max.nanos for rule in rules if rule.max is not None), None),
        levels=levels[0] if levels else None,
    )


def _format(function: Function) -> Format:
    """Write values as the base is written, else as the slope; a zero says nothing about that."""
    amounts = [part for part in (function.base, function.slope) if part is not None and part.nanos]
    return amounts[0].format if amounts else Format.DECIMAL


def fingerprint(policy: ScalingPolicySpec) -> str:
    """Tell a policy from the same one after any edit."""
    parts = policy.model_dump(mode="json", by_alias=True)
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


Target = Callable[[Slot, Inputs], int]


class CompiledPolicy(NamedTuple):
    """A policy, ready to be asked again and again."""

    policy: ScalingPolicySpec
    slots: tuple[Slot, ...]
    fingerprint: str
    target: Target = target

    @classmethod
    def of(cls, policy: ScalingPolicySpec) -> "CompiledPolicy":
        """Take a policy apart once."""
        return cls(policy, slots(policy), fingerprint(policy))
