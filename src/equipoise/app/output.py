"""Documents and tables on standard output; everything else goes to standard error."""

import codecs
import io
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise.model.decision import Action, Decision, Outcome

VERBS = {"pools": ("move", "moved")}
"""What a balancer does to a pod, as an order and as a deed; the others evict."""
EVICTS = ("evict", "evicted")

_CONTROLS = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
"""What steers a terminal, or turns the direction of writing; but for the end of a line."""
del _CONTROLS[0x0A]

_STAND_INS = {
    **dict(zip("·─│●○✓", "--|*ox", strict=True)),
    "→": "->",
    "…": "...",
    **dict.fromkeys("▁▂▃▏▎▍", "."),
    **dict.fromkeys("▄▅▆▇█▌▋▊▉", "#"),
}
"""What a terminal of few letters gets instead of ours; a letter of somebody's name becomes a `?`."""


class Format(StrEnum):
    """How a command prints its answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_anywhere() -> None:
    """Have what a stream can't encode replaced, where it would end the command."""
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
    """Whether standard output takes every letter; a document for scripts escapes them where it does not."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return encoding.lower().startswith("utf")


def escaped(text: str) -> str:
    """Give JSON as it is; with escapes where standard output does not take every letter."""
    if text.isascii() or is_any_letter_printed():
        return text
    return "".join(letter if letter.isascii() else json.dumps(letter)[1:-1] for letter in text)


def print_document(document: Any, form: Format) -> None:
    """Print exactly one document."""
    if form is Format.YAML:
        from equipoise.model.documents import dump

        sys.stdout.write(dump(document, allow_unicode=is_any_letter_printed()))
    else:
        print(escaped(json.dumps(document, indent=2, ensure_ascii=False)))


def print_sentences(*sentences: str) -> None:
    """Print a line each, which ends between words on a terminal and nowhere in a pipe."""
    from rich.text import Text

    from equipoise.app.console import Console

    console = Console()
    for sentence in sentences:
        console.print(Text(sentence), soft_wrap=not console.is_terminal)


def print_plan(balancer: str, decisions: "Sequence[Decision]", form: Format) -> None:
    """Print a plan for people or for scripts."""
    if form is not Format.TABLE:
        from equipoise.model.decision import plan_document

        print_document(plan_document(balancer, list(decisions)), form)
        return
    from equipoise.app.console import Console

    console = Console()
    if not decisions:
        console.print("There is nothing to decide.")
        return
    order, _ = VERBS.get(balancer, EVICTS)
    console.print(plan_table(decisions, doing=f"{order.upper()}, IN ORDER"))
    now = sum(len(decision.actions) for decision in decisions)
    held = sum(len(decision.held) for decision in decisions)
    pods = "pod" if now == 1 else "pods"
    console.print(f"{len(decisions)} decided, {now} {pods} to {order} now, {held} held. Nothing was changed.")


def print_done(
    balancer: str,
    decisions: "Sequence[Decision]",
    outcomes: "Sequence[Sequence[Outcome]]",
    form: Format,
) -> None:
    """Print what was done in the shape of a plan, with what came of each action."""
    from equipoise.model.decision import outcome_document, plan_document

    if form is not Format.TABLE:
        document = plan_document(balancer, list(decisions))
        for part, came in zip(document["decisions"], outcomes, strict=True):
            part["outcomes"] = [outcome_document(outcome) for outcome in came]
        print_document(document, form)
        return
    from equipoise.app.console import Console

    console = Console()
    if not decisions:
        console.print("There was nothing to decide.")
        return
    _, deed = VERBS.get(balancer, EVICTS)
    console.print(plan_table(decisions, doing=f"{deed.upper()}, IN ORDER"))
    acted = sum(len(decision.actions) for decision in decisions)
    held = sum(bool(decision.held) for decision in decisions)
    pods = "pod" if acted == 1 else "pods"
    console.print(f"{len(decisions)} decided, {acted} {pods} {deed}, {held} held.")


def plan_table(decisions: "Sequence[Decision]", doing: str = "EVICT, IN ORDER") -> Any:
    """Lay decisions out: what it is about, why, and what would be done, in order."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("SUBJECT", overflow="fold")
    table.add_column("REASON", no_wrap=True)
    table.add_column(doing, overflow="fold")
    table.add_column("WHY", ratio=1, overflow="fold")
    for decision in decisions:
        pods = [_named(action) for action in decision.actions]
        held = [f"{_named(part.action)} (held)" for part in decision.held]
        style = "bold yellow" if pods else "dim" if not held else "yellow"
        table.add_row(
            Text(decision.subject),
            Text(decision.reason.code.value, style=style),
            Text("\n".join(pods + held) or "-"),
            Text(decision.reason.sentence),
        )
    return table


def _named(action: "Action") -> str:
    source, destination = getattr(action, "source", ""), getattr(action, "destination", "")
    return f"{action.pod}: {source} → {destination}" if destination else action.pod


def plain(text: str) -> str:
    """Leave out what would steer a terminal; others wrote names and messages that we print."""
    return text.translate(_CONTROLS)


def warn(message: str) -> None:
    """Tell something beside the answer."""
    tell(f"warning: {message}")


def warn_of_nothing(what: str, *, is_everywhere: bool) -> None:
    """Tell that nothing was found in the cluster, and where else to look where there is an elsewhere."""
    where = " in any namespace" if is_everywhere else "; -n NAMESPACE or -A look elsewhere"
    warn(f"{what} was found{where}")


def tell(message: str) -> None:
    """Print one line on standard error, where it can be printed at all."""
    if sys.stderr is not None:  # closed: a print without it would go to standard output
        from equipoise.adapters.urls import without_users

        with suppress(OSError):  # what is to be told is not worth another exit status
            print(plain(without_users(" ".join(message.split()))), file=sys.stderr, flush=True)
