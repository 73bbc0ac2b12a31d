"""What each address shows: the journals are read, and drawn as data and markup.

The check for changes is cheap, and reads are of bounded size. A journal that is missing, replaced or damaged
is one error line, and is read again when its files change. One check serves all viewers, and one read serves
all viewers of the same page.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from html import escape
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from equipoise.adapters.journal import JournalReader, Query, exactly, open_reader
from equipoise.core.decision import Record
from equipoise.core.errors import EquipoiseError
from equipoise.core.reason import Code
from equipoise.dashboard import render
from equipoise.dashboard.page import Figures, Page, Section, overview, page_of
from equipoise.dashboard.render import NOTHING, Drawing, Markup
from equipoise.engine.balancer import BALANCERS

RECORDS_MAX = 400
"""The maximum number of a balancer's newest records on its page."""
BYTES_MAX = 32 << 20
"""The maximum size of these records, inputs included."""
NEWEST_MAX = 100
"""The maximum number of each balancer's newest records on the overview."""
SUBJECTS_MAX = 1000
LISTED_MAX = 50
LATEST = "~"
"""Above every id, so that the list begins with the newest record."""
YOUNG_SECONDS = 2.0
"""A file modified more recently may change again without a newer modification time."""


@dataclass(frozen=True, slots=True)
class JournalReading:
    """The records read, newest first, and one error for each journal that could not be read."""

    records: tuple[Record, ...] = ()
    subjects: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    is_cut: bool = False
    """True if there are older records."""


@dataclass
class Journals:
    """Some journals, read as one."""

    paths: tuple[Path, ...]
    _stamp: tuple[object, ...] | None = field(default=None, init=False)
    _is_young: bool = field(default=True, init=False)

    def has_changed(self, now: Callable[[], float] = time.time) -> bool:
        """Return whether the journals may have changed since the last call, by the files' times and sizes."""
        found = tuple(part for path in self.paths for part in _stamps(path))
        was_young, before = self._is_young, self._stamp
        youngest = max((stamp[3] for stamp in found), default=0)
        self._stamp = found
        self._is_young = now() - youngest / 1e9 < YOUNG_SECONDS
        return found != before or was_young

    def newest(self) -> JournalReading:
        """Read each balancer's newest records, without their inputs."""

        def read(reader: JournalReader) -> JournalReading:
            parts = (reader.records(Query(balancer=name, limit=NEWEST_MAX)) for name in BALANCERS)
            return JournalReading(tuple(record for part in parts for record in part))

        return self._joined(read, NEWEST_MAX * len(BALANCERS))

    def of_balancer(self, balancer: str, subject: str = "") -> JournalReading:
        """Read a balancer's newest records whole, of all subjects or of one."""
        query = Query(balancer=balancer, subject=exactly(subject), limit=RECORDS_MAX + 1)

        def read(reader: JournalReader) -> JournalReading:
            records = tuple(_bounded(reader.records(query, is_whole=True), BYTES_MAX))
            return JournalReading(records, tuple(reader.subjects(balancer, SUBJECTS_MAX)))

        return self._joined(read, RECORDS_MAX)

    def listed(self, chosen: Query) -> JournalReading:
        """Read one page of the list, without inputs."""
        query = replace(chosen, before=chosen.before or LATEST, limit=LISTED_MAX + 1)
        return self._joined(lambda reader: JournalReading(tuple(reader.records(query))), LISTED_MAX)

    def _joined(self, read: Callable[[JournalReader], JournalReading], count: int) -> JournalReading:
        """Return what each journal has, the newest first; a record that two journals have is there once."""
        readings = [_attempt(path, read) for path in self.paths]
        found: dict[str, Record] = {}
        for record in sorted(
            (each for one in readings for each in one.records), key=attrgetter("id", "at"), reverse=True
        ):
            found.setdefault(record.id, record)
        records = tuple(found.values())
        return JournalReading(
            records[:count],
            tuple(islice(dict.fromkeys(name for one in readings for name in one.subjects), SUBJECTS_MAX)),
            tuple(line for one in readings for line in one.errors),
            is_cut=len(records) > count,
        )


def _attempt(path: Path, read: Callable[[JournalReader], JournalReading]) -> JournalReading:
    try:
        with closing(open_reader(path)) as reader:
            return replace(read(reader), errors=tuple(f"{each}." for each in reader.damages.lines))
    except (EquipoiseError, OSError) as error:
        return JournalReading(
            errors=(f"{' '.join(str(error).split())}. The page is updated when the journal changes.",)
        )


def _bounded(records: Iterable[Record], bytes_max: int) -> Iterator[Record]:
    """Yield the records: with their inputs up to a total size, then without."""
    bytes_left = bytes_max
    for record in records:
        bytes_left -= len(record.to_json())
        yield record if bytes_left > 0 else record.without_inputs()


def _stamps(path: Path) -> Iterator[tuple[str, int, int, int]]:
    """Yield path, inode, size and modification time of each file of a journal."""
    older = (path.with_name(f"{path.name}.1"),) if path.suffix == ".jsonl" else ()
    for part in (path, Path(f"{path}-wal"), *older):
        try:
            found = part.stat()
        except OSError:
            continue
        yield str(part), found.st_ino, found.st_size, found.st_mtime_ns


CHECK_SECONDS = 1.0
DELAY_FACTOR = 5.0
"""The delay before the next check, as a multiple of the last read's duration."""
READINGS_MAX = 16
"""The maximum number of readings that are cached for other viewers."""

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class Live:
    """Counts the journals' changes as generations, and caches each reading within a generation."""

    def __init__(self, journals: Journals) -> None:
        self.journals = journals
        self.generation = 0
        """Incremented whenever the journals may have changed."""
        self._read_seconds = 0.0
        self._readings: dict[tuple[int, Hashable], asyncio.Task[Any]] = {}

    async def watch(self) -> None:
        """Check for changes until cancelled; a failed check is retried."""
        while True:
            try:
                has_changed = await asyncio.to_thread(self.journals.has_changed)
            except Exception:  # noqa: BLE001 - the pages stay, and the next check may succeed
                _LOG.exception("checking the journals for changes failed")
                has_changed = True
            self.generation += has_changed
            await asyncio.sleep(max(CHECK_SECONDS, DELAY_FACTOR * self._read_seconds))

    async def read(self, request: Hashable, read_journals: Callable[[Journals], T]) -> T:
        """Return a reading, cached within the generation."""
        key = (self.generation, request)
        task = self._readings.get(key)
        if task is None:
            self._drop_old()
            task = self._readings[key] = asyncio.create_task(self._timed(read_journals))
        reading: T = await asyncio.shield(task)
        return reading

    def _drop_old(self) -> None:
        """Drop the readings of older generations, and the oldest above the limit."""
        for old in [key for key in self._readings if key[0] != self.generation]:
            del self._readings[old]
        while len(self._readings) >= READINGS_MAX:
            del self._readings[next(iter(self._readings))]

    async def _timed(self, read_journals: Callable[[Journals], T]) -> T:
        began = time.monotonic()
        try:
            return await asyncio.to_thread(read_journals, self.journals)
        finally:
            self._read_seconds = time.monotonic() - began


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
    reading = journals.newest()
    page = made(OVERVIEW, reading.records)

    def draw(section: Section) -> Drawing:
        name = section.subject
        if name not in BALANCERS:
            return render.drawing(section)
        return render.drawing(section, f"/{name}", render.query("/journal", {"balancer": name}))

    return View(render.heading(page, reading.errors), sections=tuple(map(draw, page.sections)))


def balancer_view(journals: Journals, name: str, subject: str) -> View:
    reading = journals.of_balancer(name, subject)
    page = made(name, reading.records)
    here, extent = f"/{name}", ""
    if reading.is_cut:
        advice = "" if subject else " Choose a subject to see older ones."
        extent = f"Shows the latest {len(reading.records):,} records.{advice}"

    def draw(section: Section) -> Drawing:
        link = "" if subject else render.query(here, {"subject": section.subject})
        past = {"balancer": name, "subject": exactly(section.subject)}
        return render.drawing(section, link, render.query("/journal", past))

    return View(
        render.heading(page, reading.errors, extent),
        render.subject_form(subject, reading.subjects, here),
        tuple(map(draw, page.sections)),
    )


def made(name: str, found: Sequence[Record]) -> Page:
    """Return a page; if a record cannot be rendered, a page with that error: the journal still shows it."""
    try:
        return _maker(name)(found)
    except Exception as error:  # noqa: BLE001 - a record may contain anything
        error_text = f"{type(error).__name__}: {error}"
        sentence = f"This page cannot be shown ({error_text}). Its records are on the page Journal."
        return Page(name.capitalize(), " ".join(sentence.split()))


def _maker(name: str) -> Callable[[Sequence[Record]], Page]:
    if name == OVERVIEW:
        return overview
    module = f"equipoise.dashboard.pages.{name}"
    if find_spec(module) is None:  # a balancer without a page
        return partial(page_of, name.capitalize(), name, "subject", draw=lambda _: Figures())
    make: Callable[[Sequence[Record]], Page] = import_module(module).page
    return make


def listing(journals: Journals, chosen: Query) -> View:
    reading = journals.listed(chosen)
    lead = "Each new decision and each action, latest first. Open a line for its numbers."
    page = Page("Journal", lead)
    empty = "" if reading.records else '<p class="empty">No record matches the filter.</p>'
    return View(
        render.heading(page, reading.errors),
        Markup(_filter_form(chosen).html + '<h2 class="unseen">Records</h2>' + empty),
        records=tuple((record.id, render.whole(record)) for record in reading.records),
        tail=_pager(chosen, reading),
    )


def _filter_form(chosen: Query) -> Markup:
    balancers = render.options_of(BALANCERS, chosen.balancer, "all")
    reasons = render.options_of(sorted(code.value for code in Code), chosen.reason, "all")
    everything = '<a class="button" href="/journal">All</a>' if chosen != Query() else ""
    return Markup(
        '<form class="filter" method="get" action="/journal">'
        f'<label>Balancer<select name="balancer">{balancers}</select></label>'
        f'<label>Reason<select name="reason">{reasons}</select></label>'
        f'<label>Subject<input type="search" name="subject" value="{escape(chosen.subject)}" '
        f'placeholder="shop/web or shop/*"></label><button>Show</button>{everything}</form>'
    )


def _pager(chosen: Query, reading: JournalReading) -> Markup:
    links = ""
    if chosen.before:
        newest = render.query("/journal", asdict(replace(chosen, before="")))
        links = f'<a class="button" href="{escape(newest)}">Newest</a>'
    if reading.is_cut:
        older = render.query("/journal", asdict(replace(chosen, before=reading.records[-1].id)))
        links += f'<a class="button" rel="next" href="{escape(older)}">Older</a>'
    return Markup(f'<nav class="pager" aria-label="Older and newer records">{links}</nav>')
