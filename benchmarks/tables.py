"""Figures as a table: for the terminal, and for the page."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table as RichTable


@dataclass(slots=True)
class Table:
    """Rows of text; the first column names what was measured."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        assert len(cells) == len(self.columns)
        self.rows.append(cells)

    def show(self, console: Console, title: str) -> None:
        shown = RichTable(title=title, title_justify="left")
        for index, column in enumerate(self.columns):
            shown.add_column(column, justify="right" if index else "left")
        for row in self.rows:
            shown.add_row(*row)
        console.print(shown)

    def markdown(self) -> str:
        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        lines = (self.columns, tuple(rule), *self.rows)
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass(frozen=True, slots=True)
class Section:
    """One benchmark's result: figures, what they mean, and what must be said beside them."""

    title: str
    tables: list[Table]
    meaning: str
    remarks: list[str] = field(default_factory=list)

    def show(self, console: Console) -> None:
        for index, table in enumerate(self.tables):
            table.show(console, "" if index else self.title)
        console.print(self.meaning, highlight=False)
        for remark in self.remarks:
            console.print(f"- {remark}", highlight=False)
        console.print()

    def markdown(self, when: str) -> str:
        parts = [self.meaning, *(table.markdown() for table in self.tables)]
        parts.append("\n".join(f"- {remark}" for remark in [*self.remarks, when]))
        return "\n\n".join(parts)


def ratio(value: float, to: float) -> str:
    """Give how many times as much; two figures are all that a noisy machine can promise."""
    times = value / to
    digits = 0 if times >= 9.95 else 1 if times >= 0.95 else 2
    return f"{times:.{digits}f}x"
