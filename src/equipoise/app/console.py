"""The terminal that tables are printed to: what others named can't steer it, and is no markup."""

from collections.abc import Iterator
from typing import Any

from rich import console as rich_console
from rich.segment import Segment

from equipoise.app.output import plain


class Console(rich_console.Console):
    """Prints text as it is, but for control characters: `[red]` and `:x:` in a name or a message stay.

    Styles of our own are given as such (`Text`, `style=`), never inside a text.
    """

    def __init__(self, **options: Any) -> None:
        """Take what rich takes, but for what would interpret text."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self,
        renderable: rich_console.RenderableType,
        options: rich_console.ConsoleOptions | None = None,
    ) -> Iterator[Segment]:
        """Lay out, and clean what is text."""
        for segment in super().render(renderable, options):
            if segment.control is not None or segment.text.isprintable():
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)
