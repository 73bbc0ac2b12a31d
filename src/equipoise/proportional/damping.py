"""What a user may ask against flapping: delays in either direction, or a window of targets."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from equipoise.model.crd.fields import Part, rule, rules
from equipoise.proportional.fields import Seconds, Share, Shift

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
