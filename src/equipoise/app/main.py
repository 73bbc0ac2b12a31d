"""The command line: `equipoise`."""

import os
import sys
import traceback
from contextlib import suppress
from typing import Annotated

import typer

from equipoise import __version__
from equipoise.app import (
    crds,
    doctor,
    journal,
    pause,
    pools,
    proportional,
    qos,
    recommendation,
    rotation,
    schemas,
    validate,
)
from equipoise.app import forecast as forecasting
from equipoise.app.agent import command as agent
from equipoise.app.agent import retire as retiring
from equipoise.app.demo import command as demo
from equipoise.app.operator import command as operator
from equipoise.app.output import tell
from equipoise.app.web import command as web
from equipoise.model.errors import EquipoiseError

app = typer.Typer(
    name="equipoise",
    help="Keeps Kubernetes workloads in balance, and says why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes would cost a third of a second at every --help
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(rotation.app, name="rotation")
app.add_typer(recommendation.app, name="recommendation")
app.add_typer(proportional.app, name="proportional")
app.add_typer(qos.app, name="qos")
app.add_typer(pools.app, name="pools")
app.command("forecast")(forecasting.forecast)
app.add_typer(journal.app, name="journal")
app.add_typer(crds.app, name="crds")
app.command("validate")(validate.validate)
app.command("schema")(schemas.schema)
app.command("operator")(operator.operator)
app.command("config")(operator.config)
app.command("agent")(agent.agent)
app.command("retire")(retiring.retire)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("dashboard")(web.dashboard)
app.command("pause")(pause.pause)
app.command("resume")(pause.resume)


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


def main(called: str = "equipoise") -> None:
    """Run the command line; every failure is one line and one of two exit statuses.

    `called` is how a person calls it, and how what they read calls it too.
    """
    arguments = sys.argv[1:]
    is_debug = "--debug" in arguments
    if is_debug:
        arguments.remove("--debug")
    try:
        status = app(args=arguments, prog_name=called, standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit as ended:
        # The parser ends so, with 1 and without a word, when the reader has gone.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        status = _explain(ended.__context__, called)
    except Exception as error:  # noqa: BLE001 - every failure becomes one line
        if is_debug and not _is_help(error):
            with suppress(OSError):
                traceback.print_exception(error)
        status = _explain(error, called, is_debug=is_debug)
    sys.exit(status if isinstance(status, int) else 0)


def _is_help(error: Exception) -> bool:
    return type(error).__name__ == "NoArgsIsHelpError"


def _explain(error: Exception, called: str, *, is_debug: bool = False) -> int:
    match error:
        case EquipoiseError():
            _say(str(error).replace("`equipoise ", f"`{called} "))
            return error.exit_status
        case typer.TyperException():
            if _is_help(error):
                print(error.format_message())
                return 0
            _say(error.format_message())
            return 2
        case typer.Abort() | KeyboardInterrupt():
            return 130
        case BrokenPipeError():
            # The reader has gone (`| head`); what is left in the buffer must not fail at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError():
            _say(f"{error.filename or 'standard output'}: {error.strerror or error}")
            return 1
        case _:
            more = "" if is_debug else " (run again with --debug for the traceback)"
            _say(f"unexpected {type(error).__name__}: {error}{more}")
            return 1


def _say(message: str) -> None:
    tell(f"error: {message}")
