"""Input and output of the commands: files, documents and tables, warnings and progress.

Scripts read standard output. So documents and tables alone go there; warnings and progress go to standard
error, and progress only if that is a terminal.
"""

import codecs
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.quantity import written_out

if TYPE_CHECKING:
    from equipoise.core.decision import Action, Decision, Outcome


_CONTROLS = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
"""Control characters of terminals and of writing direction, except the newline."""
del _CONTROLS[0x0A]

_STAND_INS = {
    **dict(zip("·─│●○✓", "--|*ox", strict=True)),
    "→": "->",
    "…": "...",
    **dict.fromkeys("▁▂▃▏▎▍", "."),
    **dict.fromkeys("▄▅▆▇█▌▋▊▉", "#"),
}
"""ASCII replacements for our own symbols; any other character that cannot be encoded becomes `?`."""


class Format(StrEnum):
    """How a command prints its answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_anywhere() -> None:
    """Replace characters that a stream cannot encode, which would otherwise end the command."""
    codecs.register_error("equipoise", _stand_in)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="equipoise")


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(_STAND_INS.get(letter, "?") for letter in letters), error.end


def is_any_letter_printed() -> bool:
    """Return whether standard output can encode every character."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return encoding.lower().startswith("utf")


def escaped(text: str) -> str:
    """Return JSON, escaped to ASCII if standard output cannot encode every character."""
    if text.isascii() or is_any_letter_printed():
        return text
    return "".join(letter if letter.isascii() else json.dumps(letter)[1:-1] for letter in text)


_EXPONENTS = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9.]+[eE][-+]?[0-9]+')


def json_text(document: Any, indent: int | None = None) -> str:
    """Return JSON whose numbers are written out: 0.00001 and never 1e-05, which people misread."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    if "e-" not in text and "e+" not in text:
        return text
    return _EXPONENTS.sub(lambda found: found[0] if found[0][0] == '"' else written_out(found[0]), text)


def print_document(document: Any, form: Format) -> None:
    """Print exactly one document, which may be a struct."""
    import msgspec

    if isinstance(document, msgspec.Struct):
        document = msgspec.to_builtins(document)
    if form is Format.YAML:
        from equipoise.core.documents import dump

        sys.stdout.write(dump(document, allow_unicode=is_any_letter_printed()))
    else:
        print(escaped(json_text(document, indent=2)))


def print_sentences(*sentences: str) -> None:
    """Print each sentence on a line, wrapped between words on a terminal only."""
    from rich.text import Text

    from equipoise.runtime.console import Console

    console = Console()
    for sentence in sentences:
        console.print(Text(sentence), soft_wrap=not console.is_terminal)


def print_plan(
    balancer: str,
    decisions: "Sequence[Decision]",
    form: Format,
    outcomes: "Sequence[Sequence[Outcome]] | None" = None,
    *,
    then: str = "",
) -> None:
    """Print what would be done; with `outcomes`, those of each decision, print what was done.

    `then` is a command that executes the plan, and what it does.
    """
    from equipoise.core.decision import outcome_document, plan_document
    from equipoise.engine.balancer import balancer as descriptor
    from equipoise.runtime.console import Console

    if form is not Format.TABLE:
        document = plan_document(balancer, list(decisions))
        for part, of_decision in zip(document["decisions"], outcomes or (), strict=outcomes is not None):
            part["outcomes"] = [outcome_document(outcome) for outcome in of_decision]
        print_document(document, form)
        return
    console = Console()
    if not decisions:
        console.print(f"There {'is' if outcomes is None else 'was'} nothing to decide.")
        return
    imperative, past_tense = descriptor(balancer).verbs
    doing = imperative if outcomes is None else past_tense
    console.print(plan_table(decisions, doing=f"{doing.upper()}, IN ORDER"))
    actions = sum(len(decision.actions) for decision in decisions)
    counted = f"{len(decisions)} decided, {actions} {'pod' if actions == 1 else 'pods'}"
    if outcomes is None:
        held = sum(len(decision.held) for decision in decisions)
        console.print(f"{counted} to {imperative} now, {held} held. Nothing was changed.")
        console.print(next_step(decisions, then))
    else:
        held = sum(bool(decision.held) for decision in decisions)
        console.print(f"{counted} {past_tense}, {held} held.")


PLANNED = frozenset({"Set"})
"""Reasons of plans that change something, also where they are made without a cluster and name no pod."""


def next_step(decisions: "Sequence[Decision]", then: str) -> str:
    """Return what to run after a plan: the command that executes it, or the one that explains its reason."""
    if then and any(decision.actions or decision.reason.code in PLANNED for decision in decisions):
        return f"Next: {then}."
    codes = [decision.held[0].reason if decision.held else decision.reason.code for decision in decisions]
    code = max(codes, key=codes.count)
    return f"Next: `equipoise explain {code.value}` describes the reason and what to do."


def plan_table(decisions: "Sequence[Decision]", doing: str = "EVICT, IN ORDER") -> Any:
    from rich.text import Text

    from equipoise.runtime.console import table

    laid_out = table("SUBJECT", "REASON", doing, folded=("SUBJECT", doing))
    laid_out.add_column("WHY", ratio=1, overflow="fold")
    for decision in decisions:
        pods = [_named(action) for action in decision.actions]
        held = [f"{_named(part.action)} (held)" for part in decision.held]
        style = "bold yellow" if pods else "dim" if not held else "yellow"
        laid_out.add_row(
            Text(decision.subject),
            Text(decision.reason.code.value, style=style),
            Text("\n".join(pods + held) or "-"),
            Text(decision.reason.sentence),
        )
    return laid_out


def _named(action: "Action") -> str:
    source, destination = getattr(action, "source", ""), getattr(action, "destination", "")
    return f"{action.pod}: {source} → {destination}" if destination else action.pod


def plain(text: str) -> str:
    """Return text without control characters; names and messages come from outside."""
    return text.translate(_CONTROLS)


def warn(message: str) -> None:
    tell(f"warning: {message}")


def warn_of_nothing(what: str, *, is_everywhere: bool) -> None:
    """Warn that nothing was found; name the options for other namespaces unless all were searched."""
    where = " in any namespace" if is_everywhere else "; -n NAMESPACE or -A look elsewhere"
    warn(f"{what} was found{where}")


def tell(message: str) -> None:
    """Print one line on standard error; a closed or failing standard error is ignored."""
    if sys.stderr is not None:  # closed: a print without it would go to standard output
        from equipoise.adapters.urls import without_users

        with suppress(OSError):  # a failed message must not change the exit status
            print(plain(without_users(" ".join(message.split()))), file=sys.stderr, flush=True)


T = TypeVar("T")
LARGE_BYTES = 32 * 1024 * 1024
"""The minimum size of a file whose reading shows a progress bar."""


def _shows_progress() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def reading(what: str, bytes_min: int = 0) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar of the bytes read, on a terminal; yields the function that counts them, or None.

    With `bytes_min`, `what` is a path, and a smaller file gets no bar.
    """
    if not _shows_progress() or (bytes_min and _is_smaller(what, bytes_min)):
        yield None
        return
    from rich.progress import (
        DownloadColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    from equipoise.runtime.console import Console

    columns = (
        SpinnerColumn(),
        TextColumn("reading {task.description}", markup=False),  # a path may have any brackets
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    # Transient: only the answer stays on the terminal.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=None)
        yield partial(bar.advance, task)


def _is_smaller(path: str, bytes_min: int) -> bool:
    """Return whether a path is a smaller file, or missing; False for a pipe."""
    if path == "-":
        return False
    try:
        return Path(path).stat().st_size < bytes_min and not Path(path).is_fifo()
    except (OSError, ValueError):
        return True  # reading it reports the error


def counting(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """Yield the items, with a progress bar on a terminal."""
    with stepping(what, total) as on_step:
        for number, item in enumerate(items):
            on_step(number)
            yield item


@contextmanager
def stepping(title: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on a terminal; yields a function of the steps done and the total."""
    if not _shows_progress():
        yield lambda *_: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from equipoise.runtime.console import Console

    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)

        def on_step(done: int, total: int | None = total) -> None:
            bar.update(task, completed=done, total=total)

        yield on_step


SIZE_MAX_BYTES = 64 * 1024 * 1024


def read_yaml(path: str) -> Any:
    """Read one YAML (or JSON) document; `-` is standard input."""
    return document_of(read_text(path), path)


def document_of(text: str, path: str) -> Any:
    """Return the one YAML (or JSON) document of a file's text."""
    import yaml

    from equipoise.core.documents import read_document

    try:
        return read_document(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise BadInput(f"{path}: expected one YAML document, but{where}: {problem}") from error
    except DECODE_ERRORS as error:
        raise BadInput(f"{path}: expected one YAML document: {error}") from error


def read_text(path: str) -> str:
    """Read a file of UTF-8 text; `-` is standard input."""
    if not path:
        raise BadInput("expected the name of a file, got an empty one")
    try:
        if path == "-":
            if sys.stdin is None:
                raise BadInput("-: standard input is closed")
            content = sys.stdin.buffer.read(SIZE_MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(SIZE_MAX_BYTES + 1)
        if len(content) > SIZE_MAX_BYTES:
            raise BadInput(f"{path}: expected at most {SIZE_MAX_BYTES >> 20} MiB")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: expected UTF-8 text, got other bytes at position {error.start}") from error
