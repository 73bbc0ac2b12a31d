"""`equipoise crds`: the definitions of our custom resources."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app import options
from equipoise.app.output import Format, print_document, tell

if TYPE_CHECKING:
    from equipoise.app.install import Installed

app = typer.Typer(help="The definitions of our custom resources.", no_args_is_help=True)

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME...]", help="Kinds, such as rotationpolicy or rotpol; by default all."),
]


class Notation(StrEnum):
    """How documents are written."""

    YAML = "yaml"
    JSON = "json"


@app.command("print")
def print_(
    names: Names = None,
    output: Annotated[Notation, typer.Option("-o", "--output", help="How to write them.")] = Notation.YAML,
) -> None:
    """Print the definitions, ready for kubectl. Needs no cluster and changes nothing."""
    from equipoise.app.kinds import chosen_kinds
    from equipoise.model.crd.definition import definition

    definitions = [definition(kind) for kind in chosen_kinds(names or ())]
    if output is Notation.YAML:
        sys.stdout.write(as_yaml(definitions))
    elif len(definitions) == 1:
        print_document(definitions[0], Format.JSON)
    else:
        print_document({"apiVersion": "v1", "kind": "List", "items": definitions}, Format.JSON)


def as_yaml(definitions: list[dict[str, Any]]) -> str:
    """Write the definitions as one text of YAML documents."""
    from equipoise.model.documents import dump

    return "---\n".join(dump(one, allow_unicode=False) for one in definitions)


@app.command()
def apply(
    names: Names = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask the server, and change nothing.")] = False,
    output: options.Output = Format.TABLE,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Install or update the definitions and wait until they are served; others' are left alone."""
    from equipoise.adapters.kubernetes import connect
    from equipoise.app.install import install
    from equipoise.app.kinds import chosen_kinds

    done = list(install(connect(kubeconfig, context), chosen_kinds(names or ()), is_dry_run=dry_run))
    if output is Format.TABLE:
        _print_table(done)
    else:
        print_document({"dryRun": dry_run, "definitions": [one.record() for one in done]}, output)
    failed = [one for one in done if not one.is_fine]
    if failed:
        tell(f"error: customresourcedefinition {failed[0].name}: {failed[0].sentence}")
        raise typer.Exit(1)


def _print_table(done: "list[Installed]") -> None:
    from rich.table import Table
    from rich.text import Text

    from equipoise.app.console import Console

    table = Table.grid(padding=(0, 2, 0, 0))
    for one in done:
        colour = "green" if one.is_fine else "bold red"
        table.add_row(Text(one.result, style=colour), Text(one.name, style="bold"), Text(one.sentence))
    Console().print(table)
