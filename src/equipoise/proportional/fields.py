"""Fields of a scaling policy that several of its parts share.

Rounding up to multiples, coarser as a size grows; exact, in whole billionths.

What a user may ask against flapping: delays in either direction, or a window of targets.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from equipoise.core.quantity import NANO
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


def _number(value: object) -> object:
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
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_number)]
StepRatio = Annotated[float, Field(ge=1, le=1000), BeforeValidator(_number)]
Seconds = Annotated[float, Field(gt=0, le=SECONDS_MAX), BeforeValidator(_number)]


SLACK_PARTS = 1000
"""An input may be above a multiple by a thousandth of the distance: sums of allocatable are not round."""


class Cut(NamedTuple):
    """From `at` on, round up to a multiple of `every`."""

    at: int
    every: int


class Fall(NamedTuple):
    """Two sizes that are rounded the wrong way round."""

    low: int
    low_result: int
    high: int
    high_result: int


def cut_of(cuts: Sequence[Cut], size: int) -> Cut | None:
    """Return the cut with the largest `at` that the size has reached."""
    return max((cut for cut in cuts if cut.at <= size), default=None)


def rounded_up(size: int, every: int, *, slack: bool) -> int:
    """Round up to the next multiple, counted from 0."""
    if slack:  # ceil(size / every - 1 / SLACK_PARTS), in whole numbers
        return -((every - SLACK_PARTS * size) // (SLACK_PARTS * every)) * every
    return -(-size // every) * every


def fall(cuts: Sequence[Cut], *, slack: bool) -> Fall | None:
    """Find where a larger size would be rounded to less; the cuts are in order.

    Within a cut nothing falls, so only the beginnings are looked at: what comes right before each.
    """
    for before, cut in pairwise((None, *cuts)):
        assert cut is not None
        high = rounded_up(cut.at, cut.every, slack=slack)
        if before is None:
            if high < cut.at:  # below the first cut sizes stay as they are
                low = (high + cut.at) // 2 + 1
                return Fall(low, low, cut.at, high)
            continue
        most = rounded_up(cut.at, before.every, slack=slack)
        if most > high:
            return Fall(_example(before, cut.at, most, slack=slack), most, cut.at, high)
    return None


def _example(before: Cut, end: int, result: int, *, slack: bool) -> int:
    """Return a readable size right below the end that is rounded to this result."""
    for distance in (NANO, NANO // 1000, 1):
        size = end - distance
        if size >= before.at and rounded_up(size, before.every, slack=slack) == result:
            return size
    return end - 1


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
