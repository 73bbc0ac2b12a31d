"""Advice on standard output: a table, a plan, manifests, or rows for a spreadsheet."""

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from equipoise.app.output import Format, print_document, warn
from equipoise.app.recommendation_options import AdviceFormat
from equipoise.model.decision import Decision, plan_document
from equipoise.recommendation.manifests import ehpa_manifest, hpa_manifest

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = (
    "workload",
    "replicas",
    "minReplicas",
    "maxReplicas",
    "targetUtilization",
    "coverage",
    "confidence",
    "predictable",
    "reason",
    "sentence",
)

WIDTH_FOR_SENTENCES = 140
"""A narrower terminal gets the sentences below the table."""
SENTENCES_MAX = 20


def print_advice(decisions: Sequence[Decision], interval_seconds: float, form: AdviceFormat) -> None:
    """Print the advice in the form that was asked for."""
    match form:
        case AdviceFormat.JSON | AdviceFormat.YAML:
            print_document(plan_document("recommendation", list(decisions)), Format(form))
        case AdviceFormat.HPA:
            _print_manifests(decisions, [hpa_manifest(decision) for decision in decisions])
        case AdviceFormat.EHPA:
            made = [ehpa_manifest(decision, interval_seconds) for decision in decisions]
            _print_manifests(decisions, made)
        case AdviceFormat.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(_row(decision) for decision in decisions)
        case AdviceFormat.TABLE:
            _print_table(decisions)


def _print_manifests(decisions: Sequence[Decision], manifests: Sequence[dict[str, Any] | None]) -> None:
    """Print what there is to apply; why there is nothing for the others goes to standard error."""
    import yaml

    made = [manifest for manifest in manifests if manifest is not None]
    for decision, manifest in zip(decisions, manifests, strict=True):
        if manifest is None:
            warn(f"{decision.subject}: {decision.reason.code.value}: {decision.reason.sentence}")
    if made:
        yaml.safe_dump_all(made, sys.stdout, sort_keys=False, allow_unicode=True, width=100)


def _row(decision: Decision) -> list[Any]:
    recommended = decision.extra["recommended"] or {}
    numbers = decision.reason.numbers
    return [
        decision.subject,
        numbers["replicas"],
        *(recommended.get(name, "") for name in ("minReplicas", "maxReplicas", "targetUtilization")),
        f"{numbers['coverage']:.4g}",
        numbers["confidence"],
        str(decision.extra["prediction"]["predictable"]).lower(),
        decision.reason.code.value,
        decision.reason.sentence,
    ]


def _print_table(decisions: Sequence[Decision]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not decisions:
        console.print("There is nothing to decide.")
        return
    is_wide = console.width >= WIDTH_FOR_SENTENCES
    console.print(_table(decisions, has_sentences=is_wide))
    for decision in [] if is_wide else decisions[:SENTENCES_MAX]:
        console.print(f"{decision.subject}: {decision.reason.sentence}", markup=False)
    if not is_wide and len(decisions) > SENTENCES_MAX:
        console.print(f"(and {len(decisions) - SENTENCES_MAX} more sentences; -o csv and -o json have all)")
    advised = sum(decision.extra["recommended"] is not None for decision in decisions)
    console.print(f"{len(decisions)} looked at, advice for {advised}. Nothing was changed.")


def _table(decisions: Sequence[Decision], *, has_sentences: bool) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("WORKLOAD", overflow="fold")
    for name in ("NOW", "MIN", "MAX", "TARGET", "COVERAGE"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("CONFIDENCE", no_wrap=True)
    table.add_column("REASON", no_wrap=True)
    if has_sentences:
        table.add_column("WHY", ratio=1, overflow="fold")
    for decision in decisions:
        recommended = decision.extra["recommended"] or {}
        numbers = decision.reason.numbers
        target = recommended.get("targetUtilization")
        table.add_row(
            Text(decision.subject),
            str(numbers["replicas"]),
            *(str(recommended.get(name, "-")) for name in ("minReplicas", "maxReplicas")),
            "-" if target is None else f"{target} %",
            f"{numbers['coverage'] * 100:.0f} %",
            numbers["confidence"],
            Text(decision.reason.code.value, style="bold yellow" if recommended else "dim"),
            *([Text(decision.reason.sentence)] if has_sentences else []),
        )
    return table
