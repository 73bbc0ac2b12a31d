"""The terminal that tables are printed to: what others named can't steer it."""

from collections.abc import Iterator

from rich import console as rich_console
from rich.segment import Segment

from equipoise.app.output import plain


class Console(rich_console.Console):
    """Prints text without its control characters; colours and cursor moves of our own stay."""

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
