"""`equipoise crds`: the definitions of our custom resources.

`equipoise doctor`: whether everything is here that the balancers need.

`equipoise pause` and `equipoise resume`: stop means stop.

`equipoise schema`: the JSON Schema of every document that we read or write.

`equipoise validate`: manifests before they reach a cluster.
"""

import getpass
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli import options
from equipoise.runtime.output import Format, plain, print_document, tell

if TYPE_CHECKING:
    from equipoise.adapters.kubernetes import Client
    from equipoise.cli.checks import Check
    from equipoise.cli.manifests import Installed, Verdict


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
    from equipoise.cli.manifests import chosen_kinds
    from equipoise.crd.definition import definition

    definitions = [definition(kind) for kind in chosen_kinds(names or ())]
    if output is Notation.YAML:
        sys.stdout.write(as_yaml(definitions))
    elif len(definitions) == 1:
        print_document(definitions[0], Format.JSON)
    else:
        print_document({"apiVersion": "v1", "kind": "List", "items": definitions}, Format.JSON)


def as_yaml(definitions: list[dict[str, Any]]) -> str:
    """Write the definitions as one text of YAML documents."""
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
    from equipoise.cli.manifests import chosen_kinds, install

    done = list(install(kubernetes.connect(), chosen_kinds(names or ()), is_dry_run=dry_run))
    if output is Format.TABLE:
        _print_installed(done)
    else:
        print_document({"dryRun": dry_run, "definitions": [one.record() for one in done]}, output)
    failed = [one for one in done if not one.is_fine]
    if failed:
        tell(f"error: customresourcedefinition {failed[0].name}: {failed[0].sentence}")
        raise typer.Exit(1)


def _print_installed(done: "list[Installed]") -> None:
    from rich.table import Table
    from rich.text import Text

    from equipoise.runtime.console import Console

    table = Table.grid(padding=(0, 2, 0, 0))
    for one in done:
        colour = "green" if one.is_fine else "bold red"
        table.add_row(Text(one.result, style=colour), Text(one.name, style="bold"), Text(one.sentence))
    Console().print(table)


_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@options.expanded
def doctor(
    *,
    namespace: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namespace",
            metavar="NAME",
            help="The namespace; by default all of them.",
            callback=options.expect_namespace,
        ),
    ] = None,
    output: options.Output = Format.TABLE,
    kubernetes: options.KubernetesOptions,
    prometheus: options.PrometheusFlags,
    redis: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="EQUIPOISE_REDIS_URL",
            show_envvar=False,
            help="The server of the pools, to check that it evicts no keys.",
        ),
    ] = None,
) -> None:
    """Check rights, kinds, metrics and clocks, and with --redis the server of the pools.

    One line for each thing that the balancers need, with the remedy where something is missing.
    """
    from equipoise.cli.checks import examine

    scope = options.ScopeOptions(namespace=namespace)
    request = options.cluster_request(kubernetes, scope, prometheus)
    checks = examine(request, redis)
    if output is Format.TABLE:
        _print_checks(checks)
    else:
        print_document({"checks": [check.document() for check in checks]}, output)
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        names = ", ".join(dict.fromkeys(failed))
        tell(f"error: {len(failed)} of {len(checks)} checks failed: {names}")
        raise typer.Exit(1)


def _print_checks(checks: "list[Check]") -> None:
    from rich.table import Table
    from rich.text import Text

    from equipoise.runtime.console import Console

    table = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        said = Text(check.sentence)
        if check.remedy:
            said.append(f" {check.remedy}", style="italic")
        table.add_row(Text(check.status, style=_COLOURS[check.status]), Text(check.name, style="bold"), said)
    Console().print(table)


# Not the shared option: a namespace from the environment must not make a stop smaller than it was meant.
Where = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="The namespace; by default everywhere.",
        callback=options.expect_namespace,
    ),
]


@options.expanded
def pause(
    *,
    namespace: Where = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; it is shown wherever something is held.")
    ] = "",
    operator_namespace: options.OperatorNamespace = "equipoise-system",
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
    operator_namespace: options.OperatorNamespace = "equipoise-system",
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
    """Warn of the larger pause, as far as we may see it."""
    from equipoise.adapters.kubernetes import pauses
    from equipoise.core.errors import WorldFailed

    try:
        everywhere = pauses.paused_everywhere(client, operator_namespace)
    except WorldFailed:
        return ""
    return f", but everything is still paused ({everywhere})" if everywhere else ""


def _in(namespace: str | None) -> str:
    return f"in namespace {namespace}" if namespace else "everywhere"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "somebody"


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Such as plan or rotationpolicy.")] = "",
    is_list: Annotated[bool, typer.Option("--list", help="Name the schemas there are.")] = False,
) -> None:
    """Print the JSON Schema of a document that we read or write."""
    from equipoise.core.errors import BadInput

    if is_list or not name:
        print("\n".join(sorted(TITLES)))
        return
    if name.lower() not in TITLES:
        raise BadInput(f"schema {name!r}: expected one of {', '.join(sorted(TITLES))}")
    print_document(json_schema(name.lower()), Format.JSON)


def json_schema(name: str) -> dict[str, Any]:
    """Return one schema by its name."""
    from equipoise.cli.shapes import SHAPES

    shape = SHAPES[name]()
    return shape if "openapi" in shape else {"$schema": DIALECT, "title": TITLES[name], **shape}


TITLES = {
    "analytics": "An Analytics manifest",
    "avoidanceaction": "An AvoidanceAction manifest",
    "crds-apply": "What `equipoise crds apply -o json` prints",
    "decision": "One decision of a plan",
    "doctor": "What `equipoise doctor -o json` prints",
    "forecast": "What `equipoise forecast -o json` prints",
    "forecast-backtest": "What `equipoise forecast --backtest SPAN -o json` prints",
    "ledger": "A Ledger manifest",
    "nodeqos": "A NodeQOS manifest",
    "nodeqosensurancepolicy": "A NodeQOSEnsurancePolicy manifest",
    "plan": "What `equipoise BALANCER plan -o json` prints",
    "podqos": "A PodQOS manifest",
    "pools-answer": "What `equipoise pools allocate|release|drain|register|... -o json` prints",
    "pools-openapi": "The OpenAPI document of `equipoise pools serve`",
    "pools-config": "What `equipoise pools config get|set -o json` prints, and `set --from` reads",
    "pools-fsck": "What `equipoise pools fsck -o json` prints",
    "pools-status": "What `equipoise pools status -o json` prints",
    "proportional-plan": "What `equipoise proportional plan -o json` prints",
    "proportional-simulation": "What `equipoise proportional simulate -o json` prints",
    "qos-plan": "What `equipoise qos plan -o json` prints",
    "qos-plan-file": "What `equipoise qos plan --from FILE` reads",
    "recommendation": "A Recommendation manifest",
    "recommendation-apply": "What `equipoise recommendation apply -o json` prints",
    "recommendation-plan": "What `equipoise recommendation plan -o json` prints",
    "recommendation-simulation": "What `equipoise recommendation simulate -o json` prints",
    "rotation-plan-file": "What `equipoise rotation plan --from FILE` reads",
    "rotationpolicy": "A RotationPolicy manifest",
    "scalingpolicy": "A ScalingPolicy manifest",
    "validate": "What `equipoise validate -o json` prints",
}
"""Every schema there is. The shapes are loaded when one is asked for."""


def validate(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Manifests in YAML or JSON; - is standard input.")
    ],
    output: options.Output = Format.TABLE,
) -> None:
    """Check manifests of our kinds: every field, unknown keys, schedules, zones. Needs no cluster."""
    from equipoise.cli.manifests import judge

    verdict = judge(files)
    if output is Format.TABLE:
        _print_verdict(verdict)
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


def _print_verdict(verdict: "Verdict") -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from equipoise.runtime.console import Console

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
