"""The command `equipoise dashboard`."""

from pathlib import Path
from typing import Annotated

import typer

JournalPaths = Annotated[
    list[str] | None,
    typer.Option(
        "--journal",
        metavar="PATH",
        help="A journal, SQLite or .jsonl; may be given again. By default the one of `equipoise journal`.",
    ),
]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Where to answer; others need a token.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")]
TokenFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Tokens, one per line; whoever has one may look. Read again."),
]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Don't open a browser.")]


def dashboard(
    journal: JournalPaths = None,
    host: Host = "127.0.0.1",
    port: Port = 8088,
    token_file: TokenFile = None,
    no_open: NoOpen = False,
) -> None:
    """Show what the journals say, live, in a browser. It only reads."""
    from equipoise.app.journal import default_path
    from equipoise.app.pools_serve.tokens import Tokens
    from equipoise.app.web.gate import expect_safe

    expect_safe(host, token_file)
    tokens = None if token_file is None else Tokens(token_file)
    paths = tuple(map(Path, journal)) if journal else (default_path(),)
    _expect_installed()
    from equipoise.app.signals import end_on_signals
    from equipoise.app.web.serve import Service, serve

    end_on_signals()
    serve(Service(paths, host, port, tokens, is_opened=not no_open))


def _expect_installed() -> None:
    from importlib.util import find_spec

    from equipoise.model.errors import BadInput

    if find_spec("nicegui") is None:
        raise BadInput(
            "dashboard: expected the extra dashboard to be installed: pip install 'equipoise[dashboard]'"
        )
