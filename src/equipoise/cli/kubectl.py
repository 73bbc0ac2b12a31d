"""`kubectl equipoise …`: the same command line, as a plugin of kubectl, with its completion."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

CALLED = "kubectl equipoise"
NO_FILES, FILES = 4, 0
"""The completion directives of kubectl: whether file names may follow."""


def main() -> None:
    """Run the command line under the name by which kubectl calls it."""
    from equipoise.cli.main import main as run

    run(CALLED)


def complete() -> None:
    """Print the completions for kubectl: one candidate per line, then the directive."""
    *before, begun = sys.argv[1:] or [""]
    from typer.main import get_command

    from equipoise.cli.commands import app

    command = _reached(get_command(app), before)
    is_group = bool(getattr(command, "commands", None))
    for name, what in _candidates(command, begun):
        print(f"{name}\t{what}" if what else name)
    print(f":{NO_FILES if is_group or begun.startswith('-') else FILES}")


def _reached(command: Any, words: Sequence[str]) -> Any:
    """Return the innermost command that the words name."""
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return command


def _candidates(command: Any, begun: str) -> Iterator[tuple[str, str]]:
    if begun.startswith("-"):
        for option in command.params:
            for name in getattr(option, "opts", ()):
                if name.startswith("--") and name.startswith(begun):
                    yield name, getattr(option, "help", "") or ""
        return
    for name, inner in getattr(command, "commands", {}).items():
        if name.startswith(begun) and not inner.hidden:
            yield name, inner.get_short_help_str(60)
