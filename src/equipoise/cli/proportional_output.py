"""Prints a proportional plan as a table or a document."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from equipoise.runtime.output import Format, print_document

if TYPE_CHECKING:
    from equipoise.core.decision import Decision
    from equipoise.proportional.functions import CompiledPolicy
    from equipoise.proportional.loop import PolicyResult

STEPS_SHOWN_MAX = 40
STYLES = {"Set": "bold yellow", "Unchanged": "dim"}


def print_proportional(asked: "CompiledPolicy", decision: "Decision", form: Format) -> None:
    if form is not Format.TABLE:
        from equipoise.core.decision import plan_document

        print_document(plan_document("proportional", [decision]), form)
        return
    from equipoise.runtime.console import Console

    console = Console()
    steps = decision.extra.get("steps", [])
    if steps:
        _print_steps(console, asked, steps)
    console.print(_values(asked, decision))
    console.print(f"{decision.subject}: {decision.reason.sentence}")
    console.print("Nothing was changed.")


def print_live(results: "Sequence[PolicyResult]", form: Format, *, is_done: bool) -> None:
    """Print the decisions for policies of a cluster, and the actions if any were done."""
    decided = [(turn, turn.decision) for turn in results if turn.decision is not None]
    if form is not Format.TABLE:
        from equipoise.core.decision import outcome_document, plan_document

        document = plan_document("proportional", [decision for _, decision in decided])
        if is_done:
            for part, (turn, _) in zip(document["decisions"], decided, strict=True):
                part["outcomes"] = [outcome_document(outcome) for outcome in turn.outcomes]
        print_document(document, form)
        return
    from equipoise.runtime.console import Console

    console = Console()
    for turn, decision in decided:
        console.print(_values(turn.item.compiled, decision))
        console.print(f"{decision.subject}: {decision.reason.sentence}")
        if decision.actions and turn.cost:
            console.print(turn.cost)
        for outcome in turn.outcomes:
            console.print(f"{outcome.result}: {outcome.detail}".rstrip(": "))
        console.print()
    if not decided:
        console.print("There is nothing to decide.")
    changed = sum(any(o.result == "Accepted" for o in turn.outcomes) for turn, _ in decided)
    console.print(f"{len(decided)} decided, {changed} changed." if is_done else "Nothing was changed.")


RIGHT = {"NOW", "TARGET", "IN FORCE"}


def _values(asked: "CompiledPolicy", decision: "Decision") -> Any:
    """Return one row per resource: its value, the cluster's target, and its planned value."""
    from rich.text import Text

    from equipoise.runtime.console import table

    numbers = decision.reason.numbers
    applied = {
        f"{container['name']}.{section}.{resource}": value
        for container in decision.extra["containers"]
        for section in ("requests", "limits")
        for resource, value in container[section].items()
    }
    laid_out = table("RESOURCE", "NOW", "TARGET", "IN FORCE", "REASON", right=RIGHT)
    for slot in asked.slots:
        code = numbers["reasons"][slot.key]
        laid_out.add_row(
            slot.key,
            numbers["current"][slot.key] or "-",
            numbers["target"][slot.key],
            Text(applied.get(slot.key, "-"), style=STYLES.get(code, "")),
            Text(code, style=STYLES.get(code, "yellow")),
        )
    return laid_out


def _print_steps(console: Any, asked: "CompiledPolicy", steps: list[dict[str, Any]]) -> None:
    """Return the rows with a change, and the number of those without."""
    from rich.text import Text

    from equipoise.runtime.console import table

    shown = list(_changes(steps))
    laid_out = table("TIME", "REASON", "RESOURCE", "TARGET", "IN FORCE", right=RIGHT)
    for step in shown[:STEPS_SHOWN_MAX]:
        style = STYLES.get(step["reason"], "yellow")
        head: list[Any] = [str(step["timestamp"]), Text(step["reason"], style=style)]
        for slot in asked.slots:
            applied = step["applied"][slot.key] or "-"
            laid_out.add_row(*head, slot.key, step["target"][slot.key], Text(applied, style=style))
            head = ["", ""]
    console.print(laid_out)
    changes = sum(step["reason"] == "Set" for step in steps)
    rest = len(shown) - STEPS_SHOWN_MAX
    more = f"; {rest} more rows with -o json" if rest > 0 else ""
    console.print(
        f"{len(steps)} steps, {changes} {'change' if changes == 1 else 'changes'}; "
        f"shown are those with a change or another reason{more}.\n"
    )


def _changes(steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    before = None
    for step in steps:
        if step["reason"] != before or step["reason"] == "Set":
            yield step
        before = step["reason"]
