"""Fields of a scaling policy that several of its parts share."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from equipoise.model.crd.amounts import Amount
from equipoise.model.crd.fields import Text

INPUTS = ("cores", "memory", "nodes", "pods")
SECONDS_MAX = 7 * 86400


def _input(value: str) -> str:
    if value.lower() not in INPUTS:
        raise ValueError(f"expected one of {', '.join(INPUTS)}, got {value!r}")
    return value.lower()


def _once(value: object) -> object:
    """Refuse an input that is named twice in two spellings: one would silently win."""
    if isinstance(value, dict):
        names = [key.lower() for key in value if isinstance(key, str)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"expected each input once, got {twice} twice")
    return value


def _number(value: object) -> object:
    """Refuse what a lax reader would take for a number."""
    if isinstance(value, bool | str):
        raise ValueError(f"expected a number, got {value!r}")
    return value


_ANY_CASE = "|".join("".join(f"[{letter.upper()}{letter}]" for letter in name) for name in INPUTS)
InputName = Annotated[str, Text(f"^({_ANY_CASE})$", f"one of {', '.join(INPUTS)}", 6), AfterValidator(_input)]
Shift = Annotated[
    dict[Annotated[str, AfterValidator(_input)], Amount],
    Field(max_length=len(INPUTS)),
    BeforeValidator(_once),
]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_number)]
StepRatio = Annotated[float, Field(ge=1, le=1000), BeforeValidator(_number)]
Seconds = Annotated[float, Field(gt=0, le=SECONDS_MAX), BeforeValidator(_number)]
