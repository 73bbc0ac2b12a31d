"""Advice as one HTML file: it loads nothing, runs no script, and can be printed, sent or archived.

Names and sentences come from outside, and are escaped.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from equipoise.cli.recommendation_options import Price
from equipoise.cli.recommendation_rows import (
    WHOLE_POD,
    AdviceRow,
    Severity,
    Total,
    bytes_text,
    cores_text,
    has_requests,
    hpa_of,
    money_text,
    pair_text,
    price_text,
    rows_of,
    total_of,
)
from equipoise.cli.recommendation_table import (
    limit_text,
    replicas_text,
    request_text,
    target_text,
)
from equipoise.core.decision import Decision
from equipoise.runtime.output import plain

STYLE = """
:root{color-scheme:light dark;--ground:#f6f7f9;--panel:#fff;--ink:#1b2330;--soft:#566072;--line:#dfe3e9;
--critical:#b3261e;--warning:#8a5a00;--ok:#33507a;--good:#1d6b3f}
@media (prefers-color-scheme:dark){:root{--ground:#12161c;--panel:#1a2028;--ink:#e6eaf0;--soft:#9aa5b5;
--line:#2c3440;--critical:#ff8a80;--warning:#f0b95a;--ok:#9dbcf0;--good:#79cf9c}}
*{box-sizing:border-box}
body{margin:0;padding:1.4rem;background:var(--ground);color:var(--ink);font:14px/1.45 system-ui,sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:96rem;margin:0 auto}
h1{font-size:1.5rem;margin:0 0 .2rem}
p{margin:.2rem 0;color:var(--soft)}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.7rem;margin:1rem 0}
dl div{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem}
dt{color:var(--soft);font-size:.85rem}
dd{margin:0;font-size:1.1rem;font-weight:600}
dd small{display:block;font-weight:400;font-size:.85rem;color:var(--soft)}
table{width:100%;border-collapse:collapse;background:var(--panel);border:1px solid var(--line)}
th,td{padding:.35rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{position:sticky;top:0;background:var(--panel);color:var(--soft);font-size:.82rem;font-weight:600}
.figure{text-align:right;white-space:nowrap}
.change{white-space:nowrap}
.name{overflow-wrap:anywhere;font-weight:600;min-width:13rem;max-width:24rem}
td small{display:block;font-size:.85rem;font-weight:400;color:var(--soft)}
.why{max-width:36rem}
.would{color:var(--soft)}
.critical,.warning,.ok,.good{font-weight:600}
.critical{color:var(--critical)}.warning{color:var(--warning)}.ok{color:var(--ok)}.good{color:var(--good)}
tfoot td{font-weight:600;border-bottom:0}
@media (max-width:64rem){
body{padding:.7rem}
table,tbody,tfoot,tr,td{display:block}
thead{position:absolute;left:-999rem}
tr{padding:.5rem .7rem;border-bottom:1px solid var(--line)}
td{display:flex;justify-content:space-between;gap:1rem;padding:.1rem 0;border:0;text-align:right}
td::before{content:attr(data-label);color:var(--soft);font-weight:400;flex:none}
td:empty{display:none}
td.name,td.why{display:block;text-align:left}
td.name::before{content:none}
td.why::before{margin-right:.7rem}
.change,.figure{white-space:normal}
.name,.why{max-width:none}
}
@media print{body{background:none;padding:0}th{position:static}tr{break-inside:avoid}}
"""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{lead}
<dl>{facts}</dl>
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
{foot}</table>
</main>
</body>
</html>
"""


def html_page(decisions: Sequence[Decision], price: Price | None, at: float) -> str:
    """Return the page for these decisions, which were made at this time."""
    total = total_of(decisions, price)
    of_requests = has_requests(decisions)
    when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    of_all = "differences" if price is None else "differences and money"
    lead = [f"From the seven days before {when}. Nothing was changed."]
    if of_requests:
        lead.append(f"Requests and limits are of one pod; {of_all} are of all replicas that run now.")
    if price is not None:
        lead.append(price_text(price))
    columns = _heads(price, of_requests=of_requests)
    rows = [
        _row(row, columns, price, is_first=number == 0)
        for decision in decisions
        for number, row in enumerate(rows_of(decision))
    ]
    return PAGE.format(
        title=f"Advice for {len(decisions):,} workload{'s' * (len(decisions) != 1)}",
        style=STYLE,
        lead="\n".join(f"<p>{_text(each)}</p>" for each in lead),
        facts="".join(_facts(decisions, total, price, of_requests=of_requests)),
        heads="".join(f"<th{_class(name)}>{_text(name)}</th>" for name in columns),
        rows="\n".join(rows),
        foot=_foot(total, columns) if of_requests else "",
    )


def _text(text: str) -> str:
    return escape(plain(text))


def _money_name(price: Price) -> str:
    return f"{price.currency} per month" if price.currency else "Per month"


def _heads(price: Price | None, *, of_requests: bool) -> list[str]:
    """Return the names of the columns that have something in them."""
    sizes = ["CPU request", "CPU limit", "Memory request", "Memory limit"]
    money = [_money_name(price)] if price is not None else []
    requests = ["Container", *sizes, "Severity", *money] if of_requests else []
    return ["Workload", *requests, "Replicas", "Reason"]


def _class(name: str) -> str:
    return ' class="figure"' if name.endswith("er month") else ""


def _facts(
    decisions: Sequence[Decision], total: Total, price: Price | None, *, of_requests: bool
) -> Iterator[str]:
    yield _fact("Advice", f"{total.advised:,} of {total.workloads:,}", "workloads")
    if not of_requests:
        return
    yield _fact("CPU requests", pair_text(*total.cpu, cores_text)[0], "cores")
    yield _fact("Memory requests", *pair_text(*total.memory, bytes_text))
    if total.cost is not None and price is not None:
        cost = total.cost
        change = money_text(cost.difference, is_difference=True)
        values = f"{money_text(cost.current)} → {money_text(cost.recommended)}"
        yield _fact(_money_name(price), values, change)
    severities = [max(row.severity for row in rows_of(decision)) for decision in decisions]
    counts = ", ".join(
        f"{severities.count(each):,} {each}"
        for each in (Severity.WARNING, Severity.OK, Severity.GOOD)
        if each in severities
    )
    yield _fact("Severity", f"{severities.count(Severity.CRITICAL):,} critical", counts)


def _fact(name: str, value: str, more: str) -> str:
    return f"<div><dt>{_text(name)}</dt><dd>{_text(value)}{_small(more)}</dd></div>"


def _small(text: str) -> str:
    return f"<small>{_text(text)}</small>" if text else ""


def _row(row: AdviceRow, columns: Sequence[str], price: Price | None, *, is_first: bool) -> str:
    kind = _small(row.decision.extra["kind"]) if is_first else ""
    cells = {"Workload": ("name", _text(row.decision.subject) + kind)}
    cells["Container"] = ("container", _text("the pod" if row.container == WHOLE_POD else row.container))
    for name, change, difference in (
        ("CPU", row.cpu, f"{cores_text(row.cpu_difference)} cores"),
        ("Memory", row.memory, bytes_text(row.memory_difference)),
    ):
        more = _signed(difference) if change.advised not in {None, change.request} else ""
        cells[f"{name} request"] = (
            "change",
            f"<span>{_text(request_text(row, change))}{_small(more)}</span>",
        )
        cells[f"{name} limit"] = ("change", _text(limit_text(change)))
    severity = str(row.severity) if row.severity else ""
    cells["Severity"] = (severity, severity)
    if price is not None and row.has_requests:
        amount = money_text(row.cost(price).difference, is_difference=True)
        cells[_money_name(price)] = ("figure", amount)
    if is_first:
        cells |= _of_workload(row.decision)
    return _cells(columns, cells)


def _of_workload(decision: Decision) -> dict[str, tuple[str, str]]:
    hpa, is_advice = hpa_of(decision)
    would = "change would" if hpa is not None and not is_advice else "change"
    aim = f"at {target_text(decision)}" if hpa is not None else ""
    is_low = decision.reason.numbers.get("confidence") == "low"
    why = f"{decision.reason.sentence}{' Confidence is low.' if is_low else ''}"
    return {
        "Replicas": (would, f"<span>{_text(replicas_text(decision))}{_small(aim)}</span>"),
        "Reason": ("why", f"<span>{_text(decision.reason.code.value)}{_small(why)}</span>"),
    }


def _cells(columns: Sequence[str], cells: Mapping[str, tuple[str, str]]) -> str:
    parts = []
    for name in columns:
        style, text = cells.get(name, ("", ""))
        classes = f' class="{style}"' if style else ""
        parts.append(f'<td{classes} data-label="{_text(name)}">{text}</td>')
    return f"<tr>{''.join(parts)}</tr>"


def _signed(text: str) -> str:
    return text if text.startswith(("-", "0 ")) else f"+{text}"


def _foot(total: Total, columns: Sequence[str]) -> str:
    (cpu, advised_cpu), (memory, advised_memory) = total.cpu, total.memory
    cells = {
        "Workload": ("name", "Total of all replicas"),
        "CPU request": ("change", _text(_signed(f"{cores_text(advised_cpu - cpu)} cores"))),
        "Memory request": ("change", _text(_signed(bytes_text(advised_memory - memory)))),
    }
    if total.cost is not None:
        name = next(each for each in columns if each.endswith("er month"))
        cells[name] = ("figure", money_text(total.cost.difference, is_difference=True))
    return f"<tfoot>{_cells(columns, cells)}</tfoot>\n"
