"""`equipoise journal` lists, explains and replays decisions; `equipoise dashboard` shows them in a browser.

Other commands write their decisions to a journal here, too.
"""

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from equipoise.cli import options
from equipoise.cli.options import option
from equipoise.core.errors import BadInput, WorldFailed, did_you_mean
from equipoise.core.reason import Code
from equipoise.runtime.output import Format, escaped, print_document, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from equipoise.adapters.journal import JournalReader, Query
    from equipoise.core.decision import Decision, Record


app = options.group("List, explain and replay recorded decisions.")

AGE_MAX_SECONDS = 30 * 86400.0
BYTES_MAX = 256 << 20


File = Annotated[
    str | None,
    option(
        "PATH",
        "Path of the journal (SQLite or .jsonl); by default $EQUIPOISE_JOURNAL, or the user's state folder.",
        "--file",
    ),
]
RecordId = Annotated[str, typer.Argument(metavar="ID", help="Id of a record, or its first letters.")]


def default_path() -> Path:
    """Return the default path of the journal: the variable's, else in the user's state folder."""
    if path := os.environ.get("EQUIPOISE_JOURNAL"):
        return Path(path)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "equipoise" / "journal.db"


@app.command("list")
def list_records(
    file: File = None,
    balancer: Annotated[str, option("NAME", "Only records of this balancer.")] = "",
    subject: Annotated[
        str, option("SUBJECT", "Only records about this subject, such as shop/web or 'shop/*'.")
    ] = "",
    reason: Annotated[str, option("REASON", "Only records with this reason, such as Rotate.")] = "",
    since: Annotated[str | None, option("DURATION", "Only records of the last 90s, 5m, 1h30m or 7d.")] = None,
    limit: Annotated[int, option("N", "Maximum number of records.", min=1)] = 50,
    output: Annotated[
        Literal["table", "json", "yaml", "jsonl"],
        typer.Option("-o", "--output", help="Output format; jsonl has one complete record per line."),
    ] = "table",
) -> None:
    """List the records of a journal, newest first."""
    query = _query(balancer, subject, reason, since, limit)
    with _opened(file) as reader:
        if output == "jsonl":  # whole records, one a line
            for record in reader.records(query, is_whole=True):
                print(escaped(record.to_json().decode()))
            return
        records = list(reader.records(query))
    from equipoise.cli.journal_output import print_list, summary

    if output != "table":
        print_document({"records": [summary(record) for record in records]}, Format(output))
        return
    from equipoise.runtime.console import Console

    print_list(Console(), records)


@app.command(has_table=False)
def show(record_id: RecordId, file: File = None, output: options.Output = Format.TABLE) -> None:
    """Print one complete record with the inputs of its decision, as YAML or JSON."""
    with _opened(file) as reader:
        record = _named(reader, record_id)
    print_document(msgspec.to_builtins(record), Format.JSON if output is Format.JSON else Format.YAML)


@app.command(has_table=False)
def explain(record_id: RecordId, file: File = None, output: options.Output = Format.TABLE) -> None:
    """Explain one decision: observations, numbers, actions, their results, and what would change it."""
    from equipoise.cli.journal_output import explanation, summary
    from equipoise.cli.replay import otherwise
    from equipoise.runtime.console import Console

    with _opened(file) as reader:
        record = _named(reader, record_id)
    if output is not Format.TABLE:
        print_document(summary(record) | {"otherwise": otherwise(record)}, output)
        return
    console = Console()
    console.print(explanation(record, console.width))


@app.command("replay", has_table=False)
def replay_records(
    record_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Id of a record, or its first letters.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Replay every record of the journal.")] = False,
    file: File = None,
    output: options.Output = Format.TABLE,
) -> None:
    """Decide recorded inputs again with this version, and compare the results."""
    from equipoise.adapters.journal import Query
    from equipoise.cli.journal_output import print_replay, replay_document
    from equipoise.cli.replay import replay
    from equipoise.runtime.console import Console

    if bool(record_ids) is every:
        raise BadInput("replay: expected IDs or --all, and not both")
    with _opened(file) as reader:
        if every:
            answer = replay(reader.records(Query(), is_whole=True))
        else:
            answer = replay([_named(reader, name) for name in record_ids or ()])
    if output is Format.TABLE:
        print_replay(Console(), answer)
    else:
        print_document(replay_document(answer), output)
    if answer.different:
        names = ", ".join(part.record.id for part in answer.different[:3])
        more = " …" if len(answer.different) > 3 else ""  # noqa: PLR2004
        count = f"{len(answer.different)} of {answer.replayed}"
        raise WorldFailed(f"{count} records decide differently now: {names}{more}")


def _query(balancer: str, subject: str, reason: str, since: str | None, limit: int) -> "Query":
    from equipoise.adapters.journal import Query
    from equipoise.engine.balancer import BALANCERS

    if balancer not in {"", *BALANCERS}:
        question = did_you_mean(balancer, BALANCERS)
        raise BadInput(f"--balancer {balancer}: expected one of {', '.join(BALANCERS)}.{question}")
    codes = {code.value.lower(): code.value for code in Code}
    if reason and reason.lower() not in codes:
        question = did_you_mean(reason, codes.values())
        raise BadInput(f"--reason {reason}: expected a reason.{question} `equipoise explain` lists them all")
    after = None if since is None else time.time() - options.parse_span("--since", since)
    return Query(balancer, subject, codes.get(reason.lower(), ""), after, limit)


@contextmanager
def _opened(file: str | None) -> "Iterator[JournalReader]":
    from equipoise.adapters.journal import open_reader

    path = Path(file) if file else default_path()
    expect_journal(path)
    reader = open_reader(path)
    try:
        yield reader
    finally:
        for line in reader.damages.lines:
            warn(f"journal {line}")
        reader.close()


def expect_journal(path: Path) -> None:
    """Raise BadInput for a journal that does not exist, with what makes one."""
    from equipoise.adapters.journal.records import parts_of

    if not path.exists() and not (path.suffix == ".jsonl" and parts_of(path)):
        file = quote(str(path))
        raise BadInput(
            f"journal {path}: it does not exist yet; "
            f"`equipoise rotation plan -A --journal {file}` creates it, as does every plan with this option, "
            f"and `equipoise demo --once --journal {file}`"
        )


def _named(reader: "JournalReader", name: str) -> "Record":
    found = reader.starting(name) if name else ()
    if not found:
        raise BadInput(f"record {name!r}: no id starts like this")
    if len(found) > 1:
        names = ", ".join(record.id for record in found[:3])
        raise BadInput(f"record {name!r}: expected letters that only one id starts with, not {names} …")
    return found[0]


class CommandJournal:
    """Holds the records of a command until they are written to the user's journal."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, *records: "Record", is_whole: bool = False) -> None:
        """Add records, always whole."""
        del is_whole
        self.records += records


@contextmanager
def journalled(path: str | None) -> "Iterator[CommandJournal]":
    """Write what a command does into a journal, also when it fails.

    A journal that cannot be written is refused before anything is done.
    """
    write_records(path, [])
    journal = CommandJournal()
    try:
        yield journal
    finally:
        write_records(path, journal.records)


def new_ids() -> "Callable[[float], str]":
    """Return the generator of this process's record ids."""
    from equipoise.adapters.journal.records import WRITER_BITS, RecordIds

    return RecordIds(secrets.randbits(WRITER_BITS)).next


def write_plan(
    path: str | None,
    balancer: str,
    policy: dict[str, Any],
    observation: object,
    memory: Mapping[str, Any],
    decision: "Decision",
) -> None:
    """Write the record of a plan, with its inputs, to the user's journal, if any."""
    if path is None:
        return
    from equipoise.engine.recording import record

    at = time.time()
    write_records(path, [record(balancer, policy, observation, memory, decision, at, new_ids()(at))])


def write_records(path: str | None, records: "Sequence[Record]") -> None:
    """Write whole records to the user's journal, if any; a failure fails the command."""
    if path is None:
        return
    from equipoise.adapters.journal import JsonLines, SqliteJournal
    from equipoise.adapters.journal.schema import is_ours
    from equipoise.runtime.runner import SystemClock

    clock = SystemClock()
    journal: JsonLines | SqliteJournal
    try:
        if Path(path).suffix == ".jsonl":
            journal = JsonLines(path, bytes_max=BYTES_MAX)
        elif is_ours(Path(path)):
            journal = SqliteJournal(path, age_max_seconds=AGE_MAX_SECONDS, bytes_max=BYTES_MAX, clock=clock)
        else:
            raise BadInput(f"--journal {path}: expected a journal or a new file, got another file")
    except OSError as error:
        raise BadInput(f"--journal {path}: {error.strerror or error}") from error
    with journal:
        journal.append(*records, is_whole=True)
        failure, damage = journal.failure, journal.damage
    if damage:
        warn(f"--journal: {damage}")
    if failure:
        raise WorldFailed(f"--journal: {failure}")


def dashboard(
    journal: Annotated[
        list[str] | None,
        option(
            "PATH",
            "Path of a journal (SQLite or .jsonl); by default that of `equipoise journal`; may be repeated.",
            "--journal",
        ),
    ] = None,
    host: Annotated[
        str, option("ADDRESS", "Address to listen on; other machines need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, option("PORT", "Port to listen on; 0 chooses a free one.", min=0, max=65535)] = 8088,
    token_file: Annotated[
        str | None, option("FILE", "File with bearer tokens, one per line; read again when it changes.")
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Show the decisions of a journal in a browser, live. Changes nothing."""
    from equipoise.runtime.tokens import Tokens

    expect_safe(host, token_file)
    tokens = None if token_file is None else Tokens(token_file)
    paths = tuple(map(Path, journal)) if journal else (default_path(),)
    for path in paths:
        warn_without_journal(path)
    if find_spec("nicegui") is None:
        how = "pip install 'equipoise[dashboard]'"
        raise BadInput(f"dashboard: expected the extra dashboard to be installed: {how}")
    from equipoise.dashboard.server import serve
    from equipoise.runtime.runner import end_on_signals

    end_on_signals()
    serve(paths, host, port, tokens, is_opened=not no_open)


def warn_without_journal(path: Path) -> None:
    """Warn of a journal that does not exist; the dashboard shows it as soon as it does."""
    try:
        expect_journal(path)
    except BadInput as error:
        warn(str(error))


def expect_safe(host: str, token_file: str | None) -> None:
    """Raise BadInput for an address that other machines can reach without a token."""
    from equipoise.runtime.tokens import is_loopback

    if token_file is None and not is_loopback(host):
        raise BadInput(
            f"--host {host}: expected --token-file, since others than this machine can look there; "
            "or a loopback address such as 127.0.0.1"
        )
