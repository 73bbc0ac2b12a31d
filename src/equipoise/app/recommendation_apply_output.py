"""What became of advice: one line for each workload, or one document in the shape of a plan."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from equipoise.app.output import Format, print_document
from equipoise.model.decision import outcome_document, plan_document
from equipoise.recommendation.adopt import DONE, Adopted

if TYPE_CHECKING:
    from rich.table import Table

WIDTH_FOR_SENTENCES = 140
"""A narrower terminal gets the sentences below the table."""
SENTENCES_MAX = 20
WOULD = {"Created": "would create", "Changed": "would change", "Unchanged": "unchanged"}


def print_adopted(done: Sequence[Adopted], form: Format, *, is_dry_run: bool) -> None:
    """Print it in the form that was asked for."""
    if form is not Format.TABLE:
        document = plan_document("recommendation", [each.decision for each in done])
        for part, each in zip(document["decisions"], done, strict=True):
            part["outcomes"] = [] if each.outcome is None else [outcome_document(each.outcome)]
            part["dry_run"] = is_dry_run
        print_document(document, form)
        return
    from equipoise.app.console import Console

    console = Console()
    if not done:
        console.print("There was nothing to decide.")
        return
    is_wide = console.width >= WIDTH_FOR_SENTENCES
    console.print(_table(done, is_dry_run=is_dry_run, has_sentences=is_wide))
    left = [each for each in done if not _is_done(each)]
    for each in [] if is_wide else left[:SENTENCES_MAX]:
        console.print(f"{each.decision.subject}: {each.decision.reason.sentence}")
    if not is_wide and len(left) > SENTENCES_MAX:
        console.print(f"(and {len(left) - SENTENCES_MAX} more sentences; -o json has all)")
    console.print(_said(done, is_dry_run=is_dry_run))


def _is_done(each: Adopted) -> bool:
    return each.outcome is not None and each.outcome.result in DONE


def _said(done: Sequence[Adopted], *, is_dry_run: bool) -> str:
    results = [each.outcome.result for each in done if each.outcome is not None]
    counts = ", ".join(
        f"{results.count(result)} {result.lower()}" for result in ("Created", "Changed", "Unchanged")
    )
    left = sum(not _is_done(each) for each in done)
    end = " Nothing was changed: it was a dry run." if is_dry_run else ""
    return f"{len(done)} decided: {counts}, {left} left alone.{end}"


def _table(done: Sequence[Adopted], *, is_dry_run: bool, has_sentences: bool) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("WORKLOAD", overflow="fold")
    for name in ("NOW", "MIN", "MAX", "TARGET"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("HPA", no_wrap=True)
    table.add_column("REASON", no_wrap=True)
    if has_sentences:
        table.add_column("WHY", ratio=1, overflow="fold")
    for each in done:
        decision = each.decision
        recommended = decision.extra["recommended"] or {}
        target = recommended.get("targetUtilization")
        table.add_row(
            Text(decision.subject),
            str(decision.reason.numbers["replicas"]),
            *(str(recommended.get(name, "-")) for name in ("minReplicas", "maxReplicas")),
            "-" if target is None else f"{target} %",
            _result(each, is_dry_run=is_dry_run),
            Text(
                decision.reason.code.value, style="" if _is_done(each) else "yellow" if recommended else "dim"
            ),
            *([Text(decision.reason.sentence)] if has_sentences else []),
        )
    return table


def _style(each: Adopted) -> str:
    if _is_done(each):
        return "bold"
    return "yellow" if each.decision.extra["recommended"] else "dim"


def _result(each: Adopted, *, is_dry_run: bool) -> str:
    if each.outcome is None:
        return "held" if each.decision.held else "-"
    if each.is_not_ours:
        return "left alone"
    result = each.outcome.result
    return WOULD.get(result, result) if is_dry_run else result
