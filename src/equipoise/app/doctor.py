"""`equipoise doctor`: whether everything is here that the balancers need."""

from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.app import options
from equipoise.app.output import Format, print_document, tell

if TYPE_CHECKING:
    from equipoise.app.checks import Check

Redis = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="EQUIPOISE_REDIS_URL",
        show_envvar=False,
        help="The server of the pools, to check that it evicts no keys.",
    ),
]
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    command: typer.Context,
    namespace: options.AnyNamespace = None,
    output: options.Output = Format.TABLE,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    prometheus_url: options.PrometheusUrl = None,
    prometheus_namespace: options.PrometheusNamespace = None,
    prometheus_token_file: options.PrometheusTokenFile = None,
    prometheus_user: options.PrometheusUser = None,
    prometheus_password_file: options.PrometheusPasswordFile = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_header: options.PrometheusHeader = None,
    prometheus_matcher: options.PrometheusMatcher = None,
    prometheus_label: options.PrometheusLabel = None,
    prometheus_timeout: options.PrometheusTimeout = "30s",
    redis: Redis = None,
) -> None:
    """Check rights, kinds, metrics and clocks, and with --redis the server of the pools.

    One line for each thing that the balancers need, with the remedy where something is missing.
    """
    from equipoise.app.checks import examine
    from equipoise.app.live import Neighbours

    checks = examine(Neighbours.from_options(command.params), namespace, redis)
    if output is Format.TABLE:
        _print_table(checks)
    else:
        print_document({"checks": [check.document() for check in checks]}, output)
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        names = ", ".join(dict.fromkeys(failed))
        tell(f"error: {len(failed)} of {len(checks)} checks failed: {names}")
        raise typer.Exit(1)


def _print_table(checks: "list[Check]") -> None:
    from rich.table import Table
    from rich.text import Text

    from equipoise.app.console import Console

    table = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        said = Text(check.sentence)
        if check.remedy:
            said.append(f" {check.remedy}", style="italic")
        table.add_row(Text(check.status, style=_COLOURS[check.status]), Text(check.name, style="bold"), said)
    Console().print(table)
