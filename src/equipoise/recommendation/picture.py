"""A week of usage and a day of forecast, hour by hour, for people's eyes: nothing is decided from it.

A record keeps it beside the few numbers that decided, so that advice can be shown without its week of
minutes. It is small on purpose: at most 168 + 2 x 24 numbers of three digits.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from equipoise.stats.arrays import Floats
from equipoise.stats.forecast import Forecast

HOUR_SECONDS = 3600.0
HOURS_PAST = 168
HOURS_AHEAD = 24
DIGITS = 3


class Picture(msgspec.Struct, frozen=True):
    """One workload's; null where nothing is known."""

    until: float
    """When the past ends and the forecast begins: seconds since 1970."""
    step_seconds: float
    """An hour, unless the samples are further apart."""
    used_cores: list[float | None]
    """The mean of each step, oldest first; the last one ends at `until`."""
    forecast_cores: list[float | None] = []
    upper_cores: list[float | None] = []
    """The band: 95 of 100 coming samples should stay below it."""


class Sketch(NamedTuple):
    """The same for a batch, as arrays: one row is one workload."""

    until: float
    step_seconds: float
    used: Floats
    ahead: Floats
    upper: Floats

    def of(self, row: int) -> Picture:
        """Give one workload's picture."""
        parts = [self.used[row], self.ahead[row], self.upper[row]]
        peak = max((float(part[np.isfinite(part)].max(initial=0.0)) for part in parts), default=0.0)
        decimals = DIGITS - 1 - int(np.floor(np.log10(peak))) if peak > 0 else 0
        return Picture(self.until, self.step_seconds, *(_short(part, decimals) for part in parts))


def sketch(history: Floats, interval_seconds: float, until: float, future: Forecast | None) -> Sketch:
    """Take the means of the past week's hours and of the coming day's."""
    count = max(1, round(HOUR_SECONDS / interval_seconds))
    nothing: Floats = np.zeros((len(history), 0))
    used = _means(history[:, max(0, history.shape[1] - HOURS_PAST * count) :], count)
    ahead, upper = nothing, nothing
    if future is not None:
        ahead = _means(future.values[:, : HOURS_AHEAD * count], count)
        upper = _means(future.upper[:, : HOURS_AHEAD * count], count)
    return Sketch(until, count * interval_seconds, used, ahead, upper)


def _means(values: Floats, count: int) -> Floats:
    """Give the mean of what is known in each step; a step that is not whole at the beginning is left out."""
    steps = values.shape[1] // count
    table = values[:, values.shape[1] - steps * count :].reshape(len(values), steps, count)
    is_known = ~np.isnan(table)
    known = is_known.sum(axis=2)
    total = np.where(is_known, table, 0).sum(axis=2, dtype=np.float64)
    return np.where(known > 0, total / np.maximum(known, 1), np.nan)


def _short(values: Floats, decimals: int) -> list[float | None]:
    """Give what JSON can hold, to three digits of the peak."""
    return [value if value == value else None for value in np.round(values, decimals).tolist()]  # noqa: PLR0124 - NaN is not itself
