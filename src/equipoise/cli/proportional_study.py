"""Prints the cost of each smoothing strategy as tables or a document, and plots the applied values."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from equipoise.cli.documents import Amount, Count, Share
from equipoise.cli.plots import BLUE, INK, RED, save
from equipoise.core.quantity import NANO
from equipoise.proportional.functions import Inputs, Slot, slots
from equipoise.proportional.policy import ScalingPolicySpec
from equipoise.sim.smoothing_study import (
    NONE,
    SizeHistory,
    StrategySummary,
    modelled,
    run,
    strategies,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NUMBERS = ("CHANGES", "PER HOUR", "OVER", "BELOW", "DEEPEST")


class Studied(NamedTuple):
    """All strategies on the histories of one kind."""

    name: str
    seeds: int
    hours: float
    summaries: list[StrategySummary]
    first: SizeHistory
    start: Inputs
    """The size that default settings are made from."""


class StrategyReport(Struct):
    """What one strategy made of all histories of one kind, on average."""

    name: str
    settings: str
    changes: Amount
    changes_per_hour: Amount
    over_provision_mean: Amount
    below_model_share: Share
    below_model_worst: Share


class HistoryReport(Struct):
    """All strategies on the histories of one kind."""

    name: str
    seeds: Count
    hours: float
    strategies: list[StrategyReport]


class StudyReport(Struct):
    """What the simulation prints."""

    policy: str
    interval_seconds: float
    histories: list[HistoryReport]


def report(subject: str, studied: Sequence[Studied]) -> StudyReport:
    """Return the document for scripts."""
    histories = [
        HistoryReport(
            each.name,
            each.seeds,
            round(each.hours, 6),
            [StrategyReport(**asdict(summary)) for summary in each.summaries],
        )
        for each in studied
    ]
    return StudyReport(subject, _interval(studied[0].first), histories)


def _interval(history: SizeHistory) -> float:
    times = history.times
    return (times[-1] - times[0]) / 1000 / (len(times) - 1) if len(times) > 1 else 0.0


def print_tables(subject: str, studied: Sequence[Studied]) -> None:
    """Print one table for each kind of history, and a legend."""
    from equipoise.runtime.console import Console

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
    from equipoise.runtime.console import table

    many = f", {studied.seeds} seeds" if studied.seeds > 1 else ""
    title = f"{studied.name}: {studied.hours:.3g} h{many}"
    laid_out = table("STRATEGY", *NUMBERS, right=NUMBERS, folded=(), title=title)
    for summary in studied.summaries:
        laid_out.add_row(*cells(summary), style="dim" if summary.name == NONE else "")
    return laid_out


def cells(summary: StrategySummary) -> list[str]:
    """Return a row of the table as text."""
    return [
        summary.name,
        f"{summary.changes:.1f}",
        f"{summary.changes_per_hour:.1f}",
        f"{summary.over_provision_mean * 100:.2f} %",
        f"{summary.below_model_share * 100:.1f} %",
        f"{summary.below_model_worst * 100:.1f} %",
    ]


FAINT, MODEL = "#8c959f", "#c4cad1"
STYLE = {"axes.grid": False, "axes.axisbelow": "line", "xtick.color": FAINT, "ytick.color": FAINT}
HOUR = 3_600_000


def draw(policy: ScalingPolicySpec, studied: Sequence[Studied], path: str) -> None:
    """Plot the first history of each kind: one column per kind, one row per strategy."""
    save(lambda: _figure(policy, studied), path, STYLE)


def _figure(policy: ScalingPolicySpec, studied: Sequence[Studied]) -> Any:
    from matplotlib.figure import Figure

    slot = slots(policy)[0]
    names = [summary.name for summary in studied[0].summaries]
    width, height = 2.2 + 3.1 * len(studied), 1.5 + 1.0 * (len(names) + 1)
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(len(names) + 1, len(studied), sharex="col", squeeze=False)
    for column, each in enumerate(studied):
        _column(policy, slot, each, [row[column] for row in grid])
    for row, name in enumerate([_input(policy, slot), *names]):
        grid[row][0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=10, fontsize=9)
    figure.suptitle(
        f"{slot.key}: in force (blue) over what the model asks for (grey); a red tick is a change",
        fontsize=10,
    )
    return figure


def _column(policy: ScalingPolicySpec, slot: Slot, each: Studied, axes: "Sequence[Axes]") -> None:
    history = each.first
    hours = [(at - history.times[0]) / HOUR for at in history.times]
    scale = 1000 if slot.resource.value == "cpu" else 1024**2
    model = [values[slot.key] / scale for values in modelled(policy, history)]
    sizes = [inputs[_input(policy, slot)] / NANO for inputs in history.inputs]
    unit = f"{slot.resource.value} in {'cores' if slot.resource.value == 'cpu' else 'Mi'}"
    axes[0].set_title(each.name, fontsize=9, fontweight="bold", loc="left")
    axes[0].step(hours, sizes, where="post", color=INK, linewidth=0.9)
    every = [*model]
    for axis, way in zip(axes[1:], strategies(policy, each.start), strict=True):
        course = run(way, history)
        values = [applied[slot.key] / scale for applied in course.applied]
        every += values
        axis.step(hours, model, where="post", color=MODEL, linewidth=1.6)
        axis.step(hours, values, where="post", color=BLUE, linewidth=0.9)
        marks = [hours[number] for number in course.changed]
        axis.plot(
            marks,
            [0.03] * len(marks),
            "|",
            transform=axis.get_xaxis_transform(),
            color=RED,
            markersize=5,
            markeredgewidth=0.7,
        )
        label = f"{len(marks)} change{'' if len(marks) == 1 else 's'}"
        axis.text(1, 1.0, label, transform=axis.transAxes, ha="right", va="bottom", color=FAINT, fontsize=7)
    _frame(axes, every, unit)


def _frame(axes: "Sequence[Axes]", values: Sequence[float], unit: str) -> None:
    """Set one scale for all strategies of a column, with a margin for the ticks below."""
    low, high = min(values), max(values)
    room = max(high - low, high * 0.02) or 1.0
    for axis in axes[1:]:
        axis.set_ylim(low - room * 0.25, high + room * 0.1)
        axis.margins(x=0.01)
    for axis in axes:
        axis.yaxis.set_major_locator(_few())
        axis.xaxis.set_major_locator(_few())
        axis.tick_params(length=2)
    axes[1].text(0, 1.0, unit, transform=axes[1].transAxes, ha="left", va="bottom", color=FAINT, fontsize=7)
    axes[-1].set_xlabel("hours", fontsize=8)


def _few() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4, steps=[1, 2, 5, 10])


def _input(policy: ScalingPolicySpec, slot: Slot) -> str:
    """Name the first input that the slot follows."""
    own = [function.input for function in slot.functions if function.input is not None]
    return own[0] if own else min(policy.inputs)
