"""What the API server is told about shorthand: it takes it as it stands, and we judge it.

A list of one may be written as its only item, so such a node has no type; its items are still described.
A key that only the shorthand has is open altogether.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

KEYS_MAX = 64
OPEN = {"x-kubernetes-preserve-unknown-fields": True, "maxProperties": KEYS_MAX}


@dataclass(frozen=True, slots=True)
class OneOrMany:
    """Marks a list that may also be written as its only item."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Judge the list; the shorthand has become one before."""
        return handler(source)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Leave out what holds for lists only."""
        lists_only = ("type", "minItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
        written = {key: part for key, part in handler(schema).items() if key not in lists_only}
        return written | OPEN


def also_written(*replaced: str, **keys: str) -> Callable[[dict[str, Any]], None]:
    """Give what a model's `json_schema_extra` needs for keys of the shorthand, and what they stand in for."""

    def extend(schema: dict[str, Any]) -> None:
        for key, description in keys.items():
            schema["properties"][key] = {"description": description, **OPEN}
        if "required" in schema:
            schema["required"] = [name for name in schema["required"] if name not in replaced]
            if not schema["required"]:
                del schema["required"]

    return extend
