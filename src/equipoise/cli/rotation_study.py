"""Prints the rotation study as tables or as one document."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from equipoise.sim.experiment import Experiment
from equipoise.sim.study import (
    CLOSED_LOOP,
    HOT_ONLY,
    HOTTEST,
    LEFT_ALONE,
    SEED,
    CauseStudied,
    Futility,
    StrategyMeasured,
)

Found = Sequence[tuple[CauseStudied, Futility | None]]

NUMBERS = ("FIRED", "PREDICTED", "REALISED", "WORSE", "PODS", "PODS/10 %", "PEAK", "READY")
LEGEND = {
    CLOSED_LOOP: "what the operator does: wave by wave, measured after each",
    SEED: "the rule as it was: hot and cold deleted at once, past every budget",
    HOT_ONLY: "only the hot ones of them, at once",
    HOTTEST: "only the hottest pod",
    LEFT_ALONE: "nothing for as long as the closed loop took",
}


def document(question: Experiment, found: Found) -> dict[str, Any]:
    """Return the study as the document for scripts."""
    return {
        "pods": question.pods,
        "settings": dict(question.settings),
        "causes": [_cause_document(studied, futility) for studied, futility in found],
    }


def _cause_document(studied: CauseStudied, futility: Futility | None) -> dict[str, Any]:
    strategies = []
    for summary in studied.summaries:
        numbers = asdict(summary)
        strategies.append({"name": numbers.pop("strategy"), **numbers})
    made: dict[str, Any] = {
        "cause": studied.cause,
        "worlds": studied.worlds,
        "drawn": studied.drawn,
        "strategies": strategies,
        "sentence": fewer_pods(studied),
    }
    if futility is not None:
        numbers = asdict(futility)
        del numbers["cause"]
        made["futility"] = numbers | {"sentence": futility_sentence(futility)}
    return made


def fewer_pods(studied: CauseStudied) -> str:
    """Return what rotating fewer pods would have given."""
    all_planned, hottest = studied.of(SEED), studied.of(HOTTEST)
    if not all_planned.fired:
        return "No pod was hot, so nothing was rotated."
    per_world = all_planned.evicted / all_planned.fired
    return (
        f"Fewer pods: the hottest alone, {_better(hottest.realised_percent_median)}; "
        f"all {per_world:.1f} at once, {_better(all_planned.realised_percent_median)}."
    )


def _better(realised_percent: float | None) -> str:
    rounded = round(realised_percent or 0.0, 1)
    if not rounded:
        return "no better"
    return f"{abs(rounded):.1f} % {'better' if rounded > 0 else 'worse'}"


def futility_sentence(futility: Futility) -> str:
    """Return after how many rotations the loop stopped if rotating does not help."""
    balanced = f"Going on: {futility.balanced} of {futility.worlds} balanced in the end"
    if not futility.futile:
        return f"{balanced}, none futile."
    most = futility.rotations_failed_max
    return f"{balanced}, {futility.futile} futile after at most {most} failures in a row."


def print_tables(question: Experiment, found: Found) -> None:
    """Print one table per cause with a conclusion, and a legend."""
    from equipoise.runtime.console import Console

    console = Console()
    for studied, futility in found:
        console.print(_table(studied))
        console.print(fewer_pods(studied), soft_wrap=True)
        if futility is not None:
            console.print(futility_sentence(futility), soft_wrap=True)
        console.print()
    for name, meaning in LEGEND.items():
        console.print(f"{name:<12} {meaning}")
    console.print(
        f"\nWorlds with {question.pods} pods and a PodDisruptionBudget of one, whatever maxUnavailable "
        "says. PREDICTED, REALISED (how far the hottest pod fell) and PEAK (the most that one pod used "
        "meanwhile, compared with the hottest before) are medians; FIRED counts rotations, WORSE is the "
        "share that left the hottest pod hotter, PODS all that were evicted, READY the fewest ready."
    )


def _table(studied: CauseStudied) -> Any:
    from equipoise.runtime.console import table

    title = f"{studied.cause}: hot in {studied.worlds} of {studied.drawn} worlds"
    padding = (0, 1, 0, 0)  # fits in 80 columns
    laid_out = table("STRATEGY", *NUMBERS, right=NUMBERS, folded=(), padding=padding, title=title)
    for summary in studied.summaries:
        laid_out.add_row(*_cells(summary), style="dim" if summary.strategy == LEFT_ALONE else "")
    return laid_out


def _cells(summary: StrategyMeasured) -> list[str]:
    is_rotated = bool(summary.evicted)
    return [
        summary.strategy,
        str(summary.fired) if is_rotated else "-",
        _percent(summary.predicted_percent_median) if is_rotated else "-",
        _percent(summary.realised_percent_median),
        _percent(None if summary.worse_share is None else summary.worse_share * 100, digits=0),
        str(summary.evicted) if is_rotated else "-",
        _number(summary.evicted_per_10_points, 2),
        _number(summary.peak_ratio_median, 2, "x"),
        _number(summary.ready_min, 0),
    ]


def _percent(value: float | None, digits: int = 1) -> str:
    # Avoid "-0" for a small negative number.
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f} %"


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"
