"""The terminal, pipe or file that tables, sentences and bars are printed to.

Names and messages come from outside. So they are printed without control characters, and never as markup.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, ClassVar, Literal

from rich import box
from rich import console as rich_console
from rich.cells import cell_len
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from equipoise.runtime.output import plain

PIPE_COLUMNS = 4096
"""The width of a pipe or file: what is laid out by width is never cut or folded there."""


class Console(rich_console.Console):
    """Prints text literally, without control characters: `[red]` and `:x:` in a name or a message stay.

    Our own styles are passed as `Text` or `style=`, never as markup inside a text. Into a pipe or file, a
    table is one line per row, with complete names, and a sentence is one line; with a `width`, both are as on
    a terminal.
    """

    is_rows_only: ClassVar[bool] = False
    """Whether only the rows of tables go to standard output, as `--no-headers` asks; all else goes to
    standard error."""

    def __init__(self, **options: Any) -> None:
        """Take rich's options, except those that interpret markup."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        self._is_laid_out = self.is_terminal or "width" in options
        if not self._is_laid_out:
            self._width = PIPE_COLUMNS

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; into a pipe or file, a table as plain rows and all else without trailing blanks."""
        table = objects[0] if len(objects) == 1 and isinstance(objects[0], Table) else None
        if self.is_rows_only:
            if table is None:
                return _standard_error().print(*objects, **options)
            table.title, table.show_header = None, False
        if self._is_laid_out:
            return super().print(*objects, **options)
        if table is not None and (lines := _plain_rows(table)) is not None:
            return self._write(lines)
        with self.capture() as captured:
            super().print(*objects, **options)
        end = options.get("end", "\n")
        if end != "\n":
            return self._write([captured.get()], end="")
        return self._write(line.rstrip() for line in captured.get().removesuffix("\n").split("\n"))

    def _write(self, lines: Iterable[str], end: str = "\n") -> None:
        for line in lines:
            self.file.write(f"{line}{end}")
        self.file.flush()

    def render(
        self, renderable: rich_console.RenderableType, options: rich_console.ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render, and remove control characters from text."""
        for segment in super().render(renderable, options):
            if segment.control is not None or segment.text.isprintable():
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)


def _standard_error() -> rich_console.Console:
    return rich_console.Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def table(
    *names: str, right: Collection[str] = (), folded: Collection[str] | None = None, title: str = ""
) -> Table:
    """Return an empty table; columns that are not `folded` do not wrap. By default all are folded."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    if title:
        made.title, made.title_justify = Text(title, style="bold"), "left"
    for name in names:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        wraps = folded is None or name in folded
        made.add_column(name, justify=justify, overflow="fold" if wraps else "ellipsis", no_wrap=not wraps)
    return made


def _plain_rows(table: Table) -> list[str] | None:
    """Return one line per row, as wide as its longest cells; None if a cell is more than text."""
    columns = []
    for column in table.columns:
        header = [column.header] if table.show_header else []
        footer = [column.footer] if table.show_footer else []
        cells = [*header, *column.cells, *footer]
        if not all(isinstance(cell, str | Text) for cell in cells):
            return None
        texts = [", ".join(plain(str(cell)).split("\n")) for cell in cells]
        width = max(map(cell_len, texts), default=0)
        if not width:
            continue
        is_right = column.justify == "right"
        blanks = [" " * (width - cell_len(text)) for text in texts]
        columns.append(
            [
                f"{blank}{text}" if is_right else f"{text}{blank}"
                for text, blank in zip(texts, blanks, strict=True)
            ]
        )
    if any(column.header for column in table.columns):
        first = int(table.show_header)
        _repeat_names(columns, range(first + 1, first + table.row_count))
    title = [plain(str(table.title))] if table.title else []
    return [*title, *("  ".join(row).rstrip() for row in zip(*columns, strict=True))]


def _repeat_names(columns: list[list[str]], rows: range) -> None:
    """Fill in the cells at the beginning of a row that are empty since they are those of the row above."""
    for row in rows:
        for column in columns:
            if column[row].strip():
                break
            column[row] = column[row - 1]


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
