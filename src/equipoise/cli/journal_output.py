"""Prints records of the journal: as text, tables and documents."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from equipoise.cli.replay import Replay, otherwise
from equipoise.core.decision import Decision, Record, plan_document
from equipoise.rotation.balancer import inputs
from equipoise.rotation.preconditions import PodLoad
from equipoise.rotation.progress import BALANCER
from equipoise.runtime.console import Console, bar, table

BAR_WIDTH_MAX = 44
PODS_SHOWN_MAX = 24

_INDENT = (0, 0, 0, 2)


def moment(at: float) -> str:
    """Return a time in ISO 8601, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def summary(record: Record) -> dict[str, Any]:
    """Return a record without its inputs, as a document."""
    return {
        "id": record.id,
        "balancer": record.balancer,
        "at": record.at,
        **_decision(record.decision),
        "outcomes": msgspec.to_builtins(record.outcomes),
        "inputs_hash": record.inputs_hash,
        "version": record.version,
        "streak": msgspec.to_builtins(record.streak),
    }


def print_list(console: Console, records: Iterable[Record]) -> None:
    """Print two lines per record: its time and reason, then the sentence; in a pipe one line per record."""
    if not console.is_terminal or console.is_rows_only:
        _print_rows(console, records)
        return
    count = 0
    for count, record in enumerate(records, 1):  # noqa: B007 - the count is used after the loop
        line = Text(f"{record.id}  {moment(record.at)}  ")
        line.append(record.decision.reason.code.value, style=_style(record.decision))
        if (streak := record.streak) is not None:
            line.append(f", {streak.times + 1} times until {moment(streak.until)[11:]}", style="dim")
        console.print(line)
        why = Text(f"{record.balancer} ", style="dim")
        why.append(record.decision.subject, style="bold not dim")
        why.append(f": {record.reason.sentence}", style="not dim")
        if record.changed_at is not None:
            why.append(f" (since {moment(record.changed_at)[11:]})", style="dim")
        for part in why.wrap(console, console.width - 2):
            console.print(Text("  ") + part)
    if not count:
        console.print("No record matches.")


def _print_rows(console: Console, records: Iterable[Record]) -> None:
    laid_out = table("ID", "TIME", "TIMES", "BALANCER", "SUBJECT", "REASON", "SENTENCE", right=("TIMES",))
    for record in records:
        reason = record.reason
        times = "1" if record.streak is None else str(record.streak.times + 1)
        cells = (record.id, moment(record.at), times, record.balancer, record.decision.subject)
        laid_out.add_row(*map(Text, (*cells, reason.code.value, reason.sentence)))
    console.print(laid_out if laid_out.row_count else "No record matches.")


def _style(decision: Decision) -> str:
    return "bold yellow" if decision.actions else "yellow" if decision.held else "dim"


def explanation(record: Record, width: int) -> RenderableType:
    decision = record.decision
    planned = [[f"{turn}.", *_action(action)] for turn, action in enumerate(decision.actions, 1)]
    outcomes = [[*_action(part.action), part.result, part.detail] for part in record.outcomes]
    otherwise_lines = otherwise(record)
    parts: list[RenderableType] = [*_heading(record)]
    for title, part in (
        ("Seen", _observed_pods(record, width)),
        ("Numbers", _numbers(record)),
        ("Planned", _grid(planned)),
        ("Held", _held(decision)),
        ("Outcomes", _grid(outcomes)),
        ("For another decision", Text("\n".join(otherwise_lines)) if otherwise_lines else None),
    ):
        if part is not None:
            parts += [Text(f"\n{title}", style="bold"), Padding(part, _INDENT)]
    return Group(*parts)


def _heading(record: Record) -> list[RenderableType]:
    title = Text(f"{record.balancer} {record.decision.subject}: ", style="bold")
    title.append(record.decision.reason.code.value, style=_style(record.decision))
    since = "at last" if record.changed_at is None else f"since {moment(record.changed_at)}"
    by = f" by Equipoise {record.version}" if record.version else ""
    parts: list[RenderableType] = [title, Text(record.decision.reason.sentence)]
    parts.append(Text(f"Decided {moment(record.at)}{by}; record {record.id}.", style="dim"))
    if (streak := record.streak) is not None:
        times = "once" if streak.times == 1 else f"{streak.times} times"
        is_same = streak.reason.sentence == record.decision.reason.sentence
        at_last = ", with the same words." if is_same else f"; {since}: {streak.reason.sentence}"
        again = f"The same was decided {times} more, until {moment(streak.until)}{at_last}"
        parts.append(Text(again, style="dim"))
    if not record.has_inputs:
        parts.append(Text("What went into it was not kept, only its hash.", style="dim"))
    return parts


def _observed_pods(record: Record, width: int) -> RenderableType | None:
    if record.balancer != BALANCER or not record.has_inputs:
        return None
    try:
        _, observation = inputs(record)
    except ValueError as error:
        return Text(f"This version cannot read what was seen: {' '.join(str(error).split())}")
    if not observation.pods:
        return Text("No pods.")
    planned = {action.pod for action in record.decision.actions}
    by_use = sorted(observation.pods, key=lambda pod: (-(pod.cpu_cores or 0.0), pod.name))
    shown = sorted(by_use, key=lambda pod: pod.name not in planned)[:PODS_SHOWN_MAX]
    names = max(len(pod.name) for pod in shown)
    bars = usage_bars(shown, record.decision, max(4, min(BAR_WIDTH_MAX, width - names - 34)))
    more = len(observation.pods) - len(shown)
    return Group(bars, Text(f"and {more} more pods", style="dim")) if more else bars


def usage_bars(pods: Sequence[PodLoad], decision: Decision, width: int) -> RenderableType:
    """Return one row per pod, the busiest first; the pods of the plan have their position in the order."""
    threshold = decision.reason.numbers.get("threshold_cores")
    largest = max([pod.cpu_cores or 0.0 for pod in pods] + [threshold or 0.0]) or 1.0
    positions = {action.pod: position for position, action in enumerate(decision.actions, 1)}
    hot = set(decision.reason.numbers.get("hot", ()))
    rows = Table.grid(padding=(0, 2, 0, 0))
    for pod in sorted(pods, key=lambda pod: (-(pod.cpu_cores or 0.0), pod.name)):
        colour = "red" if pod.name in hot else "blue" if pod.name in positions else "bright_black"
        drawn = bar(pod.cpu_cores, threshold, largest, width, colour)
        cores = "unknown" if pod.cpu_cores is None else f"{pod.cpu_cores:.2f}"
        heat, position = "hot" if pod.name in hot else "cold", positions.get(pod.name)
        note = f"{heat}, rotate {position}." if position else ""
        rows.add_row(Text(pod.name), drawn, Text(cores, justify="right"), Text(note, style=colour))
    return rows


def _numbers(record: Record) -> RenderableType | None:
    latest = {} if record.streak is None else record.streak.reason.numbers
    rows = []
    for name, value in record.decision.reason.numbers.items():
        at_last = f"at last {_value(latest[name])}" if latest.get(name, value) != value else ""
        # A mapping of mappings, such as the rules of a node, is a row for each of them.
        parts = (
            value
            if isinstance(value, dict) and any(isinstance(each, dict) for each in value.values())
            else None
        )
        if parts is None:
            rows.append([name, _value(value), at_last])
        else:
            rows += [[f"{name}.{part}", _value(each), ""] for part, each in parts.items()]
    return _grid(rows)


EXACT_MAX = 1e6
"""From here on, a number is printed with all digits before its point, never with an exponent."""


def _value(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}" if abs(value) < EXACT_MAX else f"{value:.0f}"
        case list() if any(isinstance(item, dict | list) for item in value):
            return "; ".join(map(_value, value))
        case list():
            return ", ".join(map(_value, value)) or "-"
        case dict():
            return ", ".join(f"{name}: {_value(item)}" for name, item in value.items()) or "-"
    return str(value)


def _held(decision: Decision) -> RenderableType | None:
    sentence_above, rows = decision.reason.sentence, []
    for part in decision.held:
        # Actions held for the same reason are grouped.
        sentence = "" if part.sentence == sentence_above else part.sentence
        rows.append([*_action(part.action), part.reason.value, sentence])
        sentence_above = part.sentence
    return _grid(rows)


def _action(action: object) -> list[str]:
    document = msgspec.to_builtins(action)
    kind = document.pop("kind", type(action).__name__)
    document.pop("uid", None)
    names = [document.pop(key) for key in ("namespace", "pod") if key in document]
    others = [
        f"{name}: {_value(value)}" for name, value in document.items() if value not in (None, "", {}, [])
    ]
    return [kind, ", ".join(filter(None, ["/".join(names), *others]))]


def print_replay(console: Console, answer: Replay) -> None:
    """Print the differences part by part, and the number of equal records."""
    for part in answer.different:
        console.print(Text(f"{part.record.id} {part.record.decision.subject}: {part.sentence}"))
        if part.now is not None:
            rows = [[name, f"was  {before}\nnow  {now}"] for name, before, now in part.changes]
            console.print(Padding(_grid(rows) or "", _INDENT))
    console.print(answer.sentence)


def replay_document(answer: Replay) -> dict[str, Any]:
    different = [
        {
            "id": part.record.id,
            "subject": part.record.decision.subject,
            "sentence": part.sentence,
            "recorded": _decision(part.record.decision),
            "now": part.now and _decision(part.now),
        }
        for part in answer.different
    ]
    counts = {"replayed": answer.replayed, "same": answer.same, "without_inputs": answer.without_inputs}
    return counts | {"different": different}


def _decision(decision: Decision) -> dict[str, Any]:
    document: dict[str, Any]
    (document,) = plan_document("", [decision])["decisions"]
    return document


def _grid(rows: Sequence[Sequence[str]]) -> RenderableType | None:
    if not rows:
        return None
    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    return table
