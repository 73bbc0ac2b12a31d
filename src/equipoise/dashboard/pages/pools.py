"""The pools page: tiers with their targets, idle and busy pods, and moves."""

from collections import Counter
from collections.abc import Mapping, Sequence

from equipoise.core.decision import MovePod, Record
from equipoise.dashboard.charts import Bar, Line, bars, by_name, dashes, over_time
from equipoise.dashboard.page import Chart, Figures, Page, Table, facts_of, numbers_of, page_of
from equipoise.dashboard.values import Json, counted, figure, moment, text

TIERS_MAX = 24
LINES_MAX = 6
SAMPLES_MAX = 400
ACTIONS_MAX = 50
NAMED_MAX = 6
"""The maximum number of tiers in the words for screen readers."""
STAYS = {"idle": "good", "busy": "actual", "leased": "cold", "draining": "muted"}
"""The states of pods, and their colours."""
TIER_FACTS = (
    ("Pods", "pods", "in all tiers"),
    ("Missing", "missing", "pods missing to reach all targets"),
    ("Not moved: busy", "skipped_busy", "pods above the target of their tier, each with a call"),
    ("Not moved: leased", "skipped_leased", "pods above the target of their tier, each with a lease"),
    ("Not moved: draining", "skipped_draining", "pods above the target of their tier, each draining"),
)
ROSTER_FACTS = (
    ("Listed", "listed", "pods in the cluster"),
    ("Registered", "registered", "pods in the tiers"),
    ("Missing", "missing", "registered pods that are not in the cluster"),
    ("Not ready", "unready", "registered pods that are not ready"),
    ("Loss allowed", "lost_max", "pods that may be missing before nothing is removed"),
)


def page(records: Sequence[Record]) -> Page:
    """Return the page of the fleets of tiers; records are newest first."""
    return page_of("Pools", "pools", "subject", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    numbers = numbers_of(records[0])
    if not numbers["targets"].items():
        return Figures(facts_of(numbers, "", ROSTER_FACTS), tables=(_actions_table(records),))
    above_zero = [row for row in TIER_FACTS if row[1] == "pods" or numbers[row[1]].count]
    return Figures(
        facts=facts_of(numbers, "", above_zero),
        charts=(_tiers(records[0]), _over_time(records)),
        tables=(_counts(records[0]), _actions_table(records)),
    )


def _members(record: Record) -> dict[str, Counter[str]]:
    """Return each tier's pods by state; empty without an observation."""
    found: dict[str, Counter[str]] = {}
    for tier in Json(record.observation)["tiers"]:
        name = tier["name"].value
        if isinstance(name, str):
            stays = (pod["stay"].value for pod in tier["pods"])
            found[name] = Counter(stay for stay in stays if isinstance(stay, str))
    return found


def _by_tier(numbers: Json) -> dict[str, int]:
    return {name: value for name, part in numbers.items() if (value := part.count) is not None}


def _tiers(newest: Record) -> Chart | None:
    """Return a bar of each tier's pods by state, with its target as a line."""
    numbers = Json(newest.decision.reason.numbers)
    targets, assigned = _by_tier(numbers["targets"]), _by_tier(numbers["assigned"])
    members = _members(newest)
    names = list(targets)[:TIERS_MAX]
    if not names:
        return None
    series = []
    if all(name in members for name in names):
        series = [
            bars(stay, colour, [Bar(text(name), members[name][stay]) for name in names], stack="pods")
            for stay, colour in STAYS.items()
            if any(members[name][stay] for name in names)
        ]
    if not series:
        series.append(bars("pods", "actual", [Bar(text(name), assigned.get(name)) for name in names]))
    series.append(dashes("target", "target", [Bar(text(name), targets[name]) for name in names]))
    words = [
        f"{text(name)} has {assigned.get(name, '-')} of {counted(targets[name], 'pod')}"
        for name in names[:NAMED_MAX]
    ]
    if len(targets) > NAMED_MAX:
        words.append(f"and {len(targets) - NAMED_MAX} more tiers")
    options = by_name("pods", [text(name) for name in names], series)
    return Chart("Tiers and their targets", options, f"{'; '.join(words)}.")


def _over_time(records: Sequence[Record]) -> Chart | None:
    snapshots = []
    for record in reversed(records[:SAMPLES_MAX]):
        assigned = _by_tier(Json(record.decision.reason.numbers)["assigned"])
        snapshots.append((record.at, assigned))
        if moved := _moved(record, assigned):
            snapshots.append((record.at, moved))
        if record.streak is not None:
            snapshots.append((record.streak.until, _by_tier(numbers_of(record)["assigned"])))
    names = list(_by_tier(numbers_of(records[0])["targets"]))[:LINES_MAX]
    if len(snapshots) < 2 or not names:  # noqa: PLR2004 - one point is no course
        return None
    colours = ("actual", "cold", "good", "hot", "target", "muted")
    lines = [
        Line(text(name), colour, [(at, assigned.get(name)) for at, assigned in snapshots], is_step=True)
        for name, colour in zip(names, colours, strict=False)
    ]
    words = f"The pods of {counted(len(names), 'tier')} in {counted(len(snapshots), 'observation')}."
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


def _counts(newest: Record) -> Table:
    numbers = Json(newest.decision.reason.numbers)
    targets, assigned = _by_tier(numbers["targets"]), _by_tier(numbers["assigned"])
    members = _members(newest)
    kinds = Json(newest.policy)["tiers"]
    rows = tuple(
        (
            text(name),
            kinds[name]["type"].text or "-",
            figure(targets[name]),
            figure(assigned.get(name)),
            *(figure(members[name][stay] if name in members else None) for stay in STAYS),
        )
        for name in list(targets)[:TIERS_MAX]
    )
    figures = ("Target", "Pods", "Idle", "Busy", "Leased", "Draining")
    return Table("Tiers", ("Tier", "Type", *figures), rows, figures)


def _actions_table(records: Sequence[Record]) -> Table:
    rows: list[tuple[str, ...]] = []
    for record in records:
        for one in record.outcomes:
            action, tiers = one.action, ("-", "-")
            if isinstance(action, MovePod):
                tiers = (text(action.source), text(action.destination))
            name = type(action).__name__
            rows.append((moment(record.at), name, text(action.pod), *tiers, text(one.result)))
        if len(rows) >= ACTIONS_MAX:
            break
    columns = ("Time", "Action", "Pod", "From", "To", "Result")
    return Table("Moves and changes", columns, tuple(rows[:ACTIONS_MAX]))
