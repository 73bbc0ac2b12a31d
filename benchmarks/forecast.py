"""How right the forecast is on days that nothing has seen, beside other ways; and how fast."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from benchmarks.forecast_cuts import NUMBERS, TRACES, cuts, dsp_with_hindsight, mean, where_dsp_answers
from benchmarks.measuring import MEBIBYTE, Figures, in_own_process, interleaved, memory_bytes
from benchmarks.tables import Section, Table

SERIES = 2000
BATCH = 256
SAMPLES = 7 * 1440
SEED = 5
ERROR = (
    "The error is the mean of forecast / actual - 1 where too much was forecast; too little costs about 4.5 "
    "times as much, as a logarithm."
)
CUTS = (
    "Means over 7 cuts a day apart (3 for trace 0). Period, model, margin and level come from what was "
    "before the cut."
)
WAYS = {
    "profile, one day ahead": ("profile", 1, False),
    "profile, one day ahead, with its band": ("profile", 1, True),
    "profile, seven days ahead": ("profile", 7, False),
    "dsp, seven days ahead": ("dsp", 7, False),
}


def speed(series: int, algorithm: str, days: int, has_band: bool) -> Figures:
    """Forecast generated weeks batch by batch; only the forecasts are timed."""
    from equipoise.stats.predict import Algorithm, predict

    chance, cpu_seconds = np.random.default_rng(SEED), 0.0
    for start in range(0, series, BATCH):
        batch = weeks(chance, min(BATCH, series - start))
        before = time.process_time()
        predict(batch, 60.0, days * 86400.0, algorithm=Algorithm(algorithm), has_band=has_band)
        cpu_seconds += time.process_time() - before
    return {"cpu_seconds": cpu_seconds, "peak_bytes": memory_bytes("VmHWM")}


def weeks(chance: np.random.Generator, series: int) -> np.ndarray:
    """Give weeks of minutes: a daily course of each one's own height and phase, and noise."""
    angle = np.arange(SAMPLES, dtype=np.float32) / np.float32(1440 / 2 / np.pi)
    phase = chance.uniform(0, 2 * np.pi, (series, 1)).astype(np.float32)
    swing = chance.uniform(0.1, 0.8, (series, 1)).astype(np.float32)
    level = chance.gamma(2, 20, (series, 1)).astype(np.float32) + 1
    noise = chance.standard_gamma(30, (series, SAMPLES), dtype=np.float32) / 30
    return np.asarray(level * (1 + swing * np.sin(angle + phase)) * noise)


def run(*, quick: bool) -> Section:
    tables, meaning, remarks = [], "The traces are not here; only the speed was measured.", []
    if TRACES.is_dir():
        tables, meaning = [_errors(), _weeks(), _hindsight()], _meaning()
        remarks = _remarks()
    pace = _speeds(quick=quick)
    return Section("Forecasts", [*tables, pace], meaning, remarks)


def _errors() -> Table:
    table = Table(
        (
            "trace, one day ahead",
            "ours",
            "repeat day",
            "repeat week",
            "flat",
            "ours where DSP answers",
            "DSP",
            "DSP answers",
            "band covers",
            "predictable",
        )
    )
    for number in NUMBERS:
        ours, dsp, answered = where_dsp_answers(number)
        said = {cut.is_predictable for cut in cuts(number)}
        table.add(
            f"{number}",
            *(_figure(mean(number, name)) for name in ("ours", "repeat_day", "repeat_week", "flat")),
            _figure(ours),
            _figure(dsp),
            f"{answered} of {len(cuts(number))}",
            f"{mean(number, 'coverage'):.3f}",
            " and ".join("yes" if claim else "no" for claim in sorted(said)),
        )
    return table


def _weeks() -> Table:
    table = Table(("trace, seven days ahead", "ours", "repeat day", "repeat week", "flat", "DSP"))
    for number in NUMBERS[1:]:
        (cut,) = cuts(number, 7)
        table.add(
            f"{number}",
            *(_figure(value) for value in (cut.ours, cut.repeat_day, cut.repeat_week, cut.flat, cut.dsp)),
        )
    return table


def _hindsight() -> Table:
    table = Table(
        ("trace, its last period", "days", "ours, not having seen it", "DSP, its best chosen on it")
    )
    for number in NUMBERS:
        dsp, days = dsp_with_hindsight(number)
        if days:
            table.add(f"{number}", f"{days}", _figure(cuts(number, days)[0].ours), _figure(dsp))
    return table


def _meaning() -> str:
    repeats = [
        mean(number, "ours") / np.nanmin([mean(number, "repeat_day"), mean(number, "repeat_week")]) - 1
        for number in NUMBERS
    ]
    dsps = [ours / dsp - 1 for ours, dsp, count in map(where_dsp_answers, NUMBERS) if count]
    week = np.exp(np.mean([np.log(cuts(number, 7)[0].ours) for number in NUMBERS[1:]]))
    return (
        f"On days that it has not seen, the forecast's error is below the better repeat's on "
        f"{sum(gain < 0 for gain in repeats)} of {len(repeats)} traces ({np.median(repeats) * 100:+.0f} % in "
        f"the middle), and below the signal processing's on {sum(gain < 0 for gain in dsps)} of the "
        f"{len(dsps)} where that answers ({np.median(dsps) * 100:+.0f} %). "
        f"A week ahead, its geometric mean is {week:.3f}."
    )


def _remarks() -> list[str]:
    shares = [mean(number, "coverage") for number in NUMBERS]
    covered = (
        f"{np.mean(shares) * 100:.1f} % of what was held out, {min(shares) * 100:.1f} % of a trace at least"
    )
    return [ERROR, CUTS, f"The band of 95 % covers {covered}."]


def _speeds(*, quick: bool) -> Table:
    table = Table(("speed: 7 days of minutes each", "series", "CPU s", "series/s/core", "peak RSS MiB"))
    series = SERIES // 10 if quick else SERIES
    for name, (algorithm, days, has_band) in WAYS.items():
        count = series if algorithm == "profile" else series // 10
        way = partial(in_own_process, speed, series=count, algorithm=algorithm, days=days, has_band=has_band)
        (taken,) = interleaved(1 if quick else 3, way)
        table.add(
            name,
            f"{count:,}",
            f"{taken['cpu_seconds']:.2f}",
            f"{count / taken['cpu_seconds']:,.0f}",
            f"{taken['peak_bytes'] / MEBIBYTE:,.0f}",
        )
    return table


def _figure(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"
