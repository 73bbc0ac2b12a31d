"""Files that users give us."""

import sys
from pathlib import Path
from typing import Any

from equipoise.model.errors import BadInput

SIZE_MAX_BYTES = 64 * 1024 * 1024


def read_yaml(path: str) -> Any:
    """Read one YAML (or JSON) document; `-` is standard input."""
    import yaml

    text = read_text(path)
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - it is the safe one
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise BadInput(f"{path}: expected one YAML document, but{where}: {problem}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: expected one YAML document: {error}") from error


def read_text(path: str) -> str:
    """Read a file of UTF-8 text; `-` is standard input."""
    try:
        if path == "-":
            return sys.stdin.read(SIZE_MAX_BYTES)
        if Path(path).stat().st_size > SIZE_MAX_BYTES:
            raise BadInput(f"{path}: expected at most {SIZE_MAX_BYTES >> 20} MiB")
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: expected UTF-8 text, got other bytes at position {error.start}") from error
