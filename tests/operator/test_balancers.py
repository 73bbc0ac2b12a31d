"""The table of balancers: one row for each, and no other list of them anywhere."""

import ast
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest

import equipoise
from equipoise.engine.balancer import BALANCERS, balancer

SOURCE = Path(equipoise.__file__).parent


@pytest.mark.parametrize("name", BALANCERS)
def test_a_descriptor_says_who_runs_it(name: str) -> None:
    """The operator has an interval and a loop for it, or the node agent runs it."""
    found = balancer(name)
    assert found.name == name
    assert (found.make_loop is None) is (BALANCERS[name].interval_seconds is None)


def test_a_balancer_that_there_is_not_has_no_descriptor() -> None:
    """Whoever asks by a name from outside asks the table first."""
    with pytest.raises(KeyError):
        balancer("rotaton")


def _lists(tree: ast.Module) -> Iterator[tuple[int, AbstractSet[object]]]:
    """Yield the balancers that each display, match or chain of comparisons names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict | ast.Subscript):
            parts = node.keys if isinstance(node, ast.Dict) else ast.iter_child_nodes(node)
            words = {part.value for part in parts if isinstance(part, ast.Constant)}
            yield node.lineno, words & BALANCERS.keys()


def test_nothing_else_lists_the_balancers() -> None:
    """A sixth one is a folder, a row of the table, and its commands."""
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path != SOURCE / "engine" / "balancer.py"
        for line, names in _lists(ast.parse(path.read_text()))
        if len(names) > 1
    ]
    assert found == []
