"""One record of the journal as HTML: a line that opens to everything that was said and done."""

from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from equipoise.app.web.drawing import Markup, badge, table
from equipoise.app.web.figures import SENTENCE_MAX, counted, moment, text
from equipoise.app.web.page import Table
from equipoise.app.web.standing import standing_of
from equipoise.model.decision import Action, Record

ROWS_MAX = 100
"""As many actions, held ones or outcomes of one record as are shown."""
WORDS_MAX = 400
PARTS_MAX = 40


def line(record: Record) -> Markup:
    """Draw what stands in the list."""
    reason = record.decision.reason
    return Markup(
        f'<summary><span class="when">{escape(moment(record.at))}</span>'
        f"<span>{badge(reason.code.value, standing_of(record))}</span>"
        f'<span class="what">{escape(record.balancer)} <b>{escape(text(record.decision.subject))}</b>: '
        f"{escape(text(reason.sentence, SENTENCE_MAX))}"
        f'<span class="again">{escape(_again(record))}</span></span></summary>'
    )


def _again(record: Record) -> str:
    if record.streak is None:
        return ""
    return f" ({record.streak.times + 1:,} times until {moment(record.streak.until)})"


def inside(record: Record) -> Markup:
    """Draw what a line opens to: numbers, actions, what was held, what came of it."""
    decision = record.decision
    tables = (
        _numbers(record),
        _bounded("Planned", ("Action", "About"), [_deed(action) for action in decision.actions]),
        _bounded(
            "Held",
            ("Action", "About", "Reason", "Why"),
            [(*_deed(part.action), part.reason.value, _words(part.sentence)) for part in decision.held],
        ),
        _bounded(
            "What came of it",
            ("Action", "About", "Result", "Detail"),
            [(*_deed(part.action), _words(part.result), _words(part.detail)) for part in record.outcomes],
        ),
    )
    return Markup(f'<div class="inside">{"".join(map(table, tables))}{_provenance(record)}</div>')


def whole(record: Record) -> Markup:
    """Draw a record, closed."""
    return Markup(line(record).html + inside(record).html)


def _numbers(record: Record) -> Table:
    first = record.decision.reason.numbers
    last = {} if record.streak is None else record.streak.reason.numbers
    names = list(dict.fromkeys([*first, *last]))[:ROWS_MAX]
    rows = [(_words(name), _value(first.get(name)), _value(last.get(name))) for name in names]
    if not last:
        rows_once = tuple(row[:2] for row in rows)
        return Table("Numbers", ("Name", "Value"), rows_once)
    return Table("Numbers", ("Name", "Value", "At last"), tuple(rows))


def _bounded(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    shown = tuple(rows[:ROWS_MAX])
    said = title if len(shown) == len(rows) else f"{title}: the first {ROWS_MAX} of {len(rows):,}"
    return Table(said, columns, shown)


def _deed(action: Action) -> tuple[str, str]:
    fields: dict[str, Any] = msgspec.to_builtins(action)
    kind = fields.pop("kind", type(action).__name__)
    fields.pop("uid", None)
    who = "/".join(
        str(fields.pop(key)) for key in ("namespace", "pod", "workload", "node") if fields.get(key)
    )
    rest = ", ".join(f"{name} {_value(value)}" for name, value in fields.items() if value not in ("", None))
    return str(kind), _words(" ".join(filter(None, (who, rest))))


def _value(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:,.6g}"
        case int():
            return f"{value:,}"
        case list() | tuple():
            return _words(", ".join(map(_value, value[:PARTS_MAX]))) or "-"
        case dict():
            parts = list(value.items())[:PARTS_MAX]
            return _words(", ".join(f"{name} {_value(part)}" for name, part in parts)) or "-"
    return _words(str(value))


def _words(said: str) -> str:
    return text(said, WORDS_MAX)


def _provenance(record: Record) -> str:
    by = f" by Equipoise {record.version}" if record.version else ""
    said = f"Decided {moment(record.at)}{by} from inputs whose hash begins {record.inputs_hash[:16] or '-'}."
    again = ""
    if record.streak is not None:
        times = counted(record.streak.times, "time")
        again = f" The same was decided {times} more, until {moment(record.streak.until)}."
    return (
        f"<h3>Where it comes from</h3><p>{escape(text(said + again, SENTENCE_MAX))}</p>"
        f"<p><code>equipoise journal explain {escape(text(record.id))}</code></p>"
    )
