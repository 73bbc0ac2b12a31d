"""Amounts that people write as a number or as a Kubernetes quantity: `20`, `250m`, `1Gi`. Exact."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from equipoise.model.quantity import NANO, Quantity

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
        """Read any notation; write a quantity."""
        return core_schema.with_info_plain_validator_function(
            self._read,
            serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="json"),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Say it as the API server can: a whole number, or text."""
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
