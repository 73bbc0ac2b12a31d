"""Pages of Markdown, as far as a test needs to understand them."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
_FENCE = re.compile(r"^( *)(```+|~~~+)(\w*)[^\n]*\n(.*?)^ *\2[ \t]*$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^(?: {4}|\t)[^\n]*(?:\n|\Z)|^[ \t]*\n)+", re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.MULTILINE)
_ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "2>"}
_PATTERN = re.compile(r"[|\[…]|\.\.\.|COMMAND")
_PROMPT = re.compile(r"^(?:\$ +)?(?:\S*/)?(?=equipoise |equipoise$|kubectl equipoise )")


class Block(NamedTuple):
    """What a page shows as it stands: code."""

    language: str
    text: str


class Shown(NamedTuple):
    """A command line, as words after the program's name."""

    page: str
    line: str
    words: tuple[str, ...]


@cache
def pages() -> tuple[Path, ...]:
    """Give every page of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    found = [ROOT / name for name in listed] or [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return tuple(path for path in found if path.exists())


def name_of(page: Path) -> str:
    """Say which page, for people."""
    return str(page.relative_to(ROOT))


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """Give fenced and indented blocks; a continued paragraph of a list is not distinguished from one."""
    text = page.read_text()
    fenced = [Block(found[3], found[4]) for found in _FENCE.finditer(text)]
    indented = [Block("", found[0]) for found in _INDENTED.finditer(_FENCE.sub("", text)) if found[0].strip()]
    return (*fenced, *indented)


@cache
def prose(page: Path) -> str:
    """Give the page without fenced blocks."""
    return _FENCE.sub("", page.read_text())


def inline(page: Path) -> list[str]:
    """Give what stands between single backticks."""
    return _INLINE.findall(prose(page))


def links(page: Path) -> list[str]:
    """Give where links and pictures point; what is shown as code is none."""
    without = _INLINE.sub(lambda found: found[1].replace("[", "").replace("]", ""), prose(page))
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", without)
    return [*_LINK.findall(without), *pictures]


@cache
def anchors(page: Path) -> frozenset[str]:
    """Give the names of the headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for heading in _HEADING.findall(prose(page)):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
        if found[name]:
            found[f"{name}-{found[name]}"] = 0
    return frozenset(found)


def commands(page: Path) -> Iterator[Shown]:
    """Give every command line of ours that a block shows, or a sentence where it is not a pattern of many."""
    for line in inline(page):
        if _PROMPT.match(line) and not _PATTERN.search(line):
            yield Shown(name_of(page), line, _words(line))
    for block in blocks(page):
        for line in block.text.replace("\\\n", " ").splitlines():
            bare = line.strip()
            start = _PROMPT.match(bare)
            if start:
                yield Shown(name_of(page), bare, _words(bare[start.end() :]))


def _words(line: str) -> tuple[str, ...]:
    words = shlex.split(line, comments=True)
    if words[0] == "kubectl":
        words = words[1:]
    end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
    return tuple(word for word in words[1:end] if word not in {"…", "..."})


def tables(page: Path, header: str) -> Iterator[list[str]]:
    """Give the rows, as cells, of every table whose first column has this header."""
    rows: list[str] = []
    for line in [*prose(page).splitlines(), ""]:
        if line.lstrip().startswith("|"):
            rows.append(line)
            continue
        cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))] for row in rows]
        if len(cells) > 1 and cells[0][0] == header:
            yield from cells[2:]
        rows = []
