"""The terminal that tables and bars are printed to.

Names and messages come from outside. So they are printed without control characters, and never as markup.
"""

from collections.abc import Collection, Iterator
from typing import Any, Literal

from rich import box
from rich import console as rich_console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from equipoise.runtime.output import plain


class Console(rich_console.Console):
    """Prints text literally, without control characters: `[red]` and `:x:` in a name or a message stay.

    Our own styles are passed as `Text` or `style=`, never as markup inside a text.
    """

    def __init__(self, **options: Any) -> None:
        """Take rich's options, except those that interpret markup."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: rich_console.RenderableType, options: rich_console.ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render, and remove control characters from text."""
        for segment in super().render(renderable, options):
            if segment.control is not None or segment.text.isprintable():
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)


def table(
    *names: str,
    right: Collection[str] = (),
    folded: Collection[str] | None = None,
    padding: tuple[int, int] | tuple[int, int, int, int] = (0, 2, 0, 0),
    has_edge: bool = False,
    title: str = "",
) -> Table:
    """Return an empty table; columns that are not `folded` do not wrap. By default all are folded."""
    made = Table(box=box.SIMPLE_HEAD, padding=padding, pad_edge=False, show_edge=has_edge)
    if title:
        made.title, made.title_justify = Text(title, style="bold"), "left"
    for name in names:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        wraps = folded is None or name in folded
        made.add_column(name, justify=justify, overflow="fold" if wraps else "ellipsis", no_wrap=not wraps)
    return made


_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(cores: float | None, threshold: float | None, largest: float, width: int, colour: str) -> Any:
    eighths = round((cores or 0.0) / largest * width * 8)
    cells = list(("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).ljust(width)[:width])
    text = Text("".join(cells), style=colour)
    if threshold is not None:
        at = min(round(threshold / largest * width), width - 1)
        is_above = cells[at] == "█"
        cells[at] = "│"
        text = Text("".join(cells), style=colour)
        text.stylize(f"black on {colour}" if is_above else "yellow", at, at + 1)
    return text
