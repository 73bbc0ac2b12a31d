"""The table of advice for a cluster, in as many columns as fit, and what is printed below it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from equipoise.cli.recommendation_options import Price
from equipoise.cli.recommendation_rows import (
    WHOLE_POD,
    AdviceRow,
    ResourceChange,
    Severity,
    cores_text,
    has_requests,
    hpa_of,
    is_advised,
    money_text,
    price_text,
    rows_of,
    total_of,
    total_text,
)
from equipoise.core.decision import Decision
from equipoise.core.quantity import parse_bytes
from equipoise.core.reason import Code
from equipoise.recommendation.explain import coverage_text
from equipoise.runtime.output import plain

if TYPE_CHECKING:
    from rich.table import Table

    from equipoise.runtime.console import Console


WIDTH_FOR_ALL = 4096
"""A width on which nothing is left out, folded or cut."""
SENTENCES_MAX = 20
ROWS_LAID_OUT_MAX = 1000
"""A longer table is printed as plain lines: the layout of a row takes half a millisecond."""
FOLDED = {"WORKLOAD": 26, "CONTAINER": 18, "WHY": 70}
"""Columns whose cells may be folded, and the width from which that is better than fewer columns."""
NAME_WIDTH_MIN = 16
GAP = 2
STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.GOOD: "green"}


class Cell(NamedTuple):
    """A text and its style."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """A column of the table; of those that do not fit, the one with the highest rank is left out first."""

    name: str
    cell: Callable[[AdviceRow], Cell]
    rank: int = 0
    is_number: bool = False
    is_of_workload: bool = False
    """Whether only the first row of a workload has it on a terminal."""


def print_tables(
    decisions: Sequence[Decision], price: Price | None = None, next_step: str = "", *, is_wide: bool = False
) -> None:
    """Print the table, the sentences where there is no advice, the total, and what to do next."""
    from equipoise.runtime.console import Console

    console = Console()
    if not decisions:
        console.print("There is nothing to decide.")
        return
    width = console.width if console.is_terminal and not is_wide else WIDTH_FOR_ALL
    table, left_out = layout(decisions, price, width, is_wide=is_wide)
    if console.is_terminal and table.row_count > ROWS_LAID_OUT_MAX:
        print_plain(table)
    else:
        (Console(width=WIDTH_FOR_ALL) if is_wide and console.is_terminal else console).print(table)
    console.print()
    _print_below(console, decisions, price, left_out, next_step)


def _print_below(
    console: "Console",
    decisions: Sequence[Decision],
    price: Price | None,
    left_out: Sequence[str],
    next_step: str,
) -> None:
    from rich.text import Text

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=not console.is_terminal)

    if names := [name for name in left_out if name != "WHY"]:
        say(f"Not shown at this width: {', '.join(names)}. -o wide prints every column.", "dim")
    if "WHY" in left_out:
        # A row of requests contains all that its sentence does.
        print_reasons(
            console, [each for each in decisions if not _is_of_requests(each)], "-o csv and -o json have all"
        )
    if has_requests(decisions):
        say(total_text(total_of(decisions, price), price))
    if price is not None and has_requests(decisions):
        say(price_text(price), "dim")
    say(f"{len(decisions)} looked at, advice for {sum(map(is_advised, decisions))}. Nothing was changed.")
    if next_step:
        console.print(
            Text(f"Next: `{next_step}`; without --dry-run, it makes the change.", style="bold"),
            soft_wrap=True,
        )


def _is_of_requests(decision: Decision) -> bool:
    return "containers" in (decision.extra["recommended"] or {})


def print_reasons(console: "Console", decisions: Sequence[Decision], where: str = "-o json has all") -> None:
    """Print the sentences of decisions; of many, one for each reason."""
    if len(decisions) <= SENTENCES_MAX:
        for decision in decisions:
            console.print(f"{decision.subject}: {decision.reason.sentence}")
        return
    counts: dict[Code, list[Decision]] = {}
    for decision in decisions:
        counts.setdefault(decision.reason.code, []).append(decision)
    for code, some in counts.items():
        more = "" if len(some) == 1 else f" ({len(some):,} workloads; {where})"
        console.print(f"{code.value}{more}: {some[0].subject}: {some[0].reason.sentence}")


def layout(
    decisions: Sequence[Decision], price: Price | None, width: int, *, is_wide: bool = False
) -> "tuple[Table, list[str]]":
    """Return the table in this width, and the names of columns that do not fit."""
    rows = [(row, number == 0) for each in decisions for number, row in enumerate(rows_of(each))]
    is_complete = width >= WIDTH_FOR_ALL
    columns = _columns(price, is_wide=is_wide)
    cells = {
        column.name: [
            column.cell(row) if is_first or is_complete or not column.is_of_workload else Cell("")
            for row, is_first in rows
        ]
        for column in columns
    }
    # A column in which nothing is known is no column.
    columns = [each for each in columns if any(cell.text not in {"", "-"} for cell in cells[each.name])]
    remaining = list(columns)
    while (widest := max(remaining, key=lambda each: each.rank)).rank and _width(remaining, cells) > width:
        remaining.remove(widest)
        if widest.name in MERGED:
            _merge(cells, widest.name, MERGED[widest.name])
    names = {each.name for each in remaining} | set(MERGED)
    left_out = [each.name for each in columns if each.name not in names]
    return _filled(remaining, cells), left_out


MERGED = {"CONTAINER": "WORKLOAD", "REASON": "REPLICAS"}
"""Columns that go on in the lines of another where they do not fit."""


def _merge(cells: dict[str, list[Cell]], name: str, into: str) -> None:
    pairs = zip(cells[into], cells[name], strict=True)
    if name == "CONTAINER":
        cells[into] = [Cell(f"{each.text or ' '} {container.text}".rstrip()) for each, container in pairs]
        return
    cells[into] = [
        each if reason.text in {"", Code.RECOMMEND.value} else Cell(f"{each.text}\n{reason.text}", each.style)
        for each, reason in pairs
    ]


def _width(columns: Iterable[Column], cells: Mapping[str, Sequence[Cell]]) -> int:
    """Return how wide columns are where only long names and sentences are folded."""
    from rich.cells import cell_len

    widths = [
        min(
            max(cell_len(each.name), *(cell_len(plain(cell.text)) for cell in cells[each.name])),
            FOLDED.get(each.name, WIDTH_FOR_ALL),
        )
        for each in columns
    ]
    return sum(widths) + GAP * (len(widths) - 1)


def _filled(columns: Sequence[Column], cells: Mapping[str, Sequence[Cell]]) -> "Table":
    from rich.text import Text

    from equipoise.runtime.console import table

    right = [each.name for each in columns if each.is_number]
    laid_out = table(*(each.name for each in columns), right=right, folded=FOLDED)
    for made, column in zip(laid_out.columns, columns, strict=True):
        if column.name == "WORKLOAD":
            made.min_width = min(NAME_WIDTH_MIN, max(len(cell.text) for cell in cells[column.name]))
    for row in zip(*(cells[each.name] for each in columns), strict=True):
        laid_out.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    return laid_out


def print_plain(table: "Table") -> None:
    """Print a table without colours, one line a row, however wide that is."""
    from rich.cells import cell_len

    from equipoise.runtime.console import Console

    padded = []
    for column in table.columns:
        header = () if Console.is_rows_only else (column.header,)
        cells = [plain(str(cell)) for cell in (*header, *column.cells)]
        width, is_right = max(map(cell_len, cells)), column.justify == "right"
        pairs = [(cell, " " * (width - cell_len(cell))) for cell in cells]
        padded.append([blank + cell if is_right else cell + blank for cell, blank in pairs])
    for row in zip(*padded, strict=True):
        print("  ".join(row).rstrip())


def _columns(price: Price | None, *, is_wide: bool) -> list[Column]:
    """Return all columns in their order; those of money only where a price is known."""

    def of_workload(name: str, cell: Callable[[AdviceRow], Cell], rank: int = 0, **more: bool) -> Column:
        return Column(name, cell, rank, is_of_workload=True, **more)

    return [
        of_workload("WORKLOAD", lambda row: Cell(row.decision.subject)),
        *([of_workload("KIND", lambda row: Cell(row.decision.extra["kind"]))] if is_wide else []),
        Column("CONTAINER", lambda row: Cell("(pod)" if row.container == WHOLE_POD else row.container), 8),
        Column("CPU REQUEST", lambda row: _request(row, row.cpu)),
        Column("CPU LIMIT", lambda row: Cell(limit_text(row.cpu)), 5),
        Column("CPU DIFF", lambda row: _difference(row.cpu, cores_text(row.cpu_difference)), 7, True),
        Column("MEMORY REQUEST", lambda row: _request(row, row.memory)),
        Column("MEMORY LIMIT", lambda row: Cell(limit_text(row.memory)), 4),
        Column(
            "MEMORY DIFF", lambda row: _difference(row.memory, memory_text(row.memory_difference)), 6, True
        ),
        Column("SEVERITY", _severity, 3),
        *(_of_money(price, is_wide=is_wide) if price is not None else []),
        of_workload("REPLICAS", _replicas),
        of_workload("TARGET", _target, 2, is_number=True),
        of_workload("HPA NOW", lambda row: Cell(_todays(row.decision)), 10),
        of_workload("COVERAGE", _coverage, 9),
        of_workload("REASON", _reason, 1),
        of_workload("WHY", lambda row: Cell(row.decision.reason.sentence), 11),
    ]


def _of_money(price: Price, *, is_wide: bool) -> list[Column]:
    unit = f"{price.currency}/MONTH" if price.currency else "PER MONTH"

    def difference(row: AdviceRow) -> Cell:
        text = money_text(row.cost(price).difference, is_difference=True)
        style = "green" if text[0] == "-" else "yellow" if text[0] == "+" else "dim"
        return Cell(text if row.has_requests else "", style)

    both = [
        Column(f"{unit} NOW", lambda row: Cell(money_text(row.cost(price).current)), is_number=True),
        Column(f"{unit} ADVISED", lambda row: Cell(money_text(row.cost(price).recommended)), is_number=True),
    ]
    return [*(both if is_wide else []), Column(unit, difference, is_number=True)]


def change_text(before: str | None, after: str | None, missing: str = "none") -> str:
    """Return what is now and what is advised; once where both are the same."""
    if after is None:
        return before or "-"
    return after if before == after else f"{before or missing} → {after}"


def request_text(row: AdviceRow, change: ResourceChange) -> str:
    # A file does not say what is requested now.
    before, after = readable(change, change.request), readable(change, change.advised)
    return after or "-" if before is None and row.container == WHOLE_POD else change_text(before, after)


def limit_text(change: ResourceChange) -> str:
    """Return the limit now and as advised; it is to be removed where only a request is advised."""
    before, after = readable(change, change.limit), readable(change, change.advised_limit)
    if after is None and before is not None and change.advised is not None:
        return f"{before} → none"
    return change_text(before, after)


def _request(row: AdviceRow, change: ResourceChange) -> Cell:
    style = STYLES.get(change.severity, "")
    return Cell(request_text(row, change), "" if style == "green" else style)


def _difference(change: ResourceChange, text: str) -> Cell:
    if change.advised is None:
        return Cell("")
    return Cell(text if text.startswith("-") or text == "0" else f"+{text}")


def _severity(row: AdviceRow) -> Cell:
    severity = row.severity
    return Cell(str(severity) if severity else "", STYLES.get(severity, ""))


def readable(change: ResourceChange, text: str | None) -> str | None:
    """Return memory in a unit that people read; the exact number is in -o json."""
    if text is None or change.resource == "cpu":
        return text
    return memory_text(parse_bytes(text))


def memory_text(size: float) -> str:
    """Return bytes in the largest unit that leaves two digits, or is exact."""
    for unit, power in (("Gi", 3), ("Mi", 2), ("Ki", 1)):
        if abs(size) >= 10 * 1024.0**power or (size and size % 1024.0**power == 0):
            return f"{size / 1024.0**power:.0f}{unit}"
    return f"{size:.0f}"


def replicas_text(decision: Decision) -> str:
    """Return the replicas now and as advised; in parentheses what the advice would be without a refusal."""
    now = str(decision.reason.numbers.get("replicas", "?"))
    hpa, is_advice = hpa_of(decision)
    if hpa is None:
        return now
    bounds = f"{hpa['minReplicas']}-{hpa['maxReplicas']}"
    return f"{now} → {bounds if is_advice else f'({bounds})'}"


def _replicas(row: AdviceRow) -> Cell:
    hpa, is_advice = hpa_of(row.decision)
    return Cell(replicas_text(row.decision), "dim" if hpa is not None and not is_advice else "")


def target_text(decision: Decision) -> str:
    hpa, is_advice = hpa_of(decision)
    if hpa is None:
        return ""
    return f"{hpa['targetUtilization']}%" if is_advice else f"({hpa['targetUtilization']}%)"


def _target(row: AdviceRow) -> Cell:
    text = target_text(row.decision)
    return Cell(text, "dim" if text.startswith("(") else "")


def _settings(hpa: Mapping[str, Any]) -> str:
    target = hpa["targetUtilization"]
    aim = "" if target is None else f" at {target}%"
    return f"{hpa['minReplicas']}-{hpa['maxReplicas']}{aim}"


def _todays(decision: Decision) -> str:
    hpas = decision.extra.get("current", {}).get("hpas", [])
    return ", ".join(_settings(hpa) for hpa in hpas)


def _coverage(row: AdviceRow) -> Cell:
    """Return the known share of the week and the confidence; empty where an error ended the decision."""
    numbers = row.decision.reason.numbers
    if "coverage" not in numbers:
        return Cell("")
    is_low = numbers["confidence"] == "low"
    text = f"{coverage_text(numbers['coverage'])} {numbers['confidence']}"
    return Cell(text, "yellow" if is_low else "dim")


def _reason(row: AdviceRow) -> Cell:
    decision = row.decision
    return Cell(
        decision.reason.code.value, "bold yellow" if decision.extra["recommended"] is not None else "dim"
    )
