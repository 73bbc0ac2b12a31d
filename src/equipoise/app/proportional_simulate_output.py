"""The simulation as tables for people and as one document for scripts."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from equipoise.sim.cluster_sizes import History, Inputs
from equipoise.sim.damping import NONE, Summary


class Studied(NamedTuple):
    """All strategies on the histories of one kind."""

    name: str
    seeds: int
    hours: float
    summaries: list[Summary]
    first: History
    start: Inputs
    """The size that default settings are made from."""


def document(subject: str, studied: Sequence[Studied]) -> dict[str, Any]:
    """Give it in the shape that scripts rely on."""
    return {
        "policy": subject,
        "interval_seconds": _interval(studied[0].first),
        "histories": [
            {
                "name": each.name,
                "seeds": each.seeds,
                "hours": round(each.hours, 6),
                "strategies": [asdict(summary) for summary in each.summaries],
            }
            for each in studied
        ],
    }


def _interval(history: History) -> float:
    times = history.times
    return (times[-1] - times[0]) / 1000 / (len(times) - 1) if len(times) > 1 else 0.0


def print_tables(subject: str, studied: Sequence[Studied]) -> None:
    """Print one table for each kind of history, and what the words mean."""
    from equipoise.app.console import Console

    console = Console()
    for each in studied:
        console.print(_table(each))
        console.print()
    for summary in studied[0].summaries:
        console.print(f"{summary.name:<16} {summary.settings}", soft_wrap=True)
    console.print(
        f"\n{subject}: every strategy alone on the policy's function. CHANGES is of one history on average, "
        "OVER how much more than the model was in force on average, BELOW the share of the time with less, "
        "DEEPEST by how much at worst. Nothing was changed."
    )


def _table(studied: Studied) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    many = f", {studied.seeds} seeds" if studied.seeds > 1 else ""
    table = Table(
        title=Text(f"{studied.name}: {studied.hours:.3g} h{many}", style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("STRATEGY", no_wrap=True)
    for column in ("CHANGES", "PER HOUR", "OVER", "BELOW", "DEEPEST"):
        table.add_column(column, justify="right", no_wrap=True)
    for summary in studied.summaries:
        table.add_row(*cells(summary), style="dim" if summary.name == NONE else "")
    return table


def cells(summary: Summary) -> list[str]:
    """Give a row of the table as text."""
    return [
        summary.name,
        f"{summary.changes:.1f}",
        f"{summary.changes_per_hour:.1f}",
        f"{summary.over_provision_mean * 100:.2f} %",
        f"{summary.below_model_share * 100:.1f} %",
        f"{summary.below_model_worst * 100:.1f} %",
    ]
