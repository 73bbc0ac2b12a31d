"""The replayed week as a table for people and as one document for scripts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from equipoise.app.recommendation_replay import Replayed, Run

if TYPE_CHECKING:
    from rich.table import Table

WIDTH_FOR_WORDS = 110
"""A narrower terminal gets short headings, which are explained below."""
SENTENCES_MAX = 20
SHORT = ("HOURS", "ABOVE", "SCALINGS", "MOST")
LONG = ("REPLICA-HOURS", "MINUTES ABOVE REQUEST", "SCALINGS", "HIGHEST")


def document(found: Sequence[Replayed], interval_seconds: float) -> dict[str, Any]:
    """Give it in the shape that scripts rely on."""
    return {
        "interval_seconds": int(interval_seconds) if interval_seconds.is_integer() else interval_seconds,
        "minutes": max((each.minutes for each in found), default=0),
        "workloads": [
            {
                "subject": each.decision.subject,
                "reason": each.decision.reason.code.value,
                "sentence": each.decision.reason.sentence,
                "minutes_known": each.minutes_known,
                "current": _run(each.current),
                "recommended": None if each.recommended is None else _run(each.recommended),
            }
            for each in found
        ],
        "total": _total(found),
    }


def _run(run: Run) -> dict[str, Any]:
    return {**run._asdict(), "replica_hours": round(run.replica_hours, 4)}


def _total(found: Sequence[Replayed]) -> dict[str, Any]:
    """Add up the workloads that have advice; the others would be in one sum only."""
    pairs = [(each.current, each.recommended) for each in found if each.recommended is not None]
    return {
        "workloads": len(found),
        "advised": len(pairs),
        "current": _sum([current for current, _ in pairs]),
        "recommended": _sum([recommended for _, recommended in pairs]),
    }


def _sum(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "replica_hours": round(sum(run.replica_hours for run in runs), 4),
        "minutes_above_request": sum(run.minutes_above_request or 0 for run in runs),
        "scalings": sum(run.scalings for run in runs),
    }


def print_table(found: Sequence[Replayed]) -> None:
    """Print two rows for each workload, and what they add up to."""
    from equipoise.app.console import Console

    console = Console()
    if not found:
        console.print("There is nothing to replay.")
        return
    is_wide = console.width >= WIDTH_FOR_WORDS
    console.print(_table(found, is_wide=is_wide))
    console.print()
    if not is_wide:
        console.print(
            "HOURS: replica-hours. ABOVE: minutes in which a pod used more than its request. "
            "MOST: the highest number of replicas."
        )
    refused = [each.decision for each in found if each.recommended is None]
    for decision in refused[:SENTENCES_MAX]:
        console.print(f"{decision.subject}: {decision.reason.sentence}")
    if len(refused) > SENTENCES_MAX:
        console.print(f"(and {len(refused) - SENTENCES_MAX} more sentences; -o json has all)")
    console.print(_said(found))


def _said(found: Sequence[Replayed]) -> str:
    total = _total(found)
    before, after = total["current"], total["recommended"]
    above = f"{before['minutes_above_request']:,} → {after['minutes_above_request']:,}"
    hours = max(each.minutes for each in found) / 60
    looked = f"{len(found)} replayed over {hours:.4g} hours, advice for {total['advised']}"
    if not total["advised"]:
        return f"{looked}. Nothing was changed."
    return (
        f"{looked}: {before['replica_hours']:,.0f} → {after['replica_hours']:,.0f} replica-hours "
        f"({_change(before['replica_hours'], after['replica_hours'])}), "
        f"{above} minutes above the request, {before['scalings']:,} → {after['scalings']:,} scalings. "
        "Nothing was changed."
    )


def _change(before: float, after: float) -> str:
    return f"{(after / before - 1) * 100:+.0f}\N{NO-BREAK SPACE}%" if before else "-"


def _table(found: Sequence[Replayed], *, is_wide: bool) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("WORKLOAD", overflow="fold", min_width=12)
    table.add_column("SETTINGS", no_wrap=True)
    hours, *others = LONG if is_wide else SHORT
    table.add_column(hours, justify="right", no_wrap=True)
    if is_wide:
        table.add_column("CHANGE", justify="right", no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        subject = Text(each.decision.subject)
        table.add_row(subject, *_cells("now", each.current, [""] if is_wide else []), style="dim")
        if each.recommended is None:
            table.add_row("", Text(each.decision.reason.code.value, style="yellow"))
            continue
        change = _change(each.current.replica_hours, each.recommended.replica_hours)
        table.add_row("", *_cells("advice", each.recommended, [change] if is_wide else []))
    return table


def _cells(whose: str, run: Run, change: list[str]) -> list[str]:
    above = run.minutes_above_request
    return [
        f"{whose:<6} {_settings(run.settings)}",
        f"{run.replica_hours:,.0f}",
        *change,
        "-" if above is None else f"{above:,}",
        f"{run.scalings:,}",
        f"{run.replicas_highest:,}",
    ]


def _settings(settings: dict[str, int]) -> str:
    if "replicas" in settings:
        return f"{settings['replicas']} fixed"
    low, high, target = settings.values()
    return f"{low}-{high} at {target} %"
