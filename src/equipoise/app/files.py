"""Files that users give us."""

import sys
from pathlib import Path
from typing import Any

from equipoise.model.errors import DECODE_ERRORS, BadInput

SIZE_MAX_BYTES = 64 * 1024 * 1024


def read_yaml(path: str) -> Any:
    """Read one YAML (or JSON) document; `-` is standard input."""
    import yaml

    from equipoise.model.documents import read_document

    text = read_text(path)
    try:
        return read_document(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise BadInput(f"{path}: expected one YAML document, but{where}: {problem}") from error
    except DECODE_ERRORS as error:
        raise BadInput(f"{path}: expected one YAML document: {error}") from error


def read_text(path: str) -> str:
    """Read a file of UTF-8 text; `-` is standard input."""
    if not path:
        raise BadInput("expected the name of a file, got an empty one")
    try:
        if path == "-":
            if sys.stdin is None:
                raise BadInput("-: standard input is closed")
            content = sys.stdin.buffer.read(SIZE_MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(SIZE_MAX_BYTES + 1)
        if len(content) > SIZE_MAX_BYTES:
            raise BadInput(f"{path}: expected at most {SIZE_MAX_BYTES >> 20} MiB")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: expected UTF-8 text, got other bytes at position {error.start}") from error
