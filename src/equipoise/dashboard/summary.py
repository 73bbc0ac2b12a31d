"""How decisions stand, and what every page begins with: the subjects, what wants a look first."""

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
"""Reasons that stay until a person does something."""
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
"""Outcomes that nobody wanted, whichever balancer they came to."""
SUBJECT_MAX = 600
"""A namespace, a name and who asks, each as long as Kubernetes allows."""
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
"""Outcomes after which everything is as before, and the next look decides anew."""
HELD_CODES = frozenset({code for code in Code if code.value.startswith("HeldBy")} | {Code.PDB_BLOCKED})

Charts = tuple[Chart | None, ...]
Tables = tuple[Table | None, ...]


class Figures(NamedTuple):
    """What a page adds to a subject; what could not be made is None."""

    facts: tuple[Fact | None, ...] = ()
    charts: Charts = ()
    tables: Tables = ()


def words_of(record: Record) -> Reason:
    """Return the reason as it was last given: a streak has the same code, and newer numbers."""
    return record.decision.reason if record.streak is None else record.streak.reason


def numbers_of(record: Record) -> Mapping[str, object]:
    """Return the newest numbers of a record."""
    return mapping(words_of(record).numbers)


def standing_of(record: Record) -> str:
    """Return how a decision stands, by the first of `STANDINGS` that fits."""
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
    """Sort records by what they are about; each list has the newest first, as the records came."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.decision.subject, []).append(record)
    return found


def first_looks(found: Mapping[str, Sequence[Record]]) -> list[str]:
    """Put the subjects in order: in trouble now, then where something was done or held, then the newest."""

    def rank(subject: str) -> tuple[int, float]:
        own = found[subject]
        standings = [standing_of(record) for record in own]
        lowest = 0 if standings[0] == "trouble" else min(max(1, STANDINGS.index(one)) for one in standings)
        return lowest, -own[0].until

    return sorted(found, key=rank)


def section(subject: str, records: Sequence[Record], figures: Figures) -> Section:
    """Put together what is known of one subject; the first record is the newest."""
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
    """Make a balancer's page: some figures about all subjects, and a section for each of the first."""
    found = by_subject(record for record in records if record.balancer == balancer)
    subjects = first_looks(found)
    shown = subjects[:SECTIONS_MAX]
    said = f"{counted(len(subjects), noun)}." if subjects else "Nothing has been decided yet."
    if len(shown) < len(subjects):
        said = (
            f"{len(shown)} of {counted(len(subjects), noun)}: those in trouble, then those where something "
            "was done or held, then the newest."
        )
    return Page(
        title,
        said,
        tallies([found[subject] for subject in subjects]),
        tuple(section(subject, found[subject], draw(found[subject])) for subject in shown),
    )


def tallies(groups: Sequence[Sequence[Record]]) -> tuple[Fact, ...]:
    """Count what was done in all these records, and who is in trouble now."""
    if not groups:
        return ()
    standings = [standing_of(record) for group in groups for record in group]
    in_trouble = sum(standing_of(group[0]) == "trouble" for group in groups)
    counts = [Fact("In trouble", f"{in_trouble:,}", "subjects whose newest decision wants a look")]
    for name, word, note in (
        ("Acted", "acted", "decisions that were carried out"),
        ("Held", "held", "decisions that a guard kept back"),
        ("Preview", "preview", "decisions that were only told"),
    ):
        counts.append(Fact(name, f"{standings.count(word):,}", note))
    return tuple(counts)
