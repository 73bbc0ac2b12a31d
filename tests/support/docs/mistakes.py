"""What the command line would not understand of a line in a page or an example."""

import re
from enum import Enum
from functools import cache
from typing import Any, get_args

import typer

from equipoise.cli.commands import app

PLACEHOLDER = re.compile(r"^[A-Z][A-Z0-9_.:/=-]*$")


@cache
def _root() -> Any:
    return typer.main.get_command(app)


def _choices(option: Any) -> list[str]:
    annotation = option.type_descriptor.annotation
    kinds = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type)]
    return [str(choice.value) for kind in kinds if issubclass(kind, Enum) for choice in kind]


def mistake(words: tuple[str, ...]) -> str:
    """Say what the command line would not understand, without running it."""
    command, rest = _root(), list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return f"no command {rest[0]!r}"
        command = command.commands[rest.pop(0)]
    options = {
        name: one for one in command.params for name in (*one.opts, *one.secondary_opts) if name[0] == "-"
    }
    places, given = [one for one in command.params if one.param_type_name == "argument"], 0
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            given += 1
            continue
        name, has_value, value = word.partition("=")
        if name in {"-h", "--help", "--debug"}:
            continue
        if name not in options:
            return f"no option {name}"
        if not options[name].is_flag and not has_value:
            if not rest:
                return f"{name} without a value"
            value = rest.pop(0)
        allowed = _choices(options[name])
        if allowed and value and not PLACEHOLDER.match(value) and value not in allowed:
            return f"{name} {value}: expected one of {allowed}"
    if given > len(places) and all(one.nargs != -1 for one in places):
        return f"{given} words, and {len(places)} are expected"
    return ""
