"""The pools page: tiers with their targets, idle and busy pods, and moves."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from equipoise.core.decision import MovePod, Record
from equipoise.dashboard.charts import Bar, Line, bars, by_name, dots, over_time
from equipoise.dashboard.page import (
    Chart,
    Fact,
    Page,
    Table,
    count,
    counted,
    figure,
    items,
    mapping,
    moment,
    text,
)
from equipoise.dashboard.summary import Figures, numbers_of, page_of

BALANCER = "pools"
TIERS_MAX = 24
LINES_MAX = 6
LOOKS_MAX = 400
ACTIONS_MAX = 50
STAYS = {"idle": "good", "busy": "actual", "leased": "cold", "draining": "muted"}
"""The states of pods, and their colours."""


def page(records: Sequence[Record]) -> Page:
    """Return the page of the fleets of tiers; records are newest first."""
    return page_of("Pools", BALANCER, "subject", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    if mapping(numbers_of(records[0]).get("targets")):
        return Figures(
            facts=tuple(_facts(records[0])),
            charts=(_tiers(records), _over_time(records)),
            tables=(_counts(records), _actions_table(records)),
        )
    return Figures(facts=tuple(_roster(records[0])), tables=(_actions_table(records),))


def _facts(newest: Record) -> Iterator[Fact]:
    numbers = numbers_of(newest)
    for name, key, note in (
        ("Pods", "pods", "in all tiers"),
        ("Missing", "missing", "more pods are demanded than there are"),
        ("Kept: busy", "skipped_busy", "pods of tiers over target that serve a call"),
        ("Kept: leased", "skipped_leased", "pods of tiers over target that somebody holds"),
        ("Kept: draining", "skipped_draining", "pods of tiers over target that get no more calls"),
    ):
        value = count(numbers.get(key))
        if value is not None and (value or key == "pods"):
            yield Fact(name, f"{value:,}", note)


def _roster(newest: Record) -> Iterator[Fact]:
    numbers = numbers_of(newest)
    for name, key, note in (
        ("Listed", "listed", "pods that Kubernetes has"),
        ("Registered", "registered", "pods that the tiers have"),
        ("Missing", "missing", "registered, and not in the list"),
        ("Unready", "unready", "in a tier, and not ready"),
        ("Loss allowed", "lost_max", "without proof; more waits for a person"),
    ):
        value = count(numbers.get(key))
        if value is not None:
            yield Fact(name, f"{value:,}", note)


def _members(record: Record) -> dict[str, Counter[str]]:
    """Return each tier's pods by state; empty without an observation."""
    found: dict[str, Counter[str]] = {}
    for part in items(record.observation.get("tiers")):
        tier = mapping(part)
        name = tier.get("name")
        if isinstance(name, str):
            stays = (mapping(pod).get("stay") for pod in items(tier.get("pods")))
            found[name] = Counter(stay for stay in stays if isinstance(stay, str))
    return found


def _counts_by_tier(numbers: Mapping[str, object], key: str) -> dict[str, int]:
    found = {name: count(value) for name, value in mapping(numbers.get(key)).items()}
    return {name: value for name, value in found.items() if value is not None}


def _tiers(records: Sequence[Record]) -> Chart | None:
    """Return a bar of each tier's pods by state, with its target as a line."""
    newest = records[0]
    numbers = newest.decision.reason.numbers
    targets, assigned = _counts_by_tier(numbers, "targets"), _counts_by_tier(numbers, "assigned")
    members = _members(newest)
    names = list(targets)[:TIERS_MAX]
    if not names:
        return None
    shown = [text(name) for name in names]
    series = []
    if all(name in members for name in names):
        for stay, colour in STAYS.items():
            values = [Bar(text(name), members[name][stay]) for name in names]
            if any(bar.value for bar in values):
                series.append(bars(stay, colour, values, stack="pods"))
    if not series:
        series.append(bars("pods", "actual", [Bar(text(name), assigned.get(name)) for name in names]))
    target_dots = [Bar(text(name), targets[name]) for name in names]
    series.append(dots("target", "target", target_dots, symbol="rect"))
    words = "; ".join(f"{text(name)} has {assigned.get(name, '-')} of {targets[name]}" for name in names[:6])
    more = f"; and {len(targets) - 6} more tiers" if len(targets) > 6 else ""  # noqa: PLR2004 - as above
    return Chart("Tiers and their targets", by_name("pods", shown, series), f"{words}{more}.")


def _over_time(records: Sequence[Record]) -> Chart | None:
    """Return the number of pods of each tier over time."""
    snapshots = []
    for record in reversed(records[:LOOKS_MAX]):
        assigned = _counts_by_tier(record.decision.reason.numbers, "assigned")
        snapshots.append((record.at, assigned))
        if moved := _moved(record, assigned):
            snapshots.append((record.at, moved))
        if record.streak is not None:
            snapshots.append((record.streak.until, _counts_by_tier(record.streak.reason.numbers, "assigned")))
    names = list(_counts_by_tier(numbers_of(records[0]), "targets"))[:LINES_MAX]
    if len(snapshots) < 2 or not names:  # noqa: PLR2004 - one point is no course
        return None
    colours = ("actual", "cold", "good", "hot", "target", "muted")
    lines = [
        Line(text(name), colour, [(at, assigned.get(name)) for at, assigned in snapshots], is_step=True)
        for name, colour in zip(names, colours, strict=False)
    ]
    words = f"The pods of {counted(len(names), 'tier')} at {counted(len(snapshots), 'look')}."
    return Chart("Pods over time", over_time("pods", lines), words)


def _moved(record: Record, assigned: Mapping[str, int]) -> dict[str, int]:
    """Return the number of pods of each tier after a record's moves; empty without moves."""
    moves = [one.action for one in record.outcomes if one.result == "Moved"]
    after = Counter(assigned)
    for action in moves:
        if isinstance(action, MovePod) and action.source in assigned and action.destination in assigned:
            after[action.source] -= 1
            after[action.destination] += 1
    return dict(after) if moves else {}


def _counts(records: Sequence[Record]) -> Table | None:
    numbers = records[0].decision.reason.numbers
    targets, assigned = _counts_by_tier(numbers, "targets"), _counts_by_tier(numbers, "assigned")
    members = _members(records[0])
    kinds = mapping(records[0].policy.get("tiers"))
    rows = tuple(
        (
            text(name),
            text(mapping(kinds.get(name)).get("type")) or "-",
            figure(targets[name]),
            figure(assigned.get(name)),
            *(figure(members[name][stay] if name in members else None) for stay in STAYS),
        )
        for name in list(targets)[:TIERS_MAX]
    )
    figures = ("Target", "Pods", "Idle", "Busy", "Leased", "Draining")
    return Table("Tiers", ("Tier", "Type", *figures), rows, figures) if rows else None


def _actions_table(records: Sequence[Record]) -> Table | None:
    """Return the moves and other actions, newest first."""
    rows: list[tuple[str, ...]] = []
    for record in records:
        for one in record.outcomes:
            action = one.action
            tiers = ("-", "-")
            if isinstance(action, MovePod):
                tiers = (text(action.source), text(action.destination))
            name = type(action).__name__
            rows.append((moment(record.at), name, text(action.pod), *tiers, text(one.result)))
        if len(rows) >= ACTIONS_MAX:
            break
    columns = ("When", "Action", "Pod", "From", "To", "Came of it")
    return Table("Moves and changes", columns, tuple(rows[:ACTIONS_MAX])) if rows else None
