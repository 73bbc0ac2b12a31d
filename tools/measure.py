"""Count what a reader of `src` has to find their way through: `python -m tools.measure [FOLDER ...]`.

One row is one number, one column is one checkout (by default this one), so two stand side by side.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SMALL_LINES = 60
BALANCERS = ("rotation", "proportional", "qos", "pools", "recommendation")
PRIVATE_WORDS = re.compile(r"(Give|Say|Tell)\b")


class Tree:
    """The modules of one checkout."""

    def __init__(self, root: Path) -> None:
        paths = sorted((root / "src" / "equipoise").rglob("*.py"))
        self.texts = {_name(path, root / "src"): path.read_text() for path in paths}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}
        self.packages = {_name(path, root / "src") for path in paths if path.name == "__init__.py"}
        self.modules = sorted(set(self.texts) - self.packages)

    def lines(self, name: str) -> int:
        """Return how many lines a module has."""
        return len(self.texts[name].splitlines())

    def importers(self) -> Counter[str]:
        """Return how many modules import each module."""
        found: Counter[str] = Counter()
        for name, tree in self.trees.items():
            found.update(set(self._imported(tree)) - {name})
        return found

    def _imported(self, tree: ast.Module) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    yield full if full in self.texts else node.module

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Yield every function and method."""
        for tree in self.trees.values():
            yield from (
                node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            )

    def figures(self) -> dict[str, str]:
        """Return every number by its name."""
        importers = self.importers()
        single = sum(importers[name] == 1 for name in self.modules)
        classes = Counter(
            node.name
            for tree in self.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        )
        docs = [ast.get_docstring(function) or "" for function in self.functions()]
        text = "\n".join(self.texts.values())
        lengths = [(each.end_lineno or each.lineno) - each.lineno + 1 for each in self.functions()]
        return {
            "modules without packages": str(len(self.modules)),
            "lines": str(sum(self.lines(name) for name in self.texts)),
            "modules of each balancer": " ".join(
                str(sum(name.startswith(f"equipoise.{balancer}.") for name in self.modules))
                for balancer in BALANCERS
            ),
            f"modules under {SMALL_LINES} lines": str(
                sum(self.lines(name) < SMALL_LINES for name in self.modules)
            ),
            "modules with one importer": f"{single} ({100 * single / len(self.modules):.0f} %)",
            "class names defined twice": str(sum(count > 1 for count in classes.values())),
            "functions over 60 lines": str(sum(length > 60 for length in lengths)),
            "assertions": str(
                sum(isinstance(node, ast.Assert) for tree in self.trees.values() for node in ast.walk(tree))
            ),
            "docstrings that begin with Give, Say or Tell": str(
                sum(bool(PRIVATE_WORDS.match(doc)) for doc in docs)
            ),
            "reads of numbers by key": str(len(re.findall(r"\bnumbers(?:\[|\.get\()", text))),
            "adapters' imports of a balancer": str(
                len(re.findall(rf"from equipoise\.({'|'.join(BALANCERS)})\b", self._adapters()))
            ),
        }

    def _adapters(self) -> str:
        return "\n".join(text for name, text in self.texts.items() if name.startswith("equipoise.adapters"))


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main(folders: list[str]) -> None:
    """Print the table."""
    columns = [Tree(Path(folder)).figures() for folder in folders or ["."]]
    print("| |", " | ".join(folders or ["."]), "|")
    print("|---" * (len(columns) + 1) + "|")
    for name in columns[0]:
        print(f"| {name} |", " | ".join(column[name] for column in columns), "|")


if __name__ == "__main__":
    main(sys.argv[1:])
