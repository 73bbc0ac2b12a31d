"""The pages in a browser: what is the same on all of them, and what changes while one looks."""

from collections.abc import Sequence
from html import escape

from nicegui import ui

from equipoise.app.web import drawing
from equipoise.app.web.drawing import Drawing, Markup
from equipoise.app.web.journals import BALANCERS
from equipoise.app.web.page import Chart
from equipoise.app.web.theme import CHART_THEME, FAVICON, chart_options, style_sheet

PAGES = {
    "/": "Overview",
    **{f"/{name}": "QoS" if name == "qos" else name.capitalize() for name in BALANCERS},
    "/journal": "Journal",
}
_MARK = FAVICON[FAVICON.index("<path") : FAVICON.index("</svg>")]
_SCRIPT = """
{
  const names = {'': 'Theme: system', dark: 'Theme: dark', light: 'Theme: light'};
  const themes = Object.keys(names);
  const root = document.documentElement, button = () => document.querySelector('[data-theme-button]');
  let theme = '';
  try { theme = localStorage.getItem('equipoise-theme') || '' } catch { /* then it is the system's */ }
  const wear = () => {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    if (button()) button().textContent = names[theme];
  };
  document.addEventListener('click', (event) => {
    if (!event.target.closest('[data-theme-button]')) return;
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem('equipoise-theme', theme) } catch { /* then it holds until the next page */ }
    wear();
  });
  wear();
  const waiting = new MutationObserver(() => { if (button()) { waiting.disconnect(); wear() } });
  waiting.observe(root, {childList: true, subtree: true});
}
"""
# Before the first paint: a page that turns dark a moment later would flash.


def dress() -> None:
    """Give every page its style, its theme before the first paint, and its mark."""
    ui.add_head_html(f"<style>{style_sheet()}</style><script>{_SCRIPT}</script>", shared=True)


def bar(current: str) -> None:
    """Draw the bar above every page."""
    links = "".join(_link(path, title, current) for path, title in PAGES.items())
    ui.html(
        f'<a class="skip" href="#content">To the content</a>'
        f'<a class="mark" href="/"><svg viewBox="0 0 32 32" aria-hidden="true">{_MARK}</svg>Equipoise</a>'
        f'<nav aria-label="Pages">{links}</nav><button type="button" data-theme-button>Theme</button>',
        sanitize=False,
        tag="header",
    ).classes("bar")


def _link(path: str, title: str, current: str) -> str:
    mark = ' aria-current="page"' if path == current else ""
    return f'<a href="{escape(path)}"{mark}>{escape(title)}</a>'


class Block:
    """A piece of HTML on a page that is sent again only when it has changed."""

    def __init__(self, markup: Markup, tag: str = "div", classes: str = "") -> None:
        self._markup = markup
        self.element = ui.html(markup.html, sanitize=False, tag=tag).classes(classes)

    def show(self, markup: Markup) -> None:
        """Put another one in its place."""
        if markup != self._markup:
            self._markup = markup
            self.element.set_content(markup.html)


class Picture:
    """A chart with its heading."""

    def __init__(self, chart: Chart) -> None:
        with ui.element("figure").classes("chart"):
            self._head = Block(drawing.figure_heading(chart), "figcaption")
            self._options = chart_options(chart.options)
            self._chart = ui.echart(self._options, renderer="svg", theme=CHART_THEME)
            self._chart.props["role"] = "img"
            self._describe(chart)

    def _describe(self, chart: Chart) -> None:
        self._chart.props["aria-label"] = f"{chart.title}. {chart.description}"

    def show(self, chart: Chart) -> None:
        """Draw it again where it differs."""
        self._head.show(drawing.figure_heading(chart))
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
        """Put newer figures of the same subject in their places."""
        self._head.show(drawn.head)
        for picture, chart in zip(self._pictures, drawn.charts, strict=True):
            picture.show(chart)
        self._tail.show(drawn.tail)


class Sections:
    """The sections of a page: patched while they keep their shape, drawn anew when they lose it."""

    def __init__(self, *, is_glance: bool) -> None:
        """Make room for them; at a glance they stand side by side."""
        self._place = ui.element("div").classes("glance" if is_glance else "")
        self._shapes: list[tuple[object, ...]] | None = None
        self._views: list[SectionView] = []

    def show(self, drawings: Sequence[Drawing]) -> None:
        """Show these, in this order."""
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
    """Records that open; those that stay keep open what a reader has opened."""

    def __init__(self) -> None:
        self._place = ui.element("div").classes("records")
        self._shown: dict[str, Block] = {}
        self._is_first = True

    def show(self, found: Sequence[tuple[str, Markup]]) -> None:
        """Show these, by their ids, in this order."""
        wanted = dict(found)
        for gone in [name for name in self._shown if name not in wanted]:
            self._shown.pop(gone).element.delete()
        for turn, (name, markup) in enumerate(wanted.items()):
            if name in self._shown:
                self._shown[name].show(markup)
                continue
            with self._place:
                block = Block(markup, "details", "record" if self._is_first else "record fresh")
            block.element.move(target_index=turn)
            self._shown[name] = block
        self._is_first = False
