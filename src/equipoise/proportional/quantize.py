"""Levels: a value is rounded up to the next one. Pure and exact."""

import math
from fractions import Fraction
from typing import NamedTuple

from equipoise.proportional.policy import Quantization
from equipoise.proportional.segments import Cut, cut_of, rounded_up


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
    """Give the first level at or above a value, both in billionths."""
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
