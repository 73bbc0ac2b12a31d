"""What the API server would refuse or call NonStructuralSchema in a definition, found without a server.

It also asks for bounds on every list, map and text, without which the cost of a CEL rule has no bound.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from equipoise.crd.definition import Schema
from equipoise.crd.manifest import Problem, refusals

FORBIDDEN = frozenset(
    {
        *("$ref", "$defs", "definitions", "dependencies", "deprecated", "discriminator", "id", "readOnly"),
        *("patternProperties", "propertyNames", "writeOnly", "xml", "const", "prefixItems", "examples"),
    }
)
JUNCTORS = ("allOf", "anyOf", "oneOf", "not")
TYPES = ("object", "array", "string", "boolean", "integer", "number")
COLUMN_TYPES = frozenset({"string", "integer", "number", "boolean", "date"})
FORMATS_BOUNDED = frozenset({"date-time", "date", "uuid", "ipv4", "ipv6"})


def violations(definition: Mapping[str, Any]) -> list[Problem]:
    """Say everything that is wrong with a CustomResourceDefinition."""
    found: list[Problem] = []
    spec = definition["spec"]
    name = f"{spec['names']['plural']}.{spec['group']}"
    if definition["metadata"]["name"] != name:
        found.append(Problem("metadata.name", f"expected {name}"))
    for version in spec["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        if schema.get("type") != "object":
            found.append(Problem(version["name"], "expected the whole to be an object"))
        found += _node(schema, version["name"], is_root=True)
        found += _columns(version)
    return found


def _columns(version: Mapping[str, Any]) -> Iterator[Problem]:
    for column in version.get("additionalPrinterColumns", ()):
        path = f"{version['name']}.columns.{column['name']}"
        if not column["jsonPath"].startswith("."):
            yield Problem(path, "expected a path that begins with a dot")
        if column["type"] not in COLUMN_TYPES:
            yield Problem(path, f"expected a type of {', '.join(sorted(COLUMN_TYPES))}")


def _node(node: Schema, path: str, *, is_root: bool = False) -> Iterator[Problem]:
    for keyword in sorted(FORBIDDEN & set(node)):
        yield Problem(path, f"{keyword} is forbidden")
    if node.get("uniqueItems"):
        yield Problem(path, "uniqueItems is forbidden")
    wrong = list(_type(node, path))
    yield from wrong
    yield from _junctors(node, path)
    yield from _bounds(node, path, is_root=is_root)
    yield from _list_map(node, path)
    if "default" in node and not wrong:
        yield from (
            Problem(path, f"the default is refused: {problem.path} {problem.message}")
            for problem in refusals(node, node["default"], path)
        )
    for name, part in node.get("properties", {}).items():
        yield from _node(part, f"{path}.{name}", is_root=is_root and name == "metadata")
    for keyword in ("items", "additionalProperties"):
        if isinstance(node.get(keyword), dict):
            yield from _node(node[keyword], f"{path}[]")


def _type(node: Schema, path: str) -> Iterator[Problem]:
    is_either = node.get("x-kubernetes-int-or-string", False)
    is_open = node.get("x-kubernetes-preserve-unknown-fields", False)
    if is_either and "type" in node:
        yield Problem(path, "int-or-string has no type beside it")
    if not is_either and not is_open and node.get("type") not in TYPES:
        yield Problem(path, f"expected one type, got {node.get('type')!r}")
    if "properties" in node and "additionalProperties" in node:
        yield Problem(path, "properties and additionalProperties exclude each other")
    if node.get("additionalProperties") is False:
        yield Problem(path, "additionalProperties: false is forbidden")
    if node.get("type") == "array" and "items" not in node:
        yield Problem(path, "a list needs items")


def _junctors(node: Schema, path: str) -> Iterator[Problem]:
    """Inside a choice only values may be judged; shapes are said outside of it."""
    for keyword in JUNCTORS:
        branches = node.get(keyword, ())
        for branch in [branches] if isinstance(branches, dict) else branches:
            for inner in ("type", "default", "description", "nullable", "additionalProperties"):
                if inner in branch:
                    yield Problem(path, f"{inner} is forbidden inside {keyword}")
            for name in branch.get("properties", {}):
                if name not in node.get("properties", {}):
                    yield Problem(path, f"{name} is said inside {keyword} only")


def _bounds(node: Schema, path: str, *, is_root: bool) -> Iterator[Problem]:
    if node.get("type") == "array" and "maxItems" not in node:
        yield Problem(path, "a list needs maxItems")
    is_map = "additionalProperties" in node or node.get("x-kubernetes-preserve-unknown-fields")
    if is_map and "maxProperties" not in node:
        yield Problem(path, "a map needs maxProperties")
    is_text = node.get("type") == "string" or node.get("x-kubernetes-int-or-string")
    is_bounded = "maxLength" in node or "enum" in node or node.get("format") in FORMATS_BOUNDED
    # The server checks apiVersion, kind and metadata itself.
    is_given = path.count(".") == 1 and path.rpartition(".")[2] in {"apiVersion", "kind"}
    if is_text and not is_bounded and not is_root and not is_given:
        yield Problem(path, "a text needs maxLength")


def _list_map(node: Schema, path: str) -> Iterator[Problem]:
    keys = node.get("x-kubernetes-list-map-keys", ())
    if (node.get("x-kubernetes-list-type") == "map") != bool(keys):
        yield Problem(path, "list-type map and list-map-keys need each other")
    items = node.get("items", {})
    for key in keys:
        part = items.get("properties", {}).get(key)
        if part is None or (key not in items.get("required", ()) and "default" not in part):
            yield Problem(path, f"the key {key} must be a required property of the items")
