"""The addresses of the dashboard. Each page is drawn once, then patched while somebody looks."""

from collections.abc import Callable, Hashable
from functools import partial

from nicegui import ui

from equipoise.app.web import frame, views
from equipoise.app.web.drawing import NOTHING
from equipoise.app.web.journals import BALANCERS, Filter, Journals
from equipoise.app.web.live import Live
from equipoise.app.web.views import TEXT_MAX, View

REFRESH_SECONDS = 0.5
"""How often an open page asks our own process whether there is news; nothing is sent if not."""
DRAW_SECONDS = 60.0


def register(live: Live) -> None:
    """Make the pages known."""
    frame.dress()

    async def overview() -> None:
        await show(live, "/", "overview", views.overview)

    _page("/", overview)
    for name in BALANCERS:
        _page(f"/{name}", _balancer(live, name))

    async def journal(balancer: str = "", subject: str = "", reason: str = "", before: str = "") -> None:
        chosen = Filter(*(text[:TEXT_MAX] for text in (balancer, subject, reason, before)))
        await show(live, "/journal", chosen, partial(views.listing, chosen=chosen))

    _page("/journal", journal)


def _page(path: str, draw: Callable[..., object]) -> None:
    title = f"{frame.PAGES[path]} · Equipoise"
    ui.page(path, title=title, response_timeout=DRAW_SECONDS)(draw)


def _balancer(live: Live, name: str) -> Callable[..., object]:
    async def balancer(subject: str = "") -> None:
        asked = subject[:TEXT_MAX]
        await show(live, f"/{name}", (name, asked), partial(views.balancer, name=name, subject=asked))

    return balancer


async def show(live: Live, path: str, wish: Hashable, draw: Callable[[Journals], View]) -> None:
    """Draw a page, and keep it fresh."""
    frame.bar(path)
    with ui.element("div").classes("page"):
        head, form = frame.Block(NOTHING), frame.Block(NOTHING)
        sections, records = frame.Sections(is_glance=path == "/"), frame.RecordList()
        tail = frame.Block(NOTHING)
    seen = -1

    async def refresh() -> None:
        nonlocal seen
        if live.generation == seen:
            return
        generation = live.generation
        view = await live.read(wish, draw)
        head.show(view.head)
        if seen < 0:
            form.show(view.form)  # later it would take away what is being typed
        sections.show(view.sections)
        records.show(view.records)
        tail.show(view.tail)
        seen = generation

    await refresh()
    ui.timer(REFRESH_SECONDS, refresh)
