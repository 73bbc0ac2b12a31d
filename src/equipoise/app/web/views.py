"""What each address shows, drawn from the journals as far as that goes without a browser."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module

from equipoise.adapters.journal import exactly
from equipoise.app.web import drawing, records
from equipoise.app.web.drawing import NOTHING, Drawing, Markup
from equipoise.app.web.journals import BALANCERS, Filter, Journals, Reading
from equipoise.app.web.page import Page, Section
from equipoise.model.decision import Record
from equipoise.model.reason import Code

TEXT_MAX = 300
"""A longer name in an address is nobody's."""


@dataclass(frozen=True, slots=True)
class View:
    """A drawn page: what it begins with, a form, then sections or records, and what it ends with."""

    head: Markup
    form: Markup = NOTHING
    sections: tuple[Drawing, ...] = ()
    records: tuple[tuple[str, Markup], ...] = ()
    tail: Markup = NOTHING


def overview(journals: Journals) -> View:
    """Draw all balancers at a glance."""
    reading = journals.newest()
    page = made("overview", reading.records)
    return View(drawing.heading(page, reading.troubles), sections=tuple(map(_glance, page.sections)))


def _glance(section: Section) -> Drawing:
    if section.subject not in BALANCERS:
        return drawing.drawing(section)
    return drawing.drawing(
        section, f"/{section.subject}", drawing.query("/journal", {"balancer": section.subject})
    )


def balancer(journals: Journals, name: str, subject: str) -> View:
    """Draw one balancer's page, about all subjects or about one."""
    reading = journals.of_balancer(name, subject)
    page = made(name, reading.records)
    here = f"/{name}"
    return View(
        drawing.heading(page, reading.troubles, _extent(reading, subject)),
        drawing.subject_form(subject, reading.subjects, here),
        tuple(
            drawing.drawing(
                part,
                "" if subject else drawing.query(here, {"subject": part.subject}),
                drawing.query("/journal", {"balancer": name, "subject": exactly(part.subject)}),
            )
            for part in page.sections
        ),
    )


def _extent(reading: Reading, subject: str) -> str:
    if not reading.is_cut:
        return ""
    advice = "" if subject else " Choose a subject to see more of its past."
    return f"Made from the newest {len(reading.records):,} records.{advice}"


def made(name: str, found: Sequence[Record]) -> Page:
    """Make a page; a record that it stumbles over is told, and the journal still shows it."""
    make: Callable[[Sequence[Record]], Page] = import_module(f"equipoise.app.web.pages.{name}").page
    try:
        return make(found)
    except Exception as error:  # noqa: BLE001 - a record may be anything, and a page is only a view of it
        said = f"This page can't be drawn ({type(error).__name__}: {error}); the journal has its records."
        return Page(name.capitalize(), " ".join(said.split()))


def listing(journals: Journals, chosen: Filter) -> View:
    """Draw one page of the journal's list."""
    reading = journals.listed(chosen)
    page = Page("Journal", "Every decision that was news, the newest first. A line opens to its numbers.")
    empty = "" if reading.records else '<p class="empty">No record matches.</p>'
    return View(
        drawing.heading(page, reading.troubles),
        Markup(_filter_form(chosen).html + '<h2 class="unseen">Records</h2>' + empty),
        records=tuple((record.id, records.whole(record)) for record in reading.records),
        tail=_pager(chosen, reading),
    )


def _filter_form(chosen: Filter) -> Markup:
    balancers = drawing.options_of(BALANCERS, chosen.balancer, "all")
    reasons = drawing.options_of(sorted(code.value for code in Code), chosen.reason, "all")
    is_narrow = chosen != Filter()
    everything = '<a class="button" href="/journal">All</a>' if is_narrow else ""
    return Markup(
        '<form class="filter" method="get" action="/journal">'
        f'<label>Balancer<select name="balancer">{balancers}</select></label>'
        f'<label>Reason<select name="reason">{reasons}</select></label>'
        f'<label>Subject<input type="search" name="subject" value="{escape(chosen.subject)}" '
        f'placeholder="shop/web or shop/*"></label><button>Show</button>{everything}</form>'
    )


def _pager(chosen: Filter, reading: Reading) -> Markup:
    kept = {"balancer": chosen.balancer, "subject": chosen.subject, "reason": chosen.reason}
    links = []
    if chosen.before:
        links.append(f'<a class="button" href="{escape(drawing.query("/journal", kept))}">Newest</a>')
    if reading.is_cut:
        older = drawing.query("/journal", kept | {"before": reading.records[-1].id})
        links.append(f'<a class="button" rel="next" href="{escape(older)}">Older</a>')
    return Markup(f'<nav class="pager" aria-label="Older and newer records">{"".join(links)}</nav>')
