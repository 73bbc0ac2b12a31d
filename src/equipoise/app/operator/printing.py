"""`equipoise config`: the settings that hold, as a file that can be used again, and where each came from."""

import sys
from collections.abc import Iterator
from typing import Any

from equipoise.app.operator.layers import Effective, Path, leaf_paths
from equipoise.app.output import Format, print_document

COMMENT_COLUMN = 44


def print_settings(found: Effective, form: Format) -> None:
    """Print on standard output; secrets are hidden in every form."""
    if form is Format.JSON:
        sources = {".".join(path): found.source(path) for path in leaf_paths()}
        print_document({"settings": found.settings.document(), "sources": sources}, form)
    elif form is Format.YAML:
        sys.stdout.writelines(f"{line}\n" for line in yaml_lines(found))
    else:
        _print_table(found)


def yaml_lines(found: Effective) -> Iterator[str]:
    """Give YAML with the origin of each value in a comment."""
    yield from _lines(found, found.settings.document(), ())


def _lines(found: Effective, document: dict[str, Any], above: Path) -> Iterator[str]:
    leaves = set(leaf_paths())
    indent = "  " * len(above)
    for key, value in document.items():
        path = (*above, key)
        if path in leaves:
            text = f"{indent}{key}: {_flow(value)}"
            yield f"{text.ljust(COMMENT_COLUMN)} # from {found.source(path)}"
        else:
            yield f"{indent}{key}:"
            yield from _lines(found, value, path)


def _flow(value: Any) -> str:
    from equipoise.model.documents import dump

    text = dump(value, is_flow=True, sort_keys=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _print_table(found: Effective) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from equipoise.app.console import Console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("SETTING", "VALUE", "FROM"):
        table.add_column(name, overflow="fold")
    for path in leaf_paths():
        value: Any = found.settings.document()
        for part in path:
            value = value[part]
        table.add_row(*map(Text, (".".join(path), _flow(value), found.source(path))))
    Console().print(table)
