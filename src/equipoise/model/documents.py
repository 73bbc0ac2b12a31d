"""YAML and JSON that somebody else wrote: no key twice, and not deeper than any honest document."""

import json
from typing import Any

import yaml

DEPTH_MAX = 100
"""A reader that goes down one call per level would end the process far below 100,000."""

VALUES_MAX = 2_000_000
"""How much one document may hold once its anchors are written out: a few lines can stand for billions."""

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


class TooMuch(ValueError):  # noqa: N818 - reads as a fact
    """A document too deep or too large to be read; `document` is its number in the file."""

    def __init__(self, message: str, event: Any, document: int) -> None:
        where = f" in line {event.start_mark.line + 1}" if event.start_mark else ""
        super().__init__(f"{message}{where}")
        self.document = document


class _Open:
    """A collection that has not ended: what it holds so far with its anchors written out, and how deep."""

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.values = 1
        self.levels = 1

    def take(self, values: int, levels: int) -> None:
        self.values += values
        self.levels = max(self.levels, levels + 1)


def check_bounds(text: str | bytes) -> None:
    """Refuse what is too deep, too large or holds itself; TooMuch says where. Events come one by one."""
    document = 0
    above: list[_Open] = []
    anchored: dict[str, _Open] = {}
    for event in yaml.parse(text, Loader=CSafeLoader):
        match event:
            case yaml.DocumentStartEvent():
                document += 1
                above, anchored = [_Open(None)], {}
            case yaml.ScalarEvent():
                above[-1].values += 1
                if event.anchor:
                    anchored.pop(event.anchor, None)  # a name given twice means the last
            case yaml.CollectionStartEvent():
                if len(above) > DEPTH_MAX:
                    raise TooMuch(f"expected at most {DEPTH_MAX} levels, got more", event, document)
                above.append(_Open(event.anchor))
            case yaml.CollectionEndEvent():
                ended = above.pop()
                above[-1].take(ended.values, ended.levels)
                if ended.anchor:
                    anchored[ended.anchor] = ended
            case yaml.AliasEvent():
                _take_alias(event, document, above, anchored)


def _take_alias(event: Any, document: int, above: list[_Open], anchored: dict[str, _Open]) -> None:
    """Count what an alias stands for; one of a scalar, or of nothing, is one value."""
    if any(part.anchor == event.anchor for part in above):
        raise TooMuch(f"the alias *{event.anchor} holds itself", event, document)
    meant = anchored.get(event.anchor)
    above[-1].take(meant.values if meant else 1, meant.levels if meant else 0)
    if len(above) - 1 + (meant.levels if meant else 0) > DEPTH_MAX:
        raise TooMuch(f"expected at most {DEPTH_MAX} levels, got more", event, document)
    if sum(part.values for part in above) > VALUES_MAX:
        raise TooMuch(
            f"expected at most {VALUES_MAX} values once anchors are written out, got more", event, document
        )


def read_document(text: str) -> Any:
    """Read one document. JSON is read as JSON, which is quicker and knows all of its escapes."""
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return read_json(text)
        except json.JSONDecodeError:
            pass
    check_bounds(text)
    return yaml.load(text, Loader=StrictLoader)  # noqa: S506 - a safe one


def read_json(text: str) -> Any:
    """Read one JSON document and nothing else; a ValueError says what is wrong."""
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise ValueError(f"expected at most {DEPTH_MAX} levels, got more") from error
    refuse_deep(document)
    return document


def refuse_deep(value: object) -> None:
    """Raise ValueError where mappings and lists are nested deeper than `DEPTH_MAX`, without recursion.

    What passes can be encoded, copied and compared, which takes a part of the stack for each level.
    """
    layer = [value]
    for _ in range(DEPTH_MAX + 1):
        layer = [
            part
            for each in layer
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
        ]
        if not layer:
            return
    raise ValueError(f"expected at most {DEPTH_MAX} levels, got more")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} comes twice")
    return found
