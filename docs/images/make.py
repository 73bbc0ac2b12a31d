"""Draws demo.svg from what the demo prints: `.venv/bin/python docs/images/make.py`."""

import re
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.terminal_theme import TerminalTheme

from equipoise.demo.context import show, summary
from equipoise.demo.run import opened
from equipoise.runtime.console import Console

THEME = TerminalTheme(
    (22, 27, 34),
    (201, 209, 217),
    [
        (22, 27, 34),
        (255, 123, 114),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (201, 209, 217),
    ],
    [
        (110, 118, 129),
        (255, 161, 152),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (240, 246, 252),
    ],
)


SEED = 7
STARTED_AT = 1_800_000_000.0
SHOWN = ("rotation", "qos")
"""A picture of all five would be too long to look at; the table at its end has them all."""


def main() -> None:
    """Record a day of the demo at 100 columns, and leave out the web font that rich would link to."""
    console = Console(
        record=True,
        width=100,
        file=StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    with TemporaryDirectory() as folder:
        place = Path(folder)
        with opened(SEED, STARTED_AT, place / "journal.db", place / "redis") as opened_demo:
            opened_demo.play()
            for scene in opened_demo.scenes:
                if scene.name in SHOWN:
                    show(console, scene, opened_demo.stage)
            console.print()
            console.print(summary(opened_demo.stage, opened_demo.scenes))
    svg = console.export_svg(title="equipoise demo --once", theme=THEME)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "monospace")
    Path(__file__).with_name("demo.svg").write_text(svg)


if __name__ == "__main__":
    main()
