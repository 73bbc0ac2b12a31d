"""Fields that several custom resources share. Each says the same to pydantic and to the API server.

A constraint that both can check stands in the type: bounds, patterns, lengths. What only one of them can
check (a cron expression, a time zone) is refused by us alone, in `equipoise validate` and in the operator.

Amounts that people write as a number or as a Kubernetes quantity: `20`, `250m`, `1Gi`. Exact.
"""

import math
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Annotated, Any

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic.json_schema import JsonSchemaValue, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import NANO, Quantity, check_moment, parse_seconds, print_seconds

INTEGER_MAX = 2**31 - 1
COUNT_MAX = 2**53
"""The largest whole number that no JSON reader rounds."""
SPAN_SECONDS_MAX = 366 * 86400.0
SPAN_PATTERN = r"^(([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w))+|[0-9]+(\.[0-9]+)?)$"
SPAN_LENGTH_MAX = 40
MEMORY_KEYS_MAX = 256
TIME_PATTERN = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})"
)


class SchemaPart(BaseModel):
    """One mapping of a custom resource: frozen, and closed to keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True)


def rule(expression: str, message: str, *, path: str = "") -> dict[str, str]:
    """Return a rule across fields in CEL, for the API server; the model states the same in Python."""
    return {"rule": expression, "message": message} | ({"fieldPath": path} if path else {})


def rules(*all_: dict[str, str]) -> dict[str, Any]:
    """Return what a model's `json_schema_extra` needs to carry these rules."""
    return {"x-kubernetes-validations": list(all_)}


def _not_a_claim(value: object) -> object:
    """Refuse a boolean where a number belongs; a lax reader would take `true` for 1."""
    if isinstance(value, bool):
        raise ValueError(f"expected a number, got {str(value).lower()}")
    return value


Whole = Annotated[int, Field(le=INTEGER_MAX), BeforeValidator(_not_a_claim)]
Number = Annotated[float, BeforeValidator(_not_a_claim)]
Count = Annotated[int, Field(ge=0, le=COUNT_MAX), BeforeValidator(_not_a_claim)]


@dataclass(frozen=True, slots=True)
class Text:
    """Marks a text with a form, and says in words what is expected; a person reads no pattern."""

    pattern: str
    expected: str
    length_max: int

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"pattern": self.pattern, "maxLength": self.length_max}

    def _check(self, value: str) -> str:
        if len(value) > self.length_max:
            raise ValueError(f"expected at most {self.length_max} characters, got {len(value)}")
        if not re.fullmatch(self.pattern, value):
            raise ValueError(f"expected {self.expected}, got {value!r}")
        return value


NAME = Text(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "a name of small letters, digits, - and .", 253)
Name = Annotated[str, NAME]


@dataclass(frozen=True, slots=True)
class Span:
    """Marks a float of seconds that people write as `90`, `90s` or `1h30m`."""

    seconds_min: float = 0.0
    seconds_max: float = SPAN_SECONDS_MAX

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_before_validator_function(
            self._read,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(print_seconds, when_used="json"),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "x-kubernetes-int-or-string": True,
            "pattern": SPAN_PATTERN,
            "maxLength": SPAN_LENGTH_MAX,
            "minimum": math.ceil(self.seconds_min),
            "maximum": math.floor(self.seconds_max),
        }

    def _read(self, value: Any, info: core_schema.ValidationInfo) -> float:
        # The API server has whole numbers or text here, and a manifest is read as JSON, as it reads it.
        is_fraction = isinstance(value, float) and info.mode == "json" and not value.is_integer()
        is_odd = isinstance(value, str) and (
            len(value) > SPAN_LENGTH_MAX or not re.fullmatch(SPAN_PATTERN, value)
        )
        if is_fraction or is_odd:
            raise ValueError(f"expected whole seconds or a span such as 90s, 5m or 1h30m, got {value!r}")
        is_large = isinstance(value, int) and value > self.seconds_max
        seconds = math.inf if is_large else round(parse_seconds(value), 3)
        if not self.seconds_min <= seconds <= self.seconds_max:
            bounds = f"between {print_seconds(self.seconds_min)} and {print_seconds(self.seconds_max)}"
            raise ValueError(f"expected a span {bounds}, got {str(value)[:SPAN_LENGTH_MAX]}")
        return seconds


@dataclass(frozen=True, slots=True)
class UniqueBy:
    """Marks a list whose items differ in one field, which the API server merges by."""

    field: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.field]}

    def _check(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[Hashable] = set()
        for item in items:
            key = getattr(item, self.field)
            if key in seen:
                raise ValueError(f"expected a different {self.field} in each item, got {key!r} twice")
            seen.add(key)
        return items


KEYS_MAX = 64
OPEN = {"x-kubernetes-preserve-unknown-fields": True, "maxProperties": KEYS_MAX}


@dataclass(frozen=True, slots=True)
class OneOrMany:
    """Marks a list that may also be written as its only item.

    The API server takes the shorthand as it stands, and we judge it: such a node has no type there, but its
    items are still described. A key that only the shorthand has is open altogether.
    """

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        lists_only = ("type", "minItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
        written = {key: part for key, part in handler(schema).items() if key not in lists_only}
        return written | OPEN


def also_written(*replaced: str, **keys: str) -> Callable[[dict[str, Any]], None]:
    """Return the `json_schema_extra` of a model that has shorthand keys, and the fields that they replace."""

    def extend(schema: dict[str, Any]) -> None:
        for key, description in keys.items():
            schema["properties"][key] = {"description": description, **OPEN}
        if "required" in schema:
            schema["required"] = [name for name in schema["required"] if name not in replaced]
            if not schema["required"]:
                del schema["required"]

    return extend


def _moment(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str) and re.fullmatch(TIME_PATTERN, value):
            found = datetime.fromisoformat(value)
            check_moment(found.timestamp())
            return found
    except DECODE_ERRORS:
        pass
    raise ValueError(f"expected a time such as 2026-01-31T08:00:00Z, got {value!r}")


Moment = Annotated[
    AwareDatetime, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})
]
"""A moment with its zone, as RFC 3339 writes it."""


Memory = Annotated[
    dict[str, Any],
    Field(max_length=MEMORY_KEYS_MAX, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
]
"""What one cycle leaves for the next; only its writer reads it."""


AMOUNT_PATTERN = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"
AMOUNT_LENGTH_MAX = 64
AMOUNT_MAX = 10**18
"""One exa of anything: more is a mistake."""
EXPECTED = "a number or a quantity such as 250m, 1.5 or 1Gi"


def read_amount(value: object, *, is_manifest: bool = False) -> Quantity:
    """Read an amount exactly; the API server has whole numbers or text in a manifest, and so have we."""
    match value:
        case Quantity():
            found = value
        case bool():
            raise ValueError(f"expected {EXPECTED}, got {str(value).lower()}")
        case int():
            found = Quantity(value * NANO if abs(value) <= AMOUNT_MAX else (AMOUNT_MAX + 1) * NANO)
        case float() if math.isfinite(value):
            if is_manifest and not value.is_integer():
                raise ValueError(f"expected a whole number, or text such as 250m or '1.5', got {value!r}")
            found = Quantity(math.ceil(Fraction(repr(value)) * NANO))
        case str() if len(value) <= AMOUNT_LENGTH_MAX and re.fullmatch(AMOUNT_PATTERN, value):
            found = Quantity.parse(value)
        case _:
            raise ValueError(f"expected {EXPECTED}, got {_shown(value)}")
    if abs(found.nanos) > AMOUNT_MAX * NANO:
        raise ValueError(f"expected at most 1E, got {_shown(value)}")
    return found


def _shown(value: object) -> str:
    return "a mapping or a list" if isinstance(value, dict | list) else repr(value)[:AMOUNT_LENGTH_MAX]


@dataclass(frozen=True, slots=True)
class AmountOf:
    """Marks an exact amount, and says what it may be."""

    is_signed: bool = False
    is_above_zero: bool = False

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            self._read, serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="json")
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        least = {} if self.is_signed else {"minimum": 1 if self.is_above_zero else 0}
        return {
            "x-kubernetes-int-or-string": True,
            "pattern": AMOUNT_PATTERN if self.is_signed else AMOUNT_PATTERN.replace("[+-]?", "[+]?", 1),
            "maxLength": AMOUNT_LENGTH_MAX,
            **least,
        }

    def _read(self, value: Any, info: core_schema.ValidationInfo) -> Quantity:
        amount = read_amount(value, is_manifest=info.mode == "json")
        shown = value if isinstance(value, str | int | float) else str(value)
        if self.is_above_zero and amount.nanos <= 0:
            raise ValueError(f"expected an amount above 0, got {shown!r}")
        if not self.is_signed and (amount.nanos < 0 or str(value).startswith("-")):
            raise ValueError(f"expected an amount of 0 or more, got {shown!r}")
        return amount


Amount = Annotated[Quantity, AmountOf()]
AmountAboveZero = Annotated[Quantity, AmountOf(is_above_zero=True)]
SignedAmount = Annotated[Quantity, AmountOf(is_signed=True)]
