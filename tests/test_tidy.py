"""The house stays tidy: sizes, names, and no word that should not be there."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
LONG_FUNCTIONS: dict[str, int] = {}
"""Exceptions, with the length they may have. The list only shrinks."""
BANNED_NAMES = re.compile(r"(Manager|Handler|Helper|Utils?|Base)$")
BANNED_NAMES_KEPT = {"RequestHandler"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")


def _sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    found = [ROOT / name for name in listed] or sorted((ROOT / "src").rglob("*.py"))
    return [path for path in found if path.exists()]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


SOURCES = _sources()


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_file_is_small_and_well_named(path: Path) -> None:
    """Sizes, names and leftovers, file by file."""
    text = path.read_text()
    tree = ast.parse(text)
    assert len(text.splitlines()) <= FILE_LINES_MAX
    for function in _functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        allowed = LONG_FUNCTIONS.get(f"{_name(path)}:{function.name}", FUNCTION_LINES_MAX)
        assert length <= allowed, f"{function.name} has {length} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name not in BANNED_NAMES_KEPT:
            assert not BANNED_NAMES.search(node.name), node.name
    if path != Path(__file__):
        assert not UNFINISHED.search(text)


def test_every_test_is_a_fact_with_a_docstring() -> None:
    """A test says what it proves."""
    silent = [
        f"{_name(path)}:{function.name}"
        for path in SOURCES
        if path.name.startswith("test_")
        for function in _functions(ast.parse(path.read_text()))
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert silent == []


def test_no_exception_to_the_sizes_is_stale() -> None:
    """The list of exceptions only shrinks."""
    lengths = {
        f"{_name(path)}:{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for path in SOURCES
        for function in _functions(ast.parse(path.read_text()))
    }
    stale = [name for name, length in LONG_FUNCTIONS.items() if lengths.get(name, 0) != length]
    assert stale == []


def test_every_dependency_has_its_reason() -> None:
    """A line in the decisions for each, so that nobody wonders in ten years."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=\[;]", line)[0] for line in project["dependencies"]]
    for file in ("bootstrap.in", "dev.in", "bench.in"):
        lines = (ROOT / "requirements" / file).read_text().split()
        names += [
            re.split(r"[<>=\[;]", line)[0]
            for line in lines
            if not line.startswith("-") and line != "bootstrap.in"
        ]
    text = "\n".join(path.read_text() for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_reason_is_explained_in_the_reference() -> None:
    """A closed list, documented."""
    from equipoise.model.reason import Code

    text = (ROOT / "docs" / "reference" / "reasons.md").read_text()
    assert [code.value for code in Code if f"`{code.value}`" not in text] == []


def test_urls_are_taken_apart_in_one_place() -> None:
    """What Python says of one that is malformed quotes a part of it, and that may be a part of a password."""
    apart = re.compile(r"\b(urlsplit|urlparse|parse_url)\b")
    found = {_name(path) for path in (ROOT / "src").rglob("*.py") if apart.search(path.read_text())}
    assert found == {"src/equipoise/adapters/urls.py"}


def test_text_is_printed_in_one_way_which_knows_no_markup() -> None:
    """`[embedded]` in a message is no style; bars and tables go through the same console."""
    ways = re.compile(
        r"rich\.console import .*\bConsole\b|rich_console|from_markup|markup=True|rich\.markup"
        r"|rich import print|rich\.progress|rich\.live|rich\.pretty"
    )
    found = {_name(path) for path in (ROOT / "src").rglob("*.py") if ways.search(path.read_text())}
    assert found == {"src/equipoise/app/console.py", "src/equipoise/app/progress.py"}
    bars = (ROOT / "src/equipoise/app/progress.py").read_text()
    assert bars.count(" TextColumn(") == bars.count("markup=False") > 0
