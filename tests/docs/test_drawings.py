"""What documents show of the code is what the code says."""

import re

from tools.coverage_map import PAGE as MAP
from tools.drawings import PAGE, ROOT, page
from tools.tree import PACKAGE, Tree


def test_the_architecture_page_is_drawn_from_the_code() -> None:
    """Layers from the import contract, states from their table; `python -m tools.drawings` draws it."""
    assert page() == PAGE.read_text()


def test_the_map_of_tests_has_every_module_and_files_that_are_there() -> None:
    """`python -m tools.coverage_map` makes it anew, after modules or files of tests were renamed."""
    rows = re.findall(r"^\| `([\w.]+)` \| \d+% \| (.*) \|$", MAP.read_text(), re.MULTILINE)
    modules = {name.removeprefix(f"{PACKAGE}.") for name in Tree(ROOT).modules}
    assert modules - {name for name, _ in rows} == set()
    assert {name for name, _ in rows} - modules == set()
    files = {file for _, files in rows for file in re.findall(r"`([\w/]+\.py)`", files)}
    assert [file for file in sorted(files) if not (ROOT / "tests" / file).exists()] == []
