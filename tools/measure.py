"""Count what a reader of `src` has to find their way through: `python -m tools.measure [FOLDER ...]`.

One row is one number, one column is one checkout (by default this one), so that two can be compared.
`tests/test_tidy.py` holds the bounds.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.tree import BALANCERS, Tree

SMALL_LINES = 60
LONG_LINES = 60
UNPLAIN = re.compile(r"(Give|Say|Tell)s?\b")
PRESENTING = re.compile(
    r"equipoise\.(cli|dashboard|demo|adapters\.journal|runtime\.console)\b|"
    r".*\.(balancer|metrics|record|recording|explain)$"
)
"""Modules that show a decision, count it or read it from a record: they may read its numbers by key."""
NO_OPS = {"str", "range", "bool"}


def figures(tree: Tree) -> dict[str, str]:
    """Return every number by its name."""
    single = single_importers(tree)
    return {
        "modules without packages": str(len(tree.modules)),
        "lines": str(sum(map(tree.lines, tree.texts))),
        f"modules of {', '.join(BALANCERS)}": " ".join(str(len(tree.of(each))) for each in BALANCERS),
        "module names in every balancer, of all": "{} of {}".format(*common_names(tree)),
        f"modules under {SMALL_LINES} lines": str(len(small(tree))),
        "modules with one importer": f"{len(single)} ({100 * len(single) / len(tree.modules):.0f} %)",
        "class names defined twice": str(sum(count > 1 for count in tree.classes().values())),
        f"functions over {LONG_LINES} lines": str(len(long_functions(tree))),
        "assertions": str(assertions(tree)),
        "docstrings that begin with Give, Say or Tell": str(len(unplain_docstrings(tree))),
        "reads of numbers that steer": str(len(steering_reads(tree))),
        "callables that do nothing by accident": str(len(no_op_defaults(tree))),
        "literal tuples splatted into calls": str(len(splatted_tuples(tree))),
        "adapters' imports of a balancer": str(len(adapters_of_balancers(tree))),
        "declarations of command-line options": str(option_declarations(tree)),
    }


def single_importers(tree: Tree) -> list[str]:
    """Return the modules that exactly one other module imports."""
    importers = tree.importers()
    return [name for name in tree.modules if len(importers.get(name, ())) == 1]


def small(tree: Tree) -> list[str]:
    """Return the modules under 60 lines."""
    return [name for name in tree.modules if tree.lines(name) < SMALL_LINES]


def common_names(tree: Tree) -> tuple[int, int]:
    """Return how many module names all balancers have, and how many names there are."""
    named = [set(tree.of(balancer)) for balancer in BALANCERS]
    return len(set.intersection(*named)), len(set.union(*named))


def long_functions(tree: Tree) -> list[str]:
    """Return the functions that are too long to be read at once."""
    return [
        f"{name}:{node.name}"
        for name, node in tree.functions()
        if (node.end_lineno or node.lineno) - node.lineno + 1 > LONG_LINES
    ]


def assertions(tree: Tree) -> int:
    """Return how many invariants are stated."""
    return sum(isinstance(node, ast.Assert) for each in tree.trees.values() for node in ast.walk(each))


def unplain_docstrings(tree: Tree) -> list[str]:
    """Return the functions whose docstring begins with a word that does not say what is returned.

    The docstring of a command is its help, which is for users.
    """
    return [
        f"{name}:{node.name}"
        for name, node in tree.functions()
        if UNPLAIN.match(ast.get_docstring(node) or "")
        and not any(".command(" in ast.unparse(decorator) for decorator in node.decorator_list)
        and f".command()({node.name})" not in tree.texts[name]
    ]


def steering_reads(tree: Tree) -> list[str]:
    """Return where a number of an explanation is read by key outside of what presents it."""
    return [
        f"{name}:{node.lineno}"
        for name, each in tree.trees.items()
        if not PRESENTING.match(name)
        for node in ast.walk(each)
        if isinstance(node, ast.expr) and _reads_numbers(node)
    ]


def _reads_numbers(node: ast.expr) -> bool:
    """Tell `numbers["x"]`, `numbers.get("x")` and `"x" in numbers` from other expressions."""
    match node:
        case ast.Subscript(value=owner, ctx=ast.Load()):
            return _is_numbers(owner)
        case ast.Call(func=ast.Attribute(value=owner, attr="get")):
            return _is_numbers(owner)
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[owner]):
            return _is_numbers(owner)
    return False


def _is_numbers(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=owner), attr="numbers"):
            return owner != "self"
        case ast.Attribute(attr="numbers"):
            return True
    return False


def no_op_defaults(tree: Tree) -> list[str]:
    """Return the callables whose default is a type that happens to accept the call."""
    return [
        f"{name}:{node.lineno}"
        for name, each in tree.trees.items()
        for node in ast.walk(each)
        if (
            isinstance(node, ast.AnnAssign)
            and "Callable" in ast.unparse(node.annotation)
            and _is_no_op(node.value)
        )
    ]


def _is_no_op(node: ast.expr | None) -> bool:
    match node:
        case ast.Name(id=name):
            return name in NO_OPS
        case ast.Call(func=ast.Name(id="field"), keywords=words):
            return any(word.arg == "default" and _is_no_op(word.value) for word in words)
    return False


def splatted_tuples(tree: Tree) -> list[str]:
    """Return the calls that hide the names of their arguments in a literal tuple."""
    return [
        f"{name}:{argument.lineno}"
        for name, each in tree.trees.items()
        for node in ast.walk(each)
        if isinstance(node, ast.Call)
        for argument in node.args
        if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple)
    ]


def adapters_of_balancers(tree: Tree) -> list[str]:
    """Return the adapters that import a balancer."""
    begins = tuple(f"equipoise.{balancer}" for balancer in BALANCERS)
    return [
        f"{name} -> {target}"
        for name, targets in tree.imports.items()
        if name.startswith("equipoise.adapters")
        for target in targets
        if target.startswith(begins)
    ]


def option_declarations(tree: Tree) -> int:
    """Return how many parameters and fields of `cli` declare an option of typer's."""
    return sum(1 for _ in _options(tree))


def _options(tree: Tree) -> Iterator[ast.Call]:
    for name, each in tree.trees.items():
        if name.startswith(("equipoise.cli", "equipoise.app")):
            for node in ast.walk(each):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Option":
                    yield node


def main(folders: list[str]) -> None:
    """Print the table."""
    columns = [figures(Tree(Path(folder))) for folder in folders or ["."]]
    print("| |", " | ".join(folders or ["."]), "|")
    print("|---" * (len(columns) + 1) + "|")
    for name in columns[0]:
        print(f"| {name} |", " | ".join(column[name] for column in columns), "|")


if __name__ == "__main__":
    main(sys.argv[1:])
