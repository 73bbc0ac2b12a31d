"""From the cluster's size to the value of each resource: function, sum, bounds, levels. Pure and exact.

value  = sum of base + slope x rounded(input) / per
target = the level above min(max(value, min), max), in millicores or bytes
"""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from equipoise.model.quantity import NANO, Format, Quantity
from equipoise.proportional.policy import UNIT_NANOS, Container, Function, Resource, Rule, ScalingPolicySpec
from equipoise.proportional.quantize import Levels, levels_of, quantized
from equipoise.proportional.segments import Cut, cut_of, rounded_up

Inputs = Mapping[str, int]
"""What was counted, in billionths: cores, bytes, nodes, pods."""
SECTIONS = ("requests", "limits")


class Line(NamedTuple):
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
    resource: Resource
    unit_nanos: int
    """What its values are counted in."""
    format: Format
    """How they are written."""
    lines: tuple[Line, ...]
    low: int
    high: int | None
    levels: Levels | None

    def text(self, units: int) -> str:
        """Write a value as a manifest has it."""
        return str(Quantity(units * self.unit_nanos, self.format))


def slots(policy: ScalingPolicySpec) -> tuple[Slot, ...]:
    """Give everything that the policy sets, in the order in which it was written."""
    return tuple(_slots(policy))


def target(slot: Slot, inputs: Inputs) -> int:
    """Give the value that this cluster asks for, in whole units."""
    value = max(sum((line_value(line, inputs) for line in slot.lines), Fraction(0)), Fraction(slot.low))
    if slot.high is not None:
        value = min(value, Fraction(slot.high))
    if slot.levels is not None:
        value = quantized(slot.levels, value)
    units = math.ceil(value / slot.unit_nanos)
    return units if slot.high is None else min(units, slot.high // slot.unit_nanos)


def line_value(line: Line, inputs: Inputs) -> Fraction:
    """Give base + slope x rounded(input) / per, in billionths."""
    if line.input is None or not line.slope:
        return Fraction(line.base)
    return line.base + Fraction(line.slope * rounded_input(line.cuts, inputs[line.input]), line.per)


def rounded_input(cuts: tuple[Cut, ...], size: int) -> int:
    """Round an input up by its segment; below the first segment it stays as it is."""
    cut = cut_of(cuts, size)
    return size if cut is None else rounded_up(size, cut.every, slack=True)


def line_of(function: Function) -> Line:
    """Take a function apart."""
    return Line(
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


def _slot(container: Container, section: str, resource: Resource, rules: list[Rule]) -> Slot:
    levels = [levels_of(part) for part in container.quantization if part.resource is resource]
    return Slot(
        key=f"{container.name}.{section}.{resource.value}",
        container=container.name,
        section=section,
        resource=resource,
        unit_nanos=UNIT_NANOS[resource],
        format=_format(rules[0].function),
        lines=tuple(line_of(rule.function) for rule in rules),
        low=next((rule.min.nanos for rule in rules if rule.min is not None), 0),
        high=next((rule.max.nanos for rule in rules if rule.max is not None), None),
        levels=levels[0] if levels else None,
    )


def _format(function: Function) -> Format:
    """Write values as the base is written, else as the slope; a zero says nothing about that."""
    amounts = [part for part in (function.base, function.slope) if part is not None and part.nanos]
    return amounts[0].format if amounts else Format.DECIMAL
