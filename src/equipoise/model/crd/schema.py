"""From a pydantic model to the structural schema that the API server asks for: no references, one type each.

pydantic's own JSON Schema is the start, so that bounds, patterns and defaults are said once. A keyword that
has no structural form is an error here, not a surprise on somebody's cluster.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_ORDER = (
    *("description", "type", "format", "default", "enum", "pattern", "minLength", "maxLength"),
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minItems", "maxItems", "maxProperties"),
    *("x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
    *("required", "properties", "additionalProperties", "items"),
)


def structural(model: type[BaseModel]) -> Schema:
    """Give the structural schema of a model: a tree of the caller's own, in which nothing is shared."""
    tree: Schema = json.loads(json.dumps(_structural(model)))
    return tree


@cache
def _structural(model: type[BaseModel]) -> Schema:
    # What the model writes is what defaults look like: a span with its unit, not a bare number.
    document = model.model_json_schema(by_alias=True, mode="serialization")
    return _node(document, document.get("$defs", {}), (), model.__name__)


def _node(
    raw: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...], path: str
) -> Schema:
    node, within = _inlined(raw, definitions, within, path)
    for keyword in ("title", "$defs", "propertyNames"):
        node.pop(keyword, None)
    # What is empty is the same as absent, and need not be stored in every object.
    if (default := _tidy(node.pop("default", None))) not in (None, "", [], {}):
        node["default"] = default
    if "const" in node:
        node["enum"] = [node.pop("const")]
    _exclusive(node, "exclusiveMinimum", "minimum")
    _exclusive(node, "exclusiveMaximum", "maximum")
    if "patternProperties" in node:
        # No structural form says what keys look like: that check stays with us.
        (node["additionalProperties"],) = node.pop("patternProperties").values()
    if isinstance(node.get("additionalProperties"), bool):
        _closed(node, path)
    if unknown := sorted(set(node) - set(_ORDER)):
        raise TypeError(f"{path}: {', '.join(unknown)} has no structural form")
    for keyword in ("items", "additionalProperties"):
        if keyword in node:
            node[keyword] = _node(node[keyword], definitions, within, f"{path}[]")
    if "properties" in node:
        node["properties"] = {
            name: _node(part, definitions, within, f"{path}.{name}")
            for name, part in node["properties"].items()
        }
    return {keyword: node[keyword] for keyword in _ORDER if keyword in node}


def _inlined(
    raw: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...], path: str
) -> tuple[Schema, tuple[str, ...]]:
    """Put what is referred to in its place. Optional means absent, so a branch for null is left out."""
    node = dict(raw)
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            name = node.pop("$ref").removeprefix("#/$defs/")
            if name in within:
                raise TypeError(f"{path}: {name} contains itself, which has no structural form")
            node, within = {**definitions[name], **node}, (*within, name)
        else:
            branches = [branch for branch in node.pop("anyOf") if branch != {"type": "null"}]
            if len(branches) != 1:
                raise TypeError(f"{path}: a choice of {len(branches)} types has no structural form")
            node = {**branches[0], **node}
    return node, within


def _exclusive(node: Schema, keyword: str, bound: str) -> None:
    """OpenAPI 3.0 says it with a flag beside the bound."""
    if keyword in node:
        node[bound], node[keyword] = node[keyword], True


def _closed(node: Schema, path: str) -> None:
    """Unknown keys are refused by default here; a mapping that takes any must say so."""
    is_open = node.pop("additionalProperties")
    if is_open and not node.get("x-kubernetes-preserve-unknown-fields"):
        raise TypeError(f"{path}: a mapping of anything needs x-kubernetes-preserve-unknown-fields")


def _tidy(value: Any) -> Any:
    """Leave out what is empty, and write whole numbers as such."""
    if isinstance(value, dict):
        parts = {key: _tidy(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in (None, "", [], {})}
    return int(value) if isinstance(value, float) and value.is_integer() else value
