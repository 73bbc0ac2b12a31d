"""The pages in a browser: the parts that all of them share, and live updates.

Every colour is here once, for light and dark, as a variable that style sheet and charts share. Charts are
drawn as SVG, so a variable is a colour there too: a change of theme redraws nothing.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from nicegui import ui

from equipoise.adapters.journal import Query
from equipoise.dashboard import render
from equipoise.dashboard.page import Chart, painted
from equipoise.dashboard.render import NOTHING, Drawing, Markup
from equipoise.dashboard.views import OVERVIEW, Journals, Live, View, balancer_view, listing, overview_view
from equipoise.engine.balancer import BALANCERS

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

STANDING_COLOURS = {"problem": "bad", "acted": "good", "held": "held", "preview": "cold", "quiet": "ink-soft"}

FAVICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><style>
path{fill:none;stroke:#0f766e;stroke-width:2.6;stroke-linecap:round;stroke-linejoin:round}
@media(prefers-color-scheme:dark){path{stroke:#56c2b6}}</style>
<path d="M16 5v21M10 27h12M5 9h22M5 9l-3.4 8h6.8zM27 9l-3.4 8h6.8z"/></svg>"""
"""The icon: a pair of scales."""

_STYLE = Path(__file__).with_name("style.css")
_SCRIPT = Path(__file__).with_name("theme.js")


def variable(name: str) -> str:
    return f"var(--{name})"


def style_sheet() -> str:
    """Return the whole style: the colours of both themes, then the rules."""
    light, dark = (
        "".join(f"--{name}:{pair[is_dark]};" for name, pair in COLOURS.items()) for is_dark in (0, 1)
    )
    return (
        f":root{{--fonts:{FONTS};color-scheme:light;{light}}}\n"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n" + _STYLE.read_text()
    )


def chart_options(options: Any) -> dict[str, Any]:
    """Return a chart's options in the theme's colours, still and in UTC."""
    palette = {name: variable(name) for name in COLOURS}
    made: dict[str, Any] = painted(options, palette)
    axes = made.get("yAxis")
    if isinstance(axes, list) and len(axes) > 1:
        # Align the name of a right axis to its end.
        axes[1] = {"nameTextStyle": {"align": "right"}} | axes[1]
    return made | {"animation": False, "useUTC": True}


_STROKE = {"lineStyle": {"color": variable("line")}}
_SOFT = {"color": variable("ink-soft"), "fontSize": 11}
_AXIS: dict[str, Any] = {
    "axisLine": _STROKE,
    "axisTick": _STROKE,
    "axisLabel": _SOFT,
    "nameTextStyle": _SOFT | {"align": "left"},
    "nameGap": 9,
    "splitLine": {"lineStyle": {"color": variable("line"), "width": 0.5}},
    "splitArea": {"show": False},
}
_LABEL = {"color": variable("ink"), "textBorderColor": "transparent", "textBorderWidth": 0, "fontSize": 11}
# ECharts cannot brighten the item under the pointer: our colours are CSS variables.
_PLAIN: dict[str, Any] = {"emphasis": {"disabled": True}}
_SERIES = _PLAIN | {"label": _LABEL, "markLine": _PLAIN | {"label": _LABEL | {"color": variable("ink-soft")}}}
CHART_THEME: dict[str, Any] = {
    "color": [variable(name) for name in ("actual", "cold", "hot", "limit", "target", "good", "bad")],
    "backgroundColor": "transparent",
    "textStyle": {"fontFamily": FONTS, "color": variable("ink")},
    "legend": {
        "left": "right",
        "padding": 0,
        "textStyle": _SOFT,
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
    "categoryAxis": _AXIS | {"splitLine": {"show": False}},
    "valueAxis": _AXIS | {"axisLine": {"show": False}, "axisTick": {"show": False}},
    "timeAxis": _AXIS | {"splitLine": {"show": False}},
    "line": _SERIES | {"symbolSize": 5, "lineStyle": {"width": 1.6}},
    "bar": _SERIES,
    "scatter": _SERIES,
}
"""Default options of every chart, in ECharts' terms."""


PAGES = {
    "/": "Overview",
    **{f"/{name}": one.title or name.capitalize() for name, one in BALANCERS.items()},
    "/journal": "Journal",
}
_MARK = FAVICON[FAVICON.index("<path") : FAVICON.index("</svg>")]


def bar(current: str) -> None:
    marks = {current: ' aria-current="page"'}
    links = "".join(
        f'<a href="{escape(path)}"{marks.get(path, "")}>{escape(title)}</a>' for path, title in PAGES.items()
    )
    ui.html(
        f'<a class="skip" href="#content">Skip to content</a>'
        f'<a class="mark" href="/"><svg viewBox="0 0 32 32" aria-hidden="true">{_MARK}</svg>Equipoise</a>'
        f'<nav aria-label="Pages">{links}</nav><button type="button" data-theme-button>Theme</button>',
        sanitize=False,
        tag="header",
    ).classes("bar")


class Block:
    """A piece of HTML on a page; sent to the browser only when it has changed."""

    def __init__(self, markup: Markup, tag: str = "div", classes: str = "") -> None:
        self._markup = markup
        self.element = ui.html(markup.html, sanitize=False, tag=tag).classes(classes)

    def show(self, markup: Markup) -> None:
        if markup != self._markup:
            self._markup = markup
            self.element.set_content(markup.html)


class Picture:
    """A chart with its heading."""

    def __init__(self, chart: Chart) -> None:
        with ui.element("figure").classes("chart"):
            self._head = Block(render.figure_heading(chart), "figcaption")
            self._options = chart_options(chart.options)
            self._chart = ui.echart(self._options, renderer="svg", theme=CHART_THEME)
            self._chart.props["role"] = "img"
            self._describe(chart)

    def _describe(self, chart: Chart) -> None:
        self._chart.props["aria-label"] = f"{chart.title}. {chart.description}"

    def show(self, chart: Chart) -> None:
        self._head.show(render.figure_heading(chart))
        options = chart_options(chart.options)
        if options != self._options:
            self._options = options
            self._chart.options.clear()
            self._chart.options.update(options)
            self._describe(chart)
            self._chart.update()


class SectionView:
    """One subject on a page."""

    def __init__(self, drawn: Drawing) -> None:
        with ui.element("section").classes("section"):
            self._head = Block(drawn.head)
            with ui.element("div").classes("charts"):
                self._pictures = [Picture(chart) for chart in drawn.charts]
            self._tail = Block(drawn.tail)

    def show(self, drawn: Drawing) -> None:
        self._head.show(drawn.head)
        for picture, chart in zip(self._pictures, drawn.charts, strict=True):
            picture.show(chart)
        self._tail.show(drawn.tail)


class Sections:
    """The sections of a page: updated in place while their shape is the same, else drawn again."""

    def __init__(self, *, is_glance: bool) -> None:
        """Create the container of the sections; on the overview they are side by side."""
        self._place = ui.element("div").classes("glance" if is_glance else "")
        self._shapes: list[tuple[object, ...]] | None = None
        self._views: list[SectionView] = []

    def show(self, drawings: Sequence[Drawing]) -> None:
        shapes = [drawn.shape for drawn in drawings]
        if shapes == self._shapes:
            for view, drawn in zip(self._views, drawings, strict=True):
                view.show(drawn)
            return
        self._shapes = shapes
        self._place.clear()
        with self._place:
            self._views = [SectionView(drawn) for drawn in drawings]


class RecordList:
    """Records that can be opened; those that remain on an update stay open."""

    def __init__(self) -> None:
        self._place = ui.element("div").classes("records")
        self._shown: dict[str, Block] = {}
        self._is_first = True

    def show(self, found: Sequence[tuple[str, Markup]]) -> None:
        new = dict(found)
        for obsolete in [name for name in self._shown if name not in new]:
            self._shown.pop(obsolete).element.delete()
        for position, (name, markup) in enumerate(new.items()):
            if name in self._shown:
                self._shown[name].show(markup)
                continue
            with self._place:
                block = Block(markup, "details", "record" if self._is_first else "record fresh")
            block.element.move(target_index=position)
            self._shown[name] = block
        self._is_first = False


TEXT_MAX = 300
"""The maximum length of a subject in an address; longer ones cannot exist."""
REFRESH_SECONDS = 0.5
"""How often an open page checks for a new generation; without one, nothing is sent."""
DRAW_SECONDS = 60.0


def register(live: Live) -> None:
    # The theme is set before the first paint: switching to dark later would flash.
    ui.add_head_html(f"<style>{style_sheet()}</style><script>\n{_SCRIPT.read_text()}</script>", shared=True)

    async def front() -> None:
        await show(live, "/", OVERVIEW, overview_view)

    async def journal(balancer: str = "", subject: str = "", reason: str = "", before: str = "") -> None:
        asked: dict[str, Any] = {"balancer": balancer, "subject": subject, "reason": reason, "before": before}
        chosen = Query(**{name: text[:TEXT_MAX] for name, text in asked.items()})
        await show(live, "/journal", chosen, partial(listing, chosen=chosen))

    balancers = {f"/{name}": _balancer(live, name) for name in BALANCERS}
    for path, draw in {"/": front, **balancers, "/journal": journal}.items():
        ui.page(path, title=f"{PAGES[path]} · Equipoise", response_timeout=DRAW_SECONDS)(draw)


def _balancer(live: Live, name: str) -> Callable[..., object]:
    async def balancer(subject: str = "") -> None:
        asked = subject[:TEXT_MAX]
        await show(live, f"/{name}", (name, asked), partial(balancer_view, name=name, subject=asked))

    return balancer


async def show(live: Live, path: str, wish: Hashable, draw: Callable[[Journals], View]) -> None:
    """Render a page, and update it while it is open."""
    bar(path)
    with ui.element("div").classes("page"):
        head, form = Block(NOTHING), Block(NOTHING)
        sections, records = Sections(is_glance=path == "/"), RecordList()
        tail = Block(NOTHING)
    shown_generation = -1

    async def refresh() -> None:
        nonlocal shown_generation
        if live.generation == shown_generation:
            return
        generation = live.generation
        view = await live.read(wish, draw)
        head.show(view.head)
        if shown_generation < 0:
            form.show(view.form)  # later it would take away what is being typed
        sections.show(view.sections)
        records.show(view.records)
        tail.show(view.tail)
        shown_generation = generation

    await refresh()
    ui.timer(REFRESH_SECONDS, refresh)
