"""YAML and JSON that somebody else wrote: no key twice, and not deeper than any honest document."""

import json
from typing import Any

import yaml

DEPTH_MAX = 100
"""A reader that goes down one call per level would end the process far below 100,000."""

CSafeLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class StrictLoader(CSafeLoader):  # type: ignore[misc]  # which of the two it is, the machine says
    """YAML in which a key that comes twice is an error: the last would silently win."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - yaml's own
        """Refuse the second of two equal keys."""
        seen = set()
        for key_node, _ in node.value:
            key = getattr(key_node, "value", None)
            if key_node.tag != "tag:yaml.org,2002:merge" and isinstance(key, str):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key!r} comes twice", problem_mark=key_node.start_mark
                    )
                seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def check_depth(text: str | bytes) -> None:
    """Refuse what is nested too deeply; a ValueError says where. Events come one by one."""
    depth = 0
    for event in yaml.parse(text, Loader=CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                where = f" in line {event.start_mark.line + 1}" if event.start_mark else ""
                raise ValueError(f"expected at most {DEPTH_MAX} levels, got more{where}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def read_document(text: str) -> Any:
    """Read one document. JSON is read as JSON, which is quicker and knows all of its escapes."""
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return json.loads(text, object_pairs_hook=_once)
        except json.JSONDecodeError:
            pass
        except RecursionError as error:
            raise ValueError(f"expected at most {DEPTH_MAX} levels") from error
    check_depth(text)
    return yaml.load(text, Loader=StrictLoader)  # noqa: S506 - a safe one


def read_json(text: str) -> Any:
    """Read one JSON document and nothing else; a ValueError says what is wrong."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise ValueError(f"expected at most {DEPTH_MAX} levels") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} comes twice")
    return found
