"""Advice as tables for people: one that fits a narrow terminal, and one with every number."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from equipoise.app.output import plain
from equipoise.model.decision import Decision
from equipoise.model.quantity import parse_bytes
from equipoise.recommendation.explain import percent_known

if TYPE_CHECKING:
    from rich.table import Table

    from equipoise.app.console import Console

WIDTH_FOR_COLUMNS = 100
"""A narrower terminal gets the numbers in fewer columns,"""
WIDTH_FOR_SENTENCES = 160
"""and one narrower than this the sentences below the table."""
SENTENCES_MAX = 20
ROWS_LAID_OUT_MAX = 1000
"""A longer table is printed one line a row: to lay a row out takes half a millisecond."""
WHOLE_POD = "*"
"""What a file calls its containers, since it has none."""


def print_tables(decisions: Sequence[Decision]) -> None:
    """Print the advice, and why, on standard output."""
    from equipoise.app.console import Console

    console = Console()
    if not decisions:
        console.print("There is nothing to decide.")
        return
    is_wide = console.width >= WIDTH_FOR_SENTENCES
    if any("containers" in (decision.extra["recommended"] or {}) for decision in decisions):
        _print(console, _requests(decisions))
        is_wide = False
    else:
        _print(console, _replicas(decisions, console.width))
    console.print()
    # A row of requests says all that its sentence says.
    said = [one for one in decisions if "containers" not in (one.extra["recommended"] or {})]
    for decision in [] if is_wide else said[:SENTENCES_MAX]:
        console.print(f"{decision.subject}: {decision.reason.sentence}")
    if not is_wide and len(said) > SENTENCES_MAX:
        console.print(f"(and {len(said) - SENTENCES_MAX} more sentences; -o csv and -o json have all)")
    advised = sum(decision.extra["recommended"] is not None for decision in decisions)
    console.print(f"{len(decisions)} looked at, advice for {advised}. Nothing was changed.")


def _print(console: "Console", table: "Table") -> None:
    """Print a table; a long one without colours and without folding what is too wide."""
    if table.row_count <= ROWS_LAID_OUT_MAX:
        console.print(table)
        return
    from rich.cells import cell_len

    columns = [[plain(str(cell)) for cell in (column.header, *column.cells)] for column in table.columns]
    padded = []
    for column, cells in zip(table.columns, columns, strict=True):
        lengths = [cell_len(cell) for cell in cells]
        width = max(lengths)
        blanks = [" " * (width - length) for length in lengths]
        is_right = column.justify == "right"
        pairs = zip(cells, blanks, strict=True)
        padded.append([blank + cell if is_right else cell + blank for cell, blank in pairs])
    for row in zip(*padded, strict=True):
        print("  ".join(row).rstrip())


def containers_of(decision: Decision) -> Iterator[tuple[str, Mapping[str, str], Mapping[str, str]]]:
    """Give each container's name, what it should ask for and what it asks for today."""
    current = decision.extra.get("current", {}).get("containers", [])
    today = {container["name"]: container["requests"] for container in current}
    wanted = (decision.extra["recommended"] or {}).get("containers")
    if wanted is None:
        yield "", {}, {}
    for container in wanted or ():
        yield container["name"], container["requests"], today.get(container["name"], {})


def _table(*names: str, right: Sequence[str] = ()) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        if name in {"WORKLOAD", "CONTAINER"}:
            table.add_column(name, overflow="fold", min_width=len(name))
        else:
            table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    return table


def _replicas(decisions: Sequence[Decision], width: int) -> "Table":
    """Lay out replicas and targets, in as many columns as there is room for."""
    from rich.text import Text

    is_narrow, has_sentences = width < WIDTH_FOR_COLUMNS, width >= WIDTH_FOR_SENTENCES
    has_hpas = any(_todays(decision) != "-" for decision in decisions)
    right = ("NOW", "MIN", "MAX", "TARGET", "COVERAGE")
    if is_narrow:
        table = _table("WORKLOAD", "NOW", "ADVICE", "COVERAGE", "REASON", right=("NOW",))
    else:
        names = ["WORKLOAD", "NOW", "MIN", "MAX", "TARGET", "COVERAGE", "CONFIDENCE", "REASON"]
        if has_hpas:
            names.insert(2, "HPA NOW")
        table = _table(*names, right=right)
    if has_sentences:
        table.add_column("WHY", ratio=1, overflow="fold")
    for decision in decisions:
        numbers = decision.reason.numbers
        coverage = percent_known(numbers["coverage"])
        cells = [str(numbers["replicas"])]
        if is_narrow:
            cells += [_advice(decision.extra["recommended"]), f"{coverage} {numbers['confidence']}"]
        else:
            cells += [_todays(decision)] if has_hpas else []
            cells += [*_bounds(decision.extra["recommended"]), coverage, numbers["confidence"]]
        why = [Text(decision.reason.sentence)] if has_sentences else []
        table.add_row(Text(decision.subject), *cells, _reason(decision), *why)
    return table


def _bounds(recommended: Mapping[str, Any] | None) -> list[str]:
    if recommended is None:
        return ["-", "-", "-"]
    low, high = recommended["minReplicas"], recommended["maxReplicas"]
    return [str(low), str(high), f"{recommended['targetUtilization']} %"]


def _advice(recommended: Mapping[str, Any] | None) -> str:
    return "-" if recommended is None else _settings(recommended)


def _settings(hpa: Mapping[str, Any]) -> str:
    target = hpa["targetUtilization"]
    aim = "" if target is None else f" at {target} %"
    return f"{hpa['minReplicas']}-{hpa['maxReplicas']}{aim}"


def _todays(decision: Decision) -> str:
    hpas = decision.extra.get("current", {}).get("hpas", [])
    return ", ".join(_settings(hpa) for hpa in hpas) or "-"


def _reason(decision: Decision) -> Any:
    from rich.text import Text

    is_advice = decision.extra["recommended"] is not None
    return Text(decision.reason.code.value, style="bold yellow" if is_advice else "dim")


def _requests(decisions: Sequence[Decision]) -> "Table":
    """Lay out requests, one row for each container: today's, and the advised."""
    from rich.text import Text

    table = _table("WORKLOAD", "CONTAINER", "CPU", "MEMORY", "COVERAGE", "REASON")
    for decision in decisions:
        numbers = decision.reason.numbers
        for turn, (name, wanted, today) in enumerate(containers_of(decision)):
            first = turn == 0
            table.add_row(
                Text(decision.subject if first else ""),
                Text("(pod)" if name == WHOLE_POD else name or "-"),
                _change(today.get("cpu"), wanted.get("cpu")),
                _change(_rounded(today.get("memory")), _rounded(wanted.get("memory"))),
                f"{percent_known(numbers['coverage'])} {numbers['confidence']}" if first else "",
                _reason(decision) if first else "",
            )
    return table


def _change(before: str | None, after: str | None) -> str:
    if after is None:
        return "-"
    return after if before is None else f"{before} → {after}"


def _rounded(memory: str | None) -> str | None:
    """Give bytes in a unit that people read; the exact number is in -o json."""
    if memory is None:
        return None
    size = parse_bytes(memory)
    for unit, power in (("Gi", 3), ("Mi", 2), ("Ki", 1)):
        if size >= 10 * 1024.0**power:
            return f"{size / 1024.0**power:.0f}{unit}"
    return f"{size:.0f}"
