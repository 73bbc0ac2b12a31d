"""Pages as HTML: the one place where text becomes markup, and so the one place that escapes it.

One record of the journal as HTML: a line that opens to its numbers, actions and results.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import repeat
from typing import Any
from urllib.parse import urlencode

import msgspec

from equipoise.core.decision import Action, Record
from equipoise.dashboard.page import Chart, Fact, Page, Section, Table, standing_of
from equipoise.dashboard.values import SENTENCE_MAX, counted, moment, text


@dataclass(frozen=True, slots=True)
class Markup:
    """A piece of HTML, every text in it escaped."""

    html: str


NOTHING = Markup("")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A rendered section: the part above its charts, the charts, and the part below."""

    subject: str
    head: Markup
    charts: tuple[Chart, ...]
    tail: Markup

    @property
    def shape(self) -> tuple[object, ...]:
        """The structure that must be equal for an update in place."""
        return (self.subject, *((chart.title, _structure(chart.options)) for chart in self.charts))


def _structure(options: object) -> object:
    """Return the structure of a chart without its values: ECharts never removes parts on an update."""
    if isinstance(options, Mapping):
        return tuple((key, None if key == "data" else _structure(part)) for key, part in options.items())
    if isinstance(options, list | tuple):
        return tuple(map(_structure, options))
    return None


def heading(page: Page, errors: Sequence[str] = (), note: str = "") -> Markup:
    lead_text = " ".join(filter(None, (page.summary, note)))
    title = f'<h1 id="content" tabindex="-1">{escape(page.title)}</h1>'
    lead = f'<div class="lead">{title}<p>{escape(lead_text)}</p></div>'
    items = "".join(f"<li>{escape(line)}</li>" for line in errors)
    troubles = f'<ul class="troubles" role="status">{items}</ul>' if items else ""
    return Markup(lead + troubles + _facts(page.facts))


def drawing(section: Section, link: str = "", journal: str = "") -> Drawing:
    """Render a section; its subject links to `link`, its time to its records."""
    name = escape(section.subject)
    title = f'<a href="{escape(link)}">{name}</a>' if link else name
    past = f' · <a href="{escape(journal)}">journal</a>' if journal else ""
    when = ""
    if section.at is not None:
        at = escape(moment(section.at))
        when = f'<span class="when"><time datetime="{at.replace(" ", "T")}">{at}</time>{past}</span>'
    head = (
        f'<div class="head"><h2>{title}</h2>{badge(section.reason, section.standing)}{when}</div>'
        f'<p class="sentence">{escape(section.sentence)}</p>{_facts(section.facts)}'
    )
    return Drawing(section.subject, Markup(head), section.charts, Markup("".join(map(table, section.tables))))


def _facts(parts: Sequence[Fact]) -> str:
    items = ""
    for fact in parts:
        note = f"<small>{escape(fact.note)}</small>" if fact.note else ""
        items += f"<div><dt>{escape(fact.name)}</dt><dd>{escape(fact.value)}{note}</dd></div>"
    return f'<dl class="facts">{items}</dl>' if parts else ""


def badge(text: str, standing: str) -> str:
    """Return a reason in the colour of the decision's standing, with the standing as tooltip."""
    if not text:
        return ""
    return f'<span class="badge by-{escape(standing)}" title="{escape(standing)}">{escape(text)}</span>'


def table(part: Table) -> str:
    """Return a table, which scrolls by itself in a narrow window."""
    if not part.rows:
        return ""
    numeric = [column in part.figures for column in part.columns]
    head = "".join(map(_cell, repeat("th"), part.columns, numeric))
    rows = "".join(f"<tr>{''.join(map(_cell, repeat('td'), row, numeric))}</tr>" for row in part.rows)
    label = escape(part.title)
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{label}"><h3>{label}</h3>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cell(tag: str, text: str, is_figure: bool) -> str:
    scope = ' scope="col"' if tag == "th" else ""
    kind = ' class="figure"' if is_figure else ""
    return f"<{tag}{scope}{kind}>{escape(text)}</{tag}>"


def figure_heading(chart: Chart) -> Markup:
    """Return the heading of a chart, and its description for screen readers."""
    return Markup(f'<h3>{escape(chart.title)}</h3><p class="unseen">{escape(chart.description)}</p>')


def options_of(values: Iterable[str], chosen: str, first: str) -> str:
    """Return the options of a select; the first means all."""
    options = [f'<option value="">{escape(first)}</option>']
    for value in values:
        mark = " selected" if value == chosen else ""
        options.append(f'<option value="{escape(value)}"{mark}>{escape(value)}</option>')
    return "".join(options)


def subject_form(chosen: str, subjects: Sequence[str], action: str) -> Markup:
    """Return the input of a subject: typed, or chosen from the newest ones."""
    known = "".join(f'<option value="{escape(subject)}"></option>' for subject in subjects)
    everything = f'<a class="button" href="{escape(action)}">All</a>' if chosen else ""
    return Markup(
        f'<form class="filter" method="get" action="{escape(action)}"><label>Subject'
        f'<input type="search" name="subject" list="subjects" value="{escape(chosen)}" autocomplete="off" '
        f'placeholder="the latest, or choose one"></label><datalist id="subjects">{known}</datalist>'
        f"<button>Show</button>{everything}</form>"
    )


def query(path: str, parameters: Mapping[str, str]) -> str:
    given = {name: value for name, value in parameters.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


ROWS_MAX = 100
"""The maximum number of actions, held actions or outcomes shown per record."""
WORDS_MAX = 400
PARTS_MAX = 40


def whole(record: Record) -> Markup:
    """Return a record: a line that opens to its numbers, actions, held actions and outcomes."""
    decision, reason = record.decision, record.reason
    again = ""
    if record.streak is not None:
        since = "" if record.changed_at is None else f"; this sentence since {moment(record.changed_at)}"
        again = f" ({record.streak.times + 1:,} times until {moment(record.streak.until)}{since})"
    line = (
        f'<summary><span class="when">{escape(moment(record.at))}</span>'
        f"<span>{badge(reason.code.value, standing_of(record))}</span>"
        f'<span class="what">{escape(record.balancer)} <b>{escape(text(decision.subject))}</b>: '
        f"{escape(text(reason.sentence, SENTENCE_MAX))}"
        f'<span class="again">{escape(again)}</span></span></summary>'
    )
    held = [(*_words_of(one.action), one.reason.value, _words(one.sentence)) for one in decision.held]
    results = [(*_words_of(one.action), _words(one.result), _words(one.detail)) for one in record.outcomes]
    tables = (
        _numbers(record),
        _bounded("Planned", ("Action", "Target"), [_words_of(action) for action in decision.actions]),
        _bounded("Held", ("Action", "Target", "Reason", "Message"), held),
        _bounded("Results", ("Action", "Target", "Result", "Detail"), results),
    )
    inside = f'<div class="inside">{"".join(map(table, tables))}{_provenance(record)}</div>'
    return Markup(line + inside)


def _numbers(record: Record) -> Table:
    first = record.decision.reason.numbers
    last = {} if record.streak is None else record.streak.reason.numbers
    names = list(dict.fromkeys([*first, *last]))[:ROWS_MAX]
    columns = {"First": first, "Latest": last} if last else {"Value": first}
    rows = ((_words(name), *(_value(column.get(name)) for column in columns.values())) for name in names)
    return Table("Numbers", ("Name", *columns), tuple(rows))


def _bounded(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    if len(rows) > ROWS_MAX:
        title = f"{title}: the first {ROWS_MAX} of {len(rows):,}"
    return Table(title, columns, tuple(rows[:ROWS_MAX]))


def _words_of(action: Action) -> tuple[str, str]:
    fields: dict[str, Any] = msgspec.to_builtins(action)
    kind = fields.pop("kind", type(action).__name__)
    fields.pop("uid", None)
    keys = ("namespace", "pod", "workload", "node")
    pod = "/".join(str(fields.pop(key)) for key in keys if fields.get(key))
    rest = ", ".join(f"{name} {_value(value)}" for name, value in fields.items() if value not in ("", None))
    return str(kind), _words(" ".join(filter(None, (pod, rest))))


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


def _words(value: str) -> str:
    return text(value, WORDS_MAX)


def _provenance(record: Record) -> str:
    by = f" by Equipoise {record.version}" if record.version else ""
    origin = (
        f"Decided at {moment(record.at)}{by}. The hash of the inputs starts with "
        f"{record.inputs_hash[:16] or '-'}."
    )
    if record.streak is not None:
        times = counted(record.streak.times, "time")
        origin += f" The decision was repeated {times}, until {moment(record.streak.until)}."
    return (
        f"<h3>Origin</h3><p>{escape(text(origin, SENTENCE_MAX))}</p>"
        f"<p><code>equipoise journal explain {escape(text(record.id))}</code></p>"
    )
