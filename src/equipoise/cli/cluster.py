"""The commands about a cluster: `crds`, `doctor`, `pause`, `resume`, `schema` and `validate`.

`crds` and `validate` need no balancer, and `schema` no cluster; `doctor` checks what the balancers need, and
`pause` stops all of them.
"""

import getpass
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from equipoise.cli import options
from equipoise.cli.options import in_namespace, option
from equipoise.core.errors import BadInput, WorldFailed, did_you_mean
from equipoise.core.quantity import print_count
from equipoise.runtime.output import Format, plain, print_document, tell

if TYPE_CHECKING:
    from equipoise.adapters.kubernetes import Client
    from equipoise.cli.manifests import ValidationReport


app = options.group("Print or install the custom resource definitions.")

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Kind, such as rotationpolicy or rotpol; by default all of them."),
]


@app.command("print")
def print_(
    names: Names = None,
    output: Annotated[
        Literal["yaml", "json"], typer.Option("-o", "--output", help="Output format.")
    ] = "yaml",
) -> None:
    """Print the definitions for kubectl. Needs no cluster and changes nothing."""
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
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Ask the API server whether it accepts them, without changing any."),
    ] = False,
    output: options.Output = Format.TABLE,
    kubernetes: options.KubernetesOptions,
) -> None:
    """Install or update the definitions, and wait until the API server serves them.

    Definitions that another product manages are not changed.
    """
    from equipoise.cli.manifests import InstallReport, chosen_kinds, install

    done = list(install(kubernetes.connect(), chosen_kinds(names or ()), is_dry_run=dry_run))
    if output is Format.TABLE:
        _print_rows(
            ("RESULT", "DEFINITION", "DETAIL"),
            (
                (one.result, "green" if one.is_fine else "bold red", one.name, one.sentence, "")
                for one in done
            ),
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
    namespace: Annotated[str | None, in_namespace("Namespace to check; by default all of them.")] = None,
    output: options.Output = Format.TABLE,
    kubernetes: options.KubernetesOptions,
    prometheus: options.PrometheusFlags,
    redis: Annotated[
        str | None,
        option(
            "URL",
            "URL of the Redis of the pools, to check that it does not evict keys.",
            envvar="EQUIPOISE_REDIS_URL",
        ),
    ] = None,
) -> None:
    """Check permissions, definitions, metrics and clocks of a cluster, and with --redis a Redis of pools.

    Prints one line for each requirement of the balancers, with the remedy if it is not met.
    """
    from equipoise.cli.checks import CheckReport, examine

    scope = options.ScopeOptions(namespace=namespace)
    request = options.cluster_request(kubernetes, scope, prometheus)
    checks = examine(request, redis)
    if output is Format.TABLE:
        _print_rows(
            ("RESULT", "CHECK", "DETAIL"),
            (
                (check.status, _COLOURS[check.status], check.name, check.sentence, check.remedy)
                for check in checks
            ),
        )
    else:
        print_document(CheckReport(checks), output)
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        names = ", ".join(dict.fromkeys(failed))
        tell(f"error: {len(failed)} of {len(checks)} checks failed: {names}")
        raise typer.Exit(1)


def _print_rows(headings: Sequence[str], rows: Iterable[tuple[str, str, str, str, str]]) -> None:
    """Print rows of a word, its colour, a name, a sentence and a remedy."""
    from rich.text import Text

    from equipoise.runtime.console import Console, table

    laid_out = table(*headings, folded=headings[2:])
    for word, colour, name, sentence, remedy in rows:
        advice = Text(sentence)
        if remedy:
            advice.append(f" {remedy}", style="italic")
        laid_out.add_row(Text(word, style=colour), Text(name, style="bold"), advice)
    Console().print(laid_out)


# Not the shared option: a namespace from the environment must not narrow the pause.
Where = Annotated[str | None, in_namespace("Namespace; by default the entire cluster.")]


@options.expanded
def pause(
    *,
    namespace: Where = None,
    why: Annotated[
        str, option("TEXT", "Reason for the pause, shown with every action that it holds.", "--reason")
    ] = "",
    operator_namespace: options.OperatorNamespace = options.OPERATOR_NAMESPACE,
    kubernetes: options.KubernetesOptions,
) -> None:
    """Stop every action in the cluster or a namespace within 5 seconds, including those of node agents."""
    from equipoise.adapters.kubernetes import pauses

    who = f"{_user()}: {why}" if why else _user()
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
    """Allow actions again after `pause`."""
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
    schema_name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of a document, such as plan or rotationpolicy; by default the names are listed.",
        ),
    ] = "",
    is_list: Annotated[bool, typer.Option("--list", help="List the names of the schemas.")] = False,
) -> None:
    """Print the JSON Schema of a document that Equipoise reads or prints."""
    from equipoise.cli.schemas import SCHEMAS, json_schema

    if is_list or not schema_name:
        print("\n".join(sorted(SCHEMAS)))
        return
    if schema_name.lower() not in SCHEMAS:
        question = did_you_mean(schema_name, SCHEMAS)
        raise BadInput(f"schema {schema_name!r}: expected one of {', '.join(sorted(SCHEMAS))}.{question}")
    print_document(json_schema(schema_name.lower()), Format.JSON)


def validate(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="File with manifests in YAML or JSON; - is standard input."),
    ],
    output: options.Output = Format.TABLE,
) -> None:
    """Check manifests of Equipoise's kinds, including unknown fields, schedules and time zones.

    Needs no cluster.
    """
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
        laid_out = table(*headings)
        for finding in report.findings:
            laid_out.add_row(*(Text(str(value)) for value in msgspec.structs.astuple(finding)))
        console.print(laid_out)
    for other in report.not_ours:
        console.print(Text(f"{other}: not a manifest of Equipoise, not checked", style="dim"))
    wrong = len({(finding.file, finding.document) for finding in report.findings})
    documents = "document" if wrong == 1 else "documents"
    console.print(
        f"{print_count(report.checked, 'manifest')} of Equipoise checked, {wrong} {documents} with problems, "
        f"{len(report.not_ours)} of others."
    )
