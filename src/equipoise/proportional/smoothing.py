"""Whether a new target is followed at once, after a delay, or by a percentile of a window. Pure.

Each change of a value may restart pods, while the size of a cluster changes with every node that is not ready
for a moment. The policy has delays in either direction, or a percentile of a window of targets. The memory
for the next decision (the window, its start, the last change) is plain data in the policy's status: times in
whole milliseconds, values in whole millicores or bytes, so it is exact in JSON.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, NamedTuple, Self

import msgspec
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from equipoise.core.reason import Code
from equipoise.crd.fields import Amount, SchemaPart, Text, rule, rules

INPUTS = ("cores", "memory", "nodes", "pods")
SECONDS_MAX = 7 * 86400


def _input(value: str) -> str:
    if value.lower() not in INPUTS:
        raise ValueError(f"expected one of {', '.join(INPUTS)}, got {value!r}")
    return value.lower()


def _refuse_duplicates(value: object) -> object:
    """Reject an input that is named twice in two spellings: one would silently be ignored."""
    if isinstance(value, dict):
        names = [key.lower() for key in value if isinstance(key, str)]
        if duplicate := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"expected each input once, got {duplicate} twice")
    return value


def number(value: object) -> object:
    """Reject booleans and strings, which a lax parser would convert to a number."""
    if isinstance(value, bool | str):
        raise ValueError(f"expected a number, got {value!r}")
    return value


_ANY_CASE = "|".join("".join(f"[{letter.upper()}{letter}]" for letter in name) for name in INPUTS)
InputName = Annotated[str, Text(f"^({_ANY_CASE})$", f"one of {', '.join(INPUTS)}", 6), AfterValidator(_input)]
Shift = Annotated[
    dict[Annotated[str, AfterValidator(_input)], Amount],
    Field(max_length=len(INPUTS)),
    BeforeValidator(_refuse_duplicates),
]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(number)]
Seconds = Annotated[float, Field(gt=0, le=SECONDS_MAX), BeforeValidator(number)]
SMOOTHING_RULE = "expected percentile or the delays, not both"
THRESHOLDS_RULE = "expected lowThreshold at or below target, and target at or below highThreshold"
DELAY_RULE = "expected inputs, delaySeconds, or both"


class Delay(SchemaPart):
    """Wait before following the cluster in one direction."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("has(self.delaySeconds) || (has(self.inputs) && size(self.inputs) > 0)", DELAY_RULE)
        )
    )

    inputs: Shift = Field(
        {},
        description="How far the inputs must change before the value changes at once, such as cores: 20.",
    )
    delay_seconds: Seconds | None = Field(
        None,
        alias="delaySeconds",
        description="The value changes once the target has been beyond it for this long.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.inputs and self.delay_seconds is None:
            raise ValueError(DELAY_RULE)
        return self


class Percentile(SchemaPart):
    """Set the value from the distribution of the latest targets."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("self.lowThreshold <= self.target && self.target <= self.highThreshold", THRESHOLDS_RULE)
        )
    )

    target: Share = Field(0.80, description="The share of the targets in the window that a new value covers.")
    share_low: Share = Field(
        0.60, alias="lowThreshold", description="The value is raised if it is below the target at this share."
    )
    share_high: Share = Field(
        0.95,
        alias="highThreshold",
        description="The value is lowered if it is above the target at this share.",
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


class Smoothing(SchemaPart):
    """What keeps a value from flapping: the delays (either or both), or percentile."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.percentile) || (!has(self.delayScaleDown) && !has(self.delayScaleUp))",
                SMOOTHING_RULE,
            )
        )
    )

    delay_down: Delay | None = Field(
        None, alias="delayScaleDown", description="Delay before the value is lowered."
    )
    delay_up: Delay | None = Field(
        None, alias="delayScaleUp", description="Delay before the value is raised."
    )
    percentile: Percentile | None = Field(
        None, description="Set the value from the distribution of the latest targets."
    )

    @property
    def is_windowed(self) -> bool:
        """Whether it depends on earlier targets."""
        delays = [each for each in (self.delay_down, self.delay_up) if each is not None]
        return self.percentile is not None or any(each.delay_seconds is not None for each in delays)

    @model_validator(mode="after")
    def _is_one_strategy(self) -> Self:
        if self.percentile is not None and (self.delay_down is not None or self.delay_up is not None):
            raise ValueError(SMOOTHING_RULE)
        return self


SAMPLES_MAX = 4096
"""Targets stored per slot; the oldest are dropped first."""

TargetSample = tuple[int, int]
"""The time and the target."""


class ValueChange(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The last change of one slot."""

    at: int
    after: int
    before: int | None = None


class ProportionalMemory(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The memory of one policy."""

    policy: str = ""
    """The policy's fingerprint: an edit empties the windows."""
    since: int | None = None
    """The time of the first target under this policy."""
    windows: dict[str, tuple[TargetSample, ...]] = {}
    """The targets in the window, oldest first, by slot."""
    changes: dict[str, ValueChange] = {}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "ProportionalMemory":
        """Return the memory from the form of `to_data`; raises ValueError for other data."""
        return msgspec.convert(dict(data), type=cls)

    def to_data(self) -> dict[str, Any]:
        return msgspec.json.decode(msgspec.json.encode(self), type=dict[str, Any])

    def with_changes_of(self, before: "ProportionalMemory") -> "ProportionalMemory":
        """Return this memory with the changes of `before`, for a decision that is not executed."""
        return msgspec.structs.replace(self, changes=before.changes)

    def under(self, policy: str) -> "ProportionalMemory":
        """Return the memory for this policy's fingerprint: with empty windows if it was edited."""
        return self if self.policy == policy else ProportionalMemory(policy, changes=self.changes)


def extend_window(
    window: tuple[TargetSample, ...], at: int, target: int, smoothing: Smoothing
) -> tuple[TargetSample, ...]:
    """Return the window with one more target, without those that no later decision needs."""
    earlier = [sample for sample in window if sample[0] != at]
    if smoothing.percentile is not None:
        span = milliseconds(smoothing.percentile.window_seconds)
        retained = [sample for sample in earlier if at - sample[0] < span]
        return (*retained, (at, target))[-SAMPLES_MAX:]
    retained_all: set[TargetSample] = set()
    for sign, delay in ((-1, smoothing.delay_down), (1, smoothing.delay_up)):
        if delay is not None and delay.delay_seconds is not None:
            span = milliseconds(delay.delay_seconds)
            recent = [sample for sample in earlier if at - sample[0] <= span]
            retained_all.update(_extremes([*recent, (at, target)], sign))
    return tuple(sorted(retained_all))[-SAMPLES_MAX:]


def _extremes(samples: list[TargetSample], sign: int) -> list[TargetSample]:
    """Return the samples that are the highest (-1) or lowest (1) of the window from their time on."""
    retained: list[TargetSample] = []
    for sample in samples:
        while retained and sign * retained[-1][1] >= sign * sample[1]:
            retained.pop()
        retained.append(sample)
    return retained


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


SAMPLES_MIN = 3
"""Fewer targets in a window change no value."""


class SmoothingInput(NamedTuple):
    """The inputs of the smoothing of one value."""

    at: int
    target: int
    """The value for the cluster's present size."""
    current: int | None
    """The value in force, if known."""
    window: Sequence[TargetSample] = ()
    """The targets in the window, this one included."""
    since: int = 0
    """The time of the first target, those dropped from the window included."""
    shifted_down: int | None = None
    """The target of a cluster that is larger by the delay's inputs."""
    shifted_up: int | None = None
    """The target of a cluster that is smaller by the delay's inputs."""


class SmoothedValue(NamedTuple):
    """The value in force from now on, the reason, and the thresholds between which it stays."""

    code: Code
    applied: int | None
    low: int | None = None
    """Below this it is scaled up."""
    high: int | None = None
    """Above this it is scaled down."""


def smoothed_value(smoothing: Smoothing, value_input: SmoothingInput) -> SmoothedValue:
    if smoothing.percentile is not None:
        return by_percentile(smoothing.percentile, value_input)
    if smoothing.delay_down is None and smoothing.delay_up is None:
        return at_once(value_input)
    return by_delay(smoothing.delay_down, smoothing.delay_up, value_input)


def at_once(value_input: SmoothingInput) -> SmoothedValue:
    code = Code.UNCHANGED if value_input.current == value_input.target else Code.SET
    return SmoothedValue(code, value_input.target, value_input.target, value_input.target)


def by_percentile(rule: Percentile, value_input: SmoothingInput) -> SmoothedValue:
    """Keep a value between the thresholds; otherwise set the value at the target share."""
    values = sorted(value for _, value in value_input.window)
    if len(values) < SAMPLES_MIN:
        return SmoothedValue(Code.WARMING_UP, value_input.current)
    low, high = value_at(values, rule.share_low), value_at(values, rule.share_high)
    assert low <= high, "thresholds are in order, since their shares are"
    if value_input.current is None or not low <= value_input.current <= high:
        return SmoothedValue(Code.SET, value_at(values, rule.target), low, high)
    code = Code.UNCHANGED if value_input.current == value_input.target else Code.HELD_BY_PERCENTILE
    return SmoothedValue(code, value_input.current, low, high)


def value_at(ascending: Sequence[int], share: float) -> int:
    """Return the value at a share of the window: index trunc(n x share), at most the last."""
    count = len(ascending)
    assert count, "an empty window has no value"
    return ascending[min(int(Fraction(repr(share)) * count), count - 1)]


def by_delay(down: Delay | None, up: Delay | None, value_input: SmoothingInput) -> SmoothedValue:
    """Follow the target at once in a direction without a delay, else once it is far or long enough beyond."""
    low = value_input.target if up is None else value_input.shifted_up if up.inputs else None
    high = value_input.target if down is None else value_input.shifted_down if down.inputs else None
    if value_input.current is None:
        return SmoothedValue(Code.SET, value_input.target, low, high)
    if value_input.current == value_input.target:
        return SmoothedValue(Code.UNCHANGED, value_input.current, low, high)
    if value_input.target < value_input.current:
        value = value_input.target if down is None else _delayed_down(down, value_input, value_input.current)
    else:
        value = value_input.target if up is None else _delayed_up(up, value_input, value_input.current)
    if value is None:
        return SmoothedValue(Code.HELD_BY_HYSTERESIS, value_input.current, low, high)
    assert (value < value_input.current) == (value_input.target < value_input.current), (
        "a value follows its target's direction"
    )
    return SmoothedValue(Code.SET, value, low, high)


def _delayed_down(delay: Delay, value_input: SmoothingInput, current: int) -> int | None:
    if delay.inputs and value_input.shifted_down is not None and current > value_input.shifted_down:
        return value_input.target
    highest = max(_targets_within(delay, value_input), default=None)
    return highest if highest is not None and highest < current else None


def _delayed_up(delay: Delay, value_input: SmoothingInput, current: int) -> int | None:
    if delay.inputs and value_input.shifted_up is not None and current < value_input.shifted_up:
        return value_input.target
    lowest = min(_targets_within(delay, value_input), default=None)
    return lowest if lowest is not None and lowest > current else None


def _targets_within(delay: Delay, value_input: SmoothingInput) -> list[int]:
    """Return the targets of the last `delaySeconds`; empty until there were targets for that long."""
    if delay.delay_seconds is None:
        return []
    span = milliseconds(delay.delay_seconds)
    if value_input.at - value_input.since < span:
        return []
    return [value for at, value in value_input.window if value_input.at - at <= span]
