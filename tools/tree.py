"""The modules of a checkout as syntax trees: what imports what, which classes and functions there are."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = "equipoise"
BALANCERS = ("rotation", "proportional", "qos", "pools", "recommendation")


class Tree:
    """The modules below `src` of one checkout, by their dotted names."""

    def __init__(self, root: Path) -> None:
        paths = sorted((root / "src" / PACKAGE).rglob("*.py"))
        self.paths = {module_name(path, root / "src"): path for path in paths}
        self.texts = {name: path.read_text() for name, path in self.paths.items()}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}
        self.packages = {name for name, path in self.paths.items() if path.name == "__init__.py"}
        self.modules = sorted(set(self.texts) - self.packages)
        self.imports = {name: set(imported(tree, self.texts)) - {name} for name, tree in self.trees.items()}

    def lines(self, name: str) -> int:
        """Return how many lines a module has."""
        return len(self.texts[name].splitlines())

    def importers(self) -> Mapping[str, set[str]]:
        """Return which modules import each module; a package's own file counts as one."""
        found: dict[str, set[str]] = defaultdict(set)
        for name, targets in self.imports.items():
            for target in targets:
                found[target].add(name)
        return found

    def functions(self) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        """Yield every function and method with its module."""
        for name, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield name, node

    def classes(self) -> Counter[str]:
        """Return how often each class name is defined, private ones included."""
        return Counter(
            node.name
            for tree in self.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        )

    def of(self, balancer: str) -> list[str]:
        """Return the names of a balancer's modules, without its package."""
        begin = f"{PACKAGE}.{balancer}."
        return [name.removeprefix(begin) for name in self.modules if name.startswith(begin)]


def module_name(path: Path, root: Path) -> str:
    """Return the dotted name of a file below a folder of packages."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, known: Mapping[str, object]) -> Iterator[str]:
    """Yield the known modules that a file imports, at its top or within functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known or node.module in known:
                    yield full if full in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
