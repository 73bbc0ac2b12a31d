"""Takes pictures of the dashboard: `.venv/bin/python docs/images/dashboard.py JOURNAL [FOLDER]`.

Each page once, in one theme or the other, and two in a narrow window; the browser is the testbed's.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image  # comes with matplotlib

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.testbed.browser import chromium, open_window  # noqa: E402 - from the checkout, wherever it is

WIDE, NARROW = (1280, 860), (400, 860)
SHOTS = {
    "overview-light": ("/", "light", WIDE),
    "rotation-dark": ("/rotation", "dark", WIDE),
    "recommendation-light": ("/recommendation", "light", WIDE),
    "proportional-dark": ("/proportional", "dark", WIDE),
    "qos-light": ("/qos", "light", WIDE),
    "pools-dark": ("/pools", "dark", WIDE),
    "journal-dark": ("/journal", "dark", WIDE),
    "rotation-narrow": ("/rotation", "light", NARROW),
}
DRAWN_SECONDS = 30.0


def main(journal: str, folder: Path) -> None:
    """Show a journal, and photograph every page."""
    with (
        tempfile.TemporaryDirectory() as work,
        _dashboard(journal) as url,
        chromium(Path(work)) as browser,
    ):
        for name, (path, scheme, (width, height)) in SHOTS.items():
            context, window = open_window(
                browser, color_scheme=scheme, viewport={"width": width, "height": height}
            )
            with context:
                page = window.page
                page.goto(url + path)
                page.locator(".section, .record").first.wait_for()
                if path == "/journal":
                    page.locator("details.record summary").first.click()
                for place in range(page.locator("figure.chart").count()):
                    page.locator("figure.chart").nth(place).locator("svg path").first.wait_for(
                        state="attached"
                    )
                page.screenshot(path=folder / f"dashboard-{name}.png")
                _shrink(folder / f"dashboard-{name}.png")
                assert window.complaints == [], window.complaints


def _shrink(file: Path) -> None:
    """Keep as many colours as the eye needs."""
    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(256, kmeans=2, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


@contextmanager
def _dashboard(journal: str) -> Iterator[str]:
    program = Path(sys.executable).with_name("equipoise")
    process = subprocess.Popen(
        [program, "dashboard", "--journal", journal, "--port", "0", "--no-open"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = re.match(r"dashboard (\S+)/", process.stdout.readline())
        assert said is not None
        yield said.group(1)
    finally:
        process.terminate()
        process.wait(DRAWN_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent)  # noqa: PLR2004
