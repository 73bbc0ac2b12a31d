"""Errors that nobody foresaw, about one workload only: for tests of what they cost the others."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from equipoise.core.cluster import Selector

ERRORS = (KeyError("odd"), ZeroDivisionError(), RecursionError("deep"), AssertionError("\ud800" * 1000))


class Unforeseen(Selector, frozen=True):
    """A selector that fails on every set of labels."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        raise RecursionError(f"{len(labels)} labels")


class Around:
    """Anything, but for some of its functions."""

    def __init__(self, inner: Any, **functions: Callable[..., Any]) -> None:
        self._inner = inner
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def failing(
    function: Callable[..., Any], is_about: Callable[..., bool], error: Exception, *, is_done: bool = False
) -> Callable[..., Any]:
    """Return the function, which fails where it is about somebody; with `is_done` only after its work."""

    def wrapped(*args: Any, **options: Any) -> Any:
        if not is_about(*args, **options):
            return function(*args, **options)
        if is_done:
            function(*args, **options)
        raise error

    return wrapped


def in_module(place: Any, name: str, is_about: Callable[..., bool]) -> Callable[..., None]:
    """Return what lets a function of a module or a class fail where it is about somebody."""

    def inject(world: Any, error: Exception, patch: pytest.MonkeyPatch) -> None:
        del world
        patch.setattr(place, name, failing(getattr(place, name), is_about, error))

    return inject


def in_port(part: str, name: str, is_about: Callable[..., bool], **how: Any) -> Callable[..., None]:
    """Return what lets a function of a port fail where it is about somebody; `how` may name the error."""

    def inject(world: Any, error: Exception, patch: pytest.MonkeyPatch) -> None:
        del patch
        world.break_part(part, name, is_about, **({"error": error} | how))

    return inject
