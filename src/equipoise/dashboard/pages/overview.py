"""The overview of all balancers: subjects in trouble, the latest decisions, and counts by standing."""

from collections.abc import Sequence

from equipoise.core.decision import Record
from equipoise.dashboard.charts import Bar, bars, by_name
from equipoise.dashboard.page import (
    SENTENCE_MAX,
    Chart,
    Fact,
    Page,
    Section,
    Table,
    counted,
    milliseconds,
    moment,
    text,
)
from equipoise.dashboard.summary import by_subject, most_urgent_first, standing_of, tallies, words_of
from equipoise.engine.balancer import BALANCERS

TROUBLES_MAX = 30
LATEST_MAX = 5
SPANS = 24
DAY_SECONDS = 86400.0
COLOURS = {"trouble": "bad", "acted": "good", "held": "held", "preview": "cold", "quiet": "muted"}


def page(records: Sequence[Record]) -> Page:
    """Return the page: subjects in trouble first, then each balancer; records are newest first."""
    by_balancer = {name: [one for one in records if one.balancer == name] for name in BALANCERS}
    everything = [own for found in map(by_subject, by_balancer.values()) for own in found.values()]
    troubles = [own[0] for own in everything if standing_of(own[0]) == "trouble"]
    sections = [_section(name, own, records) for name, own in by_balancer.items()]
    sections.sort(key=lambda section: section.standing != "trouble")
    first = (_trouble_section(troubles),) if troubles else ()
    lead = (
        f"{counted(len(everything), 'subject')} in {counted(len(records), 'record')}; "
        f"{len(troubles) or 'none'} in trouble."
        if records
        else "Nothing has been decided yet."
    )
    return Page("Overview", lead, tallies(everything), (*first, *sections))


def _trouble_section(troubles: Sequence[Record]) -> Section:
    """Return the section of subjects in trouble, newest first."""
    newest = sorted(troubles, key=lambda record: -record.until)
    rows = tuple(
        (
            moment(record.until),
            text(record.balancer),
            text(record.decision.subject),
            words_of(record).code.value,
            text(words_of(record).sentence, SENTENCE_MAX),
        )
        for record in newest[:TROUBLES_MAX]
    )
    more = f" The newest {TROUBLES_MAX} are listed." if len(troubles) > TROUBLES_MAX else ""
    wants = "wants" if len(troubles) == 1 else "want"
    return Section(
        "Trouble",
        words_of(newest[0]).code.value,
        f"{counted(len(troubles), 'subject')} {wants} a look.{more}",
        tables=(Table("In trouble now", ("When", "Balancer", "Subject", "Reason", "Why"), rows),),
        standing="trouble",
        at=newest[0].until,
        record=newest[0].id,
    )


def _section(name: str, own: Sequence[Record], everything: Sequence[Record]) -> Section:
    if not own:
        return Section(name, "", f"Nothing has been decided yet: {BALANCERS[name].summary}.")
    found = by_subject(own)
    latest = [found[subject][0] for subject in most_urgent_first(found)]
    first = latest[0]
    newest = max(own, key=lambda record: record.until)
    words, course = words_of(newest), _course(own, everything)
    return Section(
        name,
        words.code.value,
        f"{text(newest.decision.subject)}: {text(words.sentence, SENTENCE_MAX)}",
        facts=(Fact("Subjects", f"{len(found):,}", BALANCERS[name].summary), *tallies(list(found.values()))),
        charts=() if course is None else (course,),
        tables=(_latest(latest),),
        standing="trouble" if standing_of(first) == "trouble" else standing_of(newest),
        at=newest.until,
        record=newest.id,
    )


def _latest(latest: Sequence[Record]) -> Table:
    """Return the newest decisions, most urgent first."""
    rows = tuple(
        (
            moment(record.until),
            text(record.decision.subject),
            words_of(record).code.value,
            standing_of(record),
            text(words_of(record).sentence, SENTENCE_MAX),
        )
        for record in latest[:LATEST_MAX]
    )
    return Table("Latest", ("When", "Subject", "Reason", "Standing", "Why"), rows)


def _course(own: Sequence[Record], everything: Sequence[Record]) -> Chart | None:
    """Return decisions by standing over time; the time spans are the same for all balancers."""
    times = [record.at for record in everything if milliseconds(record.at) is not None]
    if not times:
        return None
    begin, end = min(times), max(times)
    width = max((end - begin) / SPANS, 1.0)
    counts = {standing: [0] * SPANS for standing in COLOURS}
    for record in own:
        if milliseconds(record.at) is None:
            continue
        place = min(SPANS - 1, max(0, int((record.at - begin) / width)))
        counts[standing_of(record)][place] += 1
    written = slice(11, 16) if width * SPANS <= DAY_SECONDS else slice(5, 16)
    names = [moment(begin + place * width)[written] for place in range(SPANS)]
    series = [
        bars(
            standing,
            COLOURS[standing],
            [Bar(name, value) for name, value in zip(names, values, strict=True)],
            stack="decisions",
        )
        for standing, values in counts.items()
        if any(values)
    ]
    if not series:
        return None
    words = ", ".join(f"{sum(values)} {standing}" for standing, values in counts.items() if any(values))
    options = by_name("decisions", names, series, trigger="axis")
    options["xAxis"]["axisLabel"] = {"show": True, "hideOverlap": True}
    return Chart("New decisions over time", options, f"{counted(len(own), 'decision')}: {words}.")
