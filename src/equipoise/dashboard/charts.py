"""The common parts of the charts, as ECharts options; callers pass data only, never ECharts keys."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from equipoise.dashboard.values import drawn, milliseconds

Options = dict[str, Any]
Point = tuple[float, float | None]
"""A time and a value; None leaves a gap."""

AHEAD: Options = {"animation": False, "legend": {"type": "scroll", "top": 0}}
GRID: Options = {"left": 8, "right": 16, "top": 40, "bottom": 8, "containLabel": True}
LEVEL_RIGHT = 72
"""The margin for the names of levels, at the right of the chart."""
TIMES: Options = {"hideOverlap": True, "alignMinLabel": "left", "alignMaxLabel": "right", "fontSize": 11}
LABEL: Options = {"interval": 0, "hideOverlap": True, "width": 90, "overflow": "truncate"}
WHOLE = frozenset({"decisions", "pods", "replicas"})
"""Units that are whole numbers."""
ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""The possible ends of an axis, times a power of ten: its ticks divide these."""
LABELLED_MAX = 12
"""The maximum number of names below an axis; with more, the tooltip of a bar shows its name."""


class Line(NamedTuple):
    """One line over time."""

    name: str
    colour: str
    points: Sequence[Point]
    is_step: bool = False
    """True if a value holds until the next one."""
    is_dashed: bool = False
    is_filled: bool = False
    on_right: bool = False
    """True if it uses the axis at the right."""


class Bar(NamedTuple):
    """One value of a row of bars."""

    name: str
    value: float | None
    colour: str = ""
    """The bar's own colour, if it differs from its row's."""
    label: str = ""
    """The label above the bar."""


class Level(NamedTuple):
    """A horizontal line at one value."""

    name: str
    value: float | None
    colour: str
    is_reached: bool = True
    """True if the axis always includes it."""


def over_time(unit: str, lines: Sequence[Line], levels: Sequence[Level] = ()) -> Options:
    """Return a chart of lines over time; `unit` is that of the left axis."""
    values = [value for line in lines if not line.on_right for _, value in line.points]
    reached = [level.value for level in levels if level.is_reached]
    axes = [_axis(unit, values, reached) | {"scale": False}]
    if any(line.on_right for line in lines):
        axes.append({"type": "value", "splitLine": {"show": False}})
    series = [_line(line) for line in lines]
    marks = _level_marks(levels)
    if series:
        series[0] |= marks
    return {
        **AHEAD,
        "grid": GRID | {"right": LEVEL_RIGHT} if marks else GRID,
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "time", "axisLabel": TIMES},
        "yAxis": axes,
        "series": series,
    }


def _axis(unit: str, values: Iterable[float | None], levels: Iterable[float | None]) -> Options:
    """Return the value axis: up to the highest value, or to the highest level if that is above it."""
    made: Options = {"type": "value", "name": unit}
    if unit in WHOLE:
        made["minInterval"] = 1
    top = max((value for value in levels if value is not None), default=0.0)
    if top > max(value for value in (0.0, *values) if value is not None):
        scale = 10.0 ** math.floor(math.log10(top * 1.08))
        made["max"] = drawn(scale * next((part for part in ROUND if part * scale >= top * 1.08), ROUND[-1]))
    return made


def _line(line: Line) -> Options:
    data = [[at, drawn(value)] for moment, value in line.points if (at := milliseconds(moment)) is not None]
    made: Options = {
        "type": "line",
        "name": line.name,
        "data": data,
        "showSymbol": len(data) == 1,
        "lineStyle": {"color": line.colour, "type": "dashed" if line.is_dashed else "solid"},
        "itemStyle": {"color": line.colour},
        "yAxisIndex": 1 if line.on_right else 0,
    }
    if line.is_step:
        made["step"] = "end"
    if line.is_filled:
        made["areaStyle"] = {"color": line.colour}
    return made


def bars(
    name: str, colour: str, values: Sequence[Bar], *, stack: str = "", levels: Sequence[Level] = ()
) -> Options:
    made: Options = {
        "type": "bar",
        "name": name,
        "itemStyle": {"color": colour},
        "data": [_bar(bar) for bar in values],
        "barMaxWidth": 40,
    }
    if stack:
        made["stack"] = stack
    return made | _level_marks(levels)


def _bar(bar: Bar) -> Options:
    made: Options = {"name": bar.name, "value": drawn(bar.value)}
    if bar.colour:
        made["itemStyle"] = {"color": bar.colour}
    if bar.label:
        made["label"] = {"show": True, "position": "top", "formatter": bar.label}
    return made


def dashes(name: str, colour: str, values: Sequence[Bar]) -> Options:
    """Return a short line over each bar, as a series."""
    return {
        "type": "scatter",
        "name": name,
        "symbol": "rect",
        "symbolSize": [26, 4],
        "itemStyle": {"color": colour},
        "data": [_bar(bar) for bar in values],
        "z": 4,
    }


def by_name(unit: str, names: Sequence[str], series: Sequence[Options], *, trigger: str = "item") -> Options:
    """Return a chart of bars and dots over names; with many names, only the tooltip shows them."""
    values = [bar["value"] for one in series for bar in one["data"]]
    reached = [mark["yAxis"] for one in series for mark in one.get("markLine", {}).get("data", ())]
    legend = AHEAD["legend"] if len(series) > 1 else {"show": False}
    return {
        **AHEAD,
        "legend": legend,
        "grid": GRID | {"right": LEVEL_RIGHT} if any("markLine" in one for one in series) else GRID,
        "tooltip": {"trigger": trigger},
        "xAxis": {
            "type": "category",
            "data": list(names),
            "axisLabel": {"show": len(names) <= LABELLED_MAX} | LABEL,
        },
        "yAxis": [_axis(unit, values, reached) | {"boundaryGap": [0, "8%"]}],
        "series": list(series),
    }


def _level_marks(levels: Sequence[Level]) -> Options:
    """Return lines across a chart, as an option of its series; none where no level is known."""
    lines = [
        {
            "name": level.name,
            "yAxis": drawn(level.value),
            "lineStyle": {"color": level.colour, "type": "dashed"},
            "label": {"show": True, "formatter": level.name, "position": "end"},
        }
        for level in levels
        if level.value is not None
    ]
    return {"markLine": {"symbol": "none", "silent": True, "data": lines}} if lines else {}
