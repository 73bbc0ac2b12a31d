"""What an object that cannot be decoded still tells: its name, its version, and where it ends.

A decoder recurses, also where it only skips a field or looks for the end of a value. So an object that is
nested deeper than Python's stack allows ends the decoding of the whole page that it is in. Here JSON is cut
at its brackets, commas and quotes, without recursion and in time proportional to its length; the parts are
then decoded one by one. What is cut is not checked: whoever decodes a part does that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, get_type_hints

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.kubernetes.kubefile import in_plain_words
from equipoise.adapters.kubernetes.structs import Meta
from equipoise.core.documents import DEPTH_MAX, refuse_deep
from equipoise.core.errors import DECODE_ERRORS

PLACE_LENGTH_MAX = 300
WHY_LENGTH_MAX = 200
# A string that is never closed is one token up to the end: to look for its end again from each quote within
# it would take time in proportion to the square of its length.
_STRING = r'"(?:[^"\\]++|\\.)*+(?:"|\Z)'
_FLAT = rf"[{{\[](?:[^{{}}\[\]\"]++|{_STRING})*+[}}\]]"
_OUTER = re.compile(rf"(?:[^{{}}\[\]\",]++|{_STRING})*+([{{}}\[\],]|\Z)".encode(), re.DOTALL)
"""Up to the next bracket or comma."""
_INNER = re.compile(rf"(?:[^{{}}\[\]\"]++|{_STRING}|{_FLAT})*+([{{}}\[\]]|\Z)".encode(), re.DOTALL)
"""Up to the next bracket, and over pairs of brackets that hold none: commas within are no matter of ours."""
_MEMBER = re.compile(rb'\s*+("(?:[^"\\]++|\\.)*+")\s*+:', re.DOTALL)


class Outline(NamedTuple):
    """What is known of an object that cannot be read."""

    meta: Meta
    """Its name, and whatever else of its metadata can be read."""
    status: dict[str, Any]
    """Its status, empty where that cannot be read either."""
    why: str

    @property
    def place(self) -> str:
        """Its namespace and name, as messages have them."""
        return f"{self.meta.namespace}/{self.meta.name}".strip("/")[:PLACE_LENGTH_MAX] or "unnamed"


def members(data: bytes) -> dict[str, bytes]:
    """Return the values of a JSON object by their keys, undecoded; raise ValueError where it is none."""
    found: dict[str, bytes] = {}
    for part in _parts(data, b"{"):
        match = _MEMBER.match(part)
        if match is None:
            raise ValueError("expected a key and a value")
        found[msgspec.json.decode(match[1], type=str)] = part[match.end() :].strip()
    return found


def elements(data: bytes) -> list[bytes]:
    """Return the elements of a JSON array, undecoded; raise ValueError where it is none."""
    return list(_parts(data, b"["))


def outline_of(data: bytes, error: Exception | None = None) -> Outline:
    """Return what an object tells although it was not decoded; raise ValueError where it is no object."""
    parts = members(data)
    of_meta = members(parts.get("metadata", b"{}"))
    known = {
        field: value
        for field, kind in get_type_hints(Meta).items()
        if (value := _decoded(of_meta.get(field), kind)) is not None
    }
    status = _decoded(parts.get("status"), dict[str, Any]) or {}
    return Outline(Meta(**{"name": ""} | known), status, why_unreadable(error) if error else "")


def why_unreadable(error: Exception) -> str:
    """Return in a few words why something could not be decoded."""
    if isinstance(error, RecursionError):
        return f"expected at most {DEPTH_MAX} levels, got more"
    return one_line(in_plain_words(str(error)), WHY_LENGTH_MAX) or type(error).__name__


def _parts(data: bytes, opening: bytes) -> Iterator[bytes]:
    """Yield what is between the commas of the outermost brackets."""
    stripped = data.strip()
    end, start, depth = (1, 1, 1) if stripped[:1] == opening else (0, 0, 0)
    while depth and (token := (_OUTER if depth == 1 else _INNER).match(stripped, end)) and token[1]:
        end = token.end()
        if token[1] == b",":
            yield stripped[start : end - 1]
            start = end
        elif token[1] in b"{[":
            depth += 1
        else:
            depth -= 1
    if depth or not end or end < len(stripped):
        raise ValueError(f"expected JSON between {opening.decode()} and its closing bracket")
    if stripped[start : end - 1].strip():
        yield stripped[start : end - 1]


def _decoded(data: bytes | None, kind: Any) -> Any:
    """Return a part of an object, or None where it cannot be read."""
    try:
        value = None if data is None else msgspec.json.decode(data, type=kind)
        refuse_deep(value)
    except DECODE_ERRORS:
        return None
    return value
