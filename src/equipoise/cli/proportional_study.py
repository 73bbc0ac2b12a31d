"""What each smoothing strategy costs: runs histories, prints tables or a document, and plots values."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from equipoise.cli.documents import Amount, Count, Share
from equipoise.cli.options import parse_span, values_of
from equipoise.cli.plots import BLUE, INK, RED, save
from equipoise.core.errors import BadInput
from equipoise.core.quantity import NANO, parse_bytes
from equipoise.proportional.functions import Inputs, Slot, slots
from equipoise.proportional.parse import PolicyFile, read_observations, read_policy_file
from equipoise.proportional.policy import ScalingPolicySpec
from equipoise.runtime.output import read_text, read_yaml, stepping
from equipoise.sim import smoothing_study as sim

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NUMBERS = ("CHANGES", "PER HOUR", "OVER", "BELOW", "DEEPEST")


class Studied(NamedTuple):
    """All strategies on the histories of one kind."""

    name: str
    seeds: int
    hours: float
    summaries: list[sim.StrategySummary]
    first: sim.SizeHistory
    start: Inputs
    """The size that default settings are made from."""


_REQUEST = {"resource": "cpu", "function": {"input": "cores", "base": "100m", "slope": "10m"}}
DEFAULT_POLICY = {
    "scaleTargetRef": {"kind": "Deployment", "name": "kube-dns"},
    "containers": [{"name": "kube-dns", "resources": {"requests": [_REQUEST]}}],
}
"""The seed's function, without smoothing."""


def policy_of(path: str | None) -> PolicyFile:
    """Return the policy of a file, by default one of the seed's function."""
    document = DEFAULT_POLICY if path is None else read_yaml(path)
    file = read_policy_file(document, path or "default")
    if not slots(file.spec):
        raise BadInput(f"{path}: expected a function for some resource, got none")
    return file


CYCLES_MAX = 2_000_000


def cluster_of(
    nodes: int, node_cores: int, node_memory: str, hours: float, interval: str
) -> sim.ClusterShape:
    """Return the cluster of generated histories; raises BadInput for one that would take too long."""
    with values_of("--node-memory: "):
        memory = round(parse_bytes(node_memory))
    seconds = parse_span("--interval", interval)
    if not 1 <= seconds <= 3600:  # noqa: PLR2004 - a second to an hour
        raise BadInput(f"--interval: expected a span between 1s and 1h, got {interval!r}")
    cluster = sim.ClusterShape(nodes, node_cores, memory, interval_seconds=seconds, hours=hours)
    if cluster.observation_count > CYCLES_MAX:
        looks = f"{CYCLES_MAX} looks of --interval, got {cluster.observation_count}"
        raise BadInput(f"--hours: expected at most {looks}")
    return cluster


def recorded(policy: ScalingPolicySpec, path: str) -> Studied:
    """Return all strategies on the history in a file."""
    rows = read_observations(read_text(path), path, policy.inputs)
    history = sim.SizeHistory([row.at for row in rows], [row.inputs for row in rows])
    start = history.inputs[0]
    return Studied(path, 1, history.hours, sim.study(policy, start, [history]), history, start)


def generated(policy: ScalingPolicySpec, cluster: sim.ClusterShape, scene: str, seeds: int) -> Studied:
    """Return all strategies on the histories of one kind, one for each seed."""
    start = cluster.sized(cluster.nodes)
    histories = (sim.generate(scene, cluster, seed) for seed in range(seeds))
    with stepping(scene, seeds) as on_step:
        summaries = sim.study(policy, start, histories, on_step)
    return Studied(scene, seeds, cluster.hours, summaries, sim.generate(scene, cluster, 0), start)


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
    histories = []
    for each in studied:
        of_history = [StrategyReport(**asdict(summary)) for summary in each.summaries]
        histories.append(HistoryReport(each.name, each.seeds, round(each.hours, 6), of_history))
    times = studied[0].first.times
    interval_seconds = (times[-1] - times[0]) / 1000 / (len(times) - 1) if len(times) > 1 else 0.0
    return StudyReport(subject, interval_seconds, histories)


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
        laid_out.add_row(
            summary.name,
            f"{summary.changes:.1f}",
            f"{summary.changes_per_hour:.1f}",
            f"{summary.over_provision_mean * 100:.2f} %",
            f"{summary.below_model_share * 100:.1f} %",
            f"{summary.below_model_worst * 100:.1f} %",
            style="dim" if summary.name == sim.NONE else "",
        )
    return laid_out


FAINT, MODEL = "#8c959f", "#c4cad1"
STYLE = {"axes.grid": False, "axes.axisbelow": "line", "xtick.color": FAINT, "ytick.color": FAINT}
MARK: dict[str, Any] = {"color": RED, "markersize": 5, "markeredgewidth": 0.7}
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
    title = f"{slot.key}: in force (blue) over what the model asks for (grey); a red tick is a change"
    figure.suptitle(title, fontsize=10)
    return figure


def _column(policy: ScalingPolicySpec, slot: Slot, each: Studied, axes: "Sequence[Axes]") -> None:
    history = each.first
    hours = [(at - history.times[0]) / HOUR for at in history.times]
    scale = 1000 if slot.resource.value == "cpu" else 1024**2
    model = [values[slot.key] / scale for values in sim.modelled(policy, history)]
    sizes = [inputs[_input(policy, slot)] / NANO for inputs in history.inputs]
    unit = f"{slot.resource.value} in {'cores' if slot.resource.value == 'cpu' else 'Mi'}"
    axes[0].set_title(each.name, fontsize=9, fontweight="bold", loc="left")
    axes[0].step(hours, sizes, where="post", color=INK, linewidth=0.9)
    every = [*model]
    for axis, way in zip(axes[1:], sim.strategies(policy, each.start), strict=True):
        course = sim.run(way, history)
        values = [applied[slot.key] / scale for applied in course.applied]
        every += values
        axis.step(hours, model, where="post", color=MODEL, linewidth=1.6)
        axis.step(hours, values, where="post", color=BLUE, linewidth=0.9)
        marks = [hours[number] for number in course.changed]
        axis.plot(marks, [0.03] * len(marks), "|", transform=axis.get_xaxis_transform(), **MARK)
        label = f"{len(marks)} change{'' if len(marks) == 1 else 's'}"
        axis.text(1, 1.0, label, transform=axis.transAxes, ha="right", va="bottom", color=FAINT, fontsize=7)
    _frame(axes, every, unit)


def _frame(axes: "Sequence[Axes]", values: Sequence[float], unit: str) -> None:
    """Set one scale for all strategies of a column, with a margin for the ticks below."""
    from matplotlib.ticker import MaxNLocator

    low, high = min(values), max(values)
    room = max(high - low, high * 0.02) or 1.0
    for axis in axes[1:]:
        axis.set_ylim(low - room * 0.25, high + room * 0.1)
        axis.margins(x=0.01)
    for axis in axes:
        for each in (axis.xaxis, axis.yaxis):
            each.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axis.tick_params(length=2)
    axes[1].text(0, 1.0, unit, transform=axes[1].transAxes, ha="left", va="bottom", color=FAINT, fontsize=7)
    axes[-1].set_xlabel("hours", fontsize=8)


def _input(policy: ScalingPolicySpec, slot: Slot) -> str:
    """Name the first input that the slot follows."""
    own = [function.input for function in slot.functions if function.input is not None]
    return own[0] if own else min(policy.inputs)
