"""Pictures for a terminal: bars, lines and columns in text, as wide as they are told."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from equipoise.runtime.console import bar

LEVELS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▁▂▃▄▅▆▇█"


class Bar(NamedTuple):
    """One bar: its name, its value, and what is said beside it."""

    name: str
    percent: float
    note: str = ""
    colour: str = "bright_black"


def bars(title: str, rows: Sequence[Bar], line: float, largest: float, width: int) -> RenderableType:
    """Draw bars of percentages, with one line across them."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(
            Text(row.name),
            bar(row.percent, line, largest, width, row.colour),
            Text(f"{row.percent:.0f} %", justify="right"),
            Text(row.note, style=row.colour, no_wrap=True),
        )
    return Group(Text(title, style="dim"), table)


def resampled(values: Sequence[float], width: int) -> list[float]:
    """Return so many values: the mean of each part, or each again where there are fewer."""
    if not values:
        return []
    found = []
    for place in range(width):
        low = place * len(values) // width
        part = values[low : max(low + 1, (place + 1) * len(values) // width)]
        found.append(sum(part) / len(part))
    return found


def line(values: Sequence[float], width: int, low: float, high: float) -> str:
    """Draw a line of one row: the higher, the larger the block."""
    span = (high - low) or 1.0
    places = [round((value - low) / span * (len(LEVELS) - 1)) for value in resampled(values, width)]
    return "".join(LEVELS[min(max(place, 0), len(LEVELS) - 1)] for place in places)


def columns(values: Sequence[float], width: int, height: int, largest: float, waterline: float) -> Text:
    """Draw columns of several rows, with a waterline across; what is above it is red."""
    drawn = resampled(values, width)
    at = min(int(waterline / largest * height), height - 1)
    text = Text()
    for row in range(height - 1, -1, -1):
        for value in drawn:
            eighths = min(max(round((value / largest * height - row) * 8), 0), 8)
            is_line = row == at and eighths == 0
            style = "yellow" if is_line else "red" if row >= at and value > waterline else "blue"
            text.append("─" if is_line else EIGHTHS[eighths], style=style)
        text.append("\n" if row else "")
    return text


def labelled(rows: Sequence[tuple[str, RenderableType, str]]) -> Table:
    """Lay pictures out under each other, each with its name before and its numbers behind."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for name, picture, numbers in rows:
        table.add_row(Text(name, style="dim", no_wrap=True), picture, Text(numbers, no_wrap=True))
    return table
