"""Every command of `equipoise`, in the order of its help."""

from typing import Annotated

import typer

from equipoise import __version__
from equipoise.cli import (
    about,
    agent,
    cluster,
    completion,
    demo,
    forecast,
    journal,
    operator,
    pools,
    proportional,
    qos,
    recommendation,
    rotation,
)
from equipoise.cli.help import BALANCERS, COLUMNS_MAX, EXPLAIN, RUN, Application

app = Application(
    "Keeps Kubernetes workloads in balance, and says why.",
    name="equipoise",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": COLUMNS_MAX},
)
app.add_typer(rotation.app, name="rotation", rich_help_panel=BALANCERS)
app.add_typer(recommendation.app, name="recommendation", rich_help_panel=BALANCERS)
app.add_typer(proportional.app, name="proportional", rich_help_panel=BALANCERS)
app.add_typer(qos.app, name="qos", rich_help_panel=BALANCERS)
app.add_typer(pools.app, name="pools", rich_help_panel=BALANCERS)
app.command("forecast", rich_help_panel=EXPLAIN)(forecast.forecast)
app.add_typer(journal.app, name="journal", rich_help_panel=EXPLAIN)
app.command("dashboard", rich_help_panel=EXPLAIN)(journal.dashboard)
app.command("explain", rich_help_panel=EXPLAIN)(about.explain)
app.command("demo", rich_help_panel=EXPLAIN)(demo.demo)
app.command("doctor", rich_help_panel=RUN)(cluster.doctor)
app.command("operator", rich_help_panel=RUN)(operator.operator)
app.command("agent", rich_help_panel=RUN)(agent.agent)
app.command("config", rich_help_panel=RUN)(operator.config)
app.command("pause", rich_help_panel=RUN)(cluster.pause)
app.command("resume", rich_help_panel=RUN)(cluster.resume)
app.command("retire", rich_help_panel=RUN)(agent.retire)
app.add_typer(cluster.app, name="crds", rich_help_panel=RUN)
app.command("validate")(cluster.validate)
app.command("schema")(cluster.schema)
app.command("completion")(completion.completion)
app.command("version", has_table=False)(about.version)


def _version(asked: bool) -> None:
    if asked:
        print(f"equipoise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
