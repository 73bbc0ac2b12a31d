"""Whether a new target is followed at once, after a delay, or when most of a window agrees. Pure.

Each change of a value may restart pods, while the size of a cluster moves with every node that is not ready
for a moment. The policy has delays in either direction, or a percentile of a window of targets. What one
decision leaves for the next (the window, since when, the last change) is plain data in the policy's status:
times in whole milliseconds, values in whole millicores or bytes, so nothing is lost in JSON.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, NamedTuple, Self

import msgspec
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from equipoise.core.reason import Code
from equipoise.crd.fields import Amount, Part, Text, rule, rules

INPUTS = ("cores", "memory", "nodes", "pods")
SECONDS_MAX = 7 * 86400


def _input(value: str) -> str:
    if value.lower() not in INPUTS:
        raise ValueError(f"expected one of {', '.join(INPUTS)}, got {value!r}")
    return value.lower()


def _once(value: object) -> object:
    """Refuse an input that is named twice in two spellings: one would silently win."""
    if isinstance(value, dict):
        names = [key.lower() for key in value if isinstance(key, str)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"expected each input once, got {twice} twice")
    return value


def number(value: object) -> object:
    """Refuse what a lax reader would take for a number."""
    if isinstance(value, bool | str):
        raise ValueError(f"expected a number, got {value!r}")
    return value


_ANY_CASE = "|".join("".join(f"[{letter.upper()}{letter}]" for letter in name) for name in INPUTS)
InputName = Annotated[str, Text(f"^({_ANY_CASE})$", f"one of {', '.join(INPUTS)}", 6), AfterValidator(_input)]
Shift = Annotated[
    dict[Annotated[str, AfterValidator(_input)], Amount],
    Field(max_length=len(INPUTS)),
    BeforeValidator(_once),
]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(number)]
Seconds = Annotated[float, Field(gt=0, le=SECONDS_MAX), BeforeValidator(number)]
SMOOTHING_RULE = "expected percentile or the delays, not both"
THRESHOLDS_RULE = "expected lowThreshold at or below target, and target at or below highThreshold"
DELAY_RULE = "expected inputs, delaySeconds, or both"


class Delay(Part):
    """Wait before following the cluster in one direction."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("has(self.delaySeconds) || (has(self.inputs) && size(self.inputs) > 0)", DELAY_RULE)
        )
    )

    inputs: Shift = Field(
        {},
        description="How much further the inputs must go before it is followed at once, such as cores: 20.",
    )
    delay_seconds: Seconds | None = Field(
        None,
        alias="delaySeconds",
        description="After so long it is followed anyhow, as far as it has been wanted all that time.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.inputs and self.delay_seconds is None:
            raise ValueError(DELAY_RULE)
        return self


class Percentile(Part):
    """Follow what most of the latest targets say."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.lowThreshold <= self.target && self.target <= self.highThreshold",
                THRESHOLDS_RULE,
            )
        )
    )

    target: Share = Field(0.80, description="The share of the targets in the window that are to fit.")
    share_low: Share = Field(
        0.60, alias="lowThreshold", description="Below the value at this share it is scaled up."
    )
    share_high: Share = Field(
        0.95, alias="highThreshold", description="Above the value at this share it is scaled down."
    )
    window_seconds: Seconds = Field(
        300, alias="windowSeconds", description="How long a target stays in the window."
    )

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if not self.share_low <= self.target <= self.share_high:
            got = f"{self.share_low:g}, {self.target:g} and {self.share_high:g}"
            raise ValueError(f"{THRESHOLDS_RULE}, got {got}")
        return self


class Smoothing(Part):
    """What keeps a value from flapping: the delays (either or both), or percentile."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.percentile) || (!has(self.delayScaleDown) && !has(self.delayScaleUp))",
                SMOOTHING_RULE,
            )
        )
    )

    delay_down: Delay | None = Field(None, alias="delayScaleDown", description="Wait before scaling down.")
    delay_up: Delay | None = Field(None, alias="delayScaleUp", description="Wait before scaling up.")
    percentile: Percentile | None = Field(None, description="Follow what most of the latest targets say.")

    @model_validator(mode="after")
    def _is_one_strategy(self) -> Self:
        if self.percentile is not None and (self.delay_down is not None or self.delay_up is not None):
            raise ValueError(SMOOTHING_RULE)
        return self


OBSERVATIONS_MAX = 4096
"""How many targets of one slot are kept; older ones are forgotten first."""

Sight = tuple[int, int]
"""When, and which target."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The last change of one slot."""

    at: int
    after: int
    before: int | None = None


class ProportionalMemory(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """All that is carried over for one policy."""

    policy: str = ""
    """A fingerprint: an edit empties the windows."""
    since: int | None = None
    """When the first target under this policy was seen."""
    windows: dict[str, tuple[Sight, ...]] = {}
    """The targets that still count, oldest first, by slot."""
    changes: dict[str, Change] = {}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "ProportionalMemory":
        """Read what `to_data` gave; a ValueError says what does not fit."""
        return msgspec.convert(dict(data), type=cls)

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return msgspec.json.decode(msgspec.json.encode(data), type=dict[str, Any])

    def under(self, policy: str) -> "ProportionalMemory":
        """Return what still counts under this policy: an edit empties the windows."""
        return self if self.policy == policy else ProportionalMemory(policy, changes=self.changes)


def remembered(window: tuple[Sight, ...], at: int, target: int, smoothing: Smoothing) -> tuple[Sight, ...]:
    """Add a target, and forget what no decision will ask for again; one moment has one target."""
    earlier = [sight for sight in window if sight[0] != at]
    if smoothing.percentile is not None:
        span = milliseconds(smoothing.percentile.window_seconds)
        kept = [sight for sight in earlier if at - sight[0] < span]
        return (*kept, (at, target))[-OBSERVATIONS_MAX:]
    spans = {
        -1: smoothing.delay_down.delay_seconds if smoothing.delay_down is not None else None,
        1: smoothing.delay_up.delay_seconds if smoothing.delay_up is not None else None,
    }
    kept_all: set[Sight] = set()
    for sign, seconds in spans.items():
        if seconds is not None:
            span = milliseconds(seconds)
            young = [sight for sight in earlier if at - sight[0] <= span]
            kept_all.update(_extremes([*young, (at, target)], sign))
    return tuple(sorted(kept_all))[-OBSERVATIONS_MAX:]


def _extremes(sights: list[Sight], sign: int) -> list[Sight]:
    """Keep those that no later one outdoes: the highest (-1) or lowest (1) of any rest of the window."""
    kept: list[Sight] = []
    for sight in sights:
        while kept and sign * kept[-1][1] >= sign * sight[1]:
            kept.pop()
        kept.append(sight)
    return kept


def milliseconds(seconds: float) -> int:
    """Return a span as times are counted."""
    return round(seconds * 1000)


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
    """Return the value at a share of the window: index trunc(n x share), at most the last."""
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
    """Return the targets of the last `delaySeconds`, once targets have been seen that long."""
    if delay.delay_seconds is None:
        return []
    span = milliseconds(delay.delay_seconds)
    if shown.at - shown.since < span:
        return []
    return [value for at, value in shown.window if shown.at - at <= span]
