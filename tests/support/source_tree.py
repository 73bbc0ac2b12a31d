"""The project's Python sources, parsed."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


DECODING = frozenset(
    {
        "b64decode", "convert", "decode", "decode_object", "decode_page", "from_json", "fromisoformat",
        "load", "loads", "model_validate", "model_validate_json", "parse_moment", "parse_time",
        "read_document", "read_json", "unpack",
    }
)  # fmt: skip


"""Calls that decode what somebody else wrote."""


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    found = [ROOT / name for name in listed] or sorted((ROOT / "src").rglob("*.py"))
    return [path for path in found if path.exists()]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


SOURCES = sources()


def called(node: ast.AST) -> set[str]:
    """Return the names of all calls below a node."""
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
