"""Runs the rotation study, and prints it as tables or as one document."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from equipoise.runtime.output import stepping
from equipoise.sim import study as sim
from equipoise.sim.experiment import Experiment
from equipoise.sim.study import Futility, futility

Found = Sequence[tuple[sim.CauseStudied, Futility | None]]

NUMBERS = ("FIRED", "PREDICTED", "REALISED", "WORSE", "PODS", "PODS/10 %", "PEAK", "READY")
LEGEND = {
    sim.CLOSED_LOOP: "what the operator does: wave by wave, measured after each",
    sim.SEED: "the rule as it was: hot and cold deleted at once, past every budget",
    sim.HOT_ONLY: "only the hot ones of them, at once",
    sim.HOTTEST: "only the hottest pod",
    sim.LEFT_ALONE: "nothing for as long as the closed loop took",
}


def study(cause: str, seeds: int, question: Experiment) -> tuple[sim.CauseStudied, Futility | None]:
    """Return the study of one cause; if the load itself is unequal, also whether the loop stops rotating."""
    with stepping(f"{cause}: rotating", seeds) as on_step:
        studied = sim.study(cause, seeds, question, on_progress=on_step)
    if cause != "key skew" or not studied.worlds:
        return studied, None
    with stepping(f"{cause}: going on", studied.worlds) as on_step:
        return studied, futility(cause, studied.worlds, question, on_progress=on_step)


def document(question: Experiment, found: Found) -> dict[str, Any]:
    return {
        "pods": question.pods,
        "settings": dict(question.settings),
        "causes": [_cause_document(studied, ending) for studied, ending in found],
    }


def _cause_document(studied: sim.CauseStudied, ending: Futility | None) -> dict[str, Any]:
    strategies = [asdict(summary) for summary in studied.summaries]
    made: dict[str, Any] = {
        "cause": studied.cause,
        "worlds": studied.worlds,
        "drawn": studied.drawn,
        "strategies": [{"name": each.pop("strategy")} | each for each in strategies],
        "sentence": fewer_pods(studied),
    }
    if ending is not None:
        numbers = asdict(ending)
        del numbers["cause"]
        made["futility"] = numbers | {"sentence": futility_sentence(ending)}
    return made


def fewer_pods(studied: sim.CauseStudied) -> str:
    """Return what rotating fewer pods would have given."""
    all_planned, hottest = studied.of(sim.SEED), studied.of(sim.HOTTEST)
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


def futility_sentence(ending: Futility) -> str:
    """Return after how many rotations the loop stopped if rotating does not help."""
    balanced = f"Going on: {ending.balanced} of {ending.worlds} balanced in the end"
    if not ending.futile:
        return f"{balanced}, none futile."
    most = ending.rotations_failed_max
    return f"{balanced}, {ending.futile} futile after at most {most} failures in a row."


def print_tables(question: Experiment, found: Found) -> None:
    """Print one table per cause with a conclusion, and a legend."""
    from equipoise.runtime.console import Console

    console = Console()
    for studied, ending in found:
        console.print(_table(studied))
        console.print(fewer_pods(studied), soft_wrap=True)
        if ending is not None:
            console.print(futility_sentence(ending), soft_wrap=True)
        console.print()
    for name, meaning in LEGEND.items():
        console.print(f"{name:<12} {meaning}")
    console.print(
        f"\nWorlds with {question.pods} pods and a PodDisruptionBudget of one, whatever maxUnavailable "
        "says. PREDICTED, REALISED (how far the hottest pod fell) and PEAK (the most that one pod used "
        "meanwhile, compared with the hottest before) are medians; FIRED counts rotations, WORSE is the "
        "share that left the hottest pod hotter, PODS all that were evicted, READY the fewest ready."
    )


def _table(studied: sim.CauseStudied) -> Any:
    from equipoise.runtime.console import table

    title = f"{studied.cause}: hot in {studied.worlds} of {studied.drawn} worlds"
    laid_out = table("STRATEGY", *NUMBERS, right=NUMBERS, folded=(), title=title)
    for summary in studied.summaries:
        laid_out.add_row(*_cells(summary), style="dim" if summary.strategy == sim.LEFT_ALONE else "")
    return laid_out


def _cells(summary: sim.StrategyMeasured) -> list[str]:
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
