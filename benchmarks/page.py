"""docs/benchmarks.md: a page for people, whose figures are rewritten between markers."""

from __future__ import annotations

import re

from benchmarks.measuring import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"


def write(sections: dict[str, str]) -> None:
    """Put each text between the markers of its name; the prose around them stays."""
    page = PAGE.read_text(encoding="utf-8")
    for name, text in sections.items():
        page = replaced(page, name, text)
    PAGE.write_text(page, encoding="utf-8")


def replaced(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name}: measured -->", f"<!-- {name}: end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    found, count = pattern.subn(lambda _: f"{begin}\n{text}\n{end}", page)
    if count != 1:
        raise LookupError(
            f"{PAGE.name}: expected the markers {begin} and {end} once, found them {count} times"
        )
    return found
