"""What a rotation brings, by the cause of the imbalance and by the way of rotating."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from benchmarks.measuring import Figures, in_own_process
from benchmarks.tables import Section, Table
from equipoise.sim.experiment import IMBALANCES, Experiment
from equipoise.sim.study import CLOSED_LOOP, HOT_ONLY, HOTTEST, LEFT_ALONE, SEED, futility, study

WORLDS = 200
SIZES = (6, 30)
STRATEGIES = (CLOSED_LOOP, SEED, HOT_ONLY, HOTTEST, LEFT_ALONE)
UNKNOWN = -1.0e9
"""What a figure is that cannot be said."""
STUDY_MAX_SECONDS = 3600.0


def run(*, quick: bool) -> Section:
    worlds = WORLDS // 10 if quick else WORLDS
    table = Table(
        (
            "cause, pods",
            "strategy",
            "fired",
            "predicted",
            "realised",
            "worse",
            "pods per 10 points",
            "peak",
            "least ready",
        )
    )
    futile = Table(("going on", "pods", "worlds", "balanced", "futile", "failures in a row, at most"))
    cpu_seconds = 0.0
    for pods in SIZES[:1] if quick else SIZES:
        for cause in IMBALANCES:
            found = in_own_process(
                studied, seconds_max=STUDY_MAX_SECONDS, cause=cause, worlds=worlds, pods=pods
            )
            cpu_seconds += found["cpu_seconds"]
            for name in STRATEGIES:
                table.add(f"{cause}, {pods}", name, *_cells(found, name))
            futile.add(cause, f"{pods}", *(_number(found[f"futility {key}"], 0) for key in FUTILITY))
    remarks = [f"All of it took {cpu_seconds:.0f} s of CPU."]
    return Section("Rotating: what it brings, by cause", [table, futile], _meaning(table, worlds), remarks)


FUTILITY = ("worlds", "balanced", "futile", "rotations_failed_max")


def studied(cause: str, worlds: int, pods: int) -> Figures:
    began = time.process_time()
    question = Experiment(pods)
    found = study(cause, worlds, question)
    figures: Figures = {}
    for summary in found.summaries:
        figures |= _figures(summary.strategy, asdict(summary))
    figures |= _figures("futility", asdict(futility(cause, max(worlds // 5, 1), question)))
    return figures | {"cpu_seconds": time.process_time() - began}


def _figures(prefix: str, numbers: dict[str, Any]) -> Figures:
    return {
        f"{prefix} {key}": UNKNOWN if value is None else float(value)
        for key, value in numbers.items()
        if not isinstance(value, str)
    }


def _cells(found: Figures, name: str) -> tuple[str, ...]:
    is_rotated = found[f"{name} evicted"] > 0
    worse = found[f"{name} worse_share"]
    return (
        _number(found[f"{name} fired"], 0) if is_rotated else "",
        _percent(found[f"{name} predicted_percent_median"]) if is_rotated else "",
        _percent(found[f"{name} realised_percent_median"]),
        _percent(worse if worse == UNKNOWN else worse * 100, digits=0),
        _number(found[f"{name} evicted_per_10_points"], 2),
        _number(found[f"{name} peak_ratio_median"], 2, "x"),
        _number(found[f"{name} ready_min"], 0),
    )


def _percent(value: float, digits: int = 1) -> str:
    return "" if value == UNKNOWN else f"{round(value, digits) + 0.0:.{digits}f} %"


def _number(value: float, digits: int, unit: str = "") -> str:
    return "" if value == UNKNOWN else f"{value:.{digits}f}{unit}"


def _meaning(table: Table, worlds: int) -> str:
    rows = {(row[0], row[1]): row for row in table.rows}
    said = []
    for cause in IMBALANCES:
        place = f"{cause}, {SIZES[0]}"
        ours, at_once = rows[place, CLOSED_LOOP], rows[place, SEED]
        said.append(f"{cause} {ours[4]} (at once {at_once[4]}, predicted {ours[3]})")
    return (
        f"By how much the hottest of {SIZES[0]} pods falls, as the median of {worlds} worlds, depends on the "
        f"cause: {'; '.join(said)}."
    )
