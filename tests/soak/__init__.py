"""Long runs against the real neighbours: `make soak`. Their figures go to docs/soak.md."""

from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "soak.md"


def figures(part: str) -> str:
    """Return what docs/soak.md has between the markers of a part."""
    return _parts(part)[1].strip()


def write_figures(part: str, entry: str) -> None:
    """Put the figures of a part between its markers."""
    before, _, after = _parts(part)
    DOCUMENT.write_text(f"{before}\n\n{entry.strip()}\n\n{after}", encoding="utf-8")
    print(f"Written to {DOCUMENT.name}.")


def _parts(part: str) -> tuple[str, str, str]:
    """Return the document up to the first marker, between the two, and from the second one on."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    text = DOCUMENT.read_text(encoding="utf-8")
    start, stop = text.index(begin) + len(begin), text.index(end)
    return text[:start], text[start:stop], text[stop:]
