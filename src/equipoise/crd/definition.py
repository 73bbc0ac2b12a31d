"""Generates CustomResourceDefinitions from the declaration of a kind and the pydantic models of its parts.

The API server requires structural schemas: no references, and one type for each node. They are derived from
pydantic's JSON Schema, so that bounds, patterns and defaults are defined once. A keyword without a structural
form is an error here, and not at the installation.

The JSON Schemas of documents that we write are made here, too, from their structs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec
from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; a priority above 0 is shown by `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class DefinedKind:
    """One kind of custom resource; `body` gives the models of its parts, such as `spec`."""

    group: str
    version: str
    name: str
    plural: str
    description: str
    body: Mapping[str, type[BaseModel]]
    required: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    is_namespaced: bool = True
    columns: tuple[Column, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def definition_name(self) -> str:
        """The name of the definition, which is fixed by its plural and its group."""
        return f"{self.plural}.{self.group}"

    def is_called(self, word: str) -> bool:
        """Whether a person may mean this kind by this word."""
        names = {self.name, self.plural, self.name.lower(), self.definition_name, *self.short_names}
        return word in names or word.lower() in names


Schema = dict[str, Any]

EMPTY: tuple[object, ...] = (None, "", [], {})
_ORDER = (
    *("description", "type", "format", "default", "enum", "pattern", "minLength", "maxLength"),
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minItems", "maxItems", "maxProperties"),
    *("x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
    *("required", "properties", "additionalProperties", "items"),
)


def structural(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a model: a tree of the caller's own, in which nothing is shared."""
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
    _translate(node, path)
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


def _translate(node: Schema, path: str) -> None:
    """Replace what JSON Schema says by what OpenAPI 3.0 says, as far as there is a structural form."""
    for keyword in ("title", "$defs", "propertyNames"):
        node.pop(keyword, None)
    # What is empty is the same as absent, and need not be stored in every object.
    if (default := _tidy(node.pop("default", None))) not in EMPTY:
        node["default"] = default
    if "const" in node:
        node["enum"] = [node.pop("const")]
    for keyword, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if keyword in node:  # OpenAPI 3.0 says it with a flag beside the bound
            node[bound], node[keyword] = node[keyword], True
    if "patternProperties" in node:
        # No structural form says what keys look like: that check stays with us.
        (node["additionalProperties"],) = node.pop("patternProperties").values()
    is_open = isinstance(node.get("additionalProperties"), bool) and node.pop("additionalProperties")
    if is_open and not node.get("x-kubernetes-preserve-unknown-fields"):
        # Unknown keys are refused by default here; a mapping that takes any must say so.
        raise TypeError(f"{path}: a mapping of anything needs x-kubernetes-preserve-unknown-fields")


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


def _tidy(value: Any) -> Any:
    """Leave out what is empty, and write whole numbers as such."""
    if isinstance(value, dict):
        parts = {key: _tidy(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in EMPTY}
    return int(value) if isinstance(value, float) and value.is_integer() else value


OWNER_LABEL = "app.kubernetes.io/managed-by"
OWNER = "equipoise"
"""Marks the definitions that are ours: only those are ever changed."""


class Standing(StrEnum):
    """Whose the definition of a kind is."""

    ABSENT = "Absent"
    """Nobody has installed it."""
    OURS = "Ours"
    FOREIGN = "Foreign"
    """Somebody else's, who may have a controller for it; or nobody may tell us whose."""


def definition(kind: DefinedKind) -> dict[str, Any]:
    """Return the whole object, ready to apply."""
    names = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
        "shortNames": list(kind.short_names),
        "categories": [OWNER],
    }
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
        "subresources": {"status": {}} if "status" in kind.body else {},
        "schema": {"openAPIV3Schema": schema_of(kind)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": kind.definition_name,
            "labels": {"app.kubernetes.io/part-of": OWNER, OWNER_LABEL: OWNER},
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.is_namespaced else "Cluster",
            "names": _filled(names),
            "versions": [_filled(version)],
        },
    }


def _column(column: Column) -> Schema:
    shown = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return _filled({**shown, "description": column.description, "priority": column.priority})


def _filled(fields: Schema) -> Schema:
    return {name: value for name, value in fields.items() if value}


def schema_of(kind: DefinedKind) -> Schema:
    """Return the structural schema of a whole object of this kind."""
    whole = {
        "description": kind.description,
        "type": "object",
        "required": list(kind.required),
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **{part: structural(model) for part, model in kind.body.items()},
        },
    }
    return _filled(whole)


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a struct as it is written: a field is required unless it may be `UNSET`."""
    (root,), parts = msgspec.json.schema_components((kind,), ref_template="{name}")
    schema: dict[str, Any] = _written_out(root, parts)
    return schema


def _written_out(node: Any, parts: Mapping[str, Any]) -> Any:
    """Put each part where it is referred to; none of our documents holds itself."""
    if isinstance(node, list):
        return [_written_out(part, parts) for part in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _written_out(parts[node["$ref"]], parts)
    made = {
        key: _written_out(part, parts) for key, part in node.items() if key not in {"title", "properties"}
    }
    if "properties" in node:
        made["properties"] = {name: _written_out(part, parts) for name, part in node["properties"].items()}
        always = {name for name, part in made["properties"].items() if part.pop("default", None) is not None}
        made["required"] = [name for name in made["properties"] if name in {*node["required"], *always}]
        if not made["required"]:
            del made["required"]
    return made
