"""Every command of `equipoise`, in the order of its help."""

from typing import Annotated

import typer

from equipoise import __version__
from equipoise.cli import (
    agent,
    cluster,
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

app = typer.Typer(
    name="equipoise",
    help="Keeps Kubernetes workloads in balance, and says why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich boxes would add a third of a second to every --help
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(rotation.app, name="rotation")
app.add_typer(recommendation.app, name="recommendation")
app.add_typer(proportional.app, name="proportional")
app.add_typer(qos.app, name="qos")
app.add_typer(pools.app, name="pools")
app.command("forecast")(forecast.forecast)
app.add_typer(journal.app, name="journal")
app.add_typer(cluster.app, name="crds")
app.command("validate")(cluster.validate)
app.command("schema")(cluster.schema)
app.command("operator")(operator.operator)
app.command("config")(operator.config)
app.command("agent")(agent.agent)
app.command("retire")(agent.retire)
app.command("doctor")(cluster.doctor)
app.command("demo")(demo.demo)
app.command("dashboard")(journal.dashboard)
app.command("pause")(cluster.pause)
app.command("resume")(cluster.resume)


def _version(asked: bool) -> None:
    if asked:
        print(f"equipoise {__version__}")
        raise typer.Exit


@app.callback(epilog="--debug, anywhere, shows the traceback behind an error.")
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
