"""Validates a manifest without a server and returns all problems, each with its path.

First the structural schema is applied as the API server applies it, then our own models. CEL rules are not
evaluated; the models state them in Python.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails

from equipoise.core.documents import explain
from equipoise.core.errors import DECODE_ERRORS
from equipoise.crd.definition import DefinedKind, Schema, structural
from equipoise.crd.fields import Name, Text
from equipoise.crd.targets import LabelKey, LabelValue


class Problem(NamedTuple):
    """One problem and its path."""

    path: str
    message: str


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and float(value).is_integer(),
    "number": _is_number,
}


def refusals(schema: Schema, value: Any, path: str = "") -> Iterator[Problem]:
    """Yield everything that the schema refuses in a value; unknown keys are refused, as strict servers do."""
    if not _is_of_type(schema, value):
        yield Problem(path, f"expected {schema.get('type', 'integer or string')}")
        return
    if "enum" in schema and value not in schema["enum"]:
        yield Problem(path, f"expected one of {', '.join(map(str, schema['enum']))}")
    match value:
        case dict():
            yield from _mapping(schema, value, path)
        case list():
            yield from _list(schema, value, path)
        case str():
            yield from _text(schema, value, path)
        case bool():
            pass
        case int() | float():
            yield from _number(schema, value, path)


def _is_of_type(schema: Schema, value: object) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return _TYPES["integer"](value) or _TYPES["string"](value)
    return "type" not in schema or _TYPES[schema["type"]](value)


def _mapping(schema: Schema, value: dict[str, Any], path: str) -> Iterator[Problem]:
    if len(value) > schema.get("maxProperties", math.inf):
        yield Problem(path, f"expected at most {schema['maxProperties']} keys")
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem(f"{path}.{name}", "missing")
    for name, part in value.items():
        inner = properties.get(name, schema.get("additionalProperties"))
        if inner is not None:
            yield from refusals(inner, part, f"{path}.{name}")
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and (properties or path):
            yield Problem(f"{path}.{name}", "unknown key")


def _list(schema: Schema, value: list[Any], path: str) -> Iterator[Problem]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
        yield Problem(path, f"expected at most {schema.get('maxItems')} items")
    keys = schema.get("x-kubernetes-list-map-keys", ())
    seen = [tuple(item.get(key) for key in keys) for item in value if keys and isinstance(item, dict)]
    if len(set(seen)) < len(seen):
        yield Problem(path, f"expected a different {', '.join(keys)} in each item")
    # Whatever is inside of an open node is as open, unless it is described.
    open_ = {key: schema[key] for key in ("x-kubernetes-preserve-unknown-fields",) if key in schema}
    for number, item in enumerate(value):
        yield from refusals(schema.get("items", open_), item, f"{path}[{number}]")


def _text(schema: Schema, value: str, path: str) -> Iterator[Problem]:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf):
        yield Problem(path, f"expected at most {schema.get('maxLength')} characters")
    # `$` is the very end on the server; in Python it would let a newline follow.
    if "pattern" in schema and not re.search(re.sub(r"\$$", r"\\Z", schema["pattern"]), value):
        yield Problem(path, f"expected text like {schema['pattern']}")


def _number(schema: Schema, value: float, path: str) -> Iterator[Problem]:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if value < low or (value == low and schema.get("exclusiveMinimum")):
        yield Problem(path, f"expected at least {low}")
    if value > high or (value == high and schema.get("exclusiveMaximum")):
        yield Problem(path, f"expected at most {high}")


def without_nulls(schema: Schema, value: Any) -> Any:
    """Leave out known keys whose value is null, as the API server does before it fills in the defaults."""
    if isinstance(value, list):
        return [without_nulls(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    return {
        key: without_nulls(properties.get(key, {}), part)
        for key, part in value.items()
        if part is not None or key not in properties
    }


NAMESPACE = Text(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a name of small letters, digits and -", 63)


class Metadata(BaseModel):
    """What everybody may write under `metadata`; what the server writes there passes unread."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name | None = None
    generateName: str | None = Field(None, max_length=253)  # noqa: N815 - the API's spelling
    namespace: Annotated[str, NAMESPACE] | None = None
    labels: dict[LabelKey, LabelValue] | None = None
    annotations: dict[LabelKey, str] | None = None


WRITTEN_BY_SERVER = frozenset(
    {
        *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields"),
        *("deletionGracePeriodSeconds", "finalizers", "ownerReferences", "selfLink"),
    }
)


def problems(kind: DefinedKind, document: Mapping[str, Any]) -> list[Problem]:
    """Return everything that is wrong with a manifest of this kind; the document holds what JSON can hold."""
    found = list(_names(document))
    for key, part in document.items():
        if key in kind.body:
            found += _judged(kind.body[key], without_nulls(structural(kind.body[key]), part), key)
        elif key not in {"apiVersion", "kind", "metadata"}:
            found.append(Problem(key, "unknown key"))
    found += [Problem(key, "missing") for key in kind.required if document.get(key) is None]
    return found


def _names(document: Mapping[str, Any]) -> Iterator[Problem]:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        yield Problem("metadata", "expected a mapping with a name")
        return
    if not metadata.get("name") and not metadata.get("generateName"):
        yield Problem("metadata.name", "missing")
    ours = {key: value for key, value in metadata.items() if key not in WRITTEN_BY_SERVER}
    yield from _judged(Metadata, ours, "metadata")


def _judged(model: type[BaseModel], part: Any, at: str) -> Iterator[Problem]:
    try:
        model.model_validate_json(json.dumps(part), strict=True, by_alias=True, by_name=False)
    except DECODE_ERRORS as error:
        yield from _explained(error, at)


def _explained(error: Exception, at: str) -> Iterator[Problem]:
    """Explain every bad field, not only the first."""
    if not isinstance(error, ValidationError):
        yield Problem(at, str(error))
        return
    for detail in error.errors(include_url=False):
        context = detail.get("ctx", {})
        one = InitErrorDetails(type=detail["type"], loc=detail["loc"], input=detail["input"], ctx=context)
        alone = ValidationError.from_exception_data(error.title, [one])
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
        message = explain(alone).removeprefix(f"{path.removeprefix('.') or 'document'}: ")
        message = re.sub(r"^\w+ should have ", "expected ", message).replace(" after validation", "")
        if detail["type"] in {"value_error", "too_long"}:
            message = re.sub(r", got a (mapping|list)$", "", message)  # it says itself what is wrong
        yield Problem(at + path.removesuffix(".[key]"), message)
