"""`equipoise validate`: manifests before they reach a cluster."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app import options
from equipoise.app.output import Format, print_document, tell

if TYPE_CHECKING:
    from equipoise.app.manifests import Verdict


def validate(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Manifests in YAML or JSON; - is standard input.")
    ],
    output: options.Output = Format.TABLE,
) -> None:
    """Check manifests of our kinds: every field, unknown keys, schedules, zones. Needs no cluster."""
    from equipoise.app.manifests import judge

    verdict = judge(files)
    if output is Format.TABLE:
        _print_table(verdict)
    else:
        print_document(_document(verdict), output)
    if verdict.findings:
        more = len(verdict.findings) - 1
        also = f" (and {more} more)" if more else ""
        tell(f"error: {verdict.findings[0]}{also}")
        raise typer.Exit(2)


def _document(verdict: "Verdict") -> dict[str, Any]:
    return {
        "valid": not verdict.findings,
        "findings": [finding.record() for finding in verdict.findings],
        "checked": verdict.ours,
        "notOurs": list(verdict.others),
    }


def _print_table(verdict: "Verdict") -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from equipoise.app.console import Console

    console = Console()
    if verdict.findings:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("FILE", "DOCUMENT", "KIND", "NAME", "PATH", "PROBLEM"):
            table.add_column(heading, overflow="fold")
        for finding in verdict.findings:
            table.add_row(*(Text(str(value)) for value in finding.record().values()))
        console.print(table)
    for other in verdict.others:
        console.print(Text(f"{other}: not ours, not checked", style="dim"))
    wrong = len({(finding.file, finding.document) for finding in verdict.findings})
    documents = "document" if wrong == 1 else "documents"
    console.print(
        f"{verdict.ours} of our manifests checked, {wrong} {documents} with problems, "
        f"{len(verdict.others)} not ours."
    )
