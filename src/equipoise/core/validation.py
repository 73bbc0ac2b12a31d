"""One clear message for input that does not fit: the path of the field and what was expected."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from equipoise.core.errors import DECODE_ERRORS, BadInput

Model = TypeVar("Model", bound=BaseModel)

_SENTENCES = {
    "extra_forbidden": "unknown key",
    "missing": "missing",
    "model_type": "expected a mapping",
    "dict_type": "expected a mapping",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
}
_SHOWN_MAX = 60


def validated(model: type[Model], document: object, source: str) -> Model:
    """Read a document into a model, or refuse it naming the source and the first bad field."""
    try:
        return model.model_validate(document)
    except DECODE_ERRORS as error:
        raise BadInput(f"{source}: {explain(error)}") from error


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Lay settings over each other; a later layer wins, key by key, also inside mappings."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            if isinstance(below, Mapping) and isinstance(value, Mapping):
                result[key] = merged(below, value)
            else:
                result[key] = value
    return result


def explain(error: Exception) -> str:
    """Return what is wrong with the first bad field, and how many more there are."""
    if not isinstance(error, ValidationError):
        return f"document: {str(error) or type(error).__name__}"
    first, *others = error.errors(include_url=False)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    message = _SENTENCES.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    message = message.replace("Input should be", "expected").replace("Input should have", "expected")
    if first["type"] not in {"missing", "extra_forbidden"} and "got" not in message:
        message += f", got {_shown(first['input'])}"
    more = f" (and {len(others)} more)" if others else ""
    return f"{path.removeprefix('.') or 'document'}: {message}{more}"


def _shown(value: object) -> str:
    if isinstance(value, Mapping | list):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"
