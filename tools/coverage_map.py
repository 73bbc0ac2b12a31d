"""Finds out which tests run which module: `python -m tools.coverage_map` writes the table in tests/README.md.

The fast tests run once under coverage, the processes that they start included; that takes some ten minutes.
For each module the table names the files of tests that run most of its lines. A test that fails under
coverage, since it measures time or modules, is of no matter here. This module is pytest's plugin as well: it
tells coverage which file of tests is running.
"""

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import coverage
import pytest

from tools.drawings import place
from tools.tree import PACKAGE, Tree

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "tests" / "README.md"
FILES_MAX = 3
CONFIG = """[run]
source = {root}/src
data_file = {folder}/data
parallel = true
context = ${{PYTEST_CURRENT_TEST-}}
patch = subprocess
"""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let coverage attribute what runs from here on to this file of tests."""
    switch_context(item.nodeid)


def switch_context(test: str) -> None:
    """Attribute what this process runs from here on to a test, where it runs under coverage."""
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.switch_context(test.partition("::")[0])


def main(arguments: list[str]) -> None:
    """Run the tests, and write the table."""
    with tempfile.TemporaryDirectory(prefix="coverage-") as folder:
        config = Path(folder) / "config"
        config.write_text(CONFIG.format(root=ROOT, folder=folder))
        tests = arguments or ["tests", "--ignore=tests/e2e", "--ignore=tests/compat", "-n2"]
        run = [
            sys.executable,
            "-m",
            "coverage",
            "run",
            f"--rcfile={config}",
            "-m",
            "pytest",
            "-q",
            "-p",
            "tools.coverage_map",
        ]
        subprocess.run([*run, *tests], cwd=ROOT, check=False)
        subprocess.run(
            [sys.executable, "-m", "coverage", "combine", "-q", f"--rcfile={config}"], cwd=ROOT, check=True
        )
        table = _table(config)
    PAGE.write_text(place(PAGE.read_text(), {"test-map": table}))


def _table(config: Path) -> str:
    measured = coverage.Coverage(config_file=str(config))
    measured.load()
    data, tree = measured.get_data(), Tree(ROOT)
    lines = ["| module | lines run | tests that run most of them |", "|---|---|---|"]
    for name in tree.modules:
        path = str(tree.paths[name])
        statements, missing = (set(each) for each in measured.analysis2(path)[1:4:2])
        share = 1 - len(missing) / max(1, len(statements))
        counts = Counter(
            file
            for contexts in data.contexts_by_lineno(path).values()
            for file in {_file(context) for context in contexts if context}
        )
        best = sorted(counts, key=lambda file: (-counts[file], file))[:FILES_MAX]
        said = ", ".join(f"`{file}`" for file in best) or "by processes that the tests start, and `e2e/`"
        lines.append(f"| `{name.removeprefix(PACKAGE + '.')}` | {share:.0%} | {said} |")
    return "\n".join([*lines, ""])


def _file(context: str) -> str:
    """Return the file of tests of a context; what a process is told when it begins comes first in it."""
    return context.rpartition("|")[2].partition("::")[0].removeprefix("tests/")


if __name__ == "__main__":
    main(sys.argv[1:])
