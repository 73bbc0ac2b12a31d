"""Serves the dashboard: what each address shows, drawn from the journals, on one socket until a signal.

A page is drawn once, then patched while somebody has it open. Everything goes through one socket, so that
one gate can guard it whole.
"""

import asyncio
import logging
import os
import sys
import webbrowser
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from nicegui import app as nice
from nicegui import ui
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import Ping

from equipoise.adapters.journal import exactly
from equipoise.core.decision import Record
from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code
from equipoise.dashboard import layout, render
from equipoise.dashboard import render as records
from equipoise.dashboard.auth import Gate
from equipoise.dashboard.data import Filter, JournalReading, Journals, Live
from equipoise.dashboard.layout import FAVICON
from equipoise.dashboard.page import Figures, Page, Section, overview, page_of
from equipoise.dashboard.render import NOTHING, Drawing, Markup
from equipoise.engine.balancer import BALANCERS
from equipoise.runtime.connections import Connections
from equipoise.runtime.http import Server
from equipoise.runtime.tokens import Tokens

TEXT_MAX = 300
"""The maximum length of a subject in an address; longer ones cannot exist."""
OVERVIEW = "overview"


@dataclass(frozen=True, slots=True)
class View:
    """A rendered page: heading, form, sections or records, and footer."""

    head: Markup
    form: Markup = NOTHING
    sections: tuple[Drawing, ...] = ()
    records: tuple[tuple[str, Markup], ...] = ()
    tail: Markup = NOTHING


def overview_view(journals: Journals) -> View:
    """Return the overview of all balancers."""
    reading = journals.newest()
    page = made(OVERVIEW, reading.records)
    return View(render.heading(page, reading.errors), sections=tuple(map(_glance, page.sections)))


def _glance(section: Section) -> Drawing:
    if section.subject not in BALANCERS:
        return render.drawing(section)
    return render.drawing(
        section, f"/{section.subject}", render.query("/journal", {"balancer": section.subject})
    )


def balancer_view(journals: Journals, name: str, subject: str) -> View:
    """Return one balancer's page, about all subjects or about one."""
    reading = journals.of_balancer(name, subject)
    page = made(name, reading.records)
    here = f"/{name}"
    return View(
        render.heading(page, reading.errors, _extent(reading, subject)),
        render.subject_form(subject, reading.subjects, here),
        tuple(
            render.drawing(
                part,
                "" if subject else render.query(here, {"subject": part.subject}),
                render.query("/journal", {"balancer": name, "subject": exactly(part.subject)}),
            )
            for part in page.sections
        ),
    )


def _extent(reading: JournalReading, subject: str) -> str:
    if not reading.is_cut:
        return ""
    advice = "" if subject else " Choose a subject to see more of its past."
    return f"Made from the newest {len(reading.records):,} records.{advice}"


def made(name: str, found: Sequence[Record]) -> Page:
    """Return a page; if a record cannot be rendered, a page with that error: the journal still shows it."""
    try:
        return _maker(name)(found)
    except Exception as error:  # noqa: BLE001 - a record may contain anything
        sentence = f"This page can't be drawn ({type(error).__name__}: {error}); the journal has its records."
        return Page(name.capitalize(), " ".join(sentence.split()))


def _maker(name: str) -> Callable[[Sequence[Record]], Page]:
    if name == OVERVIEW:
        return overview
    module = f"equipoise.dashboard.pages.{name}"
    if find_spec(module) is None:  # a balancer without a page
        return partial(page_of, name.capitalize(), name, "subject", draw=lambda _: Figures())
    make: Callable[[Sequence[Record]], Page] = import_module(module).page
    return make


def listing(journals: Journals, chosen: Filter) -> View:
    """Return one page of the journal's list."""
    reading = journals.listed(chosen)
    page = Page("Journal", "Every decision that was news, the newest first. A line opens to its numbers.")
    empty = "" if reading.records else '<p class="empty">No record matches.</p>'
    return View(
        render.heading(page, reading.errors),
        Markup(_filter_form(chosen).html + '<h2 class="unseen">Records</h2>' + empty),
        records=tuple((record.id, records.whole(record)) for record in reading.records),
        tail=_pager(chosen, reading),
    )


def _filter_form(chosen: Filter) -> Markup:
    balancers = render.options_of(BALANCERS, chosen.balancer, "all")
    reasons = render.options_of(sorted(code.value for code in Code), chosen.reason, "all")
    is_narrow = chosen != Filter()
    everything = '<a class="button" href="/journal">All</a>' if is_narrow else ""
    return Markup(
        '<form class="filter" method="get" action="/journal">'
        f'<label>Balancer<select name="balancer">{balancers}</select></label>'
        f'<label>Reason<select name="reason">{reasons}</select></label>'
        f'<label>Subject<input type="search" name="subject" value="{escape(chosen.subject)}" '
        f'placeholder="shop/web or shop/*"></label><button>Show</button>{everything}</form>'
    )


def _pager(chosen: Filter, reading: JournalReading) -> Markup:
    kept = {"balancer": chosen.balancer, "subject": chosen.subject, "reason": chosen.reason}
    links = []
    if chosen.before:
        links.append(f'<a class="button" href="{escape(render.query("/journal", kept))}">Newest</a>')
    if reading.is_cut:
        older = render.query("/journal", kept | {"before": reading.records[-1].id})
        links.append(f'<a class="button" rel="next" href="{escape(older)}">Older</a>')
    return Markup(f'<nav class="pager" aria-label="Older and newer records">{"".join(links)}</nav>')


REFRESH_SECONDS = 0.5
"""How often an open page checks for a new generation; without one, nothing is sent."""
DRAW_SECONDS = 60.0


def register(live: Live) -> None:
    """Register the pages."""
    layout.dress()

    async def front() -> None:
        await show(live, "/", OVERVIEW, overview_view)

    _page("/", front)
    for name in BALANCERS:
        _page(f"/{name}", _balancer(live, name))

    async def journal(balancer: str = "", subject: str = "", reason: str = "", before: str = "") -> None:
        chosen = Filter(*(text[:TEXT_MAX] for text in (balancer, subject, reason, before)))
        await show(live, "/journal", chosen, partial(listing, chosen=chosen))

    _page("/journal", journal)


def _page(path: str, draw: Callable[..., object]) -> None:
    title = f"{layout.PAGES[path]} · Equipoise"
    ui.page(path, title=title, response_timeout=DRAW_SECONDS)(draw)


def _balancer(live: Live, name: str) -> Callable[..., object]:
    async def balancer(subject: str = "") -> None:
        asked = subject[:TEXT_MAX]
        await show(live, f"/{name}", (name, asked), partial(balancer_view, name=name, subject=asked))

    return balancer


async def show(live: Live, path: str, wish: Hashable, draw: Callable[[Journals], View]) -> None:
    """Render a page, and update it while it is open."""
    layout.bar(path)
    with ui.element("div").classes("page"):
        head, form = layout.Block(NOTHING), layout.Block(NOTHING)
        sections, records = layout.Sections(is_glance=path == "/"), layout.RecordList()
        tail = layout.Block(NOTHING)
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


RECONNECT_SECONDS = 20.0
"""How long a disconnected browser's state is kept."""
DRAIN_SECONDS = 2


@dataclass(frozen=True, slots=True)
class Service:
    """The settings of the command."""

    journals: tuple[Path, ...]
    host: str
    port: int
    tokens: Tokens | None
    is_opened: bool


def serve(service: Service) -> None:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    live = Live(Journals(service.journals))
    app = Gate(_app(live), service.tokens, layout.PAGES)
    try:
        asyncio.run(_run(service, app, live))
    except OSError as error:
        where = f"--host {service.host} --port {service.port}"
        # asyncio's own text names the address once more.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        hint = " (--port 0 takes any free one)" if service.port else ""
        raise WorldFailed(f"{where}: {why}{hint}") from error


def _app(live: Live) -> FastAPI:
    register(live)
    # One way in that can be guarded whole: no polling, which would need POST.
    nice.config.socket_io_js_transports = ["websocket"]
    outer = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    ui.run_with(
        outer,
        title="Equipoise",
        favicon=FAVICON,
        dark=False,
        language="en-US",
        tailwind=False,
        reconnect_timeout=RECONNECT_SECONDS,
        show_welcome_message=False,
        binding_refresh_interval=None,
    )
    return outer


async def _run(service: Service, app: Gate, live: Live) -> None:
    watching: list[asyncio.Task[None]] = []

    def on_started() -> None:
        # Not before: NiceGUI has looked through all objects of the process to find its server, and a thread
        # that is just making a tuple would stumble over that.
        watching.append(asyncio.create_task(live.watch()))
        url = _address(service.host, server.port)
        print(f"dashboard {url}", flush=True)
        if service.is_opened and _has_screen():
            webbrowser.open(url)

    server = Server(
        app, drain_seconds=DRAIN_SECONDS, lifespan="on", websockets=_Websocket, on_started=on_started
    )
    await server.listen(service.host, service.port)
    for task in watching:
        task.cancel()


class _Websocket(WSProtocol):
    """uvicorn's websocket, counted in `Connections`; it queues no pongs for a client that does not read."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: Connections,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = server_state

    def handle_ping(self, event: Ping) -> None:
        """Answer a ping unless data is unsent: RFC 6455 requires an answer to the last ping only."""
        if self.writable.is_set():
            super().handle_ping(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from `Connections`."""
        self._all.closed(self.transport)
        super().connection_lost(exc)


def _address(host: str, port: int) -> str:
    plain = host.removeprefix("[").removesuffix("]") or "0.0.0.0"  # noqa: S104 - as a person reads it
    return f"http://{f'[{plain}]' if ':' in plain else plain}:{port}/"


def _has_screen(names: Iterable[str] = ("DISPLAY", "WAYLAND_DISPLAY")) -> bool:
    """Return whether a browser would open in a window; a text browser would take over the terminal."""
    return sys.platform == "darwin" or any(map(os.environ.get, names))
