"""A contract: facts about one port that hold in every world that stands behind it."""

from collections.abc import Callable
from typing import Generic, TypeVar

W = TypeVar("W")
Fact = Callable[[W], None]


class Contract(Generic[W]):
    """The facts of one port. A fact is a function of a world, which it may use up."""

    def __init__(self, port: str) -> None:
        self.port = port
        self.facts: list[Fact[W]] = []

    def fact(self, function: Fact[W]) -> Fact[W]:
        """Add a fact; its docstring says what it is good for."""
        assert function.__doc__, function.__name__
        self.facts.append(function)
        return function

    def __len__(self) -> int:
        return len(self.facts)


def name_of(fact: Fact[W]) -> str:
    """Name a fact in a test's id."""
    return fact.__name__
