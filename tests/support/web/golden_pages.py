"""The golden pages as files: `python -m tests.support.web.golden_pages` writes them anew."""

import dataclasses
import importlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from equipoise.core.decision import Record
from equipoise.dashboard.page import Page, overview
from tests.fixtures.kept import BALANCERS, kept

GOLDEN = Path(__file__).parents[2] / "web" / "pages" / "golden"
ROW = re.compile(r"\[[^\[\]{}]*\]")
PAGES = ("overview", *BALANCERS)


def maker(name: str) -> Callable[[Sequence[Record]], Page]:
    """Give the function that makes a page."""
    if name == "overview":
        return overview
    made: Callable[[Sequence[Record]], Page] = importlib.import_module(
        f"equipoise.dashboard.pages.{name}"
    ).page
    return made


def records_of(name: str) -> list[Record]:
    """Give the kept records that a page shows, the newest first."""
    names = BALANCERS if name == "overview" else (name,)
    found = [record for balancer in names for record in kept(balancer)]
    return sorted(found, key=lambda record: -record.at)


def document(page: Page) -> str:
    """Write a page as JSON, one value a line but for rows of plain ones."""
    written = json.dumps(dataclasses.asdict(page), indent=1, ensure_ascii=False, allow_nan=False)
    return ROW.sub(lambda row: " ".join(row[0].split()), written) + "\n"


if __name__ == "__main__":
    for each in PAGES:
        (GOLDEN / f"{each}.json").write_text(document(maker(each)(records_of(each))))
