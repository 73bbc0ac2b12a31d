"""Plots advice: a week of usage, the forecast with its band, and today's and the advised replicas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from equipoise.cli.plots import BAND, BLUE, FAINT, GREY, INK, RED, RULE, dates, expect_few, mark_days, save
from equipoise.cli.recommendation_replay import HpaBounds, advised, course_of, past_week, week_by_minute
from equipoise.core.decision import Decision
from equipoise.core.errors import BadInput
from equipoise.recommendation.forecast import WEEK_SECONDS, WorkloadSeries
from equipoise.recommendation.observe import Observation
from equipoise.recommendation.settings import RecommendationPolicy
from equipoise.sim.hpa_fleet import MINUTE_SECONDS, FleetRun, by_minute, fixed, is_above
from equipoise.stats.predict import Algorithm, predict
from equipoise.stats.ranks import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOW: dict[str, Any] = {"textcoords": "offset points", "va": "top", "color": FAINT, "fontsize": 7}
# Two dollar signs in a name are no formula.
TITLE: dict[str, Any] = {"loc": "left", "fontsize": 10, "fontweight": "bold", "pad": 7, "parse_math": False}
ON_FORECAST: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.45, "label": "advice, on the forecast"}
ABOVE: dict[str, Any] = {"color": RED, "linewidth": 0, "label": "today's pods above their request"}


class Ahead(NamedTuple):
    """The coming week of one workload."""

    times: Floats
    values: Floats
    upper: Floats
    margin: float
    is_predictable: bool


def draw_advice(
    policy: RecommendationPolicy,
    rows: Sequence[Observation],
    decisions: Sequence[Decision],
    algorithm: Algorithm | None,
    path: str,
) -> None:
    """Plot a few workloads, one per row, with usage above replicas."""
    expect_few(len(decisions))
    if any("containers" in (decision.extra["recommended"] or {}) for decision in decisions):
        raise BadInput("--plot: expected --type HPA, whose replicas can be drawn")
    ahead = [_ahead(observation, algorithm) for observation in rows]
    save(lambda: _figure(policy.time_zone, rows, decisions, ahead), path)


def draw_forecast(series: WorkloadSeries, document: dict[str, Any], path: str) -> None:
    """Plot the past week and a forecast; in a backtest, also the actual usage."""
    times, values, upper = (
        np.array(document[name], np.float64) for name in ("timestamps", "values", "upper")
    )
    ahead = Ahead(times, values, upper, 1.0, document["predictable"])
    now = float(ahead.times[0]) - series.interval_seconds
    past_times = series.at - np.arange(len(series.values))[::-1] * series.interval_seconds
    is_shown = past_times > now - WEEK_SECONDS

    def figure() -> Any:
        from matplotlib.figure import Figure

        made = Figure(figsize=(11, 3.4), layout="constrained")
        axis = made.subplots()
        word = "held out" if now < series.at else "now"
        draw_usage(axis, (past_times[is_shown], series.values[is_shown]), ahead, now, word)
        axis.set_title(series.subject, **TITLE)
        mark_days([axis])
        return made

    save(figure, path)


def _ahead(observation: Observation, algorithm: Algorithm | None) -> Ahead | None:
    if algorithm is None:
        return None
    made = predict(
        observation.history, observation.interval_seconds, WEEK_SECONDS, algorithm=algorithm, has_band=True
    )
    times = observation.at + (np.arange(made.values.shape[1]) + 1) * observation.interval_seconds
    if np.isnan(made.values).any():
        return None
    return Ahead(times, made.values[0], made.upper[0], float(made.margin[0]), bool(made.is_predictable[0]))


def _figure(
    zone: str, rows: Sequence[Observation], decisions: Sequence[Decision], ahead: Sequence[Ahead | None]
) -> Any:
    from matplotlib.figure import Figure

    count = len(decisions)
    assert count == len(rows) == len(ahead), "a history and a forecast for each decision"
    figure = Figure(figsize=(11, 0.5 + 4.2 * count), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.08, hspace=0.03)  # type: ignore[union-attr, call-arg]
    grid = figure.subplots(2 * count, 1, sharex=True, squeeze=False, height_ratios=[3, 2] * count)[:, 0]
    for row, decision in enumerate(decisions):
        one, upper, lower = rows[row], grid[2 * row], grid[2 * row + 1]
        values = past_week(one)[0]
        times = one.at - np.arange(len(values))[::-1] * one.interval_seconds
        draw_usage(upper, (times, values), ahead[row], one.at)
        _draw_replicas(lower, one, decision, ahead[row])
        upper.set_title(decision.subject, **TITLE)
        lower.tick_params(axis="x", labelbottom=True, which="both")
    mark_days(grid, zone)
    figure.align_ylabels()
    return figure


def draw_usage(
    axis: "Axes", past: tuple[Floats, Floats], ahead: Ahead | None, now: float, word: str = "now"
) -> None:
    axis.plot(dates(past[0]), past[1], color=INK, linewidth=0.7, label="CPU usage")
    if ahead is not None:
        trust = "" if ahead.is_predictable else " (not predictable)"
        axis.fill_between(
            dates(ahead.times), ahead.values, ahead.upper, color=BAND, linewidth=0, label="95 % band"
        )
        axis.plot(dates(ahead.times), ahead.values, color=BLUE, linewidth=0.9, label=f"forecast{trust}")
        axis.annotate(word, (dates(now), 1), (3, -1), xycoords=axis.get_xaxis_transform(), **NOW)
    _dress(axis, now, "CPU cores")


def _draw_replicas(axis: "Axes", observation: Observation, decision: Decision, ahead: Ahead | None) -> None:
    """Plot today's replicas and the advised ones, for the past and the forecast."""
    from matplotlib.ticker import MaxNLocator

    cores = week_by_minute(observation)
    known = cores.shape[1]
    hpa = advised(decision)
    if ahead is not None and hpa is not None:
        future = by_minute(ahead.values[None] / np.float32(ahead.margin), observation.interval_seconds)
        cores = np.concatenate([cores, future], axis=1)
    begin = observation.at - known * MINUTE_SECONDS
    times = dates(begin + np.arange(cores.shape[1]) * MINUTE_SECONDS)
    today = _draw_today(axis, observation, decision, cores, times)
    if hpa is not None:
        replicas = _since_measured(course_of(observation, cores, np.zeros(1, np.intp), [hpa]), cores)
        label = f"advice: {hpa}"
        axis.step(times[:known], replicas[:known], where="post", color=BLUE, linewidth=0.9, label=label)
        if len(replicas) > known:
            axis.step(times[known:], replicas[known:], where="post", color=BLUE, **ON_FORECAST)
    else:
        axis.plot([], [], " ", label=f"no advice: {decision.reason.code.value}")
    _draw_above(axis, observation, today, times)
    _dress(axis, observation.at, "replicas")
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _draw_today(
    axis: "Axes", observation: Observation, decision: Decision, cores: Floats, times: Floats
) -> FleetRun:
    """Plot today's replicas: by the workload's only HPA, else the current number."""
    hpas = decision.extra.get("current", {}).get("hpas", [])
    is_scaled = len(hpas) == 1 and hpas[0]["targetUtilization"] and observation.request_cores[0] > 0
    if not is_scaled:
        count = int(observation.replicas[0])
        axis.plot(times[[0, -1]], [count, count], color=GREY, linewidth=1.2, label=f"today: {count} fixed")
        return fixed(observation.replicas, cores.shape[1])
    hpa = HpaBounds.of(hpas[0])
    course = course_of(observation, cores, np.zeros(1, np.intp), [hpa])
    replicas = _since_measured(course, cores)
    axis.step(times, replicas, where="post", color=GREY, linewidth=1.1, label=f"today: {hpa}")
    return course


def _since_measured(course: FleetRun, cores: Floats) -> Floats:
    """Return replicas from the first measured usage on; before that, an HPA has no metric."""
    is_shown = np.maximum.accumulate(~np.isnan(cores[0]))
    return np.where(is_shown, course.replicas[0], np.nan)


def _draw_above(axis: "Axes", observation: Observation, today: FleetRun, times: Floats) -> None:
    """Mark the times when today's replicas used more than their requests."""
    cores = week_by_minute(observation)
    known = cores.shape[1]
    past = today._replace(replicas=today.replicas[:, :known])
    is_busy = is_above(past, cores, observation.request_cores)[0]
    if is_busy.any():
        style = ABOVE | {"where": is_busy.tolist(), "transform": axis.get_xaxis_transform()}
        axis.fill_between(times[:known], 0, 0.03, **style)


def _dress(axis: "Axes", now: float, unit: str) -> None:
    axis.axvline(dates(now), color=RULE, linewidth=1)
    axis.set_ylabel(unit)
    top = axis.dataLim.ymax  # infinite while the axis is empty
    axis.set_ylim(0, top * 1.1 if 0 < top < np.inf else 1)
    axis.margins(x=0)
    axis.tick_params(length=2)
    axis.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0, handlelength=1.6)
