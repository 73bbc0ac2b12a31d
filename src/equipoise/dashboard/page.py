"""The content of a page as data: pages are made without a browser, and rendered by one function.

The function that renders them may rely on this:

- `Chart.options` are ECharts options that survive JSON: finite numbers, None, texts, lists, and mappings
  whose keys are ECharts' own words. A name from outside is never a key, so no key begins with a colon.
- Colours of series are words of `COLOURS`, wherever a key is `color`; `painted` puts the theme's in their
  places. Text, axes, grids and tooltips have none: they are the theme's.
- Texts are plain and one line each, but may hold anything else; they are to be shown as text, never as HTML.
- A page has at most `SECTIONS_MAX` sections; its summary says how many there were.

All pages share the standing of decisions, the order of subjects, most urgent first, and the counts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from equipoise.core.decision import Record
from equipoise.core.reason import Code
from equipoise.dashboard.charts import Bar, bars, by_name
from equipoise.dashboard.values import SENTENCE_MAX, Json, amount, counted, figure, milliseconds, moment, text
from equipoise.engine.balancer import BALANCERS

COLOURS = ("hot", "cold", "target", "limit", "band", "actual", "muted", "good", "bad", "held")
"""The names of colours, by meaning; `band` is translucent."""
STANDINGS = ("problem", "acted", "held", "preview", "quiet")
"""The standings of a decision, most urgent first; `problem` is drawn as `bad`, `acted` as `good`."""
SECTIONS_MAX = 12
"""The maximum number of sections: each has charts, and the browser should stay fast."""
SUBJECT_MAX = 600
"""The maximum length of a subject: namespace, name and owner at Kubernetes' maximum."""
NO_DECISION = "No decisions yet"

TROUBLE_CODES = frozenset({
    Code.METRICS_INCOMPLETE, Code.AMBIGUOUS_HPA, Code.FOUGHT_BY, Code.REFUSED, Code.INFEASIBLE,
    Code.NOT_APPLIED, Code.INTERNAL_ERROR, Code.NO_ELIGIBLE_PODS, Code.FUTILE,
})  # fmt: skip
"""Reasons that persist until a person acts."""
TROUBLE_RESULTS = frozenset({
    "Unknown", "Failed", "Unanswered", "Refused", "Forbidden", "Unsupported", "Unsound", "WrongType",
    "NotOurs",
})  # fmt: skip
"""Outcomes that are failures, for every balancer."""
NOT_DONE = frozenset({
    "Blocked", "Fenced", "Outdated", "Gone", "Busy", "Leased", "Draining", "SourceNotOver", "DestinationFull",
    "ConfigChanged", "NotThere",
})  # fmt: skip
"""Outcomes that changed nothing; the next cycle decides again."""
HELD_CODES = frozenset({code for code in Code if code.value.startswith("HeldBy")} | {Code.PDB_BLOCKED})


def painted(options: Any, palette: Mapping[str, str]) -> Any:
    """Return options with the names of colours replaced by a theme's values; unknown names stay."""
    if isinstance(options, Mapping):
        return {
            key: palette.get(part, part)
            if key == "color" and isinstance(part, str)
            else painted(part, palette)
            for key, part in options.items()
        }
    if isinstance(options, list | tuple):
        return [painted(part, palette) for part in options]
    return options


@dataclass(frozen=True, slots=True)
class Fact:
    """One key figure: a name, a value and a note."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: ECharts options without the colours of text and lines, which the theme sets."""

    title: str
    options: Mapping[str, Any]
    description: str
    """The chart's content in words, for screen readers."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; the columns named in `figures` are numbers, aligned right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """The section of one subject: a workload, a node, a fleet of tiers."""

    subject: str
    reason: str
    sentence: str
    facts: tuple[Fact, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    standing: str = "quiet"
    """One of `STANDINGS`."""
    at: float | None = None
    """The time of the last same decision, in seconds since 1970."""
    record: str = ""
    """The id of the newest record in the journal."""


@dataclass(frozen=True, slots=True)
class Page:
    """One balancer's page."""

    title: str
    summary: str
    facts: tuple[Fact, ...] = ()
    sections: tuple[Section, ...] = ()


class Figures(NamedTuple):
    """The page's figures for a subject; None, or a table without rows, for one that could not be made."""

    facts: Iterable[Fact] = ()
    charts: Iterable[Chart | None] = ()
    tables: Iterable[Table] = ()


def numbers_of(record: Record) -> Json:
    """Return the newest numbers of a record."""
    return Json(record.reason.numbers)


def standing_of(record: Record) -> str:
    """Return the standing of a decision, one of `STANDINGS`."""
    decision = record.decision
    code = decision.reason.code
    if code in TROUBLE_CODES or any(one.result in TROUBLE_RESULTS for one in record.outcomes):
        return "problem"
    if record.outcomes:
        return "held" if all(one.result in NOT_DONE for one in record.outcomes) else "acted"
    if decision.actions or code is Code.RECOMMEND:
        return "preview"
    return "held" if decision.held or code in HELD_CODES else "quiet"


def by_subject(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group records by subject, the most urgent first; of one subject, the newest first, as they came.

    Subjects with a problem now are first, then those with actions, then the latest.
    """
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.decision.subject, []).append(record)

    def rank(subject: str) -> tuple[int, float]:
        own = found[subject]
        standings = [STANDINGS.index(standing_of(record)) for record in own]
        return (0 if standings[0] == 0 else max(1, min(standings))), -own[0].until

    return {subject: found[subject] for subject in sorted(found, key=rank)}


def tallies(groups: Iterable[Sequence[Record]]) -> tuple[Fact, ...]:
    """Return the counts of subjects that need attention now, and of standings in all records."""
    standings = [[standing_of(record) for record in group] for group in groups]
    if not standings:
        return ()
    counts = Counter(chain.from_iterable(standings))
    return (
        Fact(
            "Need attention",
            figure(sum(own[0] == "problem" for own in standings)),
            "subjects whose latest decision reports a problem",
        ),
        Fact("Acted", figure(counts["acted"]), "decisions whose actions were executed"),
        Fact("Held", figure(counts["held"]), "decisions whose actions a guard held"),
        Fact("Preview", figure(counts["preview"]), "decisions in mode Preview"),
    )


def facts_of(numbers: Json, unit: str, rows: Iterable[tuple[str, str, str]]) -> Iterator[Fact]:
    """Yield the known numbers as facts, from name, key and note of each; without a unit they are counts."""
    for name, key, note in rows:
        value = numbers[key].number if unit else numbers[key].count
        if value is not None:
            yield Fact(name, amount(value, unit) if unit else figure(value), note)


def page_of(
    title: str,
    balancer: str,
    noun: str,
    records: Iterable[Record],
    draw: Callable[[Sequence[Record]], Figures],
) -> Page:
    """Return a balancer's page: counts over all subjects, and a section for each of the most urgent."""
    found = by_subject(record for record in records if record.balancer == balancer)
    shown = list(found)[:SECTIONS_MAX]
    lead = f"{counted(len(found), noun)}." if found else f"{NO_DECISION}."
    if len(shown) < len(found):
        lead = (
            f"{len(shown)} of {counted(len(found), noun)}, in this order: those that need attention, those "
            "with actions, and the most recent."
        )
    sections = (_section(subject, found[subject][0], draw(found[subject])) for subject in shown)
    return Page(title, lead, tallies(found.values()), tuple(sections))


def _section(subject: str, newest: Record, figures: Figures) -> Section:
    words = newest.reason
    return Section(
        subject=text(subject, SUBJECT_MAX) or "(no name)",
        reason=words.code.value,
        sentence=text(words.sentence, SENTENCE_MAX),
        facts=tuple(figures.facts),
        charts=tuple(chart for chart in figures.charts if chart is not None),
        tables=tuple(table for table in figures.tables if table.rows),
        standing=standing_of(newest),
        at=newest.until,
        record=newest.id,
    )


TROUBLES_MAX = 30
LATEST_MAX = 5
SPANS = 24
DAY_SECONDS = 86400.0
STANDING_COLOURS = {"problem": "bad", "acted": "good", "held": "held", "preview": "cold", "quiet": "muted"}


def overview(records: Sequence[Record]) -> Page:
    """Return the page of all balancers: subjects with a problem first; records are newest first."""
    by_balancer = {name: [one for one in records if one.balancer == name] for name in BALANCERS}
    groups = [own for found in map(by_subject, by_balancer.values()) for own in found.values()]
    troubles = [own[0] for own in groups if standing_of(own[0]) == "problem"]
    sections = [_balancer_section(name, own, records) for name, own in by_balancer.items()]
    sections.sort(key=lambda section: section.standing != "problem")
    needs = f"{len(troubles) or 'none'} {'needs' if len(troubles) in {0, 1} else 'need'} attention"
    counts = f"{counted(len(groups), 'subject')} in {counted(len(records), 'record')}; {needs}."
    first = (_trouble_section(troubles),) if troubles else ()
    return Page("Overview", counts if records else f"{NO_DECISION}.", tallies(groups), (*first, *sections))


def _trouble_section(troubles: Sequence[Record]) -> Section:
    newest = sorted(troubles, key=lambda record: -record.until)
    rows = tuple(
        (moment(record.until), text(record.balancer), text(record.decision.subject), *_why(record))
        for record in newest[:TROUBLES_MAX]
    )
    more = f" The latest {TROUBLES_MAX} are listed." if len(troubles) > TROUBLES_MAX else ""
    needs = "needs" if len(troubles) == 1 else "need"
    return Section(
        "Needs attention",
        newest[0].reason.code.value,
        f"{counted(len(troubles), 'subject')} {needs} attention.{more}",
        tables=(Table("Need attention now", ("Time", "Balancer", "Subject", "Reason", "Message"), rows),),
        standing="problem",
        at=newest[0].until,
        record=newest[0].id,
    )


def _why(record: Record) -> tuple[str, str]:
    words = record.reason
    return words.code.value, text(words.sentence, SENTENCE_MAX)


def _balancer_section(name: str, own: Sequence[Record], everything: Sequence[Record]) -> Section:
    if not own:
        return Section(name, "", f"{NO_DECISION}: {BALANCERS[name].summary}.")
    found = by_subject(own)
    latest = [group[0] for group in found.values()]
    newest = max(own, key=lambda record: record.until)
    code, sentence = _why(newest)
    course = _course(own, everything)
    return Section(
        name,
        code,
        f"{text(newest.decision.subject)}: {sentence}",
        facts=(Fact("Subjects", figure(len(found)), BALANCERS[name].summary), *tallies(found.values())),
        charts=() if course is None else (course,),
        tables=(_latest(latest),),
        standing="problem" if standing_of(latest[0]) == "problem" else standing_of(newest),
        at=newest.until,
        record=newest.id,
    )


def _latest(latest: Sequence[Record]) -> Table:
    rows = []
    for record in latest[:LATEST_MAX]:
        code, sentence = _why(record)
        subject = text(record.decision.subject)
        rows.append((moment(record.until), subject, code, standing_of(record), sentence))
    return Table("Latest", ("Time", "Subject", "Reason", "State", "Message"), tuple(rows))


def _course(own: Sequence[Record], everything: Sequence[Record]) -> Chart | None:
    """Return decisions by standing over time; the time spans are the same for all balancers."""
    times = [record.at for record in everything if milliseconds(record.at) is not None]
    if not times:
        return None
    begin, end = min(times), max(times)
    width = max((end - begin) / SPANS, 1.0)
    counts: dict[str, Counter[int]] = {standing: Counter() for standing in STANDING_COLOURS}
    for record in own:
        if milliseconds(record.at) is not None:
            place = min(SPANS - 1, max(0, int((record.at - begin) / width)))
            counts[standing_of(record)][place] += 1
    written = slice(11, 16) if width * SPANS <= DAY_SECONDS else slice(5, 16)
    names = [moment(begin + place * width)[written] for place in range(SPANS)]
    counts = {standing: spans for standing, spans in counts.items() if spans}
    series = [
        bars(
            standing,
            STANDING_COLOURS[standing],
            [Bar(name, spans[place]) for place, name in enumerate(names)],
            stack="decisions",
        )
        for standing, spans in counts.items()
    ]
    if not series:
        return None
    words = ", ".join(f"{spans.total()} {standing}" for standing, spans in counts.items())
    options = by_name("decisions", names, series, trigger="axis")
    options["xAxis"]["axisLabel"] = {"show": True, "hideOverlap": True}
    return Chart("New decisions over time", options, f"{counted(len(own), 'decision')}: {words}.")
