"""The commands about a cluster: `crds`, `doctor`, `pause`, `resume`, `schema` and `validate`.

`crds` and `validate` need no balancer, and `schema` no cluster; `doctor` checks what the balancers need, and
`pause` stops all of them.
"""

import getpass
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from equipoise.cli import options
from equipoise.cli.options import in_namespace, option
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, plain, print_document, tell

if TYPE_CHECKING:
    from equipoise.adapters.kubernetes import Client
    from equipoise.cli.manifests import ValidationReport


app = typer.Typer(help="The definitions of our custom resources.", no_args_is_help=True)

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME...]", help="Kinds, such as rotationpolicy or rotpol; by default all."),
]


@app.command("print")
def print_(
    names: Names = None,
    output: Annotated[
        Literal["yaml", "json"], typer.Option("-o", "--output", help="How to write them.")
    ] = "yaml",
) -> None:
    """Print the definitions, ready for kubectl. Needs no cluster and changes nothing."""
    from equipoise.cli.manifests import chosen_kinds
    from equipoise.crd.definition import definition

    definitions = [definition(kind) for kind in chosen_kinds(names or ())]
    if output == "yaml":
        sys.stdout.write(as_yaml(definitions))
    elif len(definitions) == 1:
        print_document(definitions[0], Format.JSON)
    else:
        print_document({"apiVersion": "v1", "kind": "List", "items": definitions}, Format.JSON)


def as_yaml(definitions: list[dict[str, Any]]) -> str:
    from equipoise.core.documents import dump

    return "---\n".join(dump(one, allow_unicode=False) for one in definitions)


@app.command()
@options.expanded
def apply(
    *,
    names: Names = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask the server, and change nothing.")] = False,
    output: options.Output = Format.TABLE,
    kubernetes: options.KubernetesOptions,
) -> None:
    """Install or update the definitions and wait until they are served; others' are left alone."""
    from equipoise.cli.manifests import InstallReport, chosen_kinds, install

    done = list(install(kubernetes.connect(), chosen_kinds(names or ()), is_dry_run=dry_run))
    if output is Format.TABLE:
        _print_rows(
            (one.result, "green" if one.is_fine else "bold red", one.name, one.sentence, "") for one in done
        )
    else:
        print_document(InstallReport(dry_run, done), output)
    failed = [one for one in done if not one.is_fine]
    if failed:
        tell(f"error: customresourcedefinition {failed[0].name}: {failed[0].sentence}")
        raise typer.Exit(1)


_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@options.expanded
def doctor(
    *,
    namespace: Annotated[str | None, in_namespace("The namespace; by default all of them.")] = None,
    output: options.Output = Format.TABLE,
    kubernetes: options.KubernetesOptions,
    prometheus: options.PrometheusFlags,
    redis: Annotated[
        str | None,
        option(
            "URL", "The server of the pools, to check that it evicts no keys.", envvar="EQUIPOISE_REDIS_URL"
        ),
    ] = None,
) -> None:
    """Check rights, kinds, metrics and clocks, and with --redis the server of the pools.

    One line for each thing that the balancers need, with the remedy where something is missing.
    """
    from equipoise.cli.checks import CheckReport, examine

    scope = options.ScopeOptions(namespace=namespace)
    request = options.cluster_request(kubernetes, scope, prometheus)
    checks = examine(request, redis)
    if output is Format.TABLE:
        _print_rows(
            (check.status, _COLOURS[check.status], check.name, check.sentence, check.remedy)
            for check in checks
        )
    else:
        print_document(CheckReport(checks), output)
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        names = ", ".join(dict.fromkeys(failed))
        tell(f"error: {len(failed)} of {len(checks)} checks failed: {names}")
        raise typer.Exit(1)


def _print_rows(rows: Iterable[tuple[str, str, str, str, str]]) -> None:
    """Print rows of a word, its colour, a name, a sentence and a remedy."""
    from rich.table import Table
    from rich.text import Text

    from equipoise.runtime.console import Console

    table = Table.grid(padding=(0, 2, 0, 0))
    for word, colour, name, sentence, remedy in rows:
        advice = Text(sentence)
        if remedy:
            advice.append(f" {remedy}", style="italic")
        table.add_row(Text(word, style=colour), Text(name, style="bold"), advice)
    Console().print(table)


# Not the shared option: a namespace from the environment must not narrow the pause.
Where = Annotated[str | None, in_namespace("The namespace; by default everywhere.")]


@options.expanded
def pause(
    *,
    namespace: Where = None,
    reason: Annotated[str, option("TEXT", "Why; it is shown wherever something is held.")] = "",
    operator_namespace: options.OperatorNamespace = options.OPERATOR_NAMESPACE,
    kubernetes: options.KubernetesOptions,
) -> None:
    """Stop every action, agents included, within 5 seconds; without a namespace, everywhere."""
    from equipoise.adapters.kubernetes import pauses

    who = f"{_user()}: {reason}" if reason else _user()
    client = kubernetes.connect()
    pauses.pause(client, namespace, who, operator_namespace=operator_namespace)
    again = f"equipoise resume{f' -n {namespace}' if namespace else ''}"
    print(plain(f"Every action {_in(namespace)} is paused ({who}); `{again}` ends it."))


@options.expanded
def resume(
    *,
    namespace: Where = None,
    operator_namespace: options.OperatorNamespace = options.OPERATOR_NAMESPACE,
    kubernetes: options.KubernetesOptions,
) -> None:
    """End what `pause` began."""
    from equipoise.adapters.kubernetes import pauses

    client = kubernetes.connect()
    before = pauses.resume(client, namespace, operator_namespace=operator_namespace)
    done = f"is resumed (it was paused by {before})" if before else "was not paused"
    still = _still_paused(client, operator_namespace) if namespace else ""
    print(plain(f"Acting {_in(namespace)} {done}{still}."))


def _still_paused(client: "Client", operator_namespace: str) -> str:
    """Warn of a wider pause that remains, if it can be read."""
    from equipoise.adapters.kubernetes import pauses

    try:
        everywhere = pauses.read_pause(client, None, operator_namespace)
    except WorldFailed:
        return ""
    return f", but everything is still paused ({everywhere})" if everywhere else ""


def _in(namespace: str | None) -> str:
    return f"in namespace {namespace}" if namespace else "everywhere"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user in a container may have no name
        return "somebody"


def schema(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Such as plan or rotationpolicy.")] = "",
    is_list: Annotated[bool, typer.Option("--list", help="Name the schemas there are.")] = False,
) -> None:
    """Print the JSON Schema of a document that we read or write."""
    from equipoise.cli.schemas import SCHEMAS, json_schema

    if is_list or not name:
        print("\n".join(sorted(SCHEMAS)))
        return
    if name.lower() not in SCHEMAS:
        raise BadInput(f"schema {name!r}: expected one of {', '.join(sorted(SCHEMAS))}")
    print_document(json_schema(name.lower()), Format.JSON)


def validate(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Manifests in YAML or JSON; - is standard input.")
    ],
    output: options.Output = Format.TABLE,
) -> None:
    """Check manifests of our kinds: every field, unknown keys, schedules, zones. Needs no cluster."""
    from equipoise.cli.manifests import judge

    report = judge(files)
    if output is Format.TABLE:
        _print_report(report)
    else:
        print_document(report, output)
    if report.findings:
        more = len(report.findings) - 1
        also = f" (and {more} more)" if more else ""
        tell(f"error: {report.findings[0]}{also}")
        raise typer.Exit(2)


def _print_report(report: "ValidationReport") -> None:
    from rich.text import Text

    from equipoise.runtime.console import Console, table

    console = Console()
    if report.findings:
        headings = ("FILE", "DOCUMENT", "KIND", "NAME", "PATH", "PROBLEM")
        laid_out = table(*headings, padding=(0, 1), has_edge=True)
        for finding in report.findings:
            laid_out.add_row(*(Text(str(value)) for value in msgspec.structs.astuple(finding)))
        console.print(laid_out)
    for other in report.not_ours:
        console.print(Text(f"{other}: not ours, not checked", style="dim"))
    wrong = len({(finding.file, finding.document) for finding in report.findings})
    documents = "document" if wrong == 1 else "documents"
    console.print(
        f"{report.checked} of our manifests checked, {wrong} {documents} with problems, "
        f"{len(report.not_ours)} not ours."
    )
