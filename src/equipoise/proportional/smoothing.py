"""Whether a new target is followed now: at once, after a delay, or when most of the window says so. Pure."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from equipoise.model.reason import Code
from equipoise.proportional.damping import Delay, Percentile
from equipoise.proportional.memory import Sight, milliseconds

SIGHTS_MIN = 3
"""So many targets must be in a window before it says anything."""


class Shown(NamedTuple):
    """All that one slot is judged by."""

    at: int
    target: int
    """What this cluster asks for now."""
    current: int | None
    """What is in force, if known."""
    window: Sequence[Sight] = ()
    """The targets that count, this one included."""
    since: int = 0
    """When the first of them was seen, forgotten ones included."""
    shifted_down: int | None = None
    """What a cluster would ask for that is larger by the delay's inputs."""
    shifted_up: int | None = None
    """What a cluster would ask for that is smaller by the delay's inputs."""


class Judged(NamedTuple):
    """What comes of it: the value in force from now on, why, and between what it is kept."""

    code: Code
    applied: int | None
    low: int | None = None
    """Below this it is scaled up."""
    high: int | None = None
    """Above this it is scaled down."""


def at_once(shown: Shown) -> Judged:
    """Follow every target."""
    code = Code.UNCHANGED if shown.current == shown.target else Code.SET
    return Judged(code, shown.target, shown.target, shown.target)


def by_percentile(rule: Percentile, shown: Shown) -> Judged:
    """Keep what lies between the thresholds; otherwise set the value at the target share."""
    values = sorted(value for _, value in shown.window)
    if len(values) < SIGHTS_MIN:
        return Judged(Code.WARMING_UP, shown.current)
    low, high = value_at(values, rule.share_low), value_at(values, rule.share_high)
    if shown.current is None or not low <= shown.current <= high:
        return Judged(Code.SET, value_at(values, rule.target), low, high)
    code = Code.UNCHANGED if shown.current == shown.target else Code.HELD_BY_PERCENTILE
    return Judged(code, shown.current, low, high)


def value_at(ascending: Sequence[int], share: float) -> int:
    """Give the value at a share of the window: index trunc(n x share), at most the last."""
    count = len(ascending)
    return ascending[min(int(Fraction(repr(share)) * count), count - 1)]


def by_delay(down: Delay | None, up: Delay | None, shown: Shown) -> Judged:
    """Follow at once in a direction without a delay, else when it has gone on far or long enough."""
    low = shown.target if up is None else shown.shifted_up if up.inputs else None
    high = shown.target if down is None else shown.shifted_down if down.inputs else None
    if shown.current is None:
        return Judged(Code.SET, shown.target, low, high)
    if shown.current == shown.target:
        return Judged(Code.UNCHANGED, shown.current, low, high)
    if shown.target < shown.current:
        value = shown.target if down is None else _delayed_down(down, shown)
    else:
        value = shown.target if up is None else _delayed_up(up, shown)
    if value is None:
        return Judged(Code.HELD_BY_HYSTERESIS, shown.current, low, high)
    return Judged(Code.SET, value, low, high)


def _delayed_down(delay: Delay, shown: Shown) -> int | None:
    assert shown.current is not None
    if delay.inputs and shown.shifted_down is not None and shown.current > shown.shifted_down:
        return shown.target
    highest = max(_seen_for(delay, shown), default=None)
    return highest if highest is not None and highest < shown.current else None


def _delayed_up(delay: Delay, shown: Shown) -> int | None:
    assert shown.current is not None
    if delay.inputs and shown.shifted_up is not None and shown.current < shown.shifted_up:
        return shown.target
    lowest = min(_seen_for(delay, shown), default=None)
    return lowest if lowest is not None and lowest > shown.current else None


def _seen_for(delay: Delay, shown: Shown) -> list[int]:
    """Give the targets of the last `delaySeconds`, once targets have been seen that long."""
    if delay.delay_seconds is None:
        return []
    span = milliseconds(delay.delay_seconds)
    if shown.at - shown.since < span:
        return []
    return [value for at, value in shown.window if shown.at - at <= span]
