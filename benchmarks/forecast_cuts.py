"""Real traces with their end held out: what every rival forecasts without having seen it."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.measuring import ROOT
from equipoise.stats.dsp import waves
from equipoise.stats.predict import Algorithm, predict
from equipoise.stats.profile import error, flat_lines

TRACES = ROOT.parent / "shared" / "data" / "traces"
"""Not part of the checkout."""
NUMBERS = (0, 1, 2, 5, 9, 12)
MINUTES = 1440
DAY_SECONDS = 86400.0
WEEK = 7 * MINUTES

Series = npt.NDArray[np.float32]


class Cut(NamedTuple):
    """One held-out span: errors of all rivals, NaN where one has no answer."""

    ours: float
    dsp: float
    repeat_day: float
    repeat_week: float
    flat: float
    coverage: float
    is_predictable: bool


@cache
def trace(number: int) -> Series:
    """Give a trace, one value per minute."""
    table = np.loadtxt(TRACES / f"cpu-{number}.csv", delimiter=",", skiprows=1)
    return np.asarray(table[:, 1], np.float32)


@cache
def cuts(number: int, days: int = 1) -> tuple[Cut, ...]:
    """Hold out the last days, then the ones before, a day apart; nothing sees what is held out."""
    values = trace(number)
    count = 1 if days > 1 else 3 if number == 0 else 7
    return tuple(_cut(values[: len(values) - back * MINUTES], days) for back in range(count))


def mean(number: int, name: str) -> float:
    """Give the mean over the cuts; NaN where a rival can't answer at some."""
    return float(np.mean([getattr(cut, name) for cut in cuts(number)]))


def where_dsp_answers(number: int) -> tuple[float, float, int]:
    """Give our error and the signal processing's at the cuts where that finds a period, and how many."""
    answered = [cut for cut in cuts(number) if not np.isnan(cut.dsp)]
    if not answered:
        return np.nan, np.nan, 0
    ours, dsp = (float(np.mean([getattr(cut, name) for cut in answered])) for name in ("ours", "dsp"))
    return ours, dsp, len(answered)


def dsp_with_hindsight(number: int) -> tuple[float, int]:
    """Give the error of the eight estimators' best on the period that it was chosen on, and its days."""
    made = waves(trace(number)[None], MINUTES, 60.0)
    return float(made.error[0]), int(made.period[0]) // MINUTES


def _cut(values: Series, days: int) -> Cut:
    held = days * MINUTES
    seen, actual = values[None, :-held], values[None, -held:]
    ours = predict(seen, 60.0, days * DAY_SECONDS, has_band=True)
    dsp = predict(seen, 60.0, days * DAY_SECONDS, algorithm=Algorithm.DSP)
    week = seen[:, -WEEK:]
    return Cut(
        ours=float(error(actual, ours.values)[0]),
        dsp=float(error(actual, dsp.values)[0]) if dsp.period_days[0] else np.nan,
        repeat_day=float(error(actual, np.resize(seen[:, -MINUTES:], actual.shape))[0]),
        repeat_week=float(error(actual, week[:, :held])[0]) if week.shape[1] == WEEK else np.nan,
        flat=float(error(actual, np.broadcast_to(flat_lines(week)[:, None], actual.shape))[0]),
        coverage=float((actual <= ours.upper).mean()),
        is_predictable=bool(ours.is_predictable[0]),
    )
