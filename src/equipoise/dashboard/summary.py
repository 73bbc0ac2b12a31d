"""The standing of decisions, and what all pages share: the subjects, most urgent first, and the counts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from equipoise.core.decision import Record
from equipoise.core.reason import Code, Reason
from equipoise.dashboard.page import (
    SECTIONS_MAX,
    SENTENCE_MAX,
    STANDINGS,
    Chart,
    Fact,
    Page,
    Section,
    Table,
    counted,
    mapping,
    text,
)

TROUBLE_CODES = frozenset(
    {
        Code.METRICS_INCOMPLETE,
        Code.AMBIGUOUS_HPA,
        Code.FOUGHT_BY,
        Code.REFUSED,
        Code.INFEASIBLE,
        Code.NOT_APPLIED,
        Code.INTERNAL_ERROR,
        Code.NO_ELIGIBLE_PODS,
        Code.FUTILE,
    }
)
"""Reasons that persist until a person acts."""
TROUBLE_RESULTS = frozenset(
    {
        "Unknown",
        "Failed",
        "Unanswered",
        "Refused",
        "Forbidden",
        "Unsupported",
        "Unsound",
        "WrongType",
        "NotOurs",
    }
)
"""Outcomes that are failures, for every balancer."""
SUBJECT_MAX = 600
"""The maximum length of a subject: namespace, name and owner at Kubernetes' maximum."""
NOT_DONE = frozenset(
    {
        "Blocked",
        "Fenced",
        "Outdated",
        "Gone",
        "Busy",
        "Leased",
        "Draining",
        "SourceNotOver",
        "DestinationFull",
        "ConfigChanged",
        "NotThere",
    }
)
"""Outcomes that changed nothing; the next cycle decides again."""
HELD_CODES = frozenset({code for code in Code if code.value.startswith("HeldBy")} | {Code.PDB_BLOCKED})

Charts = tuple[Chart | None, ...]
Tables = tuple[Table | None, ...]


class Figures(NamedTuple):
    """The page's figures for a subject; None for one that could not be made."""

    facts: tuple[Fact | None, ...] = ()
    charts: Charts = ()
    tables: Tables = ()


def words_of(record: Record) -> Reason:
    """Return the newest reason of a record: that of its streak has the same code and newer numbers."""
    return record.decision.reason if record.streak is None else record.streak.reason


def numbers_of(record: Record) -> Mapping[str, object]:
    """Return the newest numbers of a record."""
    return mapping(words_of(record).numbers)


def standing_of(record: Record) -> str:
    """Return the standing of a decision, one of `STANDINGS`."""
    decision = record.decision
    code = decision.reason.code
    if code in TROUBLE_CODES or any(one.result in TROUBLE_RESULTS for one in record.outcomes):
        return "trouble"
    if record.outcomes:
        return "held" if all(one.result in NOT_DONE for one in record.outcomes) else "acted"
    if decision.actions or code is Code.RECOMMEND:
        return "preview"
    return "held" if decision.held or code in HELD_CODES else "quiet"


def by_subject(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group records by subject; their order, newest first, is preserved."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.decision.subject, []).append(record)
    return found


def most_urgent_first(found: Mapping[str, Sequence[Record]]) -> list[str]:
    """Return the subjects in order: in trouble now, then with actions done or held, then the newest."""

    def rank(subject: str) -> tuple[int, float]:
        own = found[subject]
        standings = [standing_of(record) for record in own]
        lowest = 0 if standings[0] == "trouble" else min(max(1, STANDINGS.index(one)) for one in standings)
        return lowest, -own[0].until

    return sorted(found, key=rank)


def section(subject: str, records: Sequence[Record], figures: Figures) -> Section:
    """Return the section of one subject; the first record is the newest."""
    newest = records[0]
    words = words_of(newest)
    return Section(
        subject=text(subject, SUBJECT_MAX) or "(no name)",
        reason=words.code.value,
        sentence=text(words.sentence, SENTENCE_MAX),
        facts=tuple(part for part in figures.facts if part is not None),
        charts=tuple(part for part in figures.charts if part is not None),
        tables=tuple(part for part in figures.tables if part is not None),
        standing=standing_of(newest),
        at=newest.until,
        record=newest.id,
    )


def page_of(
    title: str,
    balancer: str,
    noun: str,
    records: Sequence[Record],
    draw: Callable[[Sequence[Record]], Figures],
) -> Page:
    """Return a balancer's page: counts over all subjects, and a section for each of the most urgent."""
    found = by_subject(record for record in records if record.balancer == balancer)
    subjects = most_urgent_first(found)
    shown = subjects[:SECTIONS_MAX]
    lead = f"{counted(len(subjects), noun)}." if subjects else "Nothing has been decided yet."
    if len(shown) < len(subjects):
        lead = (
            f"{len(shown)} of {counted(len(subjects), noun)}: those in trouble, then those where something "
            "was done or held, then the newest."
        )
    return Page(
        title,
        lead,
        tallies([found[subject] for subject in subjects]),
        tuple(section(subject, found[subject], draw(found[subject])) for subject in shown),
    )


def tallies(groups: Sequence[Sequence[Record]]) -> tuple[Fact, ...]:
    """Return the counts of standings in all records, and of subjects in trouble now."""
    if not groups:
        return ()
    standings = [standing_of(record) for group in groups for record in group]
    troubled = sum(standing_of(group[0]) == "trouble" for group in groups)
    counts = [Fact("In trouble", f"{troubled:,}", "subjects whose newest decision wants a look")]
    for name, word, note in (
        ("Acted", "acted", "decisions that were carried out"),
        ("Held", "held", "decisions that a guard kept back"),
        ("Preview", "preview", "decisions that were only told"),
    ):
        counts.append(Fact(name, f"{standings.count(word):,}", note))
    return tuple(counts)
