"""How it looks: every colour once, for light and dark, as variables that style sheet and charts share.

Charts are drawn as SVG, so a variable is a colour there too: a change of theme redraws nothing.
"""

from pathlib import Path
from typing import Any

from equipoise.app.web.page import painted

COLOURS: dict[str, tuple[str, str]] = {
    # Surfaces and text: light, dark.
    "ground": ("#f4f6f7", "#11161b"),
    "panel": ("#ffffff", "#182027"),
    "raised": ("#eef1f3", "#212b33"),
    "line": ("#d5dce1", "#2d3943"),
    "ink": ("#182026", "#e3e9ee"),
    "ink-soft": ("#51606b", "#9fb0bc"),
    "link": ("#0a5f9e", "#74b9f2"),
    # What a colour means, in charts and badges.
    "hot": ("#b3400e", "#f0955c"),
    "cold": ("#1f6fb2", "#6fb4ee"),
    "target": ("#52606b", "#b4c1cb"),
    "limit": ("#a3195b", "#f088b4"),
    "actual": ("#0f766e", "#56c2b6"),
    "muted": ("#7b8893", "#738390"),
    "good": ("#1b7a43", "#66c48d"),
    "bad": ("#b3261e", "#f2857b"),
    "held": ("#8a5a00", "#dcae4f"),
    "band": ("#0f766e2e", "#56c2b633"),
}
"""Names and meanings; `band` is translucent, since lines go through it."""

FONTS = 'system-ui,-apple-system,"Segoe UI","Noto Sans","DejaVu Sans",sans-serif'

STANDING_COLOURS = {
    "trouble": "bad",
    "acted": "good",
    "held": "held",
    "preview": "cold",
    "quiet": "ink-soft",
}

FAVICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><style>
path{fill:none;stroke:#0f766e;stroke-width:2.6;stroke-linecap:round;stroke-linejoin:round}
@media(prefers-color-scheme:dark){path{stroke:#56c2b6}}</style>
<path d="M16 5v21M10 27h12M5 9h22M5 9l-3.4 8h6.8zM27 9l-3.4 8h6.8z"/></svg>"""
"""A pair of scales, level."""

_STYLE = Path(__file__).with_name("style.css")


def variable(name: str) -> str:
    """Give a colour as the browser looks it up."""
    return f"var(--{name})"


def style_sheet() -> str:
    """Give the whole style: the colours of both themes, then the rules."""
    light = "".join(f"--{name}:{pair[0]};" for name, pair in COLOURS.items())
    dark = "".join(f"--{name}:{pair[1]};" for name, pair in COLOURS.items())
    return (
        f":root{{--fonts:{FONTS};color-scheme:light;{light}}}\n"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n" + _STYLE.read_text()
    )


def chart_options(options: Any) -> dict[str, Any]:
    """Give a chart's options in the theme's colours, still and in UTC."""
    palette = {name: variable(name) for name in COLOURS}
    made: dict[str, Any] = painted(options, palette)
    axes = made.get("yAxis")
    if isinstance(axes, list) and len(axes) > 1:
        # The name of an axis at the right ends there.
        axes[1] = {"nameTextStyle": {"align": "right"}} | axes[1]
    return made | {"animation": False, "useUTC": True}


def _axis() -> dict[str, Any]:
    return {
        "axisLine": {"lineStyle": {"color": variable("line")}},
        "axisTick": {"lineStyle": {"color": variable("line")}},
        "axisLabel": {"color": variable("ink-soft"), "fontSize": 11},
        "nameTextStyle": {"color": variable("ink-soft"), "fontSize": 11, "align": "left"},
        "nameGap": 9,
        "splitLine": {"lineStyle": {"color": variable("line"), "width": 0.5}},
        "splitArea": {"show": False},
    }


def _series() -> dict[str, Any]:
    # Brightening what is pointed at needs colours that can be computed with; these are names.
    label = {"color": variable("ink"), "textBorderColor": "transparent", "textBorderWidth": 0, "fontSize": 11}
    mark = {"label": label | {"color": variable("ink-soft")}, "emphasis": {"disabled": True}}
    return {"emphasis": {"disabled": True}, "label": label, "markLine": mark}


CHART_THEME: dict[str, Any] = {
    "color": [variable(name) for name in ("actual", "cold", "hot", "limit", "target", "good", "bad")],
    "backgroundColor": "transparent",
    "textStyle": {"fontFamily": FONTS, "color": variable("ink")},
    "legend": {
        "left": "right",
        "padding": 0,
        "textStyle": {"color": variable("ink-soft"), "fontSize": 11},
        "inactiveColor": variable("line"),
        "pageIconColor": variable("ink-soft"),
        "pageIconInactiveColor": variable("line"),
        "pageTextStyle": {"color": variable("ink-soft")},
        "itemWidth": 14,
        "itemHeight": 8,
    },
    "tooltip": {
        "backgroundColor": variable("panel"),
        "borderColor": variable("line"),
        "borderWidth": 1,
        "textStyle": {"color": variable("ink"), "fontSize": 12},
        "extraCssText": "box-shadow:none;max-width:22rem;white-space:normal;overflow-wrap:anywhere",
        "confine": True,
        "axisPointer": {"lineStyle": {"color": variable("muted")}, "label": {"show": False}},
    },
    "categoryAxis": _axis() | {"splitLine": {"show": False}},
    "valueAxis": _axis() | {"axisLine": {"show": False}, "axisTick": {"show": False}},
    "timeAxis": _axis() | {"splitLine": {"show": False}},
    "logAxis": _axis(),
    "line": _series() | {"symbolSize": 5, "lineStyle": {"width": 1.6}},
    "bar": _series(),
    "scatter": _series(),
    "heatmap": _series(),
    "boxplot": _series(),
    "custom": _series(),
    "pie": _series(),
}
"""What ECharts takes where a chart says nothing; its words are its own."""
